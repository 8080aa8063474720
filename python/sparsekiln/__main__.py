"""`python -m sparsekiln`: the command `sparsekiln`."""

import os
import sys

from sparsekiln import _core


def main() -> int:
    arguments = sys.argv[1:]
    if arguments[:1] == ["precompile"] and any(word.partition("=")[0] == "--from-model" for word in arguments):
        from sparsekiln.torch import precompile_command

        return precompile_command.main(arguments[1:])
    return _core.run_command_line([b"sparsekiln", *map(os.fsencode, arguments)])


if __name__ == "__main__":
    sys.exit(main())
