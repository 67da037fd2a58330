"""Every verb once: a typed function with its help, from which `flows.cli` makes the command and `flows.forms` the form.

Put here what a verb calls and what it reports. Keep out the work itself, and anything of click or Prefect. A module's
own imports stay light, since `cardlink --help` imports them all: what a verb needs it imports when it runs.
"""
