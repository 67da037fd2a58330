"""A partner's service with names, envelopes, signatures and pages of its own.

It is written from the interface document alone. Put here what such a partner does; keep out
everything that the client assumes.
"""
