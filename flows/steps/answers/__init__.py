"""From result files to the report: read in the order ingest, outcomes, report, reconcile."""
