// SPDX-License-Identifier: BSD-3-Clause
#include "cli/config/rdzv_conf.h"

#include <set>
#include <utility>

#include "cli/config/config_builder.h"
#include "cli/options/parse.h"

namespace ddprun::cli {
namespace {

class Reader {
 public:
  Reader(RdzvConf& conf, const std::string& backend, std::vector<std::string>& notes)
      : conf_(conf), backend_(backend), notes_(notes) {}

  Result<void> read_setting(const std::string& key, const OptionValue& value) {
    if (key == "join_timeout") return read_seconds(value, conf_.policy.join_timeout);
    if (key == "timeout") {
      bool is_join_timeout = backend_ == "static" || backend_ == "etcd";
      return is_join_timeout ? read_seconds(value, conf_.policy.join_timeout) : Result<void>{};
    }
    if (key == "last_call_timeout") {
      if (value.text != "0") return read_seconds(value, conf_.policy.last_call_timeout);
      conf_.policy.last_call_timeout = {};
      return {};
    }
    if (key == "keep_alive_interval") return read_seconds(value, conf_.policy.keep_alive_interval);
    if (key == "read_timeout") return read_seconds(value, conf_.read_timeout);
    if (key == "keep_alive_max_attempt") {
      return read_whole(value, 2, conf_.policy.keep_alive_max_attempt);
    }
    if (key == "lease_grace") {
      conf_.policy.lease_grace = {};
      if (value.text == "0" || read_seconds(value, conf_.policy.lease_grace)) return {};
      return invalid_value(value, "0 (none) or a number of seconds from 0.01 to 1000000");
    }
    if (key == "flap_limit") return read_whole(value, 0, conf_.policy.flap_limit);
    if (key == "quorum") return read_whole(value, 1, conf_.policy.quorum);
    if (key == "rank") {
      conf_.rank = 0;
      return read_whole(value, 0, *conf_.rank);
    }
    if (key == "is_host") return read_is_host(value);
    if (EtcdOptions::is_backend(backend_) && conf_.etcd.take(key, value)) return {};
    if (key == "store_type" && value.text == "file") {
      conf_.store_type = value;
      return {};
    }
    if (key == "store_type" && value.text != "tcp") {
      return not_supported(value.origin + "=" + value.text, "tcp and file are");
    }
    static const std::set<std::string> kWithoutEffect = {
        "store_type", "close_timeout", "heartbeat_timeout", "use_libuv", "cas_backoff_max_seconds"};
    if (!kWithoutEffect.contains(key))
      notes_.push_back(value.origin + " is not known and has no effect");
    return {};
  }

 private:
  static Result<void> read_seconds(const OptionValue& value, Duration& duration) {
    Result<double> seconds = parse_seconds(value);
    if (!seconds) return seconds.error();
    constexpr double kLeast = 0.01;
    constexpr double kMost = 1'000'000;
    if (*seconds < kLeast || *seconds > kMost) {
      return invalid_value(value, "a number of seconds from 0.01 to 1000000");
    }
    duration = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(*seconds));
    return {};
  }
  static Result<void> read_whole(const OptionValue& value, int least, int& number) {
    Result<int> parsed = parse_whole(value, least, 1'000'000);
    if (!parsed) return parsed.error();
    number = *parsed;
    return {};
  }
  Result<void> read_is_host(const OptionValue& value) {
    static const std::set<std::string> kYes = {"1", "true", "t", "yes", "y"};
    static const std::set<std::string> kNo = {"0", "false", "f", "no", "n"};
    std::string text = value.text;
    for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    if (!kYes.contains(text) && !kNo.contains(text)) {
      return invalid_value(value, "true or false");
    }
    conf_.is_host = kYes.contains(text);
    return {};
  }

  RdzvConf& conf_;
  const std::string& backend_;
  std::vector<std::string>& notes_;
};

}  // namespace

Result<RdzvConf> read_rdzv_conf(const OptionValue* given, const std::string& backend,
                                std::vector<std::string>& notes) {
  RdzvConf conf;
  if (given == nullptr) return conf;
  auto settings = parse_rdzv_conf(*given);
  if (!settings) return settings.error();
  Reader reader(conf, backend, notes);
  for (const auto& [key, text] : *settings) {
    Result<void> read = reader.read_setting(key, {text, given->origin + ": " + key});
    if (!read) return read.error();
  }
  return conf;
}

}  // namespace ddprun::cli
