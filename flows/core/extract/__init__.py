"""From the issuer's bytes to rows under the portal's columns: decoding, line grammar, reading, mapping.

Keep out: what a value means (`rows`), where the bytes come from (`flows.edge`).
"""
