// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/timeline_note.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <exception>

#include "worker/ddp/environment.h"

namespace ddprun::ddp {

std::string timeline_file_in_environment() {
  return environment_variable(worker::kTimelineVariable).value_or("");
}

void note_in_timeline(const std::string& file, const worker::TimelineSlice& slice) noexcept {
  if (file.empty()) return;
  std::string line;
  try {
    line = worker::to_timeline_line(slice);
  } catch (const std::exception&) {  // no memory
    return;
  }
  int fd =
      ::open(file.c_str(),
             O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC, 0600);
  if (fd < 0) return;
  struct stat info = {};
  // In one piece, so that lines of several threads do not mix.
  if (::fstat(fd, &info) == 0 && S_ISREG(info.st_mode))
    (void)!::write(fd, line.data(), line.size());
  ::close(fd);
}

}  // namespace ddprun::ddp
