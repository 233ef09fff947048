#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Runs one part of the cases of a test script, so that ctest can run the parts beside each other.

usage: part.py K/N SCRIPT [ARGUMENT...]

Part K, from 1, is every N-th case in unittest's order, from the K-th on: the long cases of a script are often
neighbours.  What a class sets up for its cases is set up in each part."""

import pathlib
import runpy
import sys
import unittest


def cases_of(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from cases_of(test)
        else:
            yield test


def main():
    part, _, parts = sys.argv[1].partition("/")
    script = sys.argv[2]
    part, parts = int(part), int(parts)
    loader = unittest.defaultTestLoader
    load_all = loader.loadTestsFromModule

    def load_part(*arguments, **options):
        cases = list(cases_of(load_all(*arguments, **options)))
        return unittest.TestSuite(cases[part - 1::parts])

    loader.loadTestsFromModule = load_part
    sys.argv[:] = sys.argv[2:]
    sys.path[0] = str(pathlib.Path(script).resolve().parent)
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
