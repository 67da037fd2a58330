"""OpenPGP seen from outside: packets, recipients, and what can be wrong with a key. Keep out: gpg itself."""
