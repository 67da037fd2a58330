"""The page server: reports and their lists, for browsers that know its token.

Put here how pages are reached: the address, who may read what, the bounds on connections. What is
on a page is made by `flows.reports` and `flows.operations`.
"""
