"""From result files to a balance: read, attribute every row, reconcile.

Keep out: how it is shown (`report`), where files lie (`flows.steps`).
"""
