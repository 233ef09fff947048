# SPDX-License-Identifier: BSD-3-Clause
"""The launcher as a tree for /opt or a shared folder of a cluster, and a module file for it."""

import gzip
import io
import tarfile

import runtime_files
import share
from programs import PROGRAMS, Portable
from steps import project_version, say, source_time

SLURM = ("ddprun-sbatch", "ddprun-srun")  # programs, which read options.sh beside them
DOCUMENTS = ("README.md", "CHANGELOG.md", "SECURITY.md", "cli/OPTIONS.md", "cli/DDPD.md", "worker/ENVIRONMENT.md",
             "worker/ddp/README.md", "worker/ddp/TUTORIAL.md", "worker/checkpoint/CHECKPOINTS.md",
             "scripts/slurm/README.md", "scripts/packaging/README.md", "agent/REPORT.md")

# Both Environment Modules and Lmod read Tcl.
MODULE = """\
#%Module1.0
# ddprun {version}
set prefix {prefix}
module-whatis "Starts, watches and restarts distributed PyTorch training: a native drop-in for torchrun"
conflict ddprun
prepend-path PATH $prefix/bin
prepend-path CMAKE_PREFIX_PATH $prefix
"""
BESIDE = "[file normalize [file join [file dirname $ModulesCurrentModulefile] .. .. ..]]"


def module_text(version, prefix=BESIDE):
    """The module file; without a prefix for the tree that it lies in, at share/modulefiles/ddprun/VERSION."""
    return MODULE.format(version=version, prefix=prefix)


def write_module(root, prefix):
    """Writes the module file for a tree that was unpacked at `prefix`, and gives its path."""
    version = project_version(root)
    path = root / "build/package/modulefiles/ddprun" / version
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(module_text(version, "{" + (prefix or f"/opt/ddprun-{version}") + "}"), encoding="utf-8")
    return path


def slurm_files(root):
    return [root / "scripts/slurm" / name for name in (*SLURM, "options.sh")]


def make(root, arch, jobs):
    """Builds build/package/ddprun-VERSION-linux-ARCH.tar.gz and gives its path."""
    work = root / "build/package"
    version, seconds = project_version(root), source_time(root)
    portable = Portable(root, work, arch, jobs)
    programs = portable.programs()
    files = {f"bin/{program}": (programs / program).read_bytes() for program in PROGRAMS}
    for name, data in share.files(share.programs_here(portable, programs), version, seconds).items():
        files[f"share/{name}"] = data
    for name, data in runtime_files.files(root, work / "sources/zlib", version).items():
        files[f"share/ddprun/{name}"] = data
    for name, text in share.licences(root, portable).items():
        files[f"share/doc/ddprun/licenses/{name}"] = text
    for name in DOCUMENTS:
        files[f"share/doc/ddprun/{name}"] = (root / name).read_bytes()
    for name in ("ddpd.service", "ddpd.socket"):
        files[f"share/ddprun/systemd/{name}"] = (root / "scripts/systemd" / name).read_bytes()
    for path in slurm_files(root):
        files[f"share/ddprun/slurm/{path.name}"] = path.read_bytes()
    files[f"share/modulefiles/ddprun/{version}"] = module_text(version).encode()
    links = {f"bin/{name}": f"../share/ddprun/slurm/{name}" for name in SLURM}
    path = work / f"ddprun-{version}-linux-{arch}.tar.gz"
    write(path, f"ddprun-{version}", files, links, seconds)
    say(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB")
    return path


def write(path, top, files, links, seconds):
    """Writes the archive: entries in order, all of one time and of nobody."""
    scratch = path.with_suffix(".new")
    with scratch.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed, \
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted({**files, **links}):
            entry = tarfile.TarInfo(f"{top}/{name}")
            entry.mtime = seconds
            if name in links:
                entry.type, entry.linkname = tarfile.SYMTYPE, links[name]
                archive.addfile(entry)
                continue
            entry.size = len(files[name])
            is_program = name.startswith("bin/") or name.rsplit("/", 1)[-1] in SLURM
            entry.mode = 0o755 if is_program else 0o644
            archive.addfile(entry, io.BytesIO(files[name]))
    scratch.replace(path)
