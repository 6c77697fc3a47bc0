"""`python -m splatview` is the `splatview` command."""

import sys

from splatview.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
