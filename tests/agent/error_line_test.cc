// SPDX-License-Identifier: BSD-3-Clause
#include "agent/report/error_line.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace ddprun::agent {

TEST_SUITE("agent/report/error_line") {
  TEST_CASE("nothing was said") {
    CHECK(error_line({}).empty());
    CHECK(error_line({"", " \t\r"}).empty());
  }

  TEST_CASE("an exception says more than what follows it") {
    CHECK(error_line({"ValueError: first", "my.module.CustomError: sample 17", "cleaning up"}) ==
          "my.module.CustomError: sample 17");
    CHECK(error_line({"KeyboardInterrupt", ""}) == "KeyboardInterrupt");
    CHECK(error_line({"[rank1]: Traceback (most recent call last):", "[rank1]:   File \"a.py\"",
                      "[rank1]: RuntimeError: sizes differ"}) == "RuntimeError: sizes differ");
    CHECK(error_line({"[rank1 is not there", "[rank]: no number", "[rank12"}) == "[rank12");
  }

  TEST_CASE("a C++ exception that nobody caught") {
    CHECK(error_line({"terminate called after throwing an instance of 'gloo::EnforceNotMet'",
                      "  what():  op.preamble.length <= op.nbytes. 2048 vs 4", "", ""}) ==
          "op.preamble.length <= op.nbytes. 2048 vs 4");
    CHECK(error_line({"terminate called without an active exception", "  what():  "}) ==
          "  what():");
  }

  TEST_CASE("torch's remarks are not the last words, nor is a dump of stacks") {
    CHECK(error_line({"the model is broken",
                      "[W1122 03:58:17.131 socket.cpp:767] Warning: no name for this address",
                      "[I1122 03:58:17.131 x.cpp:1] so"}) == "the model is broken");
    CHECK(error_line({"loading", "Fatal Python error: Segmentation fault", "",
                      "Current thread 0x00007f (most recent call first):",
                      "  File \"/usr/lib/python3/ctypes/__init__.py\", line 519 in string_at",
                      "  File \"train.py\", line 3 in <module>", "",
                      "Extension modules: numpy._core (total: 1)"}) ==
          "Segmentation fault in string_at (__init__.py:519)");
    CHECK(error_line({"Fatal Python error: Segmentation fault"}) == "Segmentation fault");
    CHECK(error_line({"cannot go on: no data", "Fatal Python error: Aborted", "",
                      "Thread 0x00007f0000000000 (most recent call first):",
                      "  File \"/usr/lib/python3/threading.py\", line 320 in wait", "",
                      "Current thread 0x00007f1 (most recent call first):",
                      "  File \"train.py\", line 6 in <module>", "",
                      "Extension modules: numpy.core (total: 1)"}) == "cannot go on: no data");
    CHECK(error_line({"[What is this]"}) == "[What is this]");
    CHECK(error_line({"no data", "[rank1]:[W1128 02:52:51.4 a.cpp:1575] Warning: not destroyed"}) ==
          "no data");
  }

  TEST_CASE("of a line that was written over, the last state counts") {
    CHECK(error_line({"\rdownloading\rdownloaded"}) == "downloaded");
    CHECK(error_line({"ValueError: boom\r"}) == "ValueError: boom");
  }

  TEST_CASE("a progress bar is no cause, nor is a warning") {
    for (const char* line :
         {" 50%|#####     | 1/2 [00:01<00:01,  1.00s/it]",
          "\rshards:   0%|    | 0/1\rshards: 100%|####| 1/1 [00:00<00:00, 300it/s]",
          "/lib/graph.py:869: UserWarning: the streams differ", "train.py:3: FutureWarning: soon",
          "12/40 [==========>....] - ETA: 3s - loss: 0.12", "epoch 1 ━━━━━━━━━━━━━━ 50% 0:00:02"}) {
      CHECK(error_line({line}) == "");
      CHECK(error_line({"cannot read the data", line}) == "cannot read the data");
    }
    CHECK(error_line({"no data", "/lib/a.py:8: UserWarning: old", "  return run(  # in C++"}) ==
          "no data");
    CHECK(error_line({"a.py: no such file", "  100%| of the disk"}) == "  100%| of the disk");
    CHECK(error_line({"x.py:7: no Warning"}) == "x.py:7: no Warning");
    CHECK(error_line({"======== no data ========"}) == "======== no data ========");
    CHECK(error_line({"DeprecationWarning: an error by -W error"}) ==
          "DeprecationWarning: an error by -W error");
  }

  TEST_CASE("an exception that did not end the program gives way to one that did") {
    const std::vector<std::string> fatal = {
        "Traceback (most recent call last):", "  File \"train.py\", line 21, in <module>",
        "ValueError: the real one"};
    const std::vector<std::string> ignored = {
        "Exception ignored in: <function D.__del__ at 0x7f>",
        "Traceback (most recent call last):", "  File \"train.py\", line 18, in __del__",
        "RuntimeError: in del"};
    const std::vector<std::string> of_thread = {
        "Exception in thread Thread-1 (load):", "Traceback (most recent call last):",
        "  File \"train.py\", line 5, in load", "OSError: [Errno 5] Input/output error"};
    auto together = [](std::vector<std::string> first, const std::vector<std::string>& second) {
      first.insert(first.end(), second.begin(), second.end());
      return first;
    };
    CHECK(error_line(together(fatal, ignored)) == "ValueError: the real one");
    CHECK(error_line(together(ignored, fatal)) == "ValueError: the real one");
    CHECK(error_line(together(fatal, of_thread)) == "ValueError: the real one");
    CHECK(error_line(together(of_thread, ignored)) == "OSError: [Errno 5] Input/output error");
    CHECK(error_line(together({"no data is left"}, ignored)) == "no data is left");
    CHECK(error_line(ignored) == "RuntimeError: in del");
    CHECK(error_line(together(fatal, {"Exception ignored in: <_io.TextIOWrapper name='<stdout>'>",
                                      "BrokenPipeError: [Errno 32] Broken pipe"})) ==
          "ValueError: the real one");
    // One that follows from another in the same place is as important as that.
    CHECK(error_line(together(
              together(fatal, ignored),
              {"", "During handling of the above exception, another exception occurred:", "",
               "Traceback (most recent call last):", "  File \"a.py\"", "KeyError: 'a'"})) ==
          "ValueError: the real one");
    CHECK(error_line(together(
              together(ignored, fatal),
              {"", "The above exception was the direct cause of the following exception:", "",
               "Traceback (most recent call last):", "  File \"a.py\"", "KeyError: 'a'"})) ==
          "KeyError: 'a'");
  }

  TEST_CASE("what ends a traceback is an exception, whatever its name") {
    CHECK(error_line({"Traceback (most recent call last):", "  File \"a.py\"", "_queue.Empty",
                      "bye"}) == "_queue.Empty");
    CHECK(error_line({"Original Traceback (most recent call last):", "  File \"a.py\"",
                      "__main__.f.<locals>.Stop: 17", "bye"}) == "__main__.f.<locals>.Stop: 17");
    CHECK(error_line({"Traceback (most recent call last):", "  File \"a.py\"",
                      "terminate called after throwing an instance of 'E'", "  what():  x"}) ==
          "x");
  }

  TEST_CASE("what another thread says between the frames of a traceback is no part of it") {
    CHECK(error_line({"Traceback (most recent call last):", "  File \"a.py\", line 3, in <module>",
                      "INFO:root:step 17", "    train()", " 50%|#####     | 1/2 [00:01<00:01]",
                      "ValueError: boom", "INFO:root:step 18"}) == "ValueError: boom");
    CHECK(error_line({"Traceback (most recent call last):", "  File \"a.py\"", "INFO:root:step 17",
                      "    train()", "_queue.Empty"}) == "_queue.Empty");
  }

  TEST_CASE("what logging says of its own error is no cause") {
    const std::vector<std::string> of_logging = {
        "--- Logging error ---", "Traceback (most recent call last):",
        "  File \"logging.py\"", "TypeError: not all arguments converted",
        "Call stack:",           "  File \"a.py\", line 5",
        "Message: 'step'",       "Arguments: (17,)"};
    std::vector<std::string> lines = {"no data is left"};
    lines.insert(lines.end(), of_logging.begin(), of_logging.end());
    CHECK(error_line(lines) == "no data is left");
    lines = of_logging;
    lines.push_back("no data is left");
    CHECK(error_line(lines) == "no data is left");
    CHECK(error_line(of_logging) == "TypeError: not all arguments converted");
    CHECK(error_line({"Message: bad", "Arguments: none"}) == "Arguments: none");
  }

  TEST_CASE("an asyncio task's exception is not fatal, however it is logged") {
    for (const char* heading :
         {"ERROR:asyncio:Task exception was never retrieved",
          "2026-01-31 12:00:00 ERROR asyncio Task exception was never retrieved",
          "Exception in callback f()", "[ERROR] asyncio: Exception in callback f()"}) {
      CAPTURE(heading);
      CHECK(error_line({"ValueError: the real one", heading, "handle: <Handle f() at a.py:3>",
                        "Traceback (most recent call last):", "  File \"a.py\"",
                        "OSError: in a task"}) == "ValueError: the real one");
    }
  }

  TEST_CASE("a line about a group of processes names no exception") {
    CHECK(error_line({"cannot go on", "ProcessGroup: ready", "bye"}) == "bye");
    CHECK(error_line({"Traceback (most recent call last):", "  File \"a.py\"", "MyGroup: three"}) ==
          "MyGroup: three");
  }

  TEST_CASE("an exception that ends in a colon has its next line") {
    CHECK(error_line({"RuntimeError: Error(s) in loading state_dict for Net:",
                      "\tMissing key(s) in state_dict: \"a\". ", "\tsize mismatch for b"}) ==
          "RuntimeError: Error(s) in loading state_dict for Net: Missing key(s) in state_dict: "
          "\"a\".");
    CHECK(error_line({"RuntimeError: wrong:", "bye"}) == "RuntimeError: wrong:");
    CHECK(error_line({"RuntimeError: wrong:"}) == "RuntimeError: wrong:");
  }

  TEST_CASE("of an exception group the first member is told") {
    CHECK(error_line(
              {"  + Exception Group Traceback (most recent call last):",
               "  |   File \"a.py\", line 6, in <module>",
               "  | ExceptionGroup: unhandled errors in a TaskGroup (2 sub-exceptions)",
               "  +-+---------------- 1 ----------------",
               "    | Traceback (most recent call last):", "    |   File \"a.py\", line 2, in f",
               "    | ValueError: bad shard", "    +---------------- 2 ----------------",
               "    | TypeError: no shard", "    +------------------------------------"}) ==
          "ExceptionGroup: unhandled errors in a TaskGroup (2 sub-exceptions): ValueError: bad "
          "shard");
    CHECK(error_line({"    | ValueError: bad shard", "    +-------------"}) ==
          "ValueError: bad shard");
  }

  TEST_CASE("an error file's message may hold another process's traceback") {
    CHECK(reported_error("ValueError: Caught ValueError in DataLoader worker process 0.\n"
                         "Original Traceback (most recent call last):\n  File \"a.py\"\n"
                         "ValueError: bad sample 17\n",
                         "") == "ValueError: bad sample 17");
    CHECK(reported_error("ProcessRaisedException: \n\n-- Process 1 terminated with the following "
                         "error:\nTraceback (most recent call last):\n  File \"a.py\"\n"
                         "ValueError: bad sample 17\n",
                         "") == "ValueError: bad sample 17");
    CHECK(reported_error("RuntimeError: ", "") == "RuntimeError");
    CHECK(reported_error("RuntimeError: a:", "") == "RuntimeError: a:");
    CHECK(reported_error("RuntimeError: two\nlines", "") == "RuntimeError: two\nlines");
    CHECK(reported_error("", "").empty());
    CHECK(reported_error("ExceptionGroup: all (1 sub-exception)",
                         "  + Exception Group Traceback (most recent call last):\n"
                         "  |   File \"a.py\"\n  | ExceptionGroup: all (1 sub-exception)\n"
                         "  +-+---------------- 1 ----------------\n    | KeyError: 'a'\n"
                         "    +------------------------------------\n") ==
          "ExceptionGroup: all (1 sub-exception): KeyError: 'a'");
    CHECK(reported_error("ExceptionGroup: all", "") == "ExceptionGroup: all");
  }

  TEST_CASE("colours are no part of it") {
    CHECK(error_line({"\x1b[1;91mValueError: \x1b[0mbad lr", "\x1b[0m"}) == "ValueError: bad lr");
    CHECK(error_line({"\x1b[31mno data\x1b["}) == "no data");
    CHECK(telling_lines({"\x1b[31m", "\x1b[31mno data\x1b[0m"}, 5) ==
          std::vector<std::string>{"no data"});
  }

  TEST_CASE("NCCL's own words stand behind the exception that torch makes of them") {
    const std::string kind =
        "[rank1]: torch.distributed.DistBackendError: NCCL error in: "
        "NCCLUtils.cpp:93, invalid usage, NCCL version 2.28.9";
    CHECK(error_line({kind, "[rank1]: ncclInvalidUsage: This usually reflects invalid usage.",
                      "[rank1]: Last error:",
                      "[rank1]: Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 60",
                      "[rank1]:[W1128 02:52:51.4 a.cpp:1575] Warning: not destroyed"}) ==
          "torch.distributed.DistBackendError: Duplicate GPU detected : rank 1 and rank 0 both on "
          "CUDA device 60");
    CHECK(error_line(
              {"ncclRemoteError: A call failed, possibly due to a network error.",
               "Last error:", "socketProgress: Connection closed by remote peer localhost<51126>",
               "Exception raised from check at a.cpp:2770 (most recent call first):"}) ==
          "ncclRemoteError: socketProgress: Connection closed by remote peer localhost<51126>");
    CHECK(error_line({"ncclSystemError: A call failed.", "Last error:", ""}) ==
          "ncclSystemError: A call failed.");
    CHECK(error_line({"ncclSystemError: A call failed.", "Last error:"}) ==
          "ncclSystemError: A call failed.");
  }

  TEST_CASE("what a program logs as it goes is no cause") {
    for (const char* line :
         {"INFO:root:attempt 0", "DEBUG:urllib3:x", "[INFO] epoch 3",
          "2026-01-31 12:00:00 INFO step 7", "2026-01-31 12:00:00,123 - train - INFO - step 7",
          "[2026-01-31 12:00] DEBUG x"}) {
      CHECK(error_line({line}) == "");
      CHECK(error_line({"cannot read the data", line}) == "cannot read the data");
    }
    CHECK(error_line({"ERROR:root:no disk", "INFO:root:bye"}) == "ERROR:root:no disk");
    CHECK(error_line({"ERROR:root:no disk", "WARNING:root:slow"}) == "ERROR:root:no disk");
    CHECK(error_line({"WARNING:root:slow"}) == "WARNING:root:slow");
    CHECK(error_line({"no INFO is there"}) == "no INFO is there");
  }

  TEST_CASE("the frames of a C++ backtrace say nothing") {
    const std::vector<std::string> watchdog = {
        "[rank0]:[E1126 a.cpp:2119] a collective has timed out",
        "Exception raised from run at a.cpp:2125 (most recent call first):",
        "frame #0: c10::Error::Error() + 0x9d (0x7fdfc717305d in libc10.so)",
        "",
        "frame #1: <unknown function> + 0x9cb84 (0x7fdfc829cb84 in libc.so.6)",
        ""};
    CHECK(error_line(watchdog) ==
          "Exception raised from run at a.cpp:2125 (most recent call first):");
    CHECK(telling_lines(watchdog, 5) == std::vector<std::string>{watchdog[0], watchdog[1]});
    CHECK(telling_lines(watchdog, 1) == std::vector<std::string>{watchdog[1]});
    CHECK(telling_lines({"[rank3]: frame #2: x", "a frame #1"}, 5) ==
          std::vector<std::string>{"a frame #1"});
    CHECK(telling_lines({"frame #0: a", "frame #1: b"}, 1) ==
          std::vector<std::string>{"frame #1: b"});
    CHECK(telling_lines({}, 5).empty());
  }

  TEST_CASE("where there is nothing else, they are quoted all the same") {
    CHECK(error_line({"[W1122 a] one", "[W1122 b] two", ""}) == "[W1122 b] two");
  }
}

}  // namespace ddprun::agent
