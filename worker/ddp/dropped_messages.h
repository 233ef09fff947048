// SPDX-License-Identifier: BSD-3-Clause
//
// Messages under way whose handles the program has dropped.  Gloo cancels a send or receive whose
// c10d::Work goes, and its peer would wait for the time-out; it says that one is complete to a
// thread only that waits for it.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace c10d {
class Work;
}

namespace ddprun::ddp {

// Owns the messages of one group, and a thread from the first one on, which waits for each.  What
// becomes of them is not said: an error of the transport is one of the group's next call.
//
// Threads: any.  Lifetime: end() belongs before the end of the transport.
class DroppedMessages {
 public:
  DroppedMessages() = default;
  ~DroppedMessages() { end(/*waits=*/false); }
  DroppedMessages(const DroppedMessages&) = delete;
  DroppedMessages& operator=(const DroppedMessages&) = delete;

  // Keeps `work`, and `kept` with the tensors that it needs, until it is complete or has failed.
  void take(c10::intrusive_ptr<c10d::Work> work, std::function<void()> kept);

  // Returns when all are complete or have failed, by the transport's time-out at the latest; unless
  // it `waits`, cancels them.  Later ones are cancelled.
  void end(bool waits);

 private:
  struct Message {
    c10::intrusive_ptr<c10d::Work> work;
    std::function<void()> kept;
  };
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Message> messages_;  // the first is the one that the thread waits for
  bool is_ending_ = false;
  bool is_cancelled_ = false;
  std::thread thread_;
};

}  // namespace ddprun::ddp
