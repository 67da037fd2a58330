"""What it means: values and frames in, values and frames out.

Put here: grammar, normalising, checking, splitting, attribution, reconciliation, the error tree, the Protocols.
Keep out: clock, environment, disk, network, Prefect.
"""
