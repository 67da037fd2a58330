"""`python -m tests.torture N SEED`: N kills and signals, races and faults in proportion, on both
storages.
"""

import sys

from tests.torture.both import main

if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
