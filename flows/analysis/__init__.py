"""The analysts' export: what is stored of rows, runs and the book, as tables for query engines.

Put here what writes or reads `analysis/`; keep out what the tables are made of. It is derived:
nothing is decided by it.
"""
