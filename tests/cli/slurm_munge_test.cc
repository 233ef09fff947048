// SPDX-License-Identifier: BSD-3-Clause
#include "cli/slurm/munge.h"

#include <doctest/doctest.h>

using namespace ddprun::cli;

TEST_SUITE("cli/slurm/munge") {
  TEST_CASE("where munged listens is in slurm.conf, if it is anywhere") {
    CHECK(munge_socket({}) == "");
    CHECK(munge_socket("AuthType=auth/munge\n") == "");
    CHECK(munge_socket("AuthInfo=socket=/run/M.socket\n") == "/run/M.socket");
    CHECK(munge_socket(" authinfo = cred_expire=5 , socket=/a/B # here") == "/a/B");
    CHECK(munge_socket("#AuthInfo=socket=/a\nAuthInfo=cred_expire=5") == "");
    CHECK(munge_socket("AuthInfo=socket=/a\nAuthInfo=socket=/b\n") == "/b");
  }
}
