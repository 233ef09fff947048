// SPDX-License-Identifier: BSD-3-Clause
#include "worker/shm/death_watch.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "store/base/signal_mask.h"

namespace ddprun::ddp::shm {

Result<std::unique_ptr<DeathWatch>> DeathWatch::start(const std::vector<int>& pids,
                                                      std::function<void(int)> on_death) {
  std::unique_ptr<DeathWatch> watch(new DeathWatch());
  watch->stop_fd_ = ::eventfd(0, EFD_CLOEXEC);
  if (watch->stop_fd_ < 0) return system_error(errno, "eventfd");
  for (int pid : pids) {
    const auto fd = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
    if (fd < 0) return system_error(errno, "watch process " + std::to_string(pid));
    watch->pidfds_.push_back(fd);
  }
  SignalsBlocked blocked;  // the handlers run on the program's own threads
  watch->thread_ =
      std::thread([watch = watch.get(), on_death = std::move(on_death)] { watch->run(on_death); });
  return watch;
}

DeathWatch::~DeathWatch() {
  if (thread_.joinable()) {
    const std::uint64_t one = 1;
    while (::write(stop_fd_, &one, sizeof one) < 0 && errno == EINTR) {
    }
    thread_.join();
  }
  for (int fd : pidfds_) ::close(fd);
  if (stop_fd_ >= 0) ::close(stop_fd_);
}

void DeathWatch::run(const std::function<void(int)>& on_death) {
  std::vector<pollfd> polled{{.fd = stop_fd_, .events = POLLIN, .revents = 0}};
  for (int fd : pidfds_) polled.push_back({.fd = fd, .events = POLLIN, .revents = 0});
  while (true) {
    if (::poll(polled.data(), polled.size(), -1) < 0 && errno != EINTR) return;
    if (polled[0].revents != 0) return;
    for (std::size_t i = 1; i < polled.size(); ++i) {
      if (polled[i].revents == 0) continue;
      polled[i].fd = -1;  // poll leaves it out
      polled[i].revents = 0;
      on_death(static_cast<int>(i) - 1);
    }
  }
}

}  // namespace ddprun::ddp::shm
