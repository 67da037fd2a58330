"""Who goes out again: selection, corrections, resubmission, renewal, backfill.

Put here what chooses rows or extracts for another run. Keep out how a run is made: a resend goes the same way as every
submission.
"""
