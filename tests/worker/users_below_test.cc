// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/users_below.h"

#include <doctest/doctest.h>
#include <grp.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <memory>

using namespace ddprun;
using namespace ddprun::process;
using namespace std::chrono_literals;

namespace {

constexpr uid_t kOther = 54322;

// A child that runs as another user until it is ended.
class OtherUser {
 public:
  OtherUser() {
    int ready[2];
    REQUIRE(::pipe(ready) == 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      bool is_other = ::setgroups(0, nullptr) == 0 && ::setresuid(kOther, kOther, kOther) == 0;
      char done = is_other ? 'y' : 'n';
      (void)!::write(ready[1], &done, 1);
      for (;;) ::pause();
    }
    char done = 'n';
    (void)!::read(ready[0], &done, 1);
    ::close(ready[0]);
    ::close(ready[1]);
    is_other_ = done == 'y';
  }
  ~OtherUser() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

  bool is_other() const { return is_other_; }

 private:
  pid_t pid_ = -1;
  bool is_other_ = false;
};

}  // namespace

TEST_SUITE("process/users_below") {
  TEST_CASE("a user counts while a process below runs as that user, looked at once a second") {
    UsersBelow users(std::make_shared<SweepScope>());
    MonoTime now{};
    CHECK_FALSE(users.have(kOther, now));
    {
      OtherUser child;
      if (!child.is_other()) {
        MESSAGE("skipped: only root can play another user");
        return;
      }
      CHECK_FALSE(users.have(kOther, now + 999ms));
      CHECK(users.have(kOther, now + 1s));
      CHECK_FALSE(users.have(kOther + 1, now + 1s));
    }
    CHECK(users.have(kOther, now + 1999ms));
    CHECK_FALSE(users.have(kOther, now + 2s));
  }

  TEST_CASE("processes that did not stem from a worker do not count") {
    OtherUser child;
    if (!child.is_other()) return;
    SweepScope scope;
    scope.bystanders = Bystanders::note();
    UsersBelow users(std::make_shared<SweepScope>(std::move(scope)));
    CHECK_FALSE(users.have(kOther, MonoTime{}));
  }
}
