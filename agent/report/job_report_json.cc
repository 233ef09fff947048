// SPDX-License-Identifier: BSD-3-Clause
#include <chrono>
#include <nlohmann/json.hpp>

#include "agent/report/advice.h"
#include "agent/report/job_report.h"
#include "agent/report/time_text.h"
#include "store/base/text.h"

namespace ddprun::agent {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 1;

Json text_or_null(const std::string& text) {
  return text.empty() ? Json() : Json(text);
}

double seconds(WallTime time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

Json status_of(const process::ExitStatus& status) {
  Json json = {{"exit_code", status.shell_code()}, {"signal", Json()}};
  if (status.signal != 0) json["signal"] = process::signal_name(status.signal);
  return json;
}

Json to_json(const rendezvous::Failure& failure) {
  Json json = {{"attempt", failure.restart_count},
               {"node", text_or_null(failure.node)},
               {"rank", failure.rank},
               {"local_rank", failure.local_rank},
               {"pid", failure.pid}};
  json.update(status_of(failure.status));
  bool is_by_signal = failure.status.signal != 0;
  json["cause"] = text_or_null(is_by_signal ? failure.message : "");
  json["message"] = text_or_null(is_by_signal ? "" : failure.message);
  json["time"] = failure.at == WallTime{} ? Json() : Json(seconds(failure.at));
  json["log_path"] = text_or_null(failure.log_path);
  json["traceback"] = text_or_null(failure.traceback);
  json["stderr_tail"] = lines_of(failure.stderr_tail);
  json["waited_in"] = text_or_null(failure.waited_in);
  json["suspects"] = Json::array();
  for (const rendezvous::Suspect& suspect : failure.suspects) {
    json["suspects"].push_back({{"rank", suspect.rank},
                                {"node", text_or_null(suspect.node)},
                                {"pid", suspect.pid == 0 ? Json() : Json(suspect.pid)},
                                {"has_come", suspect.has_come},
                                {"doing", text_or_null(suspect.doing)}});
  }
  json["suspect_count"] = failure.suspect_count;
  json["also_waited"] = failure.also_waited;
  return json;
}

double seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

Json to_json(const TimeAccount& time) {
  Json json = {
      {"up", seconds(time.up)},
      {"training", seconds(time.of(Doing::Training))},
      {"hanging", seconds(time.of(Doing::Hanging))},
      {"starting", seconds(time.of(Doing::Starting))},
      {"stopping", seconds(time.of(Doing::Stopping))},
      {"waiting", seconds(time.of(Doing::Waiting))},
      {"until_training", time.until_training ? Json(seconds(*time.until_training)) : Json()},
      {"restarts", Json::array()},
      {"to_connect",
       {{"restarts", time.to_connect.restarts}, {"cost", seconds(time.to_connect.spent)}}}};
  for (const RestartCost& each : time.restarts) {
    json["restarts"].push_back({{"cause", name_of(each.cause)},
                                {"node", text_or_null(each.cause.node)},
                                {"count", each.count},
                                {"cost", seconds(each.cost)}});
  }
  return json;
}

}  // namespace

std::string to_json(const JobReport& report) {
  Json json = {{"version", kVersion},
               {"run_id", report.run_id},
               {"node", text_or_null(report.node)},
               {"exit_code", report.exit_code},
               {"max_restarts", report.max_restarts},
               {"error", text_or_null(report.error)},
               {"signalled", Json()},
               {"root_cause", is_by_worker(report) ? to_json(report.failures.back()) : Json()},
               {"failures", Json::array()},
               {"victims", Json::array()},
               {"finished", ended_before(report)},
               {"had_succeeded_here", report.had_succeeded_here},
               {"left_behind", report.stuck},
               {"flight_recorder", report.dumps},
               {"slowest", text_or_null(report.slowest)},
               {"log_path", text_or_null(report.log_path)},
               {"log_loss", text_or_null(report.log_loss.why)},
               {"console_loss", text_or_null(report.console_loss)},
               {"time", report.time ? to_json(*report.time) : Json()},
               {"next_step", text_or_null(next_step(report))}};
  if (report.outside) {
    json["signalled"] = {{"signal", report.outside->signal},
                         {"reason", report.outside->reason},
                         {"words", report.outside->words}};
  }
  for (const rendezvous::Failure& failure : report.failures)
    json["failures"].push_back(to_json(failure));
  for (const Victim& victim : report.victims) {
    Json one = {{"rank", victim.rank}};
    one.update(status_of(victim.status));
    one["stopped_by_ddprun"] = victim.is_stopped_by_us;
    json["victims"].push_back(std::move(one));
  }
  // What a worker wrote need not be UTF-8.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace ddprun::agent
