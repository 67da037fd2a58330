"""`cardlink ...`: the same steps without Prefect. Heavy imports stay inside the commands, so `--help` is quick."""
