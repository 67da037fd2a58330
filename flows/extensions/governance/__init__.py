"""Governance: acts that need two persons, and settings that are in force once they agreed.

Put here who may do something alone, what a second person is shown, and which settings a command may
work with. What an act does is its command's.
"""

COMMANDS = ("agree",)
HOOKS = {
    "before_act": "before_act",
    **dict.fromkeys(("govern", "checks"), "in_force"),
    **dict.fromkeys(("work_kinds", "matters", "evidence_of", "row_finding"), "requests"),
    **dict.fromkeys(("places", "mentions", "erase"), "requests"),
}
OPTIONS = {
    "approve": (
        r"[0-9a-f]{12}",
        "ID of another person's request for exactly this command, which is then carried out.",
    )
}
