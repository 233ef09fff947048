// SPDX-License-Identifier: BSD-3-Clause
//
// What a server counts, and the pages that it serves about itself.
#pragma once

#include <array>
#include <cstdint>
#include <string>
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

  // A page that cost much is shown for a while to all who ask for it, so that those of one kind
  // take a twentieth of the server's time at most; one of that kind at another target has to wait.
  Page page_for(const HttpReader& request, Reader reader, MonoTime now);

  // At most `max_count` of the clients that were announced and have not connected.
  std::vector<ExpectedClients::Missing> missing_clients(std::size_t max_count);

  // When the last of them connected, if the whole world was announced and has connected.
  std::optional<MonoTime> all_connected_at();

 private:
  enum class Kind : std::uint8_t { Status, Metrics, OpenMetrics, OfSource };
  // As it was computed last.
  struct Shown {
    std::string target;
    Page page;
    MonoTime until = MonoTime::min();
  };

  template <class Make>
  Page shown(Kind kind, const std::string& target, Reader reader, MonoTime now, Make make);
  void match_expected();
  Page status_page(Reader reader, MonoTime now);
  Page metrics_text(bool is_open_metrics);
  Page page_of_source(const std::string& target) const;
  void measure();
  std::size_t wait_count() const;
  std::vector<Waiter> waiters(MonoTime now) const;
  JoinProgress join_progress();

  const Namespaces& namespaces_;
  const Sessions& sessions_;
  std::array<std::array<Shown, 4>, 2> shown_;  // to each kind of reader, of each kind
};

}  // namespace ddprun::store
