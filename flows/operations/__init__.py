"""What those who run it look at and do: outbox, remediation, retention, alerts, history, metrics.

Put here an operator's verbs, each with a dry run, a reason and a record. Keep out what runs by itself every day.
"""
