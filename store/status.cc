// SPDX-License-Identifier: BSD-3-Clause
#include "store/status.h"

#include <string>
#include <utility>

#include "store/clock.h"
#include "store/socket.h"

namespace ddprun::store {
namespace {

// /status names at most so many waits and missing clients, and so many names of each wait.
constexpr std::size_t kShownWaits = 1000;
constexpr std::size_t kShownNames = 8;

}  // namespace

void Status::note(Session& session, const Request& request) {
  ++metrics.requests[static_cast<std::size_t>(op_of(request))];
  if (const auto* ping = std::get_if<request::Ping>(&request); ping && !session.nonce) {
    session.nonce = ping->nonce;
    session.ping_at = mono_now();
    if (!expected.is_missing(ping->nonce)) return;
    expected.connected(peer_host(session.fd.get()), ping->nonce, session.ping_at);
  } else if (const auto* expect = std::get_if<request::Expect>(&request)) {
    if (expect->name.empty()) return expected.expect_world(expect->pid);
    expected.expect(session.id, peer_host(session.fd.get()), expect->name,
                    static_cast<std::uint32_t>(expect->pid));
  }
}

Page page_for_strangers(bool has_token) {
  const char* how = has_token ? "ask as 'Authorization: Bearer TOKEN', or as the user who runs it, "
                                "on its machine\n"
                              : "ask as the user who runs it, on its machine\n";
  return {.status = 401, .body = std::string("this server shows this to some only: ") + how};
}

Page Status::page_for(const HttpReader& request, Reader reader, MonoTime now) {
  std::string target = request.target();
  bool is_put = request.method() == "PUT";
  bool is_private = source != nullptr && source->is_private(target);
  bool is_known = request.method() == "GET" || request.method() == "HEAD" || (is_put && is_private);
  if (!is_known) return {.status = 405, .body = "only GET and HEAD\n"};
  if (is_private && reader != Reader::Trusted) return page_for_strangers(/*has_token=*/false);
  if (is_private) return source->answer(target, is_put);
  if (target == "/healthz") return {.body = "ok\n"};
  if (target == "/status")
    return shown(Kind::Status, target, reader, now, [&] { return status_page(reader, now); });
  if (target == "/metrics") {
    bool is_open = request.accepts("application/openmetrics-text");
    return shown(is_open ? Kind::OpenMetrics : Kind::Metrics, target, reader, now,
                 [&] { return metrics_text(is_open); });
  }
  if (target == "/") return page_of_source(target);  // it is always the same
  return shown(Kind::OfSource, target, reader, now, [&] { return page_of_source(target); });
}

template <class Make>
Page Status::shown(Kind kind, const std::string& target, Reader reader, MonoTime now, Make make) {
  constexpr int kTimesItsCost = 20;
  constexpr Duration kMuch = std::chrono::microseconds(100);
  Shown& last = shown_.at(static_cast<std::size_t>(reader)).at(static_cast<std::size_t>(kind));
  if (now < last.until && target == last.target) return last.page;
  if (now < last.until)
    return {.status = 503, .body = "another such page has cost much time: ask again\n"};
  Duration start = thread_time();
  Page page = make();
  Duration cost = thread_time() - start;
  if (cost <= kMuch) return page;
  last = {.target = target, .page = page, .until = now + kTimesItsCost * cost};
  return page;
}

Page Status::page_of_source(const std::string& target) const {
  if (std::optional<Page> page = source ? source->page(target) : std::nullopt) return *page;
  return {.status = 404,
          .body = source ? "there are /, /healthz, /metrics, /status and /timeline\n"
                         : "there are /healthz, /metrics and /status\n"};
}

Page Status::metrics_text(bool is_open_metrics) {
  measure();
  std::string text = metrics_page(metrics) + (source ? source->metrics() : "");
  if (!is_open_metrics) return {.content_type = "text/plain; version=0.0.4", .body = text};
  return {.content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8",
          .body = to_open_metrics(text)};
}

Page Status::status_page(Reader reader, MonoTime now) {
  measure();
  std::string more = source ? source->status(reader) : "";
  return {.content_type = "application/json",
          .body = store::status_page(metrics, join_progress(), waiters(now), more)};
}

void Status::measure() {
  metrics.connections = sessions_.client_count();
  metrics.keys = namespaces_.usage().keys;
  metrics.bytes = namespaces_.usage().bytes;
  metrics.namespaces = namespaces_.named_count();
  metrics.held_bytes = sessions_.held_bytes();
  metrics.waits = wait_count();
}

// Clients that sent their PING before they were announced are found here.
void Status::match_expected() {
  sessions_.for_each([this](const Session& session) {
    if (!session.nonce || !expected.is_missing(*session.nonce)) return;
    expected.connected(peer_host(session.fd.get()), *session.nonce, session.ping_at);
  });
}

std::vector<ExpectedClients::Missing> Status::missing_clients(std::size_t max_count) {
  match_expected();
  return expected.missing(max_count);
}

std::optional<MonoTime> Status::all_connected_at() {
  match_expected();
  return expected.all_connected_at();
}

JoinProgress Status::join_progress() {
  match_expected();
  std::string joined(namespaces_.common().keyspace.peek("init/").view());
  return {.joined = joined.empty() ? "0" : joined,
          .world_size = expected.world_size(),
          .expected_count = expected.expected_count(),
          .missing_count = expected.missing_count(),
          .missing = expected.missing(kShownWaits)};
}

// The waits of this process itself are not counted, as its connections are not.
std::size_t Status::wait_count() const {
  std::size_t count = namespaces_.wait_count();
  if (sessions_.own_count() == 0) return count;
  sessions_.for_each([&](const Session& session) {
    if (session.is_own()) count -= session.ns->keyspace.wait_count(session.id);
  });
  return count;
}

std::vector<Waiter> Status::waiters(MonoTime now) const {
  std::vector<Waiter> waiters;
  namespaces_.for_each([&](const Namespace& ns) {
    std::size_t room = kShownWaits - waiters.size();
    for (PendingWait& pending : ns.keyspace.pending(room, kShownNames)) {
      const Session* session = sessions_.find(pending.client);
      if (session == nullptr || session->is_own()) continue;
      waiters.push_back({.peer = peer_of(session->fd.get()),
                         .pid = session->nonce,
                         .namespace_name = ns.name,
                         .missing = std::move(pending.missing),
                         .missing_count = pending.missing_count,
                         .since = now - pending.since});
    }
  });
  return waiters;
}

}  // namespace ddprun::store
