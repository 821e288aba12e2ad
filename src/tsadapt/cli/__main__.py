"""python -m tsadapt.cli."""

import sys

from tsadapt.cli import main

sys.exit(main())
