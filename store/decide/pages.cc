// SPDX-License-Identifier: BSD-3-Clause
#include "store/decide/pages.h"

#include <algorithm>
#include <cstdio>
#include <sstream>
#include <string_view>

#include "store/decide/wire.h"

namespace ddprun::store {
namespace {

// Of a longer name the beginning is shown.
constexpr std::size_t kShownBytes = 256;

// What the list of waiters may take; of more waiters the first are shown.
constexpr std::streamoff kWaitersBytes = 1 << 20;

// Names are bytes; what is no printable ASCII is shown as the character of the same number.
std::string quoted(std::string_view text) {
  std::string out = "\"";
  bool is_cut = text.size() > kShownBytes;
  text = text.substr(0, kShownBytes);
  for (unsigned char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c >= 0x20 && c < 0x7f) {
      out += static_cast<char>(c);
    } else {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", c);
      out += escape;
    }
  }
  return out + (is_cut ? "...\"" : "\"");
}

void metric(std::ostream& out, std::string_view name, std::string_view type, std::string_view help,
            std::uint64_t value) {
  out << "# HELP ddprun_store_" << name << ' ' << help << "\n# TYPE ddprun_store_" << name << ' '
      << type << "\nddprun_store_" << name << ' ' << value << '\n';
}

void write_join_progress(const JoinProgress& join_progress, std::ostream& out) {
  out << "{\"world_size\": ";
  join_progress.world_size ? out << *join_progress.world_size : out << "null";
  out << ", \"announced\": " << join_progress.expected_count
      << ", \"missing_count\": " << join_progress.missing_count << ", \"missing\": [";
  const char* separator = "";
  for (const ExpectedClients::Missing& client : join_progress.missing) {
    out << separator << "\n  {\"name\": " << quoted(client.name)
        << ", \"host\": " << quoted(client.host) << ", \"pid\": " << client.pid << '}';
    separator = ",";
  }
  out << "]}";
}

}  // namespace

std::string metrics_page(const Metrics& metrics) {
  std::ostringstream out;
  metric(out, "connections", "gauge", "Open connections.", metrics.connections);
  metric(out, "keys", "gauge", "Keys, queues not counted.", metrics.keys);
  metric(out, "bytes", "gauge",
         "Memory of keys, values, queues, last wills, waits and announcements, near enough.",
         metrics.bytes);
  metric(out, "held_bytes", "gauge", "Memory of incomplete requests.", metrics.held_bytes);
  metric(out, "waits", "gauge", "Waits, barriers and takes not answered yet.", metrics.waits);
  metric(out, "spaces", "gauge", "Named namespaces.", metrics.namespaces);
  metric(out, "accepted_total", "counter", "Connections accepted.", metrics.accepted);
  metric(out, "refused_total", "counter", "Connections refused for their address.",
         metrics.refused);
  metric(out, "turned_away_total", "counter", "Connections refused because there were too many.",
         metrics.turned_away);
  metric(out, "disconnected_total", "counter", "Clients disconnected for what they did.",
         metrics.disconnected);
  out << "# HELP ddprun_store_requests_total Requests carried out.\n"
         "# TYPE ddprun_store_requests_total counter\n";
  for (std::size_t op = 0; op < metrics.requests.size(); ++op) {
    std::string_view name = name_of(static_cast<Op>(op));
    if (name.empty()) continue;
    out << "ddprun_store_requests_total{operation=\"" << name << "\"} " << metrics.requests[op]
        << '\n';
  }
  return out.str();
}

std::string to_open_metrics(std::string_view metrics) {
  constexpr std::string_view kTotal = "_total";
  std::string out;
  while (!metrics.empty()) {
    std::size_t length = std::min(metrics.find('\n'), metrics.size());
    std::string line(metrics.substr(0, length));
    metrics.remove_prefix(std::min(length + 1, metrics.size()));
    // "# TYPE NAME counter", "# HELP NAME ..."
    std::size_t name_ends = line.starts_with("# ") ? line.find(' ', sizeof "# TYPE " - 1) : 0;
    bool is_declared = name_ends != 0 && name_ends != std::string::npos;
    if (is_declared && line.substr(0, name_ends).ends_with(kTotal))
      line.erase(name_ends - kTotal.size(), kTotal.size());
    out += line + '\n';
  }
  return out + "# EOF\n";
}

std::string status_page(const Metrics& metrics, const JoinProgress& join_progress,
                        const std::vector<Waiter>& waiters) {
  std::ostringstream out;
  out << "{\"connections\": " << metrics.connections << ", \"keys\": " << metrics.keys
      << ", \"bytes\": " << metrics.bytes << ", \"waits\": " << metrics.waits
      << ", \"namespaces\": " << metrics.namespaces << ", \"refused\": " << metrics.refused
      << ", \"turned_away\": " << metrics.turned_away
      << ", \"joined\": " << quoted(join_progress.joined) << ", \"expected\": ";
  write_join_progress(join_progress, out);
  out << ", \"waiting\": [";
  const char* separator = "";
  std::streamoff start = out.tellp();
  for (const Waiter& waiter : waiters) {
    if (out.tellp() - start > kWaitersBytes) break;
    out << separator << "\n  {\"peer\": " << quoted(waiter.peer) << ", \"pid\": ";
    waiter.pid ? out << *waiter.pid : out << "null";
    auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(waiter.since).count();
    out << ", \"namespace\": " << quoted(waiter.namespace_name) << ", \"waiting_ms\": " << ms
        << ", \"missing_count\": " << waiter.missing_count << ", \"missing\": [";
    const char* comma = "";
    for (const std::string& name : waiter.missing) {
      out << comma << quoted(name);
      comma = ", ";
    }
    out << "]}";
    separator = ",";
  }
  out << "]}\n";
  return out.str();
}

}  // namespace ddprun::store
