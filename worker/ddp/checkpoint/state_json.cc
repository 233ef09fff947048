// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/checkpoint/state_json.h"

#include <nlohmann/json.hpp>

#include "worker/ddp/checkpoint/random_streams.h"

namespace ddprun::ddp {
namespace {

using Json = nlohmann::json;

// A scheduler's count of steps, which LibTorch keeps from all but its heirs.
struct SchedulerAccess : torch::optim::LRScheduler {
  static unsigned& count(torch::optim::LRScheduler& scheduler) {
    return scheduler.*(&SchedulerAccess::step_count_);
  }
};

}  // namespace

std::string to_json(const TrainingState& state) {
  Json json = Json::object();
  if (state.progress) {
    json["progress"] = {{"step", state.progress->step},
                        {"epoch", state.progress->epoch},
                        {"values", state.progress->values},
                        {"texts", state.progress->texts}};
  }
  if (state.sampler) {
    const SamplerState& at = state.sampler->state();
    json["sampler"] = {{"seed", at.seed}, {"epoch", at.epoch}, {"consumed", at.consumed}};
  }
  if (state.scheduler) json["scheduler"] = {{"steps", SchedulerAccess::count(*state.scheduler)}};
  if (state.buckets && !state.buckets->empty()) json["buckets"] = *state.buckets;
  if (state.random_numbers) json["random"] = {{"seed", random_seed()}};
  // What is not UTF-8 in the program's texts is replaced rather than losing the checkpoint.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<void> restore_json(const TrainingState& state, const std::string& text) {
  try {
    Json json = Json::parse(text);
    if (state.progress && json.contains("progress")) {
      const Json& saved = json.at("progress");
      *state.progress =
          Progress{.step = saved.at("step").get<std::int64_t>(),
                   .epoch = saved.at("epoch").get<std::int64_t>(),
                   .values = saved.at("values").get<std::map<std::string, double>>(),
                   .texts = saved.value("texts", std::map<std::string, std::string>())};
    }
    if (state.scheduler && json.contains("scheduler")) {
      SchedulerAccess::count(*state.scheduler) = json["scheduler"].at("steps").get<unsigned>();
    }
    if (state.buckets) state.buckets->clear();
    if (state.buckets && json.contains("buckets")) {
      *state.buckets = json["buckets"].get<BucketLayout>();
    }
    if (state.sampler && json.contains("sampler")) {
      const Json& saved = json.at("sampler");
      return state.sampler->restore({.seed = saved.at("seed").get<std::uint64_t>(),
                                     .epoch = saved.at("epoch").get<std::int64_t>(),
                                     .consumed = saved.at("consumed").get<std::int64_t>()});
    }
    return {};
  } catch (const Json::exception&) {
    return Error{Errc::Protocol, "its state.json lacks a field"};
  }
}

std::uint64_t seed_in(const std::string& text) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("random")) return 0;
  return json["random"].value("seed", std::uint64_t{0});
}

}  // namespace ddprun::ddp
