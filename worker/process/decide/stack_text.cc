// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/decide/stack_text.h"

#include <algorithm>
#include <array>
#include <span>

namespace ddprun::process {
namespace {

constexpr std::string_view kDistributed = "(torch/distributed/distributed_c10d.py:";

// Not the program's own.
constexpr std::array<std::string_view, 3> kForeign = {"(<", "(torch/", "(numpy/"};
// Python's own, too, in which a program waits; for no peer of a collective.
constexpr std::array<std::string_view, 8> kBlocking = {
    "(threading.py:", "(socket.py:", "(ssl.py:",        "(selectors.py:",
    "(queue.py:",     "(asyncio/",   "(subprocess.py:", "(multiprocessing/"};

bool is_any_in(std::span<const std::string_view> files, std::string_view frame) {
  return std::ranges::any_of(
      files, [frame](std::string_view file) { return frame.find(file) != std::string_view::npos; });
}

// Where the title of the main thread begins: `Thread 13845 (idle): "MainThread"`, or without the
// name where the program has not imported `threading`.  Then it is the one with the process's id.
std::size_t main_title(std::string_view text) {
  if (auto named = text.rfind("\"MainThread\""); named != std::string_view::npos) return named;
  constexpr std::string_view kProcess = "Process ";
  auto process = text.rfind(kProcess);
  if (process == std::string_view::npos) return process;
  std::string_view id = text.substr(process + kProcess.size());
  id = id.substr(0, id.find_first_not_of("0123456789"));
  return text.find("\nThread " + std::string(id) + " ", process);
}

// Its frames, the innermost first, each behind four blanks.
std::string_view main_thread(std::string_view text) {
  auto title = main_title(text);
  if (title == std::string_view::npos) return {};
  auto begin = text.find('\n', title + 1);
  if (begin == std::string_view::npos) return {};
  text.remove_prefix(begin + 1);
  auto end = text.find("\nThread ");
  return text.substr(0, end);
}

// `Thread 13845 (active+gil): "MainThread"`.
bool has_gil(std::string_view text) {
  auto title = main_title(text);
  if (title == std::string_view::npos) return false;
  auto end = text.find('\n', title + 1);
  auto begin = text.rfind("Thread ", title + 1);
  return begin != std::string_view::npos &&
         text.substr(begin, end - begin).find("+gil)") != std::string_view::npos;
}

std::string_view next_line(std::string_view& text) {
  auto end = text.find('\n');
  std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

// By the kernel's function that it waits in.
bool is_sleep(std::string_view doing) {
  return doing.find("nanosleep") != std::string_view::npos;
}

// Where the kernel keeps a process that no peer of a collective keeps waiting: a sleep, a pipe, a
// child, a lock of a file, a terminal, a signal, a disk.  Sockets and futexes tell nothing: peers
// are waited for in both.
bool is_kernel_elsewhere(std::string_view doing) {
  constexpr std::array<std::string_view, 8> kElsewhere = {
      "nanosleep", "pipe_read", " in do_wait",  "lock_inode_wait",
      "tty_read",  "sys_pause", "sigtimedwait", "in D state"};
  return std::ranges::any_of(kElsewhere, [doing](std::string_view in) {
    return doing.find(in) != std::string_view::npos;
  });
}

// The interpreter runs the program, or waits in a module of Python's own, so it is not inside
// torch. (A wait in C++ is that of the line that called it, and says nothing.)
bool is_python_elsewhere(std::string_view py_spy) {
  if (has_gil(py_spy)) return true;
  std::string_view frames = main_thread(py_spy);
  return is_any_in(kBlocking, next_line(frames));
}

std::string verb_of(std::string_view doing) {
  if (is_sleep(doing)) return "sleeps";
  if (doing == "running") return "runs";
  if (doing == "stopped") return "is stopped";
  return "is";
}

std::string text_of(const std::optional<PythonStack>& stack, std::string_view doing) {
  if (!stack || stack->place.empty()) {
    if (is_sleep(doing)) return "sleeps";
    return doing.empty() ? "" : "is " + std::string(doing);
  }
  std::string text = verb_of(doing) + " in " + stack->place;
  if (doing.starts_with("in D state")) text += ", " + std::string(doing);
  return text;
}

// Of the native stacks, the main thread's; empty for a text without one.
std::string_view native_main_thread(std::string_view stacks) {
  // gdb: "Thread 1 (Thread 0x... )" comes last, and is the main thread.  eu-stack: "TID 4211:", the
  // main thread first.  Of a worker that was silent before, the text holds those stacks as well.
  auto begin = stacks.rfind("\nThread 1 ");
  if (begin == std::string_view::npos) {
    auto process = stacks.rfind("PID ");
    begin = stacks.find("TID ", process == std::string_view::npos ? 0 : process);
  }
  if (begin == std::string_view::npos) return {};
  std::string_view own = stacks.substr(begin + 1);
  return own.substr(0, std::min(own.find("\n\n"), own.find("\nTID ")));
}

// "#3  0x00007f3a1b2c c10d::Work::wait" and "#3  0x00007f3a1b2c in c10d::Work::wait ()": the name.
std::string_view native_frame(std::string_view line) {
  auto skip = [&](std::string_view what) {
    line.remove_prefix(std::min(line.find_first_not_of(what), line.size()));
  };
  skip("#0123456789");
  skip(" ");
  if (line.starts_with("0x")) {
    line.remove_prefix(std::min(line.find(' '), line.size()));
    skip(" ");
  }
  for (std::string_view mark : {"in ", "- 1 "})
    if (line.starts_with(mark)) line.remove_prefix(mark.size());
  return line;
}

}  // namespace

std::optional<bool> waits_for_peers(std::string_view stacks) {
  std::string_view own = native_main_thread(stacks);
  if (own.empty()) return std::nullopt;
  return own.find("c10d::") != std::string_view::npos ||
         own.find("gloo::") != std::string_view::npos ||
         own.find("ddprun::ddp::ProcessGroup::") != std::string_view::npos ||
         own.find("ncclComm") != std::string_view::npos;
}

std::optional<PythonStack> python_stack(std::string_view py_spy) {
  std::string_view frames = main_thread(py_spy);
  PythonStack stack;
  bool has_frames = false;
  while (!frames.empty()) {
    std::string_view line = next_line(frames);
    if (!line.starts_with("    ")) break;
    line.remove_prefix(4);
    has_frames = true;
    bool is_foreign = is_any_in(kForeign, line) || is_any_in(kBlocking, line);
    if (!is_foreign && stack.place.empty()) stack.place = line;
    auto module = line.find(kDistributed);
    if (module != std::string_view::npos) stack.collective = line.substr(0, line.find(' '));
  }
  return has_frames ? std::optional(stack) : std::nullopt;
}

Activity activity_of(std::string_view native, std::string_view py_spy, std::string_view doing) {
  Activity activity;
  auto stack = python_stack(py_spy);
  if (stack) {
    activity.collective = stack->collective;
    activity.place = stack->place;
  }
  activity.text = text_of(stack, doing);
  if (doing == "stopped") {
    activity.is_waiting = false;  // wherever it is: it does not go on
  } else if (stack && !stack->collective.empty()) {
    activity.is_waiting = true;
  } else if (auto waits = waits_for_peers(native)) {
    activity.is_waiting = waits;
  } else if (is_kernel_elsewhere(doing) || is_python_elsewhere(py_spy)) {
    activity.is_waiting = false;
  }
  return activity;
}

std::vector<std::string> main_frames(std::string_view native, std::string_view py_spy,
                                     std::size_t most) {
  std::vector<std::string> frames;
  std::string_view python = main_thread(py_spy);
  while (!python.empty() && frames.size() < most) {
    std::string_view line = next_line(python);
    if (!line.starts_with("    ")) break;
    frames.emplace_back(line.substr(4));
  }
  if (!frames.empty()) return frames;
  std::string_view own = native_main_thread(native);
  while (!own.empty() && frames.size() < most) {
    std::string_view line = next_line(own);
    if (line.starts_with('#')) frames.emplace_back(native_frame(line));
  }
  return frames;
}

}  // namespace ddprun::process
