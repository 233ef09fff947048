#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""cli/OPTIONS.md and cli/DDPD.md have every option that --help lists, and no other."""

import os
import re
import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Words with two dashes that are options of others: Slurm's, and of the other page's program.
OF_SLURM = {"--cpus-per-task", "--gpus-per-node", "--nodes", "--ntasks-per-node"}
OF_DDPCTL = {"--json", "--max-size", "--rank", "--secret-file", "--show"}
NOT_ON_PAGES = {"--help", "--version"}


def help_of(program):
    """Option -> the name of its value or "", as the program's table has them."""
    path = Path(os.environ["DDPRUN_BIN"]) / program
    text = subprocess.run([path, "--help"], check=True, capture_output=True, text=True, timeout=60).stdout
    return {name: value for name, value in re.findall(r"^  (?:-\w,)?(--[\w-]+)(?: (\S+))?", text, re.MULTILINE)}


def named_on(page):
    return set(re.findall(r"(?<![\w-])--[a-z][\w-]*", page))


def entries_of(page):
    """What stands before the colon in each item of a list that begins with an option."""
    return re.findall(r"^\* (`--.*?): ", page, re.MULTILINE | re.DOTALL)


class Pages(unittest.TestCase):
    def setUp(self):
        self.options = help_of("ddprun")
        self.page = (ROOT / "cli/OPTIONS.md").read_text(encoding="utf-8")

    def test_each_option_of_ddprun_has_an_entry(self):
        named = {name for entry in entries_of(self.page) for name in named_on(entry)}
        self.assertEqual(set(self.options) - NOT_ON_PAGES - named, set())
        self.assertEqual(named - set(self.options), set())

    def test_no_paragraph_is_there_twice(self):
        for name in ("OPTIONS", "DDPD"):
            paragraphs = (ROOT / f"cli/{name}.md").read_text(encoding="utf-8").split("\n\n")
            self.assertEqual([text for text in set(paragraphs) if paragraphs.count(text) > 1], [])

    def test_no_other_option_is_named(self):
        unknown = {name for name in named_on(self.page) if name.replace("_", "-") not in self.options}
        short = {name for name in unknown if len([option for option in self.options if option.startswith(name)]) == 1}
        self.assertEqual(unknown - short - OF_SLURM - OF_DDPCTL, set())

    def test_our_own_options_have_the_values_of_the_table(self):
        section = self.page.partition("\n## Options of ddprun\n")[2].partition("\n## ")[0]
        self.assertGreater(len(entries_of(section)), 10)
        for entry in entries_of(section):
            for name, value in re.findall(r"`(--[\w-]+)(?: ([^`]+))?`", entry):
                self.assertEqual((name, value), (name, self.options.get(name)))

    def test_each_option_of_ddpd_is_on_its_page(self):
        page = (ROOT / "cli/DDPD.md").read_text(encoding="utf-8")
        options = help_of("ddpd")
        self.assertGreater(len(options), 20)
        self.assertEqual(set(options) - NOT_ON_PAGES - named_on(page), set())
        self.assertEqual(named_on(page) - set(options) - set(self.options), set())


if __name__ == "__main__":
    unittest.main()
