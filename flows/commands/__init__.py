"""Every command once: a typed function, of which `flows.cli` makes the command line and `flows.forms` the form.

Put here what a command calls and what it reports. Keep out the work itself, and anything of click or Prefect. A
module's own imports stay light, since `cardlink --help` imports them all: what a command needs it imports when it runs.
"""
