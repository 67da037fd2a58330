"""`python -m tests.torture N SEED [KIND ...] [--parts PART ...]`: N kills and signals, the other
harms in proportion.
"""

import argparse
import sys

from tests.stores import KINDS
from tests.torture.harm import PARTS, main

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="tests.torture", description=__doc__)
    parser.add_argument("size", type=int)
    parser.add_argument("seed", type=int)
    parser.add_argument("kinds", nargs="*", help=f"of stores, by default {', '.join(KINDS)}")
    parser.add_argument("--parts", nargs="+", default=[], choices=[*PARTS], help="by default all")
    wanted = parser.parse_args()
    sys.exit(main(wanted.size, wanted.seed, wanted.kinds, wanted.parts))
