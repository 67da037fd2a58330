"""The partner's interface beyond the file.

Client, commands, single links, jobs, placements, transaction reports. Put here whatever exists only
where the issuer has a table `[service]`. Keep out the file interface: a run needs nothing of this
folder. That a card has a single link, or waits for one, is the kernel's to know
(`flows/runs/single_links.py`): such a card is sent to nobody again.
"""

COMMANDS = ("link_command", "record", "commands")
DROPPED = ("transactions",)
_PART = r"part-(\d{4}-)?\d{5}"  # of the ledger
RUN_OBJECTS = (
    rf"placements/{_PART}\.parquet",
    rf"placements/messages/{_PART}/\d{{9}}-\d{{8}}T\d{{12}}-[0-9a-f]{{8}}\.json",
)
HOOKS = {
    "checks": "connection",
    "summary_facts": "follow_links",
    **dict.fromkeys(("across_facts", "sections", "gauges"), "funnel_words"),
    "stages": "link_stages",
    **dict.fromkeys(("folders", "places", "mentions", "erase"), "personal_data"),
}
