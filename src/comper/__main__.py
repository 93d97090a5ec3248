"""`python -m comper`: the command `comper`."""

import sys

from comper.cli import main

sys.exit(main())
