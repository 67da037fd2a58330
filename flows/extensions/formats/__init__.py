"""Rare forms of extracts: sheets of Excel workbooks, records by a copybook or in EBCDIC, records of
several types in one file, and second files.

Each becomes lines of text, which the kernel reads: a cell is what it is in a line of CSV, and a
record that cannot be read is a line that says why. Rows of several records are put together by the
order of the records, while they are lines, or by a key.
"""

HOOKS = {"open_rows": "forms", "with_files": "settings", "sampled": "sampling"}
