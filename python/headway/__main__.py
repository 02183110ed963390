"""`python -m headway` runs the `headway` command."""

import sys

from headway.cli import main

if __name__ == "__main__":
    sys.exit(main())
