"""A local stand-in for the partner's whole interface, on loopback only.

Links, job records, messages, the portal. The state is plain Python (`books`, `links`, `jobs`,
`channels`, `sites`); only `app` and `serving` know HTTP.
"""
