"""Stands in for the partner's portal and for the issuer: demo, tests, practice. Only the command
line imports it.
"""
