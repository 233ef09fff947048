// SPDX-License-Identifier: BSD-3-Clause
#include "cli/slurm/signals.h"

#include <doctest/doctest.h>

using namespace ddprun::cli;
using ddprun::agent::SlurmSignals;

TEST_SUITE("cli/slurm/signals") {
  TEST_CASE("whom a signal reaches is in slurm.conf") {
    CHECK(slurm_signals("ClusterName=a\nProctrackType=proctrack/linuxproc\n", {}) ==
          SlurmSignals::ToAll);
    CHECK(slurm_signals(" proctracktype = Proctrack/LinuxProc # all", {}) == SlurmSignals::ToAll);
    CHECK(slurm_signals("ProctrackType=proctrack/pgid", {}) == SlurmSignals::ToAgent);
    CHECK(slurm_signals("ProctrackType=proctrack/cgroup", {}) == SlurmSignals::ToAgent);
    CHECK(slurm_signals("ClusterName=a\n#ProctrackType=proctrack/linuxproc\n", {}) ==
          SlurmSignals::ToAgent);
  }

  TEST_CASE("with cgroups cgroup.conf may say that children are signalled") {
    CHECK(slurm_signals("", "SignalChildrenProcesses=yes") == SlurmSignals::ToAll);
    CHECK(slurm_signals("", "SignalChildrenProcesses=no") == SlurmSignals::ToAgent);
    CHECK(slurm_signals("", "CgroupPlugin=autodetect") == SlurmSignals::ToAgent);
    CHECK(slurm_signals("ProctrackType=proctrack/pgid", "SignalChildrenProcesses=yes") ==
          SlurmSignals::ToAgent);
  }

  TEST_CASE("what cannot be read, or says something new, is not guessed") {
    CHECK(slurm_signals({}, "SignalChildrenProcesses=yes") == SlurmSignals::Unknown);
    CHECK(slurm_signals("ProctrackType=proctrack/new", {}) == SlurmSignals::Unknown);
    CHECK(slurm_signals("include /etc/slurm/site.conf", {}) == SlurmSignals::Unknown);
    CHECK(slurm_signals("include a\nProctrackType=proctrack/pgid", {}) == SlurmSignals::ToAgent);
  }
}
