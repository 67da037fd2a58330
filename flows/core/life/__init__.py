"""The life of a cardholder's link after the night: which rows go out again, and how attempts make one history.

Put what decides about rows of earlier runs here; how a row is read and checked stays in `rows`.
"""
