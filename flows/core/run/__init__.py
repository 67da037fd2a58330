"""What a run is and may do: plan, gates, claim, calendar, what waits for upload, alerts, metrics.

Keep out: the order of the steps (`flows.steps`), Prefect.
"""
