# SPDX-License-Identifier: BSD-3-Clause
"""The C++ runtime as sources: what a project compiles with its own torch, and the CMake package for it."""

import tempfile
from pathlib import Path

from steps import Failed, output_of

# Of the checkout; find_package(ddprun) adds these folders to a project.
SOURCES = ("CMakeLists.txt", "LICENSE", "scripts/cmake", "store/CMakeLists.txt", "store/base", "worker")
NOT_SOURCES = ("worker/process/",)
SUFFIXES = (".cc", ".h", ".cmake", ".in", ".txt")
ZLIB = ("crc32.c", "crc32.h", "zlib.h", "zconf.h", "zutil.h")  # the sum of a zip file's entries
SYSTEM = Path("/usr/include")


def files(root, zlib, version):
    """Path below the Python package, or below share/ddprun, -> bytes.  `zlib` is the folder of its source."""
    return own_files(root, version) | third_party_files(root, zlib)


def own_files(root, version):
    """The same, of this repository's files."""
    found = {f"runtime/{name}": (root / name).read_bytes() for name in source_names(root)}
    found |= public_headers(root)
    found["cmake/ddprunConfigVersion.cmake"] = config_version(version)
    found["cmake/ddprunConfig.cmake"] = (root / "scripts/packaging/runtime/ddprunConfig.cmake").read_bytes()
    return found


def third_party_files(root, zlib):
    """The same, of what the runtime uses of other libraries."""
    found = {}
    third_party = "runtime/third_party"
    for library, package in (("nlohmann", "nlohmann-json3-dev"), ("gloo", "libgloo-dev")):
        headers = sorted(path for path in (SYSTEM / library).rglob("*") if path.suffix in (".h", ".hpp"))
        if not headers:
            raise Failed(f"no headers in {SYSTEM / library}: install the package {package}")
        for header in headers:
            found[f"{third_party}/{library}/{header.relative_to(SYSTEM)}"] = header.read_bytes()
    for name in ZLIB:
        found[f"{third_party}/zlib/{name}"] = (zlib / name).read_bytes()
    return found


def source_names(root):
    """Those of the checkout that are compiled, and what says how."""
    places = [root / place for place in SOURCES]
    paths = [path for place in places for path in ([place] if place.is_file() else place.rglob("*"))]
    names = sorted(path.relative_to(root).as_posix() for path in paths if path in places or path.suffix in SUFFIXES)
    return [name for name in names if (root / name).is_file() and not name.startswith(NOT_SOURCES)]


def public_headers(root):
    """The headers that programs include, as <ddprun/...>, in the folder "include": what "cmake --install" gives."""
    with tempfile.TemporaryDirectory() as folder:
        run_cmake(f'set(ddprun_sources "{root}")\n'
                  f'include("{root}/worker/ddp/public_headers.cmake")\n'
                  'set(ddprun_headers "${ddprun_public_headers}")\n'
                  f'set(ddprun_include_dir "{folder}/include")\n'
                  'set(ENV{DESTDIR})\n'
                  f'include("{root}/worker/ddp/install_headers.cmake")\n')
        headers = sorted(path for path in Path(folder).rglob("*") if path.is_file())
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in headers}


def config_version(version):
    """ddprunConfigVersion.cmake, as CMake itself writes it."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "version.cmake"
        run_cmake("include(CMakePackageConfigHelpers)\n"
                  f'write_basic_package_version_file("{place}" VERSION {version}\n'
                  "  COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)\n")
        return place.read_bytes()


def run_cmake(text):
    """Runs `text` as a script of CMake."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "script.cmake"
        script.write_text(text, encoding="utf-8")
        output_of(["cmake", "-P", script])
