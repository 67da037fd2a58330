"""What those who run it look at and do: outbox, status, history, alerts, metrics, trace, retention."""
