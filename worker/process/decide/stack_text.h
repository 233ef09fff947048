// SPDX-License-Identifier: BSD-3-Clause
//
// What the stacks of a process say, as the tools of worker/process/stacks.h write them.  Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::process {

// Whether the main thread, by the text that gdb or eu-stack wrote of it, is inside c10d, or
// worker/ddp's process group, which is where a process waits for its peers.  The idle threads of
// Gloo and NCCL do not count.  nullopt for a text without its stack.
std::optional<bool> waits_for_peers(std::string_view stacks);

// The Python stack of the main thread, by py-spy.
struct PythonStack {
  // The function of torch.distributed that the program has called: "all_reduce"; empty for none.
  std::string collective;
  // The innermost frame that is not torch's or the interpreter's: "load (data.py:40)".
  std::string place;
};
// nullopt for a text without one.
std::optional<PythonStack> python_stack(std::string_view py_spy);

// What one process does, by all that is known.
struct Activity {
  std::optional<bool> is_waiting;  // for peers; nullopt: it cannot be told
  std::string collective;          // where the Python stack says so
  std::string place;               // PythonStack::place; empty: not known
  std::string text;  // behind "it": "sleeps in load (data.py:40)"; empty: nothing known
};
// `native`: of eu-stack or gdb, `py_spy`; both may be empty.  `doing`: of proc_files.h, such as
// "sleeping in hrtimer_nanosleep".
Activity activity_of(std::string_view native, std::string_view py_spy, std::string_view doing);

// The frames of the main thread, the innermost first, at most `most`: Python's, or without a Python
// stack those of eu-stack or gdb, without their numbers and addresses.
std::vector<std::string> main_frames(std::string_view native, std::string_view py_spy,
                                     std::size_t most);

}  // namespace ddprun::process
