# SPDX-License-Identifier: BSD-3-Clause
"""What an ELF file needs of a machine, and how it is hardened, read with readelf."""

import re
from dataclasses import dataclass
from pathlib import Path

from steps import output_of


# x86-64's `mov %fs:40, register` and its comparisons: the canary that the stack protector checks.  The function
# that is called where it has changed may be linked in, and then has no symbol in a stripped file.
CANARY = re.compile(rb"\x64[\x48\x4c][\x8b\x2b\x3b\x33].\x25\x28\0\0\0", re.DOTALL)
# On AArch64 the canary is a variable: in a stripped file of zig's compiler its value, which no string goes past.
AARCH64_CANARY = b"\0\0\0\0\0\0\n\xff"


@dataclass(frozen=True)
class Facts:
    machine: str  # "Advanced Micro Devices X86-64", "AArch64"
    needed: tuple  # libraries: ("libc.so.6", ...)
    glibc: str  # the newest version of glibc that a symbol asks for: "2.27"
    has_run_path: bool
    is_pie: bool
    has_full_relro: bool  # read-only relocations, all resolved when the program starts
    has_stack_protector: bool
    has_executable_stack: bool
    is_stripped: bool


def has_canary(path, machine):
    content = Path(path).read_bytes()
    return AARCH64_CANARY in content if machine == "AArch64" else CANARY.search(content) is not None


def facts(path):
    text = output_of(["readelf", "--wide", "--file-header", "--program-headers", "--section-headers", "--dynamic",
                      "--dyn-syms", "--version-info", path])
    versions = {tuple(map(int, found.split("."))) for found in re.findall(r"Name: GLIBC_([0-9.]+)", text)}
    machine = re.search(r"Machine:\s+(.*)", text)[1]
    stack = re.search(r"GNU_STACK.* (RWE|RW)\s", text)
    return Facts(
        machine=machine,
        needed=tuple(re.findall(r"\(NEEDED\)\s+Shared library: \[(.*)\]", text)),
        glibc=".".join(map(str, max(versions, default=(0,)))),
        has_run_path=bool(re.search(r"\((RPATH|RUNPATH)\)", text)),
        is_pie=bool(re.search(r"Type:\s+DYN", text)) and "INTERP" in text,
        has_full_relro="GNU_RELRO" in text and bool(re.search(r"\(FLAGS(_1)?\).*NOW", text)),
        has_stack_protector="__stack_chk_" in text or has_canary(path, machine),
        has_executable_stack=stack is None or "E" in stack[1],
        is_stripped=" .symtab " not in text,
    )
