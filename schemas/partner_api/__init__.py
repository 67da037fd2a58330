"""What the partner's service takes and returns, beyond the file: requests, records, and the table `[service]`."""
