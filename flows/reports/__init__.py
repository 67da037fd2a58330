"""What people read: summary, page, workbook, lists, the report across runs, one cardholder's trace.

Everything here is derived from ledgers, outcomes and records, and may be deleted and rebuilt. Put
here what counts and presents; keep out what decides about a row or a run.
"""
