"""What the partner's interface beyond the file means: requests put together, answers read; nothing is sent here."""
