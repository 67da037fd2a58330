"""`cardlink ...`: the verbs of `flows.commands` on a command line, without Prefect."""
