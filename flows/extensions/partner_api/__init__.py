"""The partner's interface beyond the file.

Client, commands, single links, jobs, placements, transaction reports. Put here whatever exists only
where the issuer has a table `[service]`. Keep out the file interface: a run needs nothing of this
folder. That a card has a single link, or waits for one, is the kernel's to know
(`flows/runs/single_links.py`): such a card is sent to nobody again.
"""

COMMANDS = ("link_command", "record", "commands")
DROPPED = ("transactions",)
HOOKS = {
    "checks": "connection",
    **dict.fromkeys(("summary_facts", "across_facts"), "follow_links"),
    **dict.fromkeys(("sections", "gauges"), "words"),
    "stages": "link_stages",
    **dict.fromkeys(("places", "mentions", "erase", "before_purge"), "placements"),
}
