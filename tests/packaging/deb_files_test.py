#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What the Debian packages are made of, without building them: the folder "debian", and which package has which file."""

import email.utils
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "scripts/packaging"))

import deb  # noqa: E402
import debian_tree  # noqa: E402
from steps import Failed, project_version  # noqa: E402

PROGRAMS = Path(os.environ["DDPRUN_BIN"])
LIMIT = 60  # seconds
SECONDS = 1700000000  # 2023-11-14 22:13:20 UTC


class Written(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="ddprun-debian-")
        cls.addClassCleanup(folder.cleanup)
        cls.path = Path(folder.name) / "debian"
        deb.write_debian(ROOT, cls.path, "1.2.3", SECONDS)

    def text(self, name):
        return (self.path / name).read_text(encoding="utf-8")


class Folder(Written):
    def test_the_changelog_has_version_and_date_in_debians_form(self):
        lines = self.text("changelog").splitlines()
        self.assertEqual(lines[0], "ddprun (1.2.3) unstable; urgency=medium")
        maintainer, _, date = lines[-1].removeprefix(" -- ").partition("  ")
        self.assertEqual(email.utils.parsedate_to_datetime(date).timestamp(), SECONDS)
        self.assertIn(f"Maintainer: {maintainer}\n", self.text("control"))

    def test_the_copyright_is_that_of_the_licence(self):
        text = self.text("copyright")
        self.assertIn("\nFiles: *\nCopyright: 2026, the ddprun authors\nLicense: BSD-3-clause\n Redistribution and use", text)
        said = [" ".join(part.split()) for part in (ROOT / "LICENSE").read_text(encoding="utf-8").split("\n\n")[2:]]
        shown = " ".join(word for word in text.split() if word != ".")
        self.assertGreater(len(said), 2)
        for part in said:
            self.assertIn(part, shown)

    def test_no_place_holder_is_left_and_only_the_rules_are_a_program(self):
        for path in filter(Path.is_file, self.path.rglob("*")):
            self.assertNotRegex(path.read_text(encoding="utf-8"), r"@[A-Z]+@|\{\w+\}(?<!:Depends\})", path.name)
            self.assertEqual(bool(path.stat().st_mode & stat.S_IXUSR), path.name == "rules", path.name)


class Units(Written):
    def test_the_service_runs_the_installed_program_as_the_user_that_the_package_makes(self):
        service = self.text("ddprun.ddpd.service")
        self.assertRegex(service, r"(?m)^ExecStart=/usr/bin/ddpd --state-dir %t/ddpd ")
        user = re.search(r"(?m)^User=(.*)$", service)[1]
        self.assertRegex(self.text("ddprun.sysusers"), rf"(?m)^u {user} ")
        self.assertNotIn("DynamicUser", service)
        self.assertNotIn("/usr/local", service)

    def test_a_unit_that_has_changed_is_refused(self):
        with self.assertRaisesRegex(Failed, "has 'ExecStart=/usr/local/bin/ddpd ' 0 times, not once"):
            deb.unit((ROOT / "scripts/systemd/ddpd.service").read_text(encoding="utf-8").replace("/usr/local", "/opt"))

    @unittest.skipUnless(shutil.which("systemd-analyze"), "systemd-analyze is not installed")
    def test_systemd_understands_the_units(self):
        with tempfile.TemporaryDirectory() as folder:
            paths = [Path(folder) / name for name in ("ddpd.service", "ddpd.socket")]
            for path in paths:
                unit = self.text(f"ddprun.{path.name}").replace("/usr/bin/ddpd", str(PROGRAMS / "ddpd"))
                path.write_text(unit, encoding="utf-8")
            run = subprocess.run(["systemd-analyze", "verify", *paths], capture_output=True, text=True, timeout=LIMIT,
                                 check=False)
            said = [line for line in run.stderr.splitlines() if "ddpd" in line]
            self.assertEqual((run.returncode, said), (0, []))


class Tree(Written):
    def test_each_file_is_in_one_package(self):
        patterns = {package: self.text(f"{package}.install").split() for package in ("ddprun", "libddprun-dev")}
        os.environ["SOURCE_DATE_EPOCH"] = str(SECONDS)
        self.addCleanup(os.environ.pop, "SOURCE_DATE_EPOCH")
        files = [f"usr/share/{name}" for name in debian_tree.files(ROOT, PROGRAMS)]
        self.assertIn("usr/share/ddprun/cmake/ddprunConfig.cmake", files)
        self.assertIn("usr/share/zsh/vendor-completions/_ddprun", files)
        self.assertEqual([name for name in files if "third_party" in name], [])
        for name in [*files, "usr/bin/ddprun"]:
            owners = [package for package, places in patterns.items() if any(name.startswith(f"{place}/") for place in places)]
            self.assertEqual(len(owners), 1, (name, owners))
        for places in patterns.values():
            for place in places:
                self.assertTrue(any(f"{name}/".startswith(f"{place}/") for name in [*files, "usr/bin/ddprun"]), place)


if __name__ == "__main__":
    unittest.main()
