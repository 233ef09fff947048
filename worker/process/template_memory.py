# SPDX-License-Identifier: BSD-3-Clause
"""What a worker has imported, read from outside: the names in its sys.modules.

A template (template.py) imports them, too.  Nothing is put into the workers for that, since they must
find nothing that is different, and the names must be known before one of them is killed.  The
shared objects in /proc/PID/maps would not do: they name no module that is written in Python.  So the
agent, which is their parent and may, opens /proc/PID/mem, and a process of the same Python reads it.
It finds things there as it finds them in itself, so that no layout of any version is written down
here.  The worker does not stop for it.  What is read may change meanwhile: then a name is missing,
or wrong, and a wrong one is at most one more library that is imported.
"""

import os
import sys


class Unreadable(Exception):
    """A process is no Python like this one, or has ended."""


def is_name(text):
    return text.isascii() and text.replace(".", "a").isidentifier()


class Memory:
    """The memory of a process of this Python."""

    MOST = 1 << 18  # bytes, of what is looked through

    def __init__(self, mem, maps):
        """Descriptors of the files in /proc."""
        self.mem = mem
        self.areas = []  # begin, end, file
        with open(maps, "rb", closefd=False) as file:
            for line in file.read().splitlines():
                fields = line.split(None, 5)
                begin, _, end = fields[0].partition(b"-")
                self.areas.append((int(begin, 16), int(end, 16), fields[5] if len(fields) > 5 else b""))

    def words(self, at, size):
        try:
            data = os.pread(self.mem, size, at)
        except (OSError, OverflowError):
            return []
        return memoryview(data[: len(data) // 8 * 8]).cast("Q")

    def word(self, at):
        return next(iter(self.words(at, 8)), 0)

    def file_at(self, at):
        """The file that is mapped at `at`, or before it: its zeroes follow it."""
        return max((area for area in self.areas if area[0] <= at and area[2][:1] == b"/"), default=(0, 0, b""))[2]

    def begin_of(self, file):
        for begin, _, name in self.areas:
            if name == file:
                return begin
        raise Unreadable("another Python")

    def string(self, at, layout):
        """The one of the object there, if it is an ASCII one that can name a module; else ""."""
        if at % 8 or not 4096 < at < 1 << 47:
            return ""
        size = self.word(at + layout.length)
        if not 0 < size < 250:
            return ""
        try:
            name = os.pread(self.mem, size, at + layout.characters).decode("ascii")
        except (OSError, ValueError):
            return ""
        return name if is_name(name) else ""

    def names(self, layout):
        """Of the modules, in the order of their import."""
        runtime = self.begin_of(layout.file) + layout.runtime
        for first, second in layout.ways:
            at = self.word(runtime + first)
            found = self.keys(at if second is None else self.word(at + second), layout)
            if found:
                return found
        raise Unreadable("no modules are found")

    def keys(self, at, layout):
        """Of the dict there; [] if it cannot be sys.modules."""
        count = self.word(at + layout.used)
        entries, step = self.entries(self.word(at + layout.keys), layout)
        used = [entry for entry in entries[::step] if entry != 0] if step else []
        found = [self.string(entry, layout) for entry in used[:count]]
        return [name for name in found if name]

    def entries(self, at, layout):
        """The words from its first key on, and how many there are for each key."""
        words = self.words(at, self.MOST * 8)
        for index in range(min(len(words) - 3, self.MOST // 8)):
            if self.string(words[index], layout) == "sys":
                for step in (2, 3):  # with and without a hash
                    if self.string(words[index + step], layout) == "builtins":
                        return words[index:], step
        return (), 0


class Layout:
    """Where this Python has what Memory looks for, as offsets."""

    def __init__(self, own):
        import ctypes

        try:
            at = ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime"))
        except ValueError:
            raise Unreadable("this Python has no _PyRuntime") from None
        self.file = own.file_at(at)
        self.runtime = at - own.begin_of(self.file)
        probe = "a" * 4099
        self.length = self.slot(own, id(probe), len(probe))
        self.characters = sys.getsizeof(probe) - len(probe) - 1
        modules = id(sys.modules)
        self.used = self.slot(own, modules, len(sys.modules))
        self.keys = self.slot_of_keys(own, modules)
        self.ways = list(self.ways_to(own, at, modules))

    @staticmethod
    def slot(own, at, value):
        for index, word in enumerate(own.words(at, 64)):
            if word == value:
                return 8 * index
        raise Unreadable("objects are not as expected")

    def slot_of_keys(self, own, at):
        for self.keys in range(0, 64, 8):
            if own.keys(at, self)[:100] == [name for name in list(sys.modules) if is_name(name)][:100]:
                return self.keys
        raise Unreadable("dicts are not as expected")

    @staticmethod
    def ways_to(own, runtime, wanted):
        """The interpreter's data is part of the runtime's, or the runtime has a pointer to it."""
        words = own.words(runtime, Memory.MOST * 2)
        for first, word in enumerate(words[:256]):
            if word % 8 == 0 and any(begin <= word < end for begin, end, _ in own.areas):
                for second, inner in enumerate(own.words(word, 4096)):
                    if inner == wanted:
                        yield 8 * first, 8 * second
        for first, word in enumerate(words):
            if word == wanted:
                yield 8 * first, None


def own_layout():
    files = [os.open("/proc/self/" + name, os.O_RDONLY) for name in ("mem", "maps")]
    try:
        return Layout(Memory(*files))
    finally:
        for file in files:
            os.close(file)


def names_in(files):
    """What the processes have imported, of which `files` has mem and maps, and closes them."""
    found = {}
    try:
        layout = own_layout()
        for mem, maps in zip(files[::2], files[1::2]):
            try:
                found.update(dict.fromkeys(Memory(mem, maps).names(layout)))
            except (Unreadable, OSError):
                pass  # perhaps it has ended
    except Unreadable:
        pass
    finally:
        for file in files:
            os.close(file)
    return list(found)
