# SPDX-License-Identifier: BSD-3-Clause
"""Called by debian/rules: puts beside the compiled programs what else the Debian packages hold.

usage: debian_tree.py TREE

TREE is where "ninja install" has put them (debian/tmp); $SOURCE_DATE_EPOCH is the date of the manual pages.
"""

import sys
from pathlib import Path

import runtime_files
import share
import tarball
from steps import project_version, source_time

# Debian's place for what other packages add.
ZSH = ("zsh/site-functions/", "zsh/vendor-completions/")


def files(root, programs):
    """Path below /usr/share -> bytes."""
    version = project_version(root)
    found = {name.replace(*ZSH): data for name, data in share.files(programs, version, source_time(root)).items()}
    found |= {f"ddprun/{name}": data for name, data in runtime_files.own_files(root, version).items()}
    found |= {f"doc/ddprun/{name}": (root / name).read_bytes() for name in tarball.DOCUMENTS}
    found |= {f"ddprun/slurm/{path.name}": path.read_bytes() for path in tarball.slurm_files(root)}
    return found


def main():
    tree = Path(sys.argv[1])
    usr = tree / "usr"
    for name, data in files(Path(__file__).resolve().parents[2], usr / "bin").items():
        path = usr / "share" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(0o755 if path.name in tarball.SLURM else 0o644)
    for name in tarball.SLURM:
        (usr / "bin" / name).symlink_to(f"../share/ddprun/slurm/{name}")


if __name__ == "__main__":
    main()
