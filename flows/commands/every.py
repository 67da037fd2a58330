"""Every entry there is, module by module in the order of a night; a new module of commands is named here."""

from flows.commands import audit, mend, outbox, partner, practice, resend, results, retention, setup, submit
from flows.commands.entry import entries_of

ENTRIES = entries_of(setup, submit, outbox, results, resend, mend, retention, audit, partner, practice)
