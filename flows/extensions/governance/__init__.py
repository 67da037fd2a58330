"""Governance: acts that need two persons, and settings that are in force once they agreed.

Put here who may do something alone, what a second person is shown, and which settings a command may
work with. What an act does is its command's.
"""

COMMANDS = ("agree",)
OPTIONS = {
    "approve": (
        r"[0-9a-f]{12}",
        "ID of another person's request for exactly this command, which is then carried out.",
    )
}
