// SPDX-License-Identifier: BSD-3-Clause
#include "agent/decide/folder_name.h"

#include <doctest/doctest.h>

using namespace ddprun::agent;

TEST_SUITE("agent/decide/folder_name") {
  TEST_CASE("a run id leaves no folder and hides none") {
    CHECK(folder_name_of("job-7", false) == "job-7");
    CHECK(folder_name_of("job-7", true) == "ddprun_job-7");
    CHECK(folder_name_of("../x", false) == "_._x");
    CHECK(folder_name_of("team/exp/1", false) == "team_exp_1");
    CHECK(folder_name_of(std::string(1000, 'x'), false) == std::string(128, 'x'));
  }

  TEST_CASE("a folder is known again by the run's id") {
    CHECK(is_folder_of("team_exp_1_aB3dE6", "team/exp/1"));
    CHECK(is_folder_of("ddprun_job_aB3dE6", "job"));
    CHECK(is_folder_of("job_7_aB3dE6", "job_7"));
    CHECK_FALSE(is_folder_of("job_7_aB3dE6", "job"));
    CHECK_FALSE(is_folder_of("latest", "job"));
    CHECK_FALSE(is_folder_of("", "job"));
  }
}
