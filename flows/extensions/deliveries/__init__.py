"""Deliveries: links to whoever sends them, and acknowledgements of extracts to the issuer.

Put here what is handed over to others as files that they confirm.
"""

COMMANDS = ("commands",)
HOOKS = dict.fromkeys(
    (
        "after_commit",
        "after_ingest",
        "work_kinds",
        "matters",
        "names_erased",
        "alert_kinds",
        "alerts",
        "checks",
        "gauges",
        "balance_lines",
        "delivered_links",
        "history",
        "events",
        "scheduled",
        "evidence",
        "folders",
        "places",
        "mentions",
        "erase",
        "withdrawal_step",
        "erase_confirmed",
        "purgeable",
        "before_purge",
        "recovered",
    ),
    "hooks",
)
