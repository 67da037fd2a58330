"""What happens, in order. Edges are known as Protocols only; Prefect is not known at all.

`night`: from an extract to a committed run. `answers`: from result files to the report. `again`: what goes out again,
and to whom. `mend`: what an operator puts right. `beyond`: the partner's interface beyond the file. `operate`: what
those who run it look at and do. What all of them use stands beside: `edges`, `runs`, `rows`, `records`.
"""
