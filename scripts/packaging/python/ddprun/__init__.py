# SPDX-License-Identifier: BSD-3-Clause
"""ddprun: starts, watches and restarts distributed PyTorch training, as torchrun does.

The launcher is the program `ddprun` beside this Python's `python3`.  `python3 -m ddprun.run` takes
the same arguments, for code that starts `sys.executable -m torch.distributed.run`.
"""

import os
import sysconfig

__all__ = ["__version__", "bin_path", "cmake_prefix_path"]
__version__ = "@VERSION@"

# What CMAKE_PREFIX_PATH or ddprun_ROOT has to name for find_package(ddprun CONFIG).
cmake_prefix_path = os.path.dirname(os.path.abspath(__file__))

_PROGRAMS = ("ddprun", "ddpd", "ddpctl")


def bin_path(program="ddprun"):
    """The path of an installed program: ddprun, ddpd or ddpctl.

    Raises ValueError for another name, and FileNotFoundError where the program is not installed.
    """
    if program not in _PROGRAMS:
        raise ValueError(f"program={program!r} is not one of {', '.join(_PROGRAMS)}")
    folders = list(_folders())
    for folder in folders:
        path = os.path.join(folder, program)
        if os.access(path, os.X_OK):
            return path
    raise FileNotFoundError(f"{program} is in none of {', '.join(folders)}; pip install --force-reinstall ddprun")


def _folders():
    """Where pip puts programs, nearest to this file first."""
    site = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    yield os.path.join(site, "bin")  # pip install --target
    # <prefix>/lib/python3.11/site-packages, or Debian's <prefix>/local/lib/python3.11/dist-packages
    yield os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(site))), "bin")
    yield sysconfig.get_path("scripts")
    yield sysconfig.get_path("scripts", f"{os.name}_user")  # pip install --user
