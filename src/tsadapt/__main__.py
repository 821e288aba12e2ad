"""python -m tsadapt: the command line."""

import sys

from tsadapt.cli import main

if __name__ == "__main__":
    sys.exit(main())
