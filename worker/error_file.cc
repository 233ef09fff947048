// SPDX-License-Identifier: BSD-3-Clause
#include "worker/error_file.h"

#include <nlohmann/json.hpp>

#include "store/base/number.h"

namespace ddprun::worker {
namespace {

using Json = nlohmann::json;

std::string text_at(const Json& object, const char* name) {
  auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// A number, or a string of digits as torch writes it.
std::int64_t seconds_at(const Json& object, const char* name) {
  auto found = object.find(name);
  if (found == object.end()) return 0;
  if (found->is_number_integer()) return found->get<std::int64_t>();
  if (!found->is_string()) return 0;
  return leading_number<std::int64_t>(found->get_ref<const std::string&>()).value_or(0);
}

}  // namespace

std::optional<ErrorReport> parse_error_file(std::string_view text) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return std::nullopt;
  auto message = json.find("message");
  if (message == json.end()) return std::nullopt;
  if (message->is_string())
    return ErrorReport{.message = *message, .timestamp = seconds_at(json, "timestamp")};
  if (!message->is_object()) return std::nullopt;
  ErrorReport report{.message = text_at(*message, "message")};
  auto extra = message->find("extraInfo");
  if (extra != message->end() && extra->is_object()) {
    report.traceback = text_at(*extra, "py_callstack");
    report.timestamp = seconds_at(*extra, "timestamp");
  }
  return report;
}

std::string to_error_file(const ErrorReport& report, std::optional<int> exit_code) {
  Json message = {
      {"message", report.message},
      {"extraInfo",
       {{"py_callstack", report.traceback}, {"timestamp", std::to_string(report.timestamp)}}}};
  if (exit_code) message["errorCode"] = *exit_code;
  // Invalid UTF-8, which a worker may well have written, must not stop us from reporting it.
  return Json({{"message", message}}).dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace ddprun::worker
