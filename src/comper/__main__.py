"""`python -m comper`, and the command `comper`."""

import sys


def main() -> int:
    """Run the command line; Ctrl-C while it is still being imported is no traceback either."""
    try:
        from comper.cli import main as run

        return run()
    except KeyboardInterrupt:
        print("comper: interrupted.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
