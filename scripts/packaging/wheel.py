# SPDX-License-Identifier: BSD-3-Clause
"""The wheel: the programs, the C++ runtime as sources, a small Python package, manual pages, completions,
licences."""

import base64
import hashlib
import time
import zipfile

import runtime_files
import share
from programs import PROGRAMS, Portable
from steps import project_version, say, source_time

SUMMARY = "Starts, watches and restarts distributed PyTorch training: a native drop-in for torchrun"
DESCRIPTION = """\
`ddprun` starts, watches and restarts distributed PyTorch training on one node or on thousands. It
takes torchrun's command line and gives workers torchrun's environment:

    ddprun --standalone --nproc-per-node 2 train.py

`python -m ddprun.run` takes the same arguments. A C++ program finds the runtime with
`find_package(ddprun CONFIG)` and `-Dddprun_ROOT=$(python -m ddprun --cmake-dir)`. `ddpd` is a store and rendezvous as a daemon, `ddpctl`
looks at checkpoints. The manual pages `ddprun(1)`, `ddpd(8)` and `ddpctl(1)` come with it.
"""
# Of all that is linked into the programs; the texts are in licenses/ beside the metadata.
LICENSE = ("BSD-3-Clause AND MIT AND BSL-1.0 AND ISC AND Zlib AND Apache-2.0 WITH LLVM-exception"
           " AND LGPL-2.1-or-later WITH GCC-exception-2.0")


def platform_tag(arch):
    """Why not linux_x86_64: the programs need no library but glibc 2.28 (PEP 600)."""
    return f"manylinux_2_28_{arch}"


def make(root, arch, jobs):
    """Builds the wheel for `arch` into build/package and gives its path."""
    work = root / "build/package"
    version, seconds = project_version(root), source_time(root)
    portable = Portable(root, work, arch, jobs)
    programs = portable.programs()
    files = installed(version, programs, share.files(share.programs_here(portable, programs), version, seconds))
    files |= python_package(root, version, runtime_files.files(root, work / "sources/zlib", version))
    files |= metadata(arch, version, share.licences(root, portable))
    path = write(work, arch, version, files, seconds)
    say(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB")
    return path


def installed(version, programs, shared):
    """Path in the wheel -> bytes, of what pip puts beside its Python: programs, and `shared`, which is for share/."""
    files = {}
    for program in PROGRAMS:
        files[f"ddprun-{version}.data/scripts/{program}"] = (programs / program).read_bytes()
    for name, data in shared.items():
        files[f"ddprun-{version}.data/data/share/{name}"] = data
    return files


def python_package(root, version, runtime):
    """The same, of the package that is imported, with the C++ runtime in it."""
    package = root / "scripts/packaging/python"
    files = {f"ddprun/{name}": data for name, data in runtime.items()}
    for path in sorted(package.rglob("*.py")):
        text = path.read_text(encoding="utf-8").replace("@VERSION@", version)
        files[path.relative_to(package).as_posix()] = text.encode()
    return dict(sorted(files.items()))


def metadata(arch, version, texts):
    """The same, of what pip reads; `texts` are the licences."""
    info = f"ddprun-{version}.dist-info"
    lines = ["Metadata-Version: 2.4", "Name: ddprun", f"Version: {version}", f"Summary: {SUMMARY}",
             f"License-Expression: {LICENSE}", *(f"License-File: {name}" for name in texts),
             "Requires-Python: >=3.8", "Classifier: Operating System :: POSIX :: Linux",
             "Description-Content-Type: text/markdown", "", DESCRIPTION]
    return {
        **{f"{info}/licenses/{name}": text for name, text in texts.items()},
        f"{info}/METADATA": "\n".join(lines).encode(),
        f"{info}/WHEEL": (f"Wheel-Version: 1.0\nGenerator: ddprun {version}\nRoot-Is-Purelib: false\n"
                          f"Tag: py3-none-{platform_tag(arch)}\n").encode(),
    }


def write(folder, arch, version, files, seconds):
    """Writes the wheel of `files` into `folder` and gives its path: entries in order, all of one time, and
    RECORD last."""
    path = folder / f"ddprun-{version}-py3-none-{platform_tag(arch)}.whl"
    record = f"ddprun-{version}.dist-info/RECORD"
    rows = []
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append(f"{name},sha256={digest},{len(data)}\n")
    rows.append(f"{record},,\n")
    date = time.gmtime(max(seconds, 315532800))[:6]  # a zip file knows no time before 1980
    scratch = path.with_suffix(".new")
    with zipfile.ZipFile(scratch, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, data in {**files, record: "".join(rows).encode()}.items():
            entry = zipfile.ZipInfo(name, date)
            entry.create_system = 3  # Unix: the mode of a file is in its entry
            mode = 0o100755 if "/scripts/" in name else 0o100644
            entry.external_attr = mode << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    scratch.replace(path)
    return path
