// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/state_json.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "worker/ddp/optimizer_state.h"
#include "worker/ddp/plateau_state.h"
#include "worker/ddp/random_streams.h"

namespace ddprun::ddp {
namespace {

using Json = nlohmann::json;

// A scheduler's count of steps, which LibTorch keeps from all but its heirs.
struct SchedulerAccess : torch::optim::LRScheduler {
  static unsigned& count(torch::optim::LRScheduler& scheduler) {
    return scheduler.*(&SchedulerAccess::step_count_);
  }
};

// JSON has no infinity, which the best loss is at the start, and no NaN: these are texts.
Json json_of(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  return number;
}

double number_in(const Json& json) {
  if (!json.is_string()) return json.get<double>();
  const auto& text = json.get_ref<const std::string&>();
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (text == "inf") return std::numeric_limits<double>::infinity();
  if (text == "-inf") return -std::numeric_limits<double>::infinity();
  return json.get<double>();  // which throws
}

Json json_of(const Progress& progress) {
  Json values = Json::object();
  for (const auto& [name, value] : progress.values) values[name] = json_of(value);
  return {{"step", progress.step},
          {"epoch", progress.epoch},
          {"values", values},
          {"texts", progress.texts}};
}

Progress progress_in(const Json& json) {
  Progress progress{.step = json.at("step").get<std::int64_t>(),
                    .epoch = json.at("epoch").get<std::int64_t>(),
                    .values = {},
                    .texts = json.value("texts", std::map<std::string, std::string>())};
  for (const auto& [name, value] : json.at("values").items()) {
    progress.values[name] = number_in(value);
  }
  return progress;
}

Json json_of(const PlateauState& plateau) {
  return {{"best", json_of(double{plateau.best})},
          {"cooldown_counter", plateau.cooldown_counter},
          {"last_epoch", plateau.last_epoch},
          {"num_bad_epochs", plateau.num_bad_epochs}};
}

void restore_plateau(const PlateauState& plateau, const Json& json) {
  plateau.best = static_cast<float>(number_in(json.at("best")));
  plateau.cooldown_counter = json.at("cooldown_counter").get<int>();
  plateau.last_epoch = json.at("last_epoch").get<int>();
  plateau.num_bad_epochs = json.at("num_bad_epochs").get<int>();
}

}  // namespace

std::string to_json(const TrainingState& state) {
  Json json = Json::object();
  if (state.progress) json["progress"] = json_of(*state.progress);
  if (state.sampler) {
    const SamplerState& at = state.sampler->state();
    json["sampler"] = {{"sample_count", at.sample_count},
                       {"shuffle", at.shuffle},
                       {"seed", at.seed},
                       {"epoch", at.epoch},
                       {"consumed", at.consumed}};
  }
  if (state.scheduler) json["scheduler"] = {{"steps", SchedulerAccess::count(*state.scheduler)}};
  if (state.plateau) json["plateau"] = json_of(state_of(*state.plateau));
  if (state.buckets && !state.buckets->empty()) json["buckets"] = *state.buckets;
  if (state.random_numbers) json["random"] = {{"seed", random_seed()}};
  if (state.optimizer) json["optimizer"] = describe_optimizer(*state.optimizer);
  // What is not UTF-8 in the program's texts is replaced rather than losing the checkpoint.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<void> restore_json(const TrainingState& state, const std::string& text) {
  try {
    Json json = Json::parse(text);
    if (state.progress && json.contains("progress")) {
      *state.progress = progress_in(json["progress"]);
    }
    if (state.scheduler && json.contains("scheduler")) {
      SchedulerAccess::count(*state.scheduler) = json["scheduler"].at("steps").get<unsigned>();
    }
    if (state.plateau && json.contains("plateau")) {
      restore_plateau(state_of(*state.plateau), json["plateau"]);
    }
    if (state.buckets) state.buckets->clear();
    if (state.buckets && json.contains("buckets")) {
      *state.buckets = json["buckets"].get<BucketLayout>();
    }
    if (state.sampler && json.contains("sampler")) {
      const Json& saved = json.at("sampler");
      return state.sampler->restore({.sample_count = saved.value("sample_count", std::int64_t{0}),
                                     .shuffle = saved.value("shuffle", true),
                                     .seed = saved.at("seed").get<std::uint64_t>(),
                                     .epoch = saved.at("epoch").get<std::int64_t>(),
                                     .consumed = saved.at("consumed").get<std::int64_t>()});
    }
    return {};
  } catch (const Json::exception&) {
    return Error{Errc::Protocol, "its state.json lacks a field"};
  }
}

Result<void> check_optimizer(const TrainingState& state, const std::string& text) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  bool says_it = json.is_object() && json.contains("optimizer") && json["optimizer"].is_string();
  if (!state.optimizer || !says_it) return {};
  const std::string saved = json["optimizer"].get<std::string>();
  const std::string own = describe_optimizer(*state.optimizer);
  if (saved.empty() || own.empty() || saved == own) return {};
  return Error{Errc::InvalidInput,
               "the checkpoint has the state of " + saved + ", and this optimizer is " + own};
}

std::uint64_t seed_in(const std::string& text) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("random")) return 0;
  return json["random"].value("seed", std::uint64_t{0});
}

}  // namespace ddprun::ddp
