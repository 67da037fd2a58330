"""What is joined to the rows by key: a second file of the night, or records of other types.

It joins the route at its first block, like any other extract: `pair.py` says which two files belong
together and what identifies them, `rows.py` reads both, and `spill.py` keeps on disk, encrypted,
what memory cannot. A row without a row in the second file is refused, and so is one with several
different ones: nothing is chosen in silence. `types.py` joins the records of other types in one
file in the same way; `aside.py` has them until the rows are read.

Keep out: how either file is written, which is read by the readers of all extracts.
"""
