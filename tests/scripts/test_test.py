#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""scripts/test in a scratch checkout: what it asks of the build and of ctest, what it concludes."""

import unittest

from scratch_checkout import ScratchCheckout

BUILD = 'echo "build $*" >>"$CALLS"; exit "$BUILD_STATUS"'
CTEST = """
    if [ "$*" = --help ]; then echo "  --rerun-failed   = Run only the failed"; exit; fi
    echo "ctest $* long=$DDPRUN_TEST_LONG" >>"$CALLS"
    while [ "$1" != --output-junit ]; do shift; done
    [ -z "$REPORT" ] || cp "$REPORT" "$2"
    exit "$CTEST_STATUS"
"""

PASSED = '<testcase name="ok" status="run"><system-out>fine</system-out></testcase>'
FAILED = '<testcase name="bad" status="fail"><failure message=""/></testcase>'
SKIPPED = (
    '<testcase name="gpu" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/>'
    "<system-out>looking\nno GPU here\n</system-out></testcase>"
)
DISABLED = '<testcase name="off" status="disabled"><system-out>Disabled</system-out></testcase>'
ABSENT = (
    '<testcase name="gone" status="notrun"><skipped message="Unable to find executable"/></testcase>'
)


class Test(ScratchCheckout):
    script = "test"

    def setUp(self):
        super().setUp()
        (self.root / "build" / "release").mkdir(parents=True)
        self.stub("scripts/setup", '[ "$*" = --tests ]')
        self.stub("scripts/build", BUILD)
        self.stub("ctest", CTEST)

    def run_test(self, *options, cases=(PASSED,), ctest_status=0, build_status=0, ci=""):
        """`cases` of None: ctest leaves no report."""
        report = self.top / "report.xml"
        report.write_text(f"<testsuite>{''.join(cases or ())}</testsuite>")
        return self.run_script(
            *options,
            REPORT="" if cases is None else str(report),
            CTEST_STATUS=str(ctest_status),
            BUILD_STATUS=str(build_status),
            CI=ci,
        )

    def assert_concludes(self, result, status, *last_lines):
        self.assertEqual(tuple(result.stdout.splitlines()[-len(last_lines) :]), last_lines)
        self.assertEqual((result.returncode, result.stderr), (status, ""))

    def test_the_last_line_counts(self):
        result = self.run_test(cases=(PASSED, SKIPPED, PASSED, DISABLED))
        self.assert_concludes(
            result,
            0,
            "skipped: gpu: no GPU here",
            "skipped: off: Disabled",
            "2 passed, 0 failed, 2 skipped",
        )

    def test_a_program_that_was_not_built_has_failed(self):
        result = self.run_test(cases=(PASSED, FAILED, ABSENT), ctest_status=8)
        self.assert_concludes(
            result, 1, "failed: bad", "failed: gone", "1 passed, 2 failed, 0 skipped"
        )

    def test_nothing_run_is_no_success(self):
        self.assert_concludes(self.run_test(cases=()), 1, "0 passed, 0 failed, 0 skipped")
        self.assert_concludes(self.run_test(cases=(SKIPPED,)), 1, "0 passed, 0 failed, 1 skipped")

    def test_a_ctest_that_breaks_down_is_no_success(self):
        (self.root / "build" / "release" / "tests.xml").write_text("of an earlier run")
        self.assert_concludes(self.run_test(ctest_status=8), 1, "1 passed, 0 failed, 0 skipped")
        result = self.run_test(cases=None, ctest_status=8)
        self.assert_concludes(result, 1, "0 passed, 0 failed, 0 skipped")

    def test_a_build_that_fails_ends_it(self):
        result = self.run_test(build_status=3)
        self.assertEqual((result.returncode, result.stdout), (3, ""))

    def test_long_tests_are_asked_for(self):
        self.run_test("-R", "store server", "--rerun-failed")
        self.assertTrue(self.take_calls()[1].endswith(" -LE ^long$ -R store server --rerun-failed long="))
        self.run_test("--long", "-R", "store")
        self.assertTrue(self.take_calls()[1].endswith("tests.xml -R store long=1"))

    def test_warnings_are_errors_for_ci_only(self):
        self.run_test(ci="true")
        self.assertEqual(self.take_calls()[0], "build -DDDPRUN_WERROR=ON")
        self.run_test()
        self.assertEqual(self.take_calls()[0], "build ")

    def test_an_unknown_option_is_refused(self):
        result = self.run_test("--lnog")
        self.assertEqual(result.returncode, 2)
        self.assertEqual(
            result.stderr, "test: neither test nor ctest knows --lnog; see --help\n"
        )


if __name__ == "__main__":
    unittest.main()
