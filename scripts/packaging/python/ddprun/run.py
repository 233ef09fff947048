# SPDX-License-Identifier: BSD-3-Clause
"""python3 -m ddprun.run: the program ddprun with the same arguments, in place of this interpreter.

As under `python3 -m torch.distributed.run`, scripts run with this Python, unless $PYTHON_EXEC names
another.
"""

import os
import sys

from ddprun import bin_path


def main(args=None):
    """Becomes ddprun with `args` (default: sys.argv's); does not return."""
    arguments = sys.argv[1:] if args is None else list(args)
    if sys.executable:
        os.environ.setdefault("PYTHON_EXEC", sys.executable)
    try:
        program = bin_path()
    except FileNotFoundError as error:
        sys.exit(f"ddprun: {error}")
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(program, ["ddprun", *arguments])


if __name__ == "__main__":
    main()
