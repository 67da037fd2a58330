"""What every store shares: its errors and how passing trouble is tried again. Keep out: S3 and the directory."""
