// SPDX-License-Identifier: BSD-3-Clause
#include "cli/slurm/signals.h"

#include <doctest/doctest.h>

using namespace ddprun::cli;
using ddprun::agent::SignalReach;

TEST_SUITE("cli/slurm/signals") {
  TEST_CASE("whom a signal reaches is in slurm.conf") {
    CHECK(signal_reach("ClusterName=a\nProctrackType=proctrack/linuxproc\n", {}) ==
          SignalReach::EveryProcess);
    CHECK(signal_reach(" proctracktype = Proctrack/LinuxProc # all", {}) ==
          SignalReach::EveryProcess);
    CHECK(signal_reach("ProctrackType=proctrack/pgid", {}) == SignalReach::Agent);
    CHECK(signal_reach("ProctrackType=proctrack/cgroup", {}) == SignalReach::Agent);
    CHECK(signal_reach("ClusterName=a\n#ProctrackType=proctrack/linuxproc\n", {}) ==
          SignalReach::Agent);
  }

  TEST_CASE("with cgroups cgroup.conf may say that children are signalled") {
    CHECK(signal_reach("", "SignalChildrenProcesses=yes") == SignalReach::EveryProcess);
    CHECK(signal_reach("", "SignalChildrenProcesses=no") == SignalReach::Agent);
    CHECK(signal_reach("", "CgroupPlugin=autodetect") == SignalReach::Agent);
    CHECK(signal_reach("ProctrackType=proctrack/pgid", "SignalChildrenProcesses=yes") ==
          SignalReach::Agent);
  }

  TEST_CASE("what cannot be read, or says something new, is not guessed") {
    CHECK(signal_reach({}, "SignalChildrenProcesses=yes") == SignalReach::Unknown);
    CHECK(signal_reach("ProctrackType=proctrack/new", {}) == SignalReach::Unknown);
    CHECK(signal_reach("include /etc/slurm/site.conf", {}) == SignalReach::Unknown);
    CHECK(signal_reach("include a\nProctrackType=proctrack/pgid", {}) == SignalReach::Agent);
  }
}
