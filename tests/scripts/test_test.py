#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""scripts/test in a scratch checkout: what it asks of the build and of ctest, what it concludes."""

import unittest

from scratch_checkout import ScratchCheckout

BUILD = 'echo "build $*" >>"$CALLS"; exit "$BUILD_STATUS"'
CTEST = """
    if [ "$*" = --help ]; then echo "  --rerun-failed   = Run only the failed"; exit; fi
    echo "ctest $* long=$DDPRUN_TEST_LONG" >>"$CALLS"
    echo "$CTEST_PARALLEL_LEVEL at once" >>"$CALLS"
    echo "      Start  2: ok"
    echo " 1/2 Test  #2: ok ....   Passed    0.10 sec"
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
        self.stub("nproc", "echo 2")
        self.environment["CTEST_PARALLEL_LEVEL"] = ""

    def run_test(self, *options, cases=(PASSED,), ctest_status=0, build_status=0, ci="", **more):
        """`cases` of None: ctest leaves no report."""
        report = self.top / "report.xml"
        report.write_text(f"<testsuite>{''.join(cases or ())}</testsuite>")
        return self.run_script(
            *options,
            REPORT="" if cases is None else str(report),
            CTEST_STATUS=str(ctest_status),
            BUILD_STATUS=str(build_status),
            CI=ci,
            **more,
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
        build, ctest, *_ = self.take_calls()
        self.assertEqual(build.split(), ["build"])
        self.assertTrue(ctest.endswith(" -LE ^long$ -R store server --rerun-failed long="))
        self.run_test("--long", "-R", "store")
        build, ctest, *_ = self.take_calls()
        self.assertEqual(build.split(), ["build", "all", "bench"])
        self.assertTrue(ctest.endswith("tests.xml -R store long=1"))

    def test_each_end_of_a_test_is_shown_and_no_beginning(self):
        self.assertEqual(self.run_test().stdout.splitlines()[0], " 1/2 Test  #2: ok ....   Passed    0.10 sec")

    def test_the_ten_slowest_are_named_slowest_first(self):
        cases = [PASSED.replace('"ok"', f'"test{k}" time="{k * 1.25}"') for k in range(12)]
        lines = self.run_test(cases=cases).stdout.splitlines()
        begin = lines.index("the ten slowest:")
        self.assertEqual(lines[begin + 1:begin + 3], ["   13.8 s  test11", "   12.5 s  test10"])
        self.assertEqual(lines[begin + 10:], ["    2.5 s  test2", "", "12 passed, 0 failed, 0 skipped"])
        self.assertNotIn("slowest", self.run_test(cases=cases[:10]).stdout)

    def test_several_run_at_once_as_the_cores_allow_or_as_is_asked(self):
        def at_once(*options, **more):
            self.run_test(*options, **more)
            return self.take_calls()[2]
        self.assertEqual(at_once(), "6 at once")
        self.assertEqual(at_once(CTEST_PARALLEL_LEVEL="1"), "1 at once")
        self.stub("nproc", "echo 64")
        self.assertEqual(at_once(), "24 at once")

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
