"""Privacy: what is stored of a person, for a request to know, and that a person is forgotten.

That nothing is sent for somebody who is forgotten is the kernel's (`flows/runs/erased.py`), also
without this folder.
"""

COMMANDS = ("person",)
HOOKS = dict.fromkeys(("work_kinds", "matters", "finish_erasures"), "erasure")
