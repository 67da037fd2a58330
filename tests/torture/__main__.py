"""`python -m tests.torture N SEED [KIND ...]`: N kills and signals, the other harms in proportion."""

import sys

from tests.torture.harm import main

if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
