// SPDX-License-Identifier: BSD-3-Clause
//
// Stacks as py-spy 0.4 and elfutils 0.188 write them of torch 2.15.
#include "worker/process/decide/stack_text.h"

#include <doctest/doctest.h>

using namespace ddprun::process;

namespace {

const char* const kInAllReduce = R"(Process 15210: python3 train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 15210 (idle): "MainThread"
    all_gather_single (torch/distributed/distributed_c10d.py:5430)
    _exception_logger.<locals>.wrapper (torch/distributed/c10d_logger.py:83)
    all_gather_object (torch/distributed/distributed_c10d.py:4473)
    _exception_logger.<locals>.wrapper (torch/distributed/c10d_logger.py:83)
    <module> (train.py:28)
Thread 15301 (idle): "pt_autograd"
    spare (threads.py:1)
)";

const char* const kAsleep = R"(Process 15211: python3 train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 15211 (idle): "MainThread"
    load (data.py:40)
    <module> (train.py:13)
)";

const char* const kImports = R"(Thread 12227 (active+gil): "MainThread"
    _process_class (dataclasses.py:1027)
    <module> (torch/export/graph_signature.py:158)
    _call_with_frames_removed (<frozen importlib._bootstrap>:241)
    <module> (train.py:2)
)";

}  // namespace

TEST_SUITE("worker/process/decide/stack_text") {
  TEST_CASE("who waits for its peers, by what gdb and eu-stack write") {
    CHECK(waits_for_peers(
              "Thread 2 (LWP 2):\n#0 x\n\nThread 1 (LWP 1):\n#0 futex\n#1 c10d::Work::wait\n") ==
          true);
    CHECK(waits_for_peers(
              "Thread 2 (LWP 2):\n#0 gloo::Loop::run\n\nThread 1 (LWP 1):\n#0 nanosleep\n") ==
          false);
    CHECK(waits_for_peers("PID 7 - process\nTID 7:\n#0 x\n#1 c10d::Work::wait\nTID 8:\n#0 y\n") ==
          true);
    CHECK(waits_for_peers("PID 7 - process\nTID 7:\n#0 x\nTID 8:\n#0 gloo::Loop::run\n") == false);
    CHECK(waits_for_peers("PID 7 - process\nTID 7:\n#0 c10d::Work::wait\nTID 8:\n#0 y\n"
                          "PID 7 - process\nTID 7:\n#0 sleep\nTID 8:\n#0 y\n") == false);
    CHECK(waits_for_peers("TID 7:\n#0 futex\n#1 ddprun::ddp::ProcessGroup::barrier()\n#2 main\n") ==
          true);
    CHECK(waits_for_peers("") == std::nullopt);
    CHECK(waits_for_peers("ptrace: Operation not permitted.") == std::nullopt);
  }

  TEST_CASE("the collective is the one that the program has called") {
    auto stack = python_stack(kInAllReduce);
    REQUIRE(stack);
    CHECK(stack->collective == "all_gather_object");
    CHECK(stack->place == "<module> (train.py:28)");
  }

  TEST_CASE("the place is the innermost frame that is not torch's") {
    CHECK(python_stack(kAsleep)->place == "load (data.py:40)");
    CHECK(python_stack(kAsleep)->collective.empty());
    CHECK(python_stack(kImports)->place == "_process_class (dataclasses.py:1027)");
  }

  TEST_CASE("the frames of the main thread, the innermost first") {
    CHECK(main_frames("", kAsleep, 9) ==
          std::vector<std::string>{"load (data.py:40)", "<module> (train.py:13)"});
    CHECK(
        main_frames("", kInAllReduce, 1) ==
        std::vector<std::string>{"all_gather_single (torch/distributed/distributed_c10d.py:5430)"});
    const char* eu_stack =
        "PID 7 - process\nTID 7:\n#0  0x00007f12     __poll\n#1  0x00007f34 - 1 c10d::Work::wait\n"
        "TID 8:\n#0  0x00007f56 epoll_wait\n";
    CHECK(main_frames(eu_stack, "", 9) == std::vector<std::string>{"__poll", "c10d::Work::wait"});
    CHECK(main_frames("Thread 1 (LWP 1):\n#0 x", "", 9).empty());
    CHECK(main_frames("\nThread 1 (LWP 1):\n#0  0x00aa in poll () from /lib/libc.so\n#1 main ()",
                      "", 9) == std::vector<std::string>{"poll () from /lib/libc.so", "main ()"});
    CHECK(main_frames(eu_stack, kAsleep, 9).front() == "load (data.py:40)");
    CHECK(main_frames("", "", 9).empty());
    CHECK(main_frames(eu_stack, "", 0).empty());
  }

  TEST_CASE("no stack") {
    CHECK_FALSE(python_stack(""));
    CHECK_FALSE(
        python_stack("Error: Permission Denied: Try running again with elevated permissions"));
    CHECK_FALSE(python_stack("Thread 12227 (active): \"MainThread\"\n"));
  }

  TEST_CASE("a program without the module threading has a main thread without a name") {
    CHECK(
        python_stack("Process 8214: python3 -c \nimport time\nPython v3.11.7 (/usr/bin/python3)\n\n"
                     "Thread 8215 (idle)\n    other (a.py:1)\n"
                     "Thread 8214 (idle)\n    load (data.py:40)\n    <module> (train.py:9)\n")
            ->place == "load (data.py:40)");
  }

  TEST_CASE("the last of several dumps counts") {
    CHECK(python_stack(std::string(kInAllReduce) + kAsleep)->place == "load (data.py:40)");
  }

  TEST_CASE("what a process does") {
    Activity waits = activity_of("", kInAllReduce, "sleeping in futex_do_wait");
    CHECK(waits.is_waiting == true);
    CHECK(waits.text == "is in <module> (train.py:28)");
    Activity sleeps = activity_of("", kAsleep, "sleeping in hrtimer_nanosleep");
    CHECK(sleeps.is_waiting == false);
    CHECK(sleeps.text == "sleeps in load (data.py:40)");
    CHECK(activity_of("", kImports, "running").text ==
          "runs in _process_class (dataclasses.py:1027)");
    CHECK(activity_of("", kAsleep, "in D state in nfs_wait_bit").text ==
          "is in load (data.py:40), in D state in nfs_wait_bit");
  }

  TEST_CASE("a native stack tells whether it waits, and where Python's does not") {
    const char* const native = "PID 7 - process\nTID 7:\n#0 x\n#1 c10d::Reducer::finalize\n";
    CHECK(activity_of(native, kAsleep, "").is_waiting == true);
    CHECK(activity_of("PID 7 - process\nTID 7:\n#0 x\n", "", "").is_waiting == false);
  }

  TEST_CASE("py-spy alone tells who is elsewhere, where no peer can keep it waiting") {
    auto in = [](const std::string& title, const std::string& frame, const char* doing) {
      return activity_of("", title + "\n    " + frame + "\n    <module> (train.py:13)\n", doing)
          .is_waiting;
    };
    const std::string idle = "Thread 15211 (idle): \"MainThread\"";
    const char* const lock = "sleeping in futex_do_wait";
    CHECK(in(idle, "wait (threading.py:327)", lock) == false);
    CHECK(in(idle, "get (queue.py:171)", lock) == false);
    CHECK(python_stack(idle + "\n    wait (threading.py:327)\n    load (data.py:7)\n")->place ==
          "load (data.py:7)");
    CHECK(in(idle, "readinto (socket.py:706)", "sleeping in wait_woken") == false);
    CHECK(in(idle, "fetch (data.py:7)", "sleeping in anon_pipe_read") == false);
    CHECK(in(idle, "fetch (data.py:7)", "in D state in nfs_wait_bit") == false);
    CHECK(in("Thread 15211 (active+gil): \"MainThread\"", "fetch (data.py:7)", "running") == false);
    CHECK(in("Process 15211: python3 a.py\n\nThread 15211 (active+gil)", "fetch (data.py:7)",
             "running") == false);
    // Work::wait() and backward() of C++ have no frame of their own.
    CHECK_FALSE(in(idle, "step (train.py:7)", lock).has_value());
    CHECK_FALSE(in("Thread 15211 (active): \"MainThread\"", "step (train.py:7)", "running"));
    // Another thread's.
    CHECK_FALSE(in("Thread 15212 (active+gil): \"loader\"\n    wait (threading.py:327)\n" + idle,
                   "step (train.py:7)", lock));
    // Who is stopped comes to nothing, wherever it is.
    CHECK(activity_of("", kInAllReduce, "stopped").is_waiting == false);
  }

  TEST_CASE("without stacks only what the kernel knows is told from a wait") {
    CHECK(activity_of("", "", "sleeping in pipe_read").is_waiting == false);
    CHECK(activity_of("", "", "sleeping in hrtimer_nanosleep").is_waiting == false);
    CHECK(activity_of("", "", "sleeping in hrtimer_nanosleep").text == "sleeps");
    CHECK_FALSE(activity_of("", "", "sleeping in futex_do_wait").is_waiting.has_value());
    CHECK(activity_of("", "", "sleeping in futex_do_wait").text == "is sleeping in futex_do_wait");
    CHECK_FALSE(activity_of("", "", "running").is_waiting.has_value());
    CHECK(activity_of("", "", "").text.empty());
  }
}
