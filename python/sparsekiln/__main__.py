"""`python -m sparsekiln`: the command `sparsekiln`."""

import os
import sys

from sparsekiln import _core


def main() -> int:
    return _core.run_command_line([b"sparsekiln", *map(os.fsencode, sys.argv[1:])])


if __name__ == "__main__":
    sys.exit(main())
