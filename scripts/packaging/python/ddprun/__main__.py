# SPDX-License-Identifier: BSD-3-Clause
"""python3 -m ddprun: as python3 -m ddprun.run; with --cmake-dir alone, prints where find_package() looks."""

import sys

from ddprun import cmake_prefix_path
from ddprun.run import main

if sys.argv[1:] == ["--cmake-dir"]:
    print(cmake_prefix_path)
else:
    main()
