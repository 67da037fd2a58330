"""What operators do and watch: outbox, remediation, retention, alerts, history, metrics.

Put here an operator's commands, each with a dry run, a reason and a record. Keep out the steps of
the nightly run.
"""
