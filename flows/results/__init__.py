"""From result files to outcomes: read, match every row to the row it answers, reconcile, balance.

Put here what the partner's result files say and how it is held against what was sent. Keep out what people read of it
(`reports`) and what an operator does about it (`operations`).
"""
