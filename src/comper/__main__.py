"""`python -m comper`: the command `comper`."""

import sys

from comper.cli import main

if __name__ == "__main__":
    sys.exit(main())
