"""Deliveries: links to whoever sends them, and acknowledgements of extracts to the issuer.

Put here what is handed over to others as files that they confirm.
"""

COMMANDS = ("commands",)
HOOKS = {
    **dict.fromkeys(("after_commit", "after_ingest"), "commands"),
    **dict.fromkeys(("work_kinds", "matters", "news", "checks"), "matters"),
    **dict.fromkeys(("events", "scheduled"), "reaching"),
    **dict.fromkeys(("delivered_links", "history", "gauges", "names_erased"), "delivered"),
    "withdrawal_step": "delivery",
    "balance_lines": "acknowledgement",
    **dict.fromkeys(("evidence", "folders", "places", "mentions", "erase"), "personal"),
    **dict.fromkeys(("erase_confirmed", "purgeable", "before_purge", "recovered"), "personal"),
}
