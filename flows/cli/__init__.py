"""`cardlink ...`: the commands of `flows.commands` on a command line, without Prefect."""
