// SPDX-License-Identifier: BSD-3-Clause
//
// Runs the test cases that the arguments select; a selection with no case in it is a mistake.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>

namespace {

bool no_case_selected = false;

class Selection : public doctest::IReporter {
 public:
  explicit Selection(const doctest::ContextOptions&) {}
  void test_run_end(const doctest::TestRunStats& stats) override {
    no_case_selected = stats.numTestCasesPassingFilters == 0;
  }
  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_case_start(const doctest::TestCaseData&) override {}
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_end(const doctest::CurrentTestCaseStats&) override {}
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}
};
REGISTER_LISTENER("selection", 1, Selection);

}  // namespace

int main(int argc, char** argv) {
  int status = doctest::Context(argc, argv).run();
  if (!no_case_selected) return status;
  std::fputs("no test case is selected\n", stderr);
  return 1;
}
