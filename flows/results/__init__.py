"""From result files to outcomes: read, match every result row to the sent row it answers,
reconcile, balance.

Put here how result files are read and compared with what was sent. Keep out what people read about
it (`reports`) and what operators do about it (`operations`).
"""
