# SPDX-License-Identifier: BSD-3-Clause
"""The launcher's programs, for any Linux with glibc 2.28 or newer.

They are compiled by zig's clang, which brings the C library's symbols of each version and links its
own C++ library in.  Of other libraries they use headers, from the Debian packages that scripts/setup
installs, and two that are built here from Debian's sources and linked in.
"""

import getpass
import os
import re
import shutil
import tempfile
from pathlib import Path

from steps import Failed, NotFetched, made_whole, output_of, run, say

ZIG = "0.17.1"
GLIBC = "2.28"
ARCHITECTURES = ("x86_64", "aarch64")
PROGRAMS = ("ddprun", "ddpd", "ddpctl")

# Debian source package -> the installed package that has the same version.
LIBRARIES = {"zlib": "zlib1g-dev", "libsodium": "libsodium-dev"}
# Folders of headers under /usr/include -> the Debian package with their licence.
HEADERS = {
    "boost": "libboost1.81-dev",
    "spdlog": "libspdlog-dev",
    "fmt": "libfmt-dev",
    "CLI": "libcli11-dev",
    "nlohmann": "nlohmann-json3-dev",
}

# What find_package() finds in place of Debian's own files, which name Debian's libraries.
CMAKE_PACKAGES = {
    "spdlog": """
set(spdlog_VERSION 1.10)
add_library(spdlog::spdlog INTERFACE IMPORTED)
target_include_directories(spdlog::spdlog SYSTEM INTERFACE "${CMAKE_CURRENT_LIST_DIR}/../../../include")
""",
    "CLI11": """
add_library(CLI11::CLI11 INTERFACE IMPORTED)
target_include_directories(CLI11::CLI11 SYSTEM INTERFACE "${CMAKE_CURRENT_LIST_DIR}/../../../include")
""",
    "nlohmann_json": """
add_library(nlohmann_json::nlohmann_json INTERFACE IMPORTED)
target_include_directories(nlohmann_json::nlohmann_json SYSTEM INTERFACE
  "${CMAKE_CURRENT_LIST_DIR}/../../../include")
""",
}
CMAKE_VERSION = "set(PACKAGE_VERSION_COMPATIBLE TRUE)\n"

HARDENING = "-fstack-protector-strong -D_FORTIFY_SOURCE=2"


class Portable:
    """The compiler and the libraries for one processor, in `work` (build/package)."""

    def __init__(self, root, work, arch, jobs):
        if re.search(r"\s", str(work)):
            raise Failed(f"the builds of {' and '.join(LIBRARIES)} cannot have blanks in the path of the checkout: {root}")
        self.root, self.work, self.arch, self.jobs = root, work, arch, jobs
        self.own = work / arch
        self.log = work / f"{arch}.log"
        self.zig = work / f"zig-{ZIG}"
        self.sysroot = self.own / "sysroot"
        # In place of the user's own, so that nothing is left behind elsewhere.
        self.env = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": str(work / "zig-cache"),
                    "ZIG_LOCAL_CACHE_DIR": str(work / "zig-cache")}
        for variable in ("CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS"):
            self.env.pop(variable, None)

    def programs(self):
        """Builds them; gives the folder that has them."""
        work_log = self.work / "sources.log"
        for log in (self.log, work_log):
            log.unlink(missing_ok=True)
        fetch_zig(self.zig, work_log)
        for library, package in LIBRARIES.items():
            fetch_source(self.work / "sources" / library, library, version_of(package), work_log)
        self._write_tools()
        self._make_sysroot()
        return self._build()

    def _tool(self, name):
        return self.own / "tools" / name

    def _write_tools(self):
        tools = self.own / "tools"
        tools.mkdir(parents=True, exist_ok=True)
        zig = self.zig / "ziglang" / "zig"
        target = f"-target {self.arch}-linux-gnu.{GLIBC}"
        # With the cache at its default place, a build that calls them without our environment works as well.
        for name, command in {"cc": f"cc {target}", "c++": f"c++ {target}", "ar": "ar", "ranlib": "ranlib"}.items():
            path, text = tools / name, f'#!/bin/sh\nexec "{zig}" {command} "$@"\n'
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                path.write_text(text, encoding="utf-8")
                path.chmod(0o755)

    def _make_sysroot(self):
        # Libraries that were updated on this machine are fetched and built anew.
        versions = "".join(f"{library} {version_of(package)}\n" for library, package in LIBRARIES.items())
        built = self.sysroot / "versions"
        if built.exists() and built.read_text(encoding="utf-8") == versions:
            return
        say(f"building {' and '.join(LIBRARIES)} for {self.arch}")
        with made_whole(self.sysroot) as sysroot:
            include = sysroot / "usr/include"
            include.mkdir(parents=True)
            for folder, package in HEADERS.items():
                header = Path("/usr/include") / folder
                if not header.is_dir():
                    raise Failed(f"{header} is missing: run scripts/setup --no-runtime (package {package})")
                (include / folder).symlink_to(header)
            for name, text in CMAKE_PACKAGES.items():
                config = sysroot / "usr/lib/cmake" / name
                config.mkdir(parents=True)
                (config / f"{name}Config.cmake").write_text(text.lstrip(), encoding="utf-8")
                (config / f"{name}ConfigVersion.cmake").write_text(CMAKE_VERSION, encoding="utf-8")
            self._build_zlib(sysroot / "usr")
            self._build_sodium(sysroot / "usr")
            (sysroot / "versions").write_text(versions, encoding="utf-8")

    def _copy_of_source(self, library):
        copy = self.own / library
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.work / "sources" / library, copy, symlinks=True)
        return copy

    def _library_env(self, source):
        flags = f"-O3 -fPIC -ffunction-sections -fdata-sections {HARDENING} -ffile-prefix-map={source}=."
        return {**self.env, "CC": str(self._tool("cc")), "AR": str(self._tool("ar")),
                "RANLIB": str(self._tool("ranlib")), "CFLAGS": flags, "CHOST": f"{self.arch}-linux-gnu"}

    def _build_zlib(self, prefix):
        source = self._copy_of_source("zlib")
        env = self._library_env(source)
        run(["./configure", "--static", f"--prefix={prefix}"], self.log, cwd=source, env=env)
        run(["make", f"-j{self.jobs}", "libz.a"], self.log, cwd=source, env=env)
        lib = prefix / "lib"
        lib.mkdir(exist_ok=True)
        shutil.copy(source / "libz.a", lib)
        for header in ("zlib.h", "zconf.h"):
            shutil.copy(source / header, prefix / "include")

    def _build_sodium(self, prefix):
        source = self._copy_of_source("libsodium")
        env = self._library_env(source)
        run(["autoreconf", "--force", "--install"], self.log, cwd=source, env=env)
        run(["./configure", f"--host={self.arch}-linux-gnu", f"--prefix={prefix}", "--disable-shared",
             "--enable-static", "--with-pic", "--disable-dependency-tracking"], self.log, cwd=source, env=env)
        run(["make", f"-j{self.jobs}", "-C", "src/libsodium", "install"], self.log, cwd=source, env=env)
        # They name the place of this build.
        shutil.rmtree(prefix / "lib/pkgconfig", ignore_errors=True)
        for archive in (prefix / "lib").glob("*.la"):
            archive.unlink()

    def _build(self):
        say(f"compiling for {self.arch}")
        build = self.own / "build"
        cxx_flags = f"{HARDENING} -ffunction-sections -fdata-sections -ffile-prefix-map={self.root}=."
        modes = [f"-DCMAKE_FIND_ROOT_PATH_MODE_{kind}=ONLY" for kind in ("INCLUDE", "LIBRARY", "PACKAGE")]
        run(["cmake", "-G", "Ninja", "-S", self.root, "-B", build, "-DCMAKE_BUILD_TYPE=Release",
             "-DCMAKE_SYSTEM_NAME=Linux", f"-DCMAKE_SYSTEM_PROCESSOR={self.arch}",
             f"-DCMAKE_CXX_COMPILER={self._tool('c++')}", f"-DCMAKE_AR={self._tool('ar')}",
             f"-DCMAKE_RANLIB={self._tool('ranlib')}", f"-DCMAKE_FIND_ROOT_PATH={self.sysroot}", *modes,
             f"-DCMAKE_CXX_FLAGS={cxx_flags}",
             "-DCMAKE_EXE_LINKER_FLAGS=-pie -s -Wl,--gc-sections -Wl,-z,relro -Wl,-z,now",
             "-DBoost_NO_BOOST_CMAKE=ON", "-DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON", "-DDDPRUN_CCACHE=OFF",
             "-DDDPRUN_RUNTIME=OFF", "-DDDPRUN_TESTS=OFF"], self.log, env=self.env)
        run(["ninja", "-C", build, f"-j{self.jobs}", *PROGRAMS], self.log, env=self.env, shows=True)
        return build / "bin"


def version_of(package):
    """The version of the source that an installed Debian package was built from."""
    return output_of(["dpkg-query", "-W", "-f", "${source:Version}", package])


def fetch_zig(folder, log):
    if folder.exists():
        return
    say(f"fetching zig {ZIG}, 100 MB, from the Python package index")
    with made_whole(folder) as scratch:
        run(["python3", "-m", "venv", scratch / "venv"], log)
        try:
            run([scratch / "venv/bin/python3", "-m", "pip", "install", "--no-input", "--no-deps", "--no-compile",
                 "--quiet", "--only-binary=:all:", "--target", scratch, f"ziglang=={ZIG}"], log, shows=True)
        except Failed as failure:
            raise NotFetched(f"could not install zig {ZIG} from the Python package index; is there a network? "
                             f"(details: {log})") from failure
        shutil.rmtree(scratch / "venv")


def fetch_source(folder, name, version, log):
    """Unpacks `version` of the Debian source package `name`, with Debian's patches, as `folder`."""
    if has_version(folder, version):
        return
    say(f"fetching the source of {name} {version} from the Debian mirror")
    for source in debian_sources():
        try:
            with made_whole(folder) as scratch:
                unpack_source(scratch, source, name, version, log)
            return
        except Failed:
            continue  # the machine's sources are the release, its updates and its security updates
    raise NotFetched(f"could not fetch the source of {name} {version} from the Debian mirror; is there a network? "
                     f"(details: {log})")


def has_version(folder, version):
    """Whether `folder` is a Debian source of that version, by its changelog."""
    try:
        with (folder / "debian/changelog").open(encoding="utf-8") as changelog:
            return f" ({version}) " in changelog.readline()
    except FileNotFoundError:
        return False


def debian_sources():
    """Where the machine's own packages come from, as lines of a sources.list for their sources."""
    lines = output_of(["apt-get", "indextargets", "--format", "deb-src $(REPO_URI) $(RELEASE) $(COMPONENT)",
                       "Created-By: Packages", "Origin: Debian"])
    sources = [line for line in dict.fromkeys(lines.splitlines()) if line]
    if not sources:
        raise Failed("apt-get knows of no Debian mirror: run apt-get update")
    return sources


def unpack_source(folder, source, name, version, log):
    # apt with a list and state of its own: the machine's has binary packages only, and belongs to root.
    with tempfile.TemporaryDirectory() as scratch:
        scratch = Path(scratch)
        (scratch / "sources.list").write_text(f"{source}\n", encoding="utf-8")
        for place in ("lists/partial", "cache/archives/partial"):
            (scratch / place).mkdir(parents=True)
        apt = ["apt-get", "-qq", "-o", f"Dir::Etc::SourceList={scratch / 'sources.list'}",
               "-o", "Dir::Etc::SourceParts=/dev/null", "-o", f"Dir::State::Lists={scratch / 'lists'}",
               "-o", f"Dir::Cache={scratch / 'cache'}", "-o", f"APT::Sandbox::User={getpass.getuser()}"]
        run([*apt, "update"], log)
        run([*apt, "source", "--download-only", f"{name}={version}"], log, cwd=scratch)
        descriptions = list(scratch.glob("*.dsc"))
        if len(descriptions) != 1:
            raise Failed(f"the Debian mirror gave {len(descriptions)} sources of {name}")
        # apt has checked it against the mirror's signed list.
        run(["dpkg-source", "--no-check", "-x", descriptions[0].name, "source"], log, cwd=scratch)
        shutil.copytree(scratch / "source", folder, symlinks=True, dirs_exist_ok=True)
