// SPDX-License-Identifier: BSD-3-Clause
//
// What /proc says of one process.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "store/base/time.h"

namespace ddprun::process {

// /proc/PID/NAME; empty where it cannot be read, as of a process that has gone.
std::string text_of_process(pid_t pid, const char* name);

// /proc/PID/stat in two: the program's name, which may hold anything, and the fields behind it, of
// which the first is the state.  Both are empty for a text that is none.
struct StatLine {
  std::string name;
  std::string fields;
};
StatLine split_stat(std::string_view stat);

// The program's name, at most 15 bytes; "" for a process that has gone.
std::string program_name_of(pid_t pid);

// The fields of /proc/PID/stat that matter here.
struct ProcessStat {
  char state = '?';
  std::uint64_t major_faults = 0;  // its own and those of the children it has waited for
  Duration cpu_time{};             // likewise
};

// `ticks_per_second`: the unit of the text's times, sysconf(_SC_CLK_TCK).  A text that is none
// gives the default.
ProcessStat parse_stat(std::string_view stat, long ticks_per_second);
ProcessStat stat_of(pid_t pid);
// Zero for one that has gone.
Duration main_thread_cpu_time(pid_t pid);

// When a process was started, in clock ticks since boot; 0 for one that has gone.
std::uint64_t start_time_of(pid_t pid);

// The number of the Slurm job by the text of /proc/PID/cgroup, in which Slurm's plug-in for cgroups
// gives each job a folder, "job_123"; empty where there is none.
std::string parse_slurm_job(std::string_view proc_cgroup);

// The bytes that a process has read and written, by the text of its /proc/PID/io: files, pipes, and
// sockets that are used like files.  A text that is none gives 0.
std::uint64_t parse_io(std::string_view io);

// Whether a process of this name (the kernel's comm) is torch_shm_manager.  Where workers use
// torch.multiprocessing's sharing strategy "file_system", it removes their files from /dev/shm, and
// ends, 2 s after the last of them has ended.  A signal that ends it before leaves the files there
// for good.  Source: PyTorch, torch/lib/libshm/manager.cpp.
bool is_shm_manager(std::string_view name);
inline constexpr Duration kShmManagerLimit = std::chrono::seconds(5);  // how long that may take

// "in D state in nfs_wait_bit": what `pid` does, by its state and the kernel's function it waits
// in.
std::string doing_of(pid_t pid);
std::string doing_of(pid_t pid, char state);

}  // namespace ddprun::process
