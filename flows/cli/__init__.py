"""`cardlink ...`: the commands of `flows.commands` on a command line, without Prefect."""

import signal

VERSION = 1  # of what `--json` prints; raised where a field goes or changes its meaning

# until `stopping` hears, an interrupt ends the process as any other signal does: no traceback
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
