// SPDX-License-Identifier: BSD-3-Clause
#include "store/status.h"

#include <algorithm>
#include <string>
#include <utility>

#include "store/clock.h"
#include "store/greeting.h"
#include "store/socket.h"

namespace ddprun::store {
namespace {

// /status names at most so many waits and missing clients, and so many names of each wait.
constexpr std::size_t kShownWaits = 1000;
constexpr std::size_t kShownNames = 8;

// Of a page that costs more than this.
constexpr Duration kMuch = std::chrono::microseconds(100);
constexpr int kTimesItsCost = 20;

std::optional<std::uint32_t> pid_of(const Session& session) {
  return session.nonce == kOwnGreeting ? std::nullopt : session.nonce;
}

Page later(std::string why) {
  return {.status = 503, .body = std::move(why), .retry_after_s = 1};
}

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

void Status::show(const PageSource* source) {
  source_ = source;
  for (Job& job : jobs_) job.is_cut = true;
}

std::optional<PageAnswer> Status::page_for(const HttpReader& request, Reader reader, MonoTime now,
                                           ClientId asker) {
  std::string target = request.target();
  bool is_put = request.method() == "PUT";
  bool is_private = source_ != nullptr && source_->is_private(target);
  bool is_known = request.method() == "GET" || request.method() == "HEAD" || (is_put && is_private);
  if (!is_known)
    return PageAnswer{{.status = 405, .body = "only GET and HEAD; PUT for /stacks and /bundle\n"}};
  if (is_private && reader != Reader::Trusted)
    return PageAnswer{page_for_strangers(/*has_token=*/false)};
  if (is_private) return PageAnswer{source_->answer(target, is_put)};
  if (target == "/healthz") return PageAnswer{{.body = "ok\n"}};
  if (target == "/status") {
    if (auto answer = known(Kind::Status, target, reader, now)) return answer;
    if (joins(Kind::Status, reader, asker)) return std::nullopt;
    return begin(status_job(Kind::Status, reader, now), target, now, asker);
  }
  if (target == "/metrics") {
    bool is_open = request.accepts("application/openmetrics-text");
    return short_page(is_open ? Kind::OpenMetrics : Kind::Metrics, target, reader, now,
                      [&] { return metrics_text(is_open); });
  }
  if (target == "/") return PageAnswer{page_of_source(target)};  // it is always the same
  if (auto answer = known(Kind::OfSource, target, reader, now)) return answer;
  if (joins(Kind::OfSource, reader, asker)) return std::nullopt;
  if (Job job = job_of_source(target, reader); job.text)
    return begin(std::move(job), target, now, asker);
  return short_page(Kind::OfSource, target, reader, now, [&] { return page_of_source(target); });
}

Status::Shown& Status::shown(Kind kind, Reader reader) {
  return shown_.at(static_cast<std::size_t>(reader)).at(static_cast<std::size_t>(kind));
}

// What it was lately; or that one at another target is, or is being made.
std::optional<PageAnswer> Status::known(Kind kind, const std::string& target, Reader reader,
                                        MonoTime now) {
  const Shown& last = shown(kind, reader);
  if (now < last.until && target == last.target) return last.answer;
  bool is_other_made = std::ranges::any_of(jobs_, [&](const Job& job) {
    return job.kind == kind && job.reader == reader && job.target != target;
  });
  if (now >= last.until && !is_other_made) return std::nullopt;
  return PageAnswer{later("another such page has cost much time: ask again\n")};
}

template <class Make>
PageAnswer Status::short_page(Kind kind, const std::string& target, Reader reader, MonoTime now,
                              Make make) {
  if (auto answer = known(kind, target, reader, now)) return *answer;
  Duration start = thread_time();
  PageAnswer answer{make()};
  Duration cost = thread_time() - start;
  if (cost > kMuch)
    shown(kind, reader) = {.target = target, .answer = answer, .until = now + kTimesItsCost * cost};
  return answer;
}

// Whether such a page is in the making.
bool Status::joins(Kind kind, Reader reader, ClientId asker) {
  auto job = std::ranges::find_if(
      jobs_, [&](const Job& each) { return each.kind == kind && each.reader == reader; });
  if (job == jobs_.end()) return false;
  job->askers.push_back(asker);
  return true;
}

// The page, if it has one piece.
std::optional<PageAnswer> Status::begin(Job job, const std::string& target, MonoTime now,
                                        ClientId asker) {
  job.target = target;
  if (!add_piece(job)) return finish(job, now);
  job.askers.push_back(asker);
  jobs_.push_back(std::move(job));
  return std::nullopt;
}

// Whether there are more.
bool Status::add_piece(Job& job) {
  Duration start = thread_time();
  std::string piece;
  bool has_more = job.text && !job.is_cut && job.text->add(piece);
  if (!has_more) piece += job.end;
  job.body.append(piece);
  job.cost += thread_time() - start;
  return has_more;
}

PageAnswer Status::finish(Job& job, MonoTime now) {
  if (job.is_cut && job.text) return {later("its host has gone: ask again\n")};
  PageAnswer answer{{.content_type = "application/json"}, std::move(job.body)};
  if (job.kind == Kind::Event) {
    followers_.at(static_cast<std::size_t>(job.reader)).made(job.cost, now);
  } else if (job.cost > kMuch) {
    shown(job.kind, job.reader) = {
        .target = job.target, .answer = answer, .until = now + kTimesItsCost * job.cost};
  }
  return answer;
}

std::optional<Status::Made> Status::proceed(MonoTime now) {
  if (jobs_.empty()) return std::nullopt;
  if (add_piece(jobs_.front())) return std::nullopt;
  Job job = std::move(jobs_.front());
  jobs_.pop_front();
  Made made{.answer = finish(job, now), .askers = std::move(job.askers)};
  if (job.kind != Kind::Event) return made;
  if (!made.answer.body) return std::nullopt;  // there will be another one
  made.askers = followers_.at(static_cast<std::size_t>(job.reader)).all();
  made.is_event = true;
  return made;
}

bool Status::follow(Reader reader, ClientId client) {
  return source_ != nullptr && followers_.at(static_cast<std::size_t>(reader)).add(client);
}

void Status::unfollow(ClientId client) {
  for (Followers& followers : followers_) followers.remove(client);
}

bool Status::has_followers() const {
  return std::ranges::any_of(followers_, [](const Followers& each) { return !each.all().empty(); });
}

void Status::make_events(MonoTime now) {
  for (Reader reader : {Reader::Stranger, Reader::Trusted}) {
    Followers& followers = followers_.at(static_cast<std::size_t>(reader));
    std::uint64_t version = source_ ? source_->version() : 0;
    bool is_being_made = std::ranges::any_of(
        jobs_, [&](const Job& job) { return job.kind == Kind::Event && job.reader == reader; });
    if (is_being_made || !followers.is_due(version, now)) continue;
    followers.began(version, now);
    jobs_.push_back(status_job(Kind::Event, reader, now));
  }
}

// Without a text where there is none.
Status::Job Status::job_of_source(const std::string& target, Reader reader) const {
  Duration start = thread_time();
  Job job{.kind = Kind::OfSource,
          .reader = reader,
          .text = source_ ? source_->long_page(target) : nullptr};
  job.cost = thread_time() - start;
  return job;
}

// An event is one line.
Status::Job Status::status_job(Kind kind, Reader reader, MonoTime now) {
  constexpr std::string_view kEnd = "}\n";
  Duration start = thread_time();
  measure();
  std::string text = store::status_page(metrics, join_progress(), waiters(now));
  text.resize(text.size() - kEnd.size());
  if (source_) text += ", ";
  bool is_event = kind == Kind::Event;
  if (is_event) std::ranges::replace(text, '\n', ' ');
  Job job{.kind = kind,
          .reader = reader,
          .text = source_ ? source_->status(reader) : nullptr,
          .end = is_event ? "}\n\n" : "}\n"};
  job.body.append(is_event ? "data: " + text : text);
  job.cost = thread_time() - start;
  return job;
}

Page Status::page_of_source(const std::string& target) const {
  if (std::optional<Page> page = source_ ? source_->page(target) : std::nullopt) return *page;
  return {.status = 404,
          .body = source_ ? "there are /, /events, /healthz, /metrics, /status and /timeline\n"
                          : "there are /healthz, /metrics and /status\n"};
}

Page Status::metrics_text(bool is_open_metrics) {
  measure();
  std::string text = metrics_page(metrics) + (source_ ? source_->metrics() : "");
  if (!is_open_metrics) return {.content_type = "text/plain; version=0.0.4", .body = text};
  return {.content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8",
          .body = to_open_metrics(text)};
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
    if (ns.is_reserved) return;
    std::size_t room = kShownWaits - waiters.size();
    for (PendingWait& pending : ns.keyspace.pending(room, kShownNames)) {
      const Session* session = sessions_.find(pending.client);
      if (session == nullptr || session->is_own()) continue;
      waiters.push_back({.peer = peer_of(session->fd.get()),
                         .pid = pid_of(*session),
                         .namespace_name = ns.name,
                         .missing = std::move(pending.missing),
                         .missing_count = pending.missing_count,
                         .since = now - pending.since});
    }
  });
  return waiters;
}

}  // namespace ddprun::store
