"""Stands in for the partner's portal and for the issuer: demo, tests, practice."""

COMMANDS = ("commands", "practice_people", "demo")
