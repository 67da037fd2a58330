"""What the kernel asks deliveries and acknowledgements for: the module that has each hook.

Each is imported when it is asked for, since kinds are asked for while the kernel is imported.
"""

from importlib import import_module
from typing import Any, Final

HOOKS: Final = {
    **dict.fromkeys(("after_commit", "after_ingest"), "commands"),
    **dict.fromkeys(("work_kinds", "matters"), "matters"),
    **dict.fromkeys(("alert_kinds", "alerts", "checks"), "watching"),
    **dict.fromkeys(("events", "scheduled"), "reaching"),
    **dict.fromkeys(("delivered_links", "history", "gauges", "names_erased"), "delivered"),
    "withdrawal_step": "delivery",
    "balance_lines": "acknowledgement",
    **dict.fromkeys(("evidence", "folders", "places", "mentions", "erase"), "personal"),
    **dict.fromkeys(("erase_confirmed", "purgeable", "before_purge", "recovered"), "personal"),
}


def __getattr__(name: str) -> Any:
    """Return a hook."""
    if name not in HOOKS:
        raise AttributeError(name)
    return getattr(import_module(f"flows.extensions.deliveries.{HOOKS[name]}"), name)
