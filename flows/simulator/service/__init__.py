"""A local stand-in for the partner's whole interface: links, job records, messages, the portal;
loopback only.

The state is plain Python (`books`, `links`, `jobs`, `channels`, `sites`); only `app` and `serving`
know HTTP.
"""
