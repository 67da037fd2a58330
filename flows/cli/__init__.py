"""`cardlink ...`: the commands of `flows.commands` on a command line, without Prefect."""

import signal
import sys

VERSION = 1  # of what `--json` prints; raised where a field goes or changes its meaning

# Until `stopping` hears, an interrupt ends the command as any other signal does: no traceback. Who
# imports this for something else keeps the interrupts of their own.
_IS_COMMAND = sys.argv[0] == "-m" or sys.argv[0].endswith("/cardlink")
if _IS_COMMAND and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
