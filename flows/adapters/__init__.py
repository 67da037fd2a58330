"""External systems: S3, the local directory, gpg; each file translates foreign errors into ours.

Only `flows.wiring` imports an adapter; other code sees the Protocols of `flows.runs`. Keep
decisions out.
"""
