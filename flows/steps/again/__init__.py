"""What goes out again, and to whom: attempts over all runs, resubmission, correction, renewal, backfill."""
