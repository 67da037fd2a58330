"""Alerts: people are told of what is past its time and of each night, and machines of numbers.

Put here what tells: news, notices, summaries, channels, the switch outside, metrics. What the
matter is, and what is to be done about it, is in the kernel's worklist.
"""

HOOKS = {
    **dict.fromkeys(("work_kinds", "news"), "news"),
    **dict.fromkeys(("events", "after_watch"), "telling"),
    **dict.fromkeys(("checks", "saved_channels"), "addresses"),
    "exposed": "metrics",
}
