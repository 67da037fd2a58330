"""What happens, in order: submit, ingest, report. Edges are known as Protocols only; Prefect is not known at all."""
