"""Stands in for the partner's portal and for the issuer: demo, tests, practice. The flows never import it."""
