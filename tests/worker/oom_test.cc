// SPDX-License-Identifier: BSD-3-Clause
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/temp_dir.h"
#include "worker/process/decide/oom_evidence.h"
#include "worker/process/oom_watch.h"

using namespace ddprun;
using namespace ddprun::process;

namespace {

constexpr const char* kKmsg =
    "3,1123,8811,-;Memory cgroup out of memory: Killed process 4211 (python3) total-vm:9112kB, "
    "anon-rss:524288kB, file-rss:1024kB, shmem-rss:0kB, UID:0 pgtables:60kB oom_score_adj:0\n";

void write(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << text;
}

}  // namespace

TEST_SUITE("worker/process/oom") {
  TEST_CASE("the memory cgroup is v1's where there is one, else v2's") {
    auto hybrid = parse_memory_cgroup("9:name=systemd:/x\n4:cpu,memory:/job_7\n0::/other\n");
    REQUIRE(hybrid);
    CHECK_FALSE(hybrid->is_v2);
    CHECK(hybrid->path == "/job_7");
    auto unified = parse_memory_cgroup("0::/user.slice/a:b\n");
    REQUIRE(unified);
    CHECK(unified->is_v2);
    CHECK(unified->path == "/user.slice/a:b");
    CHECK_FALSE(parse_memory_cgroup("4:cpu:/x\n"));
    CHECK_FALSE(parse_memory_cgroup("nonsense"));
  }

  TEST_CASE("counters and limits") {
    CHECK(parse_counter("low 0\noom 4\noom_kill 3\noom_group_kill 9\n", "oom_kill") == 3);
    CHECK(parse_counter("oom_kill_disable 0\nunder_oom 0\noom_kill 2", "oom_kill") == 2);
    CHECK_FALSE(parse_counter("oom 4\n", "oom_kill"));
    CHECK_FALSE(parse_counter("oom_kill x\n", "oom_kill"));
    CHECK(parse_limit("536870912\n") == 536870912);
    CHECK_FALSE(parse_limit("max\n"));
    CHECK_FALSE(parse_limit("9223372036854771712\n"));
    CHECK_FALSE(parse_limit(""));
  }

  TEST_CASE("the kernel's own message names the process") {
    auto kill = parse_kernel_kill(kKmsg);
    REQUIRE(kill);
    CHECK(kill->pid == 4211);
    CHECK(kill->is_by_cgroup);
    CHECK(kill->rss_bytes == 524288LL * 1024);
    auto machine = parse_kernel_kill("3,1,2,-;Out of memory: Killed process 7 (x)");
    REQUIRE(machine);
    CHECK_FALSE(machine->is_by_cgroup);
    CHECK(machine->rss_bytes == -1);
    CHECK_FALSE(parse_kernel_kill("6,1,2,-;eth0: link is up"));
    CHECK_FALSE(parse_kernel_kill("6,1,2,-;sysrq: Killed process 7"));
  }

  TEST_CASE("what is said of a death") {
    const OomReading before{.cgroup_kills = 0, .machine_kills = 5, .limit_bytes = 512LL << 20};
    OomReading after = before;
    CHECK(oom_words(before, after, {}, 4211, true) == "");
    after.machine_kills = 6;
    CHECK(oom_words(before, after, {}, 4211, true) ==
          "perhaps the kernel's OOM killer, which has ended a process on this machine meanwhile");
    CHECK(oom_words(before, after, {}, 4211, false) == "");
    after.cgroup_kills = 1;
    CHECK(oom_words(before, after, {}, 4211, true) ==
          "the kernel's OOM killer: memory cgroup limit reached (limit 512 MiB)");
    CHECK(oom_words(before, after, {}, 4211, false) ==
          "the kernel's OOM killer has ended a process beside it: memory cgroup limit reached "
          "(limit 512 MiB)");
    // Of another job on the machine, and the kernel has said so.
    after.cgroup_kills = 0;
    CHECK(oom_words(before, after, {{.pid = 17}}, 4211, true) == "");
    after.machine_kills = 7;
    CHECK(oom_words(before, after, {{.pid = 17}}, 4211, true) ==
          "perhaps the kernel's OOM killer, which has ended a process on this machine meanwhile");
    after.cgroup_kills = 1;
    KernelKill kill{.pid = 4211, .is_by_cgroup = true, .rss_bytes = 500LL << 20};
    CHECK(oom_words(before, after, {kill}, 4211, true) ==
          "the kernel's OOM killer: memory cgroup limit reached (limit 512 MiB), the worker held "
          "500 MiB");
    kill.is_by_cgroup = false;
    CHECK(oom_words(before, before, {kill}, 4211, true) ==
          "the kernel's OOM killer: the machine is out of memory, the worker held 500 MiB");
    CHECK(oom_words(before, before, {kill}, 4212, true) == "");
    CHECK(oom_words({}, after, {}, 4211, true) == "");
  }

  TEST_CASE("bytes are told in the largest unit") {
    CHECK(describe_bytes(900) == "900 bytes");
    CHECK(describe_bytes(3LL << 29) == "1.5 GiB");
  }

  TEST_CASE("the watch reads v2, with the tightest limit above it, and starts anew each time") {
    test::TempDir folder;
    std::string group = folder.path() + "/sys/fs/cgroup/slice/job";
    write(folder.path() + "/proc/self/cgroup", "0::/slice/job\n");
    write(folder.path() + "/proc/vmstat", "oom_kill 0\n");
    write(folder.path() + "/sys/fs/cgroup/cgroup.controllers", "memory\n");
    write(folder.path() + "/sys/fs/cgroup/slice/memory.max", "1048576\n");
    write(group + "/memory.max", "max\n");
    write(group + "/memory.events", "oom_kill 7\n");
    OomWatch watch(folder.path());
    CHECK(watch.words_on(1, true) == "");
    write(group + "/memory.events", "oom_kill 8\n");
    CHECK(watch.words_on(1, true) ==
          "the kernel's OOM killer: memory cgroup limit reached (limit 1 MiB)");
    CHECK(watch.words_on(1, true) == "");
  }

  TEST_CASE("a cgroup of the worker's own says whose death it was") {
    test::TempDir folder;
    std::string group = folder.path() + "/sys/fs/cgroup/job";
    write(folder.path() + "/proc/self/cgroup", "0::/job\n");
    write(folder.path() + "/sys/fs/cgroup/cgroup.controllers", "memory\n");
    write(group + "/memory.max", "1048576\n");
    write(group + "/memory.events", "oom_kill 0\n");
    write(group + "/ddprun-7-0/memory.events", "oom_kill 0\n");
    write(group + "/ddprun-7-1/memory.events", "oom_kill 1\n");
    OomWatch watch(folder.path());
    write(group + "/memory.events", "oom_kill 1\n");
    CHECK(watch.words_on(1, true, group + "/ddprun-7-0") == "");
    CHECK(watch.words_on(2, true, group + "/ddprun-7-1") ==
          "the kernel's OOM killer: memory cgroup limit reached (limit 1 MiB)");
    CHECK(watch.words_on(3, true, group + "/ddprun-7-2") == "");
  }

  TEST_CASE("a v1 cgroup that only the host can name is the mount point") {
    test::TempDir folder;
    std::string mount = folder.path() + "/sys/fs/cgroup/memory";
    write(folder.path() + "/proc/self/cgroup", "4:memory:/docker/0af3\n0::/\n");
    write(mount + "/memory.limit_in_bytes", "2097152\n");
    write(mount + "/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n");
    OomWatch watch(folder.path());
    write(mount + "/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n");
    CHECK(watch.words_on(1, true) ==
          "the kernel's OOM killer: memory cgroup limit reached (limit 2 MiB)");
  }

  TEST_CASE("where nothing can be read, nothing is said") {
    test::TempDir folder;
    OomWatch watch(folder.path());
    CHECK(watch.words_on(1, true) == "");
  }
}
