"""Records without line ends: how they are framed, and their fields by a COBOL copybook.

They join the route at its first block. The reader is our own and small, since kept libraries refuse
REDEFINES, or are GPL. All fields of a block are decoded at once, into one text that is cut by
position. What is damaged is refused with record, byte and field; a field whose bytes REDEFINES
shares is judged only where it is used.

Keep out: lines of text, which are read in `flows/extracts`, and what the fields mean.
"""
