// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/trace.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>

namespace ddprun::rendezvous {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kTail = "{\"name\": \"end\", \"ph\": \"M\", \"pid\": 0}\n]\n";

std::string line(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + ",\n";
}

std::string metadata(const char* what, int process, int thread, const Json& facts) {
  return line({{"name", what}, {"ph", "M"}, {"pid", process}, {"tid", thread}, {"args", facts}});
}

std::string name_of_thread(bool is_run, int thread) {
  if (is_run) return "run";
  return thread == kAgentThread ? "agent" : "local rank " + std::to_string(thread);
}

const char* letter_of(TraceEvent::Kind kind) {
  switch (kind) {
    case TraceEvent::Kind::Begin:
      return "B";
    case TraceEvent::Kind::End:
      return "E";
    case TraceEvent::Kind::Slice:
      return "X";
    case TraceEvent::Kind::Instant:
      break;
  }
  return "i";
}

std::int64_t microseconds(WallTime::duration time) {
  return std::chrono::duration_cast<std::chrono::microseconds>(time).count();
}

Json to_json(const TraceEvent& event, TraceEvent::Kind kind, int process, int thread) {
  std::int64_t at = microseconds(event.at.time_since_epoch());
  Json json = {{"ph", letter_of(kind)}, {"ts", at}, {"pid", process}, {"tid", thread}};
  std::string name = event.name;
  if (event.base_rank >= 0) name += std::to_string(event.base_rank + thread - event.thread);
  if (kind != TraceEvent::Kind::End) json["name"] = name;
  if (kind == TraceEvent::Kind::Slice)
    json["dur"] = std::max<std::int64_t>(0, microseconds(event.until - event.at));
  if (kind == TraceEvent::Kind::Instant) json["s"] = event.node.empty() ? "g" : "t";
  for (const auto& [key, value] : event.facts) json["args"][key] = value;
  return json;
}

}  // namespace

TraceText::Node& TraceText::node_of(const TraceEvent& event, std::string& out) {
  auto [found, is_new] = nodes_.try_emplace(event.node);
  Node& node = found->second;
  if (!is_new) return node;
  bool is_run = event.node.empty();
  node.number = is_run ? 0 : static_cast<int>(nodes_.size());
  std::string name = is_run ? "run" : event.host.empty() ? event.node : event.host;
  out += metadata("process_name", node.number, 0, {{"name", name}});
  out += metadata("process_sort_index", node.number, 0, {{"sort_index", node.number}});
  return node;
}

std::string TraceText::lines(const TraceEvent& event) {
  std::string out;
  Node& node = node_of(event, out);
  for (int thread = event.thread; thread < event.thread + event.threads; ++thread) {
    auto [found, is_new] = node.threads.try_emplace(thread);
    bool& is_open = found->second.is_open;
    if (is_new) {
      out += metadata("thread_name", node.number, thread,
                      {{"name", name_of_thread(event.node.empty(), thread)}});
    }
    if (event.kind == TraceEvent::Kind::End && !is_open) continue;
    if (event.kind == TraceEvent::Kind::Begin && is_open)
      out += line(to_json({.at = event.at}, TraceEvent::Kind::End, node.number, thread));
    out += line(to_json(event, event.kind, node.number, thread));
    bool opens = event.kind == TraceEvent::Kind::Begin;
    if (opens || event.kind == TraceEvent::Kind::End) is_open = opens;
  }
  return out;
}

std::string TraceText::tail() {
  return kTail;
}

std::string completed_trace(std::string text) {
  if (text.ends_with("\n]\n")) return text;
  std::size_t end = text.rfind(",\n");  // of the last whole event
  return (end == std::string::npos ? TraceText::head() : text.substr(0, end + 2)) +
         TraceText::tail();
}

}  // namespace ddprun::rendezvous
