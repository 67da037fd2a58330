"""What people read: summary, page, workbook, lists, the view across runs, one cardholder's trace.

Everything here is derived from ledgers, outcomes and records, and may be deleted and built again. Keep out whatever
decides: a report only counts and says.
"""
