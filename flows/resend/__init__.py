"""What is sent again, or late: selection, corrections, resubmission, renewal, backfill.

Put here what selects rows or extracts for another run. Keep out how a run is built: a resend takes
the same route as every submission.
"""
