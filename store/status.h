// SPDX-License-Identifier: BSD-3-Clause
//
// What a server counts, and the pages that it serves about itself.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "store/base/time.h"
#include "store/decide/expected_clients.h"
#include "store/decide/followers.h"
#include "store/decide/namespaces.h"
#include "store/decide/pages.h"
#include "store/decide/value.h"
#include "store/http.h"
#include "store/page_source.h"
#include "store/session.h"

namespace ddprun::store {

// What a reader gets who has not shown that he knows the secret.
// `has_token`: whether there is a token that opens it.
Page page_for_strangers(bool has_token);

struct PageAnswer {
  Page page;
  Value body{};  // instead of the page's, where there is one; many may be sent it
};

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
  void show(const PageSource* source);

  // A page that cost much is shown for a while to all who ask for it, so that those of one kind
  // take a twentieth of the server's time at most; one of that kind at another target has to wait.
  // nullopt: it takes long to make, and `asker` gets it from proceed().
  std::optional<PageAnswer> page_for(const HttpReader& request, Reader reader, MonoTime now,
                                     ClientId asker);

  // Whether proceed() is to be called, between turns in which others are served.
  bool is_making() const { return !jobs_.empty(); }
  struct Made {
    PageAnswer answer;
    std::vector<ClientId> askers;
    bool is_event = false;  // for those who follow
  };
  // Makes the next piece of a page; what is complete is to be sent.
  std::optional<Made> proceed(MonoTime now);

  // Who asks for /events gets what /status would have, again and again, as long as the connection
  // lasts.  False: very many do so already, or there is nothing to follow.
  bool follow(Reader reader, ClientId client);
  void unfollow(ClientId client);
  bool has_followers() const;
  // Begins to make the events that are due.
  void make_events(MonoTime now);

  // At most `max_count` of the clients that were announced and have not connected.
  std::vector<ExpectedClients::Missing> missing_clients(std::size_t max_count);

  JoinProgress join_progress();

  // Who waits for what; the first 1,000.  Agents, which wait in reserved namespaces for what they
  // are told, are left out.
  std::vector<Waiter> waiters(MonoTime now) const;

  // When the last of them connected, if the whole world was announced and has connected.
  std::optional<MonoTime> all_connected_at();

 private:
  enum class Kind : std::uint8_t { Status, Metrics, OpenMetrics, OfSource, Event };
  // As it was computed last.
  struct Shown {
    std::string target;
    PageAnswer answer;
    MonoTime until = MonoTime::min();
  };
  // A page that is made in pieces.
  struct Job {
    Kind kind = Kind::Status;
    Reader reader = Reader::Stranger;
    std::string target{};
    std::unique_ptr<PageText> text{};  // nullptr: there is no more
    bool is_cut = false;               // its source was taken back
    std::string end{};                 // what follows the text
    Value body{};
    Duration cost{};
    std::vector<ClientId> askers{};
  };

  Shown& shown(Kind kind, Reader reader);
  std::optional<PageAnswer> known(Kind kind, const std::string& target, Reader reader,
                                  MonoTime now);
  template <class Make>
  PageAnswer short_page(Kind kind, const std::string& target, Reader reader, MonoTime now,
                        Make make);
  bool joins(Kind kind, Reader reader, ClientId asker);
  std::optional<PageAnswer> begin(Job job, const std::string& target, MonoTime now, ClientId asker);
  Job job_of_source(const std::string& target, Reader reader) const;
  Job status_job(Kind kind, Reader reader, MonoTime now);
  static bool add_piece(Job& job);
  PageAnswer finish(Job& job, MonoTime now);
  void match_expected();
  Page metrics_text(bool is_open_metrics);
  Page page_of_source(const std::string& target) const;
  void measure();
  std::size_t wait_count() const;

  const Namespaces& namespaces_;
  const Sessions& sessions_;
  const PageSource* source_ = nullptr;
  std::array<std::array<Shown, 4>, 2> shown_;  // to each kind of reader, of each kind
  std::deque<Job> jobs_;                       // the first one is in progress
  std::array<Followers, 2> followers_;         // of each kind of reader
};

}  // namespace ddprun::store
