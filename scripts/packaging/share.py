# SPDX-License-Identifier: BSD-3-Clause
"""What is installed under share/: manual pages and completions, from what the programs say themselves."""

import platform
import tempfile
from pathlib import Path

import man_page
from programs import HEADERS, LIBRARIES, Portable
from steps import Failed, output_of

COMPLETIONS = {
    "bash": "bash-completion/completions/ddprun",
    "zsh": "zsh/site-functions/_ddprun",
    "fish": "fish/vendor_completions.d/ddprun.fish",
}


def programs_here(portable, programs):
    """The folder of the same `programs` for the processor that this runs on."""
    if portable.arch == platform.machine():
        return programs
    return Portable(portable.root, portable.work, platform.machine(), portable.jobs).programs()


def files(programs, version, seconds):
    """Path below share/ -> bytes."""
    found = {}
    for shell, place in COMPLETIONS.items():
        found[place] = output_of([programs / "ddprun", "--print-completion", shell]).encode()
    with tempfile.TemporaryDirectory() as folder:
        man_page.write_pages(programs, Path(folder), version, seconds)
        for path in Path(folder).rglob("*.[0-9]"):
            found[f"man/{path.relative_to(folder).as_posix()}"] = path.read_bytes()
    return dict(sorted(found.items()))


def licences(root, portable):
    """Name -> text, of all that is in the programs and beside the runtime's sources."""
    zig = portable.zig / "ziglang"
    places = {
        "ddprun": root / "LICENSE",
        "gloo": Path("/usr/share/doc/libgloo-dev/copyright"),
        "zig-compiler-rt": zig / "LICENSE",
        "glibc-start-files": zig / "lib/libc/glibc/LICENSES",
        "llvm-libcxx": zig / "lib/libcxx/LICENSE.TXT",
        "llvm-libcxxabi": zig / "lib/libcxxabi/LICENSE.TXT",
        "llvm-libunwind": zig / "lib/libunwind/LICENSE.TXT",
    }
    places |= {name.lower(): Path("/usr/share/doc") / package / "copyright" for name, package in HEADERS.items()}
    places |= {name: portable.work / "sources" / name / "debian/copyright" for name in LIBRARIES}
    try:
        return {f"{name}.txt": place.read_bytes() for name, place in sorted(places.items())}
    except OSError as error:
        raise Failed(f"a licence is missing: {error.filename}: {error.strerror}") from None
