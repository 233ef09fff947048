# SPDX-License-Identifier: BSD-3-Clause
"""Large pages for a template's memory, so that a fork of it begins and ends sooner.

A fork has page tables of its own, with an entry for each page that it shares with the template: 4 KiB
of memory each, some 100,000 once torch is imported.  They are copied when it is made and gone through
when it ends, before its parent hears of the end.  With pages of 2 MiB both take a third of the time.
What a fork writes is still copied by 4 KiB.

The memory is joined where it lies (MADV_COLLAPSE, Linux 6.1; madvise(2)); nothing else changes.  An
older kernel refuses, and everything stays as it was, as it does where transparent huge pages are off
or the kernel does not say which pages are in use.
"""

import os

SMALL, LARGE = os.sysconf("SC_PAGE_SIZE"), 2 << 20
PER_LARGE = LARGE // SMALL
MADV_COLLAPSE = 25
# Bits of an entry in /proc/self/pagemap: Linux, Documentation/admin-guide/mm/pagemap.rst.
PRESENT_AND_OWN = 1 << 63 | 1 << 56
ENABLED, PAGEMAP = "/sys/kernel/mm/transparent_hugepage/enabled", "/proc/self/pagemap"


def join_pages(libc):
    """Joins the pages of this process's own memory, where it uses at least half of those of a large one."""
    if LARGE % SMALL or not is_enabled():
        return
    import ctypes

    madvise = libc.madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    try:
        addresses = list(well_used())
    except OSError:
        return
    for begin, size in joined(addresses):
        madvise(begin, size, MADV_COLLAPSE)


def is_enabled():
    try:
        with open(ENABLED) as file:
            return "[never]" not in file.read()
    except OSError:
        return False  # this kernel has none


def well_used():
    """The addresses at which a large page may be, and small ones are that only this process has."""
    pages = os.open(PAGEMAP, os.O_RDONLY)
    try:
        for begin, end in anonymous_areas():
            for at in range(-(-begin // LARGE) * LARGE, end - LARGE + 1, LARGE):
                read = os.pread(pages, 8 * PER_LARGE, at // SMALL * 8)
                entries = memoryview(read[: len(read) // 8 * 8]).cast("Q")
                if sum(entry & PRESENT_AND_OWN == PRESENT_AND_OWN for entry in entries) >= PER_LARGE // 2:
                    yield at
    finally:
        os.close(pages)


def anonymous_areas():
    """Begin and end of each private area that may be written and is of no file."""
    with open("/proc/self/maps") as file:
        lines = file.read().splitlines()
    for line in lines:
        area, mode, _, _, inode, *name = line.split(None, 5)
        if mode == "rw-p" and inode == "0" and name != ["[stack]"]:
            begin, _, end = area.partition("-")
            yield int(begin, 16), int(end, 16)


def joined(addresses):
    """Begin and size of what lies next to each other."""
    begin = end = None
    for at in addresses:
        if at != end:
            if begin is not None:
                yield begin, end - begin
            begin = at
        end = at + LARGE
    if begin is not None:
        yield begin, end - begin
