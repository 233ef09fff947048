#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The manual pages say what the programs' --help says, and no more."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts/packaging"))

import man_page  # noqa: E402
from steps import Failed  # noqa: E402

PROGRAMS = Path(os.environ["DDPRUN_BIN"])
LIMIT = 60  # seconds

HELP = """\
Does things.  And more.
Usage: thing [OPTIONS] FILE

Options:
  -h,--help            Print this
  --size SIZE          As 'K' or M,
                       no more
  --a-very-long-option VALUE
                       Its text
  --fits-just-so VALUE And says so

Other things:
  --dash               A -, a \\ and

Ends here.
Exit codes: 0 all is well;
1 not.
"""


def help_of(program, words):
    return subprocess.run([PROGRAMS / program, *words, "--help"], check=True, capture_output=True, text=True,
                          timeout=LIMIT).stdout


def shown(page):
    """The page as a reader sees it, in one line."""
    text = re.sub(r"\\f.", "", page).replace("\\-", "-").replace("\\(aq", "'").replace("\\(ha", "^")
    return " ".join(text.replace("\\e", "\\").replace("\\&", "").split())


class Parsed(unittest.TestCase):
    def test_help_in_parts(self):
        parsed = man_page.parse_help(HELP)
        self.assertEqual((parsed.summary, parsed.usage), ("Does things. And more.", "thing [OPTIONS] FILE"))
        self.assertEqual(parsed.groups, [
            ("Options", [["-h,--help", "Print this"], ["--size SIZE", "As 'K' or M, no more"],
                         ["--a-very-long-option VALUE", "Its text"], ["--fits-just-so VALUE", "And says so"]]),
            ("Other things", [["--dash", "A -, a \\ and"]])])
        self.assertEqual(parsed.paragraphs, ["Ends here. Exit codes: 0 all is well; 1 not."])

    def test_what_is_no_help_is_refused(self):
        with self.assertRaises(Failed):
            man_page.parse_help("thing 1.0\n")


class Pages(unittest.TestCase):
    def test_each_option_is_there_with_its_text_and_no_other(self):
        for program, (_, subcommands, _) in man_page.PAGES.items():
            page = shown(man_page.page(program, lambda words, p=program: help_of(p, words), "0.1.0", 0))
            options = []
            for words in ["", *subcommands]:
                said = help_of(program, words.split()).partition("\nSubcommands:")[0]
                if words:
                    said = re.sub(r"  -h,--help .*", "", said)
                options += re.findall(r"^  (?:-\w,)?(--[\w-]+)", said, re.MULTILINE)
                # Each stretch of words between two gaps or ends of lines.
                for part in re.split(r"\n|  +", said.replace(",-", ", -").replace(" REQUIRED", "").replace(":{", "{")):
                    if not part.startswith(("Usage: ", "Exit codes: ")) and not part.endswith(":"):
                        self.assertIn(part, page, (program, words))
            self.assertEqual(re.findall(r"(?<=\.TP )(?:-\w, )?(--[\w-]+)", page), options)
            self.assertIn("--version", options)

    def test_every_subcommand_has_its_place(self):
        words = [name for name, _ in dict(man_page.parse_help(help_of("ddpctl", [])).groups)["Subcommands"]]
        self.assertEqual(words[0], "ckpt")
        below = [name for name, _ in dict(man_page.parse_help(help_of("ddpctl", ["ckpt"])).groups)["Subcommands"]]
        self.assertEqual(man_page.PAGES["ddpctl"][1], [f"ckpt {name}" for name in below] + words[1:])

    @unittest.skipUnless(shutil.which("man"), "no man here")
    def test_man_shows_them_without_a_warning(self):
        with tempfile.TemporaryDirectory() as folder:
            man_page.write_pages(PROGRAMS, Path(folder), "0.1.0", 0)
            pages = sorted(Path(folder).glob("man?/*"))
            self.assertEqual([page.name for page in pages], ["ddpctl.1", "ddprun.1", "ddpd.8"])
            for page in pages:
                run = subprocess.run(["man", "--warnings", "-E", "UTF-8", "-l", page], capture_output=True, text=True,
                                     timeout=LIMIT, check=False)
                self.assertEqual((run.returncode, run.stderr), (0, ""))
                self.assertIn("NAME", run.stdout)


if __name__ == "__main__":
    unittest.main()
