"""The partner's service beyond the file: its requests, its records, and the table `[service]`."""
