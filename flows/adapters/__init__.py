"""One file per outside thing: S3, the local directory, gpg; each turns foreign errors into ours.

Only `flows.wiring` imports an adapter, everything else meets it as a Protocol of `flows.runs`. Keep out every decision.
"""
