"""From an issuer's bytes to rows under the portal's columns: open, decode, grammar, header, map.

Put here what depends on how an extract is written. Keep out what a row must contain: that is
`submissions` and `schemas.rules`.
"""
