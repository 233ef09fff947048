// SPDX-License-Identifier: BSD-3-Clause
#include "tests/sim/node.h"

#include <algorithm>
#include <csignal>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "store/base/variant.h"
#include "tests/sim/host.h"
#include "tests/support/worker_exits.h"

namespace ddprun::sim {

using namespace rendezvous;
using std::chrono::milliseconds;
using std::chrono::seconds;

Node::Node(World& world, Process& process, NodePlan plan, int pid)
    : world_(world), process_(process), plan_(std::move(plan)), monitor_(world, *this) {
  core_config_ = {.local_world_size = plan_.workers, .stop_grace = world_.scenario.grace};
  config_ = {.run = plan_.run,
             .name = process_.name,
             .endpoint = "endpoint:29400",
             .node = {.host = plan_.host,
                      .pid = pid,
                      .participant = {.local_world_size = plan_.workers, .role = plan_.role},
                      .settings = plan_.settings,
                      .policy = plan_.policy,
                      .node_rank = plan_.node_rank},
             .read_timeout = world_.scenario.read_timeout,
             .stop_grace = world_.scenario.grace};
  bool has_stand_ins = world_.scenario.has_stand_ins && world_.scenario.daemons == 0;
  if (has_stand_ins) config_.stand_in_port = world_.next_port();
  config_.has_registry = world_.scenario.has_registry;
}

int Node::workers_alive() const {
  return static_cast<int>(std::ranges::count(is_up_, true));
}

bool Node::is_working(std::size_t round) const {
  if (done_ == round) return true;
  bool goes_on =
      core_.phase == agent::Phase::Running ||
      (core_.phase == agent::Phase::Stopping && core_.workers_end == agent::WorkersEnd::Succeeded);
  return process_.is_alive && round_ == round && !is_signalled_ && goes_on && !monitor_.has_hung();
}

void Node::begin() {
  auto first = agent::begin();
  core_ = std::move(first.state);
  for (const agent::Action& action : first.actions) perform(action);
}

void Node::signal(int signal) {
  if (!signalled_at_) signalled_at_ = world_.time.now();
  on(agent::event::ShutdownRequested{signal});
}

void Node::later(Duration delay, Deed deed) {
  world_.time.to(process_, world_.as_measured(plan_.machine, delay), std::move(deed));
}

// Something that happens to a worker, whatever its agent does; not while it is held.
void Node::after(Duration delay, Deed deed) {
  world_.time.after(delay, [this, deed = std::move(deed)]() mutable {
    if (!is_held()) return deed();
    after(milliseconds(100), std::move(deed));
  });
}

// The agent.

void Node::on(const agent::Event& event) {
  auto next = agent::step(std::move(core_), event, world_.now(plan_.machine), core_config_);
  core_ = std::move(next.state);
  if (world_.is_traced) {
    world_.trace(process_.name, agent::to_string(event) + " -> " + agent::to_string(core_.phase) +
                                    ": " + agent::to_string(next.actions));
  }
  if (core_.phase != agent::Phase::Running) monitor_.stop();
  arm_deadline();
  for (const agent::Action& action : next.actions) perform(action);
}

void Node::arm_deadline() {
  std::uint64_t number = ++deadlines_;
  if (!core_.deadline) return;
  later(*core_.deadline - world_.now(plan_.machine).mono, [this, number] {
    if (number == deadlines_) on(agent::event::DeadlineReached{});
  });
}

void Node::perform(const agent::Action& action) {
  std::visit(
      Overloaded{
          [this](const agent::action::JoinRound&) { join(); },
          [this](const agent::action::ReportFailure& report) {
            world_.oracle.failure_reported(plan_.run);
            rendezvous::Failure failure = report.failure;
            failure.message = "ValueError: \"boom\" \xff";
            step(member::event::WorkerFailed{failure, report.is_final, report.wait});
          },
          [this](const agent::action::TakeStacks&) { take_stacks(); },
          [this](const agent::action::ReportFindings& report) {
            step(member::event::WorkersInspected{report.findings});
          },
          [this](const agent::action::ReportSuccess&) {
            done_ = round_;
            step(member::event::WorkersSucceeded{});
          },
          [this](const agent::action::LeaveRun&) {
            for (Host* hosted : {hosting_, standing_in_}) {
              if (hosted != nullptr) hosted->leave(plan_.host + " was stopped by SIGTERM");
            }
            step(member::event::Leaving{"was stopped by SIGTERM", 15});
          },
          [this](const agent::action::StartWorkers&) { start_workers(); },
          [this](const agent::action::SignalWorkers& wanted) { signal_workers(wanted.signal); },
          [this](const agent::action::Sweep&) { sweep(); },
          [this](const agent::action::KillNow&) { kill_now(); },
          // Here every worker ends by SIGKILL.
          [this](const agent::action::AbandonWorkers&) {
            world_.violate("a worker was abandoned");
          },
          [this](const agent::action::Finish& end) {
            exit_code_ = end.exit_code;
            step(member::event::WorkersGone{});
            // Of every third run the disks are slow to take the report.
            if (world_.scenario.seed % 3 > 0) return finish();
            later(milliseconds(900), [this] { finish(); });
          },
      },
      action);
}

void Node::finish() {
  for (const Host* hosted : {hosting_, standing_in_}) {
    if (hosted == nullptr || !hosted->leaves_to_others()) continue;
    unsaid_ = member::unsaid_left(member_, config_, world_.now(plan_.machine).mono, true);
  }
  if (member::may_forget(member_)) world_.node_files[plan_.machine].erase(process_.name);
  leave_last_word("has ended");
  step(member::event::Finished{});
  leave_when_possible(world_.time.now() + seconds(2));
}

void Node::start_workers() {
  is_signalled_ = false;
  is_killed_ = false;
  done_.reset();
  ++group_;
  started_at_ = world_.time.now();
  is_up_.assign(static_cast<std::size_t>(plan_.workers), true);
  if (world_.time.now() < world_.scenario.faults_end &&
      world_.random.chance(world_.scenario.no_start_percent)) {
    is_up_.assign(is_up_.size(), false);
    is_up_[0] = plan_.workers > 1;
    return on(test::start_failed(is_up_[0] ? 1 : 0));
  }
  for (int rank = 0; rank < plan_.workers; ++rank) {
    bool hangs = world_.scenario.hang_percent > 0 &&
                 world_.time.now() < world_.scenario.faults_end &&
                 world_.random.chance(world_.scenario.hang_percent);
    hangs ? plan_hang(rank) : plan_worker(rank);
  }
  monitor_.start();
}

void Node::plan_worker(int local_rank) {
  const Scenario& scenario = world_.scenario;
  bool fails =
      world_.time.now() < scenario.faults_end && world_.random.chance(scenario.failing_percent);
  std::uint64_t group = group_;
  if (!fails) {
    return after(scenario.work, [this, local_rank, group] { finish_worker(local_rank, group); });
  }
  after(world_.random.duration(milliseconds(1), scenario.work), [this, local_rank, group] {
    if (group == group_ && !is_signalled_) end_worker(local_rank, {.exit_code = 9});
  });
}

void Node::plan_hang(int local_rank) {
  after(world_.random.duration(milliseconds(1), world_.scenario.work),
        [this, local_rank, group = group_] {
          if (group == group_) hang_worker(local_rank, group);
        });
}

// Whether somebody will end it.
bool Node::may_hang() const {
  if (!round_ || is_signalled_ || core_.phase != agent::Phase::Running) return false;
  if (monitor_.is_watching()) return true;
  if (world_.scenario.waits_spin) return false;
  return std::ranges::any_of(world_.oracle.round(*round_).members, [this](const Node* peer) {
    return peer->monitor_.is_watching() && peer->round_ == round_ &&
           peer->core_.phase == agent::Phase::Running;
  });
}

void Node::hang_worker(int local_rank, std::uint64_t group) {
  if (!is_up_[static_cast<std::size_t>(local_rank)]) return;
  if (!may_hang()) return finish_worker(local_rank, group);
  monitor_.hang(local_rank);
  if (world_.scenario.hangs_last || world_.random.chance(60)) return;
  bool exits = world_.random.chance(50);
  after(world_.random.duration(seconds(1), seconds(15)), [this, local_rank, group, exits] {
    bool is_up = group == group_ && is_up_[static_cast<std::size_t>(local_rank)];
    if (!is_up || is_signalled_ || monitor_.has_signalled(local_rank)) return;
    if (exits) return end_worker(local_rank, {.exit_code = 9});
    monitor_.hangs_no_more(local_rank);
    world_.trace(process_.name, "worker " + std::to_string(local_rank) + " goes on");
    for (Node* peer : world_.oracle.round(*round_).members) peer->monitor_.saw_progress();
    finish_worker(local_rank, group);
  });
}

// A worker ends well only as long as all its peers are there; without them it hangs.
void Node::finish_worker(int local_rank, std::uint64_t group) {
  if (group != group_ || is_signalled_ || !round_) return;
  if (world_.oracle.is_whole(*round_)) return end_worker(local_rank, {});
  after(milliseconds(500), [this, local_rank, group] { finish_worker(local_rank, group); });
}

void Node::end_worker(int local_rank, process::ExitStatus status) {
  auto index = static_cast<std::size_t>(local_rank);
  if (!is_up_[index]) return;
  is_up_[index] = false;
  monitor_.hangs_no_more(local_rank);
  std::optional<std::size_t> round = round_;
  std::uint64_t group = group_;
  later(Duration::zero(), [this, group, local_rank, status] {
    if (group == group_ && !monitor_.take_exit(local_rank, status)) tell_end(local_rank, status);
  });
  if (!status.is_success() && round && world_.scenario.victims_fail) {
    for (Node* peer : world_.oracle.round(*round).members) {
      if (peer != this) peer->peer_lost(*round);
    }
  }
}

void Node::tell_end(int local_rank, process::ExitStatus status) {
  auto exited = test::worker_exited(local_rank, status);
  if (core_.phase == agent::Phase::Running && !status.is_success()) {
    monitor_.judge_failure(local_rank);
    exited.is_hang = monitor_.is_hang(local_rank);
    bool has_waited = world_.scenario.waits_percent > 0 && !exited.is_hang &&
                      world_.random.chance(world_.scenario.waits_percent);
    if (has_waited) exited.wait = rendezvous::TimedOutWait{.in = "all_reduce", .missing = {1}};
  }
  on(exited);
}

// Sometimes for longer than the core waits.
void Node::take_stacks() {
  Duration needed = world_.random.duration(milliseconds(100), milliseconds(1500));
  if (world_.random.chance(5)) needed = seconds(10);
  later(needed, [this, group = group_] {
    if (group != group_) return;
    rendezvous::Findings findings;
    for (int local_rank : ranks_up())
      findings.workers.push_back({.rank = local_rank, .pid = 1, .doing = "sleeps in \"a\" \xff"});
    on(agent::event::Inspected{std::move(findings)});
  });
}

std::set<int> Node::ranks_up() const {
  std::set<int> up;
  for (int rank = 0; rank < plan_.workers; ++rank) {
    if (is_up_[static_cast<std::size_t>(rank)]) up.insert(rank);
  }
  return up;
}

// Some are deaf to all but SIGKILL.
void Node::signal_worker(int local_rank, int signal) {
  if (signal != SIGKILL && world_.random.chance(20)) return;
  Duration stop = signal == SIGKILL ? milliseconds(1)
                  : world_.random.chance(80)
                      ? world_.random.duration(milliseconds(0), milliseconds(50))
                      : world_.random.duration(milliseconds(0), seconds(2));
  auto end = [this, local_rank, signal, group = group_] {
    if (group == group_) end_worker(local_rank, {.signal = signal});
  };
  signal == SIGKILL ? world_.time.after(stop, end) : after(stop, end);
}

void Node::peer_lost(std::size_t round) {
  std::uint64_t group = group_;
  if (round_ != round || is_signalled_) return;
  after(world_.random.duration(milliseconds(1), seconds(3)), [this, group] {
    if (group == group_ && !is_signalled_) end_worker(0, {.signal = SIGABRT});
  });
}

void Node::signal_workers(int signal) {
  is_signalled_ = true;
  std::uint64_t group = group_;
  for (int rank = 0; rank < plan_.workers; ++rank) {
    if (!is_up_[static_cast<std::size_t>(rank)]) continue;
    if (world_.random.chance(world_.scenario.slow_stop_percent)) continue;  // it ignores that
    Duration stop = world_.random.duration(
        milliseconds(0), world_.random.chance(80) ? milliseconds(50) : milliseconds(1500));
    after(stop, [this, rank, group, signal] {
      if (group == group_) end_worker(rank, {.signal = signal});
    });
  }
}

void Node::sweep() {
  Duration needed = world_.random.duration(milliseconds(0), milliseconds(20));
  std::uint64_t group = group_;
  later(needed, [this, group] {
    if (group == group_ && core_.phase == agent::Phase::Stopping) on(agent::event::Swept{});
  });
}

void Node::kill_now() {
  is_signalled_ = true;
  kill_workers();
}

// SIGKILL, which ends a held worker too.
void Node::kill_workers() {
  std::uint64_t group = group_;
  world_.time.after(milliseconds(1), [this, group] {
    if (group != group_) return;
    for (int rank = 0; rank < plan_.workers; ++rank) end_worker(rank, {.signal = SIGKILL});
    is_held_ = false;
  });
}

// The guardian.

void Node::renew_lease(MonoTime end) {
  lease_end_ = end;
  std::uint64_t number = ++leases_;
  if (end > world_.now(plan_.machine).mono) has_stood_still_ = false;
  if (is_held_ && end > world_.now(plan_.machine).mono) {
    is_held_ = false;
    world_.oracle.goes_on(*this);
  }
  if (end == MonoTime::max()) return;
  world_.time.after(world_.as_measured(plan_.machine, end - world_.mono(plan_.machine)),
                    [this, number] { lease_is_over(number); });
}

void Node::lease_is_over(std::uint64_t number) {
  if (number != leases_ || workers_alive() == 0) return;
  if (is_paused_) return;  // unpause() sees to it
  if (has_stood_still_) {
    is_held_ = true;
    // It has stood still itself: the agent asks, and has a silence limit for it.
    std::uint64_t hold = ++holds_;
    world_.time.after(plan_.policy.silence_limit(), [this, number, hold] {
      if (number == leases_ && hold == holds_ && !is_paused_ && is_held_) kill_workers();
    });
    return;
  }
  world_.trace(process_.name, "its guardian ends the workers: the lease is over");
  kill_workers();
}

void Node::agent_killed(bool has_guardian) {
  Duration needed =
      has_guardian ? world_.random.duration(milliseconds(0), milliseconds(20)) : Duration::zero();
  if (!has_guardian) {
    is_up_.assign(is_up_.size(), false);
    round_.reset();
    return;
  }
  world_.time.after(needed, [this] {
    is_up_.assign(is_up_.size(), false);
    is_held_ = false;
    round_.reset();
    leave_last_word("was lost (its agent was killed)");
    std::string left =
        encode(member::last_message(member_, config_, "was lost (its agent was killed)"));
    std::optional<Endpoint> last_place =
        world_.scenario.daemons > 0 ? member_.place : registered_at_;
    world_.deliver(plan_.machine, left, world_.time.now() + seconds(5), last_place);
    if (!member_.last) return;
    bool is_taken = world_.at(last_place) != nullptr;
    for (const Endpoint& endpoint : plan_.settings.endpoints) {
      if (!is_taken) world_.deliver(plan_.machine, left, world_.time.now() + seconds(15), endpoint);
    }
    for (const StandIn& stand_in : member_.stand_ins) {
      world_.deliver(plan_.machine, left, world_.time.now() + seconds(15), stand_in.at);
    }
  });
}

void Node::pause() {
  is_paused_ = true;
}

void Node::unpause() {
  is_paused_ = false;
  has_stood_still_ = true;
  if (lease_end_ <= world_.now(plan_.machine).mono) lease_is_over(leases_);
}

// NetworkHandler::finish(): what was said last goes out, and a host stays for the others.
void Node::leave_when_possible(Duration flush_until) {
  bool has_messages = wire_ && wire_->is_open && (is_sending_ || !outgoing_.empty());
  bool is_flushing = has_messages && world_.time.now() < flush_until;
  bool is_needed =
      (hosting_ != nullptr && !hosting_->is_idle()) ||
      (standing_in_ != nullptr && !standing_in_->is_closed && !standing_in_->is_idle());
  if (is_flushing || is_needed) {
    return later(milliseconds(is_flushing ? 5 : 100),
                 [this, flush_until] { leave_when_possible(flush_until); });
  }
  disconnect();
  if (!unsaid_ && desk_.generation > 0 && desk_.generation == world_.registry.size())
    world_.registry.back().is_over = true;
  world_.trace(process_.name, "exits with " + std::to_string(*exit_code_));
  world_.exit(process_, true);
  if (!unsaid_) return;
  std::string left = encode(unsaid_->message);
  for (const auto& place : unsaid_->places) {
    world_.deliver(plan_.machine, left, world_.time.now() + seconds(2), place);
  }
}

// The rendezvous.

void Node::join() {
  store_port_ = world_.next_port();
  round_.reset();
  bool is_fresh = !member_.last && !member_.has_joined;
  step(member::event::RoundWanted{store_port_, is_fresh ? known_here() : RunPlaces{}});
}

void Node::step(const member::Event& event) {
  auto next = member::step(std::move(member_), event, world_.now(plan_.machine), config_);
  member_ = std::move(next.state);
  keep_memory();
  for (const member::Action& action : next.actions) perform(action);
  if (member::next_tick(member_, config_) < tick_due_) tick();
}

// NodeFiles: in the memory of the machine, and read there by those that come.
void Node::keep_memory() {
  NodeFile file{.boot = "boot",
                .run = plan_.run,
                .node = member::memory(member_, config_),
                .places = member::run_places(member_, config_)};
  auto& files = world_.node_files[plan_.machine];
  bool is_over = member_.has_verdict && !files.contains(process_.name);
  if (is_over) return;
  if (!file.knows_round() && file.places.at.empty()) {
    files.erase(process_.name);
    return;
  }
  World::NodeMemory& kept = files[process_.name];
  std::string text = encode(file);
  if (kept.text == text) return;
  kept.text = std::move(text);
  kept.written = ++world_.node_files_written;
}

void Node::leave_last_word(const std::string& why) {
  auto& files = world_.node_files[plan_.machine];
  if (auto kept = files.find(process_.name); kept != files.end()) kept->second.left = why;
}

std::vector<NodeFile> Node::dead_here() {
  std::map<std::uint64_t, NodeFile, std::greater<>> found;
  for (const auto& [name, kept] : world_.node_files[plan_.machine]) {
    auto file = decode_node_file(kept.text);
    if (!file || encode(*file) != kept.text) world_.violate("a node file that cannot be read");
    file->node.left = kept.left;
    if (file->run == plan_.run && !world_.find(name + ".0")->process().is_alive)
      found.emplace(kept.written, std::move(*file));
  }
  std::vector<NodeFile> files;
  std::size_t in_rounds = 0;
  for (auto& [written, file] : found) {
    if (in_rounds == kMaxDied) break;
    if (file.knows_round()) ++in_rounds;
    files.push_back(std::move(file));
  }
  return files;
}

std::vector<Died> Node::died_here() {
  std::vector<Died> nodes;
  for (NodeFile& file : dead_here()) {
    if (file.knows_round()) nodes.push_back(std::move(file.node));
  }
  return nodes;
}

RunPlaces Node::known_here() {
  for (NodeFile& file : dead_here()) {
    if (!file.places.at.empty()) return std::move(file.places);
  }
  return {};
}

void Node::notice(Deed deed) {
  later(Duration::zero(), std::move(deed));
}

void Node::perform(const member::Action& action) {
  std::visit(
      Overloaded{
          [this](const member::action::Connect& wanted) { connect(wanted); },
          [this](const member::action::Knock& wanted) {
            for (const auto& place : wanted.places) {
              Host* own = wire_ ? wire_->host : nullptr;
              if (own == nullptr) continue;
              if (!place && config_.has_registry) {
                look_around(*own);
              } else {
                world_.knock(*own, place);
              }
            }
          },
          [this](const member::action::Disconnect&) { disconnect(); },
          [this](const member::action::Post& wanted) { post(wanted.message, false); },
          [this](const member::action::Heartbeat& wanted) { post(wanted.message, true); },
          [this](const member::action::NotifyRound& told) {
            notice([this, round = told.round] {
              if (core_.phase != agent::Phase::Joining) return;
              if (last_number_ && round.number <= *last_number_)
                world_.violate(process_.name + " was in round " + std::to_string(*last_number_) +
                               " and is now in round " + std::to_string(round.number));
              last_number_ = round.number;
              round_ = world_.oracle.index_of(*this, round);
              on(agent::event::RoundJoined{round.restart_count});
            });
          },
          [this](const member::action::NotifyInspect& told) {
            notice([this, in = told.inspect.in] { on(agent::event::InspectOrdered{{.in = in}}); });
          },
          [](const member::action::NotifyTakeStacks&) {},  // nobody asks
          [](const member::action::NotifyTakeBundle&) {},  // likewise
          [this](const member::action::NotifyStop& told) {
            notice([this, kill_by = told.kill_by] {
              if (kill_by) on(agent::event::LeaseEnding{*kill_by});
              on(agent::event::StopOrdered{});
            });
          },
          [this](const member::action::RenewLease& lease) { renew_lease(lease.end); },
          [this](const member::action::NotifyWaiting& told) {
            notice([this, why = told.why] { world_.oracle.waits(*this, why); });
          },
          [this](const member::action::NotifyEnd& told) {
            if (!core_.shutdown_signal) verdict_ = told.end.exit_code;
            notice([this, code = told.end.exit_code] { on(agent::event::RunEnded{code}); });
          },
          [this](const member::action::NotifyFailure& told) {
            failed_ = told.why;
            notice([this, why = told.why, kill_by = told.kill_by] {
              if (kill_by) on(agent::event::LeaseEnding{*kill_by});
              on(agent::event::RendezvousFailed{why});
            });
          },
          [this](const member::action::NotifyUser& told) {
            world_.trace(process_.name, "says: " + told.text);
          },
      },
      action);
}

void Node::connect(const member::action::Connect& wanted) {
  std::uint64_t attempt = ++attempt_;
  later(wanted.after, [this, wanted, attempt] {
    if (attempt == attempt_ && !member_.is_over) shake_hands(wanted);
  });
}

// One attempt: the machine of the endpoint may host it itself, once nobody there does.
void Node::shake_hands(const member::action::Connect& wanted) {
  reaching_.reset();
  if (config_.has_registry && !wanted.place) return seek(wanted);
  bool is_here = plan_.machine == 0 && !wanted.place;
  bool has_daemon = world_.scenario.has_daemon || world_.scenario.daemons > 0;
  if (world_.host == nullptr && is_here && !has_daemon) {
    hosting_ = world_.listen(process_);
    tell_of_rounds(*hosting_);
  }
  open_or_close(wanted);
  reach(wanted, wanted.place);
}

void Node::reach(const member::action::Connect& wanted, const std::optional<Endpoint>& place) {
  std::uint64_t attempt = attempt_;
  if (config_.has_registry) here_ = place == own_place() ? standing_in_ : nullptr;
  Duration timeout = wanted.timeout > Duration::zero() ? wanted.timeout : seconds(2);
  later(timeout, [this, attempt] { connect_failed("timed out", attempt); });
  Host* host = world_.at(place);
  // Another host's, by the name of its coordinator.
  const std::string of = reaching_ ? reaching_->node : wanted.of;
  bool is_another = !of.empty() && host != nullptr && host->process().name != of;
  int there = World::machine_of(place);
  bool is_let_in = world_.lets_in(plan_.machine, there);
  if (host == nullptr || is_another || !is_let_in) {
    bool is_refused = world_.machines[static_cast<std::size_t>(there)].is_up && is_let_in;
    is_refused &= !place || !world_.prepared.contains({there, place->port});
    if (world_.scenario.has_stand_ins)
      is_refused &= world_.reaches(plan_.machine, there) && world_.reaches(there, plan_.machine);
    if (is_refused) {
      later(milliseconds(1), [this, attempt] { connect_failed("refused", attempt, true); });
    }
    return;
  }
  Wire wire = std::make_shared<Connection>();
  wire->client = this;
  wire->host = host;
  wire->machine = plan_.machine;
  wire->node = wanted.node;
  wire->number = wanted.connection;
  world_.wires.push_back(wire);
  world_.made_wires.push_back(wire);
  trying_ = wire;
  world_.send_up(wire, [this, wire, host, attempt] {
    host->serve(wire);
    world_.send_down(wire, [this, wire, host, attempt] {
      if (attempt != attempt_) return world_.close_at_node(wire);
      // It is reached; what fails from here on is another attempt, with a number of its own.
      if (reaching_) search_ = {};
      reaching_.reset();
      world_.send_up(wire, [this, wire, host, attempt] {
        wire->has_will = world_.scenario.has_wills;
        host->pop(wire);
        world_.send_down(wire, [this, wire, attempt] { connected(wire, attempt); });
      });
    });
  });
}

// A registry instead of an endpoint.

Endpoint Node::own_place() const {
  return {.host = address(), .port = config_.stand_in_port};
}

host_search::Searcher Node::searcher() const {
  return {.node = config_.name,
          .may_host = true,
          .has_round = member_.last.has_value(),
          .has_turn = member::has_turn(member_, config_),
          .lease = plan_.policy.lease()};
}

HostEntry Node::own_entry(std::uint64_t generation) const {
  return {.generation = generation,
          .node = config_.name,
          .at = own_place(),
          .says_file = desk_.says_file,
          .file = desk_.file};
}

// RunEndpoint::reach_registered().
void Node::seek(const member::action::Connect& wanted) {
  if (standing_in_ != nullptr && standing_in_->is_closed) standing_in_ = nullptr;
  if (standing_in_ != nullptr && here_ == standing_in_) return reach(wanted, own_place());
  here_ = nullptr;
  open_or_close(wanted);
  if (member_.is_joined && registered_at_) return reach(wanted, registered_at_);
  registered_at_.reset();
  std::uint64_t attempt = attempt_;
  auto entry = std::make_shared<HostEntry>();
  Deed read = [this, entry] { *entry = world_.newest_entry(); };
  world_.ask_registry(process_, read, [this, wanted, attempt, entry](bool is_answered) {
    if (attempt != attempt_ || member_.is_over) return;
    if (!is_answered) return connect_failed("the registry stands still", attempt);
    auto next = host_search::on_entry(search_, *entry, searcher(), world_.now(plan_.machine).mono);
    if (next == host_search::Next::Claim) return claim(wanted, entry->generation + 1);
    if (next == host_search::Next::Wait) return connect_failed("no host has come yet", attempt);
    reaching_ = *entry;
    reaching_for_ = wanted;
    if (entry->node == config_.name) return connect_failed("it hosts no more", attempt, true);
    registered_at_ = entry->at;
    reach(wanted, registered_at_);
  });
}

// RunEndpoint::host_by_claim().
void Node::claim(const member::action::Connect& wanted, std::uint64_t generation) {
  if (standing_in_ != nullptr) {  // the run has left it
    world_.close(standing_in_);
    for (const Wire& wire : std::vector<Wire>(world_.wires)) {
      if (wire->host == standing_in_) world_.close_at_host(wire, true);
    }
    standing_in_ = nullptr;
  }
  leave_desk();
  std::uint64_t attempt = attempt_;
  world_.prepared.insert({plan_.machine, config_.stand_in_port});
  auto newest = std::make_shared<HostEntry>();
  Deed write = [this, generation, newest] {
    if (generation == world_.registry.size() + 1) world_.registry.push_back(own_entry(generation));
    *newest = world_.newest_entry();
  };
  world_.ask_registry(process_, write, [this, wanted, attempt, newest](bool is_answered) {
    world_.prepared.erase({plan_.machine, config_.stand_in_port});
    if (attempt != attempt_ || member_.is_over) return;
    bool is_ours = is_answered && newest->node == config_.name;
    if (is_answered && !is_ours) return seek(wanted);
    if (!is_ours) return connect_failed("the registry stands still", attempt);
    search_ = {};
    open_by_claim(*newest);
    reach(wanted, own_place());
  });
}

void Node::open_by_claim(const HostEntry& entry) {
  desk_.generation = entry.generation;
  registered_at_ = own_place();
  world_.trace(process_.name, "has claimed generation " + std::to_string(entry.generation));
  standing_in_ = world_.stand_in(process_, config_.stand_in_port,
                                 host_search::order_of(entry.generation), [&](Host& host) {
                                   if (entry.file) host.found.push_back(*entry.file);
                                   prepare(host, true);
                                 });
}

void Node::tell_of_rounds(Host& host) {
  host.on_own_round = [this](const command::Round& round) { step(member::event::Formed{round}); };
}

void Node::prepare(Host& host, bool is_claimed) {
  tell_of_rounds(host);
  if (!config_.has_registry) return;
  host.keep = [this](const RunFile& file) {
    desk_.says_file = true;
    desk_.file = file;
    desk_.is_due = true;
    write_down();
  };
  host.drop = [this] {
    desk_.says_file = true;
    desk_.file.reset();
    desk_.is_due = desk_.generation > 0;
    write_down();
  };
  if (!is_claimed) return;
  host.may_begin = [this](const RunFile& file, std::function<void(bool)> may) {
    begin_when_noted(file, std::move(may));
  };
}

// RegisteredHost::may_begin().
void Node::begin_when_noted(const RunFile& file, std::function<void(bool)> may) {
  desk_.says_file = true;
  desk_.file = file;
  const std::uint64_t hosting = desk_.hostings;
  auto is_noted = std::make_shared<bool>(false);
  Deed note = [this, is_noted] { *is_noted = note_now(); };
  world_.ask_registry(process_, note, [this, file, may, hosting, is_noted](bool is_answered) {
    if (hosting != desk_.hostings) return may(false);
    if (!is_answered)
      return later(seconds(1), [this, file, may, hosting] {
        if (hosting == desk_.hostings) begin_when_noted(file, may);
      });
    if (!*is_noted) superseded();
    may(*is_noted);
  });
}

// What it writes comes before it looks who is the newest.
bool Node::note_now() {
  if (desk_.generation == 0 || desk_.generation > world_.registry.size()) return false;
  world_.registry[desk_.generation - 1] = own_entry(desk_.generation);
  return desk_.generation == world_.registry.size();
}

void Node::superseded() {
  world_.trace(process_.name, "gives way to who stands in the registry");
  leave_desk();
  Host* host = std::exchange(standing_in_, nullptr);
  here_ = nullptr;
  if (host == nullptr) return;
  world_.close(host);
  for (const Wire& wire : std::vector<Wire>(world_.wires)) {
    if (wire->host == host) world_.close_at_host(wire, true);
  }
}

// RunEndpoint::knock().
void Node::look_around(Host& own) {
  auto entry = std::make_shared<HostEntry>();
  Deed read = [this, entry] { *entry = world_.newest_entry(); };
  world_.ask_registry(process_, read, [this, entry, host = &own](bool is_answered) {
    bool is_elsewhere = is_answered && entry->node != config_.name;
    if (!is_elsewhere || host->is_closed || here_ != host) return;
    if (host->holds_run() && desk_.file && !host->is_beginning()) {
      desk_.generation = 0;
      desk_.is_due = true;
      write_down();
    }
    if (entry->generation > 0 && !entry->is_over) world_.knock(*host, entry->at);
  });
}

void Node::write_down() {
  if (desk_.is_writing || !desk_.is_due) return;
  desk_.is_writing = true;
  desk_.is_due = false;
  Deed write = [this, hosting = desk_.hostings] {
    if (hosting == desk_.hostings) write_once();
  };
  world_.ask_registry(process_, write, [this](bool is_answered) { written(is_answered); });
}

void Node::written(bool is_answered) {
  desk_.is_writing = false;
  if (is_answered) return write_down();
  later(seconds(1), [this, hosting = desk_.hostings] {
    if (hosting != desk_.hostings) return;
    desk_.is_due = true;
    write_down();
  });
}

// RegisteredHost::write_once(), without a moment between its calls.
void Node::write_once() {
  if (desk_.generation > 0 && note_now()) return;
  desk_.generation = 0;
  HostEntry newest = world_.newest_entry();
  if (newest.generation > 0 && newest.node == config_.name) {  // a claim that seemed to have failed
    desk_.generation = newest.generation;
    note_now();
    return;
  }
  if (!desk_.file || !host_search::is_to_claim(newest, config_.name, desk_.file->round)) return;
  desk_.generation = newest.generation + 1;
  world_.registry.push_back(own_entry(desk_.generation));
}

void Node::leave_desk() {
  std::uint64_t hostings = desk_.hostings;
  bool is_writing = desk_.is_writing;
  desk_ = {};
  desk_.hostings = hostings + 1;
  desk_.is_writing = is_writing;
}

// The server on its spare port is open as long as the node is there itself.
void Node::open_or_close(const member::action::Connect& wanted) {
  if (standing_in_ != nullptr && standing_in_->is_closed) standing_in_ = nullptr;
  if (wanted.stand_in != 0 && standing_in_ == nullptr) {
    standing_in_ = world_.stand_in(process_, config_.stand_in_port, wanted.stand_in,
                                   [this](Host& host) { prepare(host, false); });
    return;
  }
  bool is_own = wanted.place && wanted.place->host == address() &&
                wanted.place->port == config_.stand_in_port;
  if (standing_in_ == nullptr || is_own) return;
  later(seconds(1), [this, host = standing_in_] {
    bool is_there = wire_ && wire_->host == host;
    if (is_there || host->is_closed || here_ == host) return;
    leave_desk();
    world_.close(host);
    for (const Wire& wire : std::vector<Wire>(world_.wires)) {
      if (wire->host == host) world_.close_at_host(wire, true);
    }
  });
}

void Node::connected(const Wire& wire, std::uint64_t attempt) {
  if (attempt != attempt_ || member_.is_over) return world_.close_at_node(wire);
  ++attempt_;
  wire_ = wire;
  trying_.reset();
  is_sending_ = false;
  outgoing_.clear();
  step(member::event::Connected{
      .address = address(),
      .coordinator = wire->host->name(),
      .is_at_daemon = world_.scenario.has_daemon || world_.scenario.daemons > 0,
      .is_own_host = &wire->host->process() == &process_,
      .died = died_here()});
  tick();
}

void Node::connect_failed(const std::string& why, std::uint64_t attempt, bool is_refused) {
  if (attempt != attempt_ || member_.is_over) return;
  ++attempt_;
  if (trying_) world_.close_at_node(trying_);
  trying_.reset();
  if (auto entry = std::exchange(reaching_, std::nullopt)) {
    auto next = host_search::on_failure(search_, *entry, is_refused, searcher(),
                                        world_.now(plan_.machine).mono);
    if (next == host_search::Next::Claim) return claim(reaching_for_, entry->generation + 1);
  }
  step(member::event::ConnectFailed{.why = why, .is_refused = is_refused});
}

void Node::disconnect() {
  ++attempt_;
  if (trying_) world_.close_at_node(trying_);
  trying_.reset();
  if (wire_) world_.close_at_node(wire_);
  wire_.reset();
}

void Node::connection_lost(const Wire& wire, const std::string& why, bool is_reset) {
  bool is_ours = wire == wire_ && wire->is_open;
  if (is_ours) step(member::event::ConnectionLost{.why = why, .is_reset = is_reset});
}

void Node::post(const Message& message, bool is_heartbeat) {
  if (!wire_) return;
  ++world_.oracle.messages;
  outgoing_.emplace_back(encode(message), is_heartbeat);
  pump();
}

void Node::pump() {
  if (is_sending_ || outgoing_.empty() || !wire_) return;
  is_sending_ = true;
  auto [message, is_heartbeat] = std::move(outgoing_.front());
  outgoing_.pop_front();
  Wire wire = wire_;
  world_.send_up(wire, [this, wire, message, is_heartbeat] {
    if (!wire->is_served) return;
    wire->host->push(message);
    std::string pulse = wire->host->pulse(plan_.run);
    bool is_given_up = wire->host->has_given_up(wire->node);
    world_.send_down(wire, [this, wire, pulse, is_given_up, is_heartbeat] {
      if (wire != wire_) return;
      is_sending_ = false;
      if (is_heartbeat && is_given_up) {
        step(member::event::Heard{command::Dropped{"it was silent, or deaf, for too long"}});
      } else if (is_heartbeat) {
        step(member::event::PulseSeen{pulse});
      }
      pump();
    });
  });
}

void Node::tick() {
  std::uint64_t number = ++ticks_;
  tick_due_ = member::next_tick(member_, config_);
  if (tick_due_ == MonoTime::max()) return;
  Duration left = tick_due_ - world_.now(plan_.machine).mono;
  later(std::max(left, Duration::zero()), [this, number] {
    if (number != ticks_) return;
    bool is_due = world_.now(plan_.machine).mono >= member::next_tick(member_, config_);
    bool hosts = wire_ && &wire_->host->process() == &process_;
    std::optional<MonoTime> heard_at;
    if (hosts) heard_at = wire_->host->heard_at(plan_.run);
    if (is_due && member::waits_for_round(member_)) step(member::event::DiedSeen{died_here()});
    if (is_due) step(member::event::Tick{heard_at});
    if (number == ticks_) tick();
  });
}

void Node::deafen(Duration lasts) {
  deaf_until_ = world_.time.now() + lasts;
}

void Node::heard(const Wire& wire, const std::string& text) {
  if (wire != wire_ || !wire->is_open) return;
  bool is_own_host = &wire->host->process() == &process_;  // where no network is between
  Duration deaf = is_own_host ? Duration::zero() : deaf_until_ - world_.time.now();
  if (deaf > Duration::zero()) {  // the kernel sends it again, until it comes through
    return world_.time.to(process_, deaf, [this, wire, text] { heard(wire, text); });
  }
  auto command = decode_command(text);
  if (!command) world_.violate("a command that cannot be read: " + to_string(command.error()));
  if (encode(*command) != text) world_.violate("a command that changes when it is read: " + text);
  step(member::event::Heard{*command});
  if (wire == wire_ && wire->is_open) {
    world_.send_up(wire, [wire] { wire->host->pop(wire); });
  }
}

}  // namespace ddprun::sim
