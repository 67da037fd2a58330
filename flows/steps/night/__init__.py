"""From an extract to a committed run: read in the order plan, scan, making, publish, submit."""
