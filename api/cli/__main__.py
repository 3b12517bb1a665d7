"""The command line, as `python -m capgraph.cli`."""

import sys

from . import main

sys.exit(main())
