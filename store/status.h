// SPDX-License-Identifier: BSD-3-Clause
//
// What a server counts, and the pages that it serves about itself.
#pragma once

#include <array>
#include <vector>

#include "store/base/time.h"
#include "store/decide/expected_clients.h"
#include "store/decide/namespaces.h"
#include "store/decide/pages.h"
#include "store/http.h"
#include "store/page_source.h"
#include "store/session.h"

namespace ddprun::store {

// What a reader gets who has not shown that he knows the secret.
// `has_token`: whether there is a token that opens it.
Page page_for_strangers(bool has_token);

// Threads: not safe for concurrent use.  Lifetime: what the constructor is given must outlive it.
class Status {
 public:
  // What is kept about expected clients counts as stored in `namespaces`.
  Status(Namespaces& namespaces, const Sessions& sessions)
      : expected(namespaces.outside()), namespaces_(namespaces), sessions_(sessions) {}

  Metrics metrics;
  ExpectedClients expected;

  // Counts a request, and takes what it says about expected clients.
  void note(Session& session, const Request& request);

  // What else the pages show; nullptr: nothing.  It must outlive this object, or be taken back.
  const PageSource* source = nullptr;

  Page page_for(const HttpReader& request, Reader reader, MonoTime now);

  // At most `max_count` of the clients that were announced and have not connected.
  std::vector<ExpectedClients::Missing> missing_clients(std::size_t max_count);

  // When the last of them connected, if the whole world was announced and has connected.
  std::optional<MonoTime> all_connected_at();

 private:
  void match_expected();
  Page status_page_at(Reader reader, MonoTime now);
  Page metrics_page_in(bool is_open_metrics);
  void measure();
  std::size_t wait_count() const;
  std::vector<Waiter> waiters(MonoTime now) const;
  JoinProgress join_progress();

  const Namespaces& namespaces_;
  const Sessions& sessions_;
  struct Shown {
    Page page;  // as it was computed last
    MonoTime until = MonoTime::min();
  };
  std::array<Shown, 2> shown_;  // to each kind of reader
};

}  // namespace ddprun::store
