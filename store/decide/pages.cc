// SPDX-License-Identifier: BSD-3-Clause
#include "store/decide/pages.h"

#include <cstdio>
#include <sstream>
#include <string_view>

#include "store/decide/wire.h"

namespace ddprun::store {
namespace {

std::string_view name_of(Op op) {
  switch (op) {
    case Op::Validate:
      return "validate";
    case Op::Set:
      return "set";
    case Op::CompareSet:
      return "compare_set";
    case Op::Get:
      return "get";
    case Op::Add:
      return "add";
    case Op::Check:
      return "check";
    case Op::Wait:
      return "wait";
    case Op::GetNumKeys:
      return "get_num_keys";
    case Op::DeleteKey:
      return "delete_key";
    case Op::Append:
      return "append";
    case Op::MultiGet:
      return "multi_get";
    case Op::MultiSet:
      return "multi_set";
    case Op::CancelWait:
      return "cancel_wait";
    case Op::Ping:
      return "ping";
    case Op::QueuePush:
      return "queue_push";
    case Op::QueuePop:
      return "queue_pop";
    case Op::QueueLen:
      return "queue_len";
    case Op::ListKeys:
      return "list_keys";
    case Op::Barrier:
      return "barrier";
    case Op::Probe:
      return "probe";
    case Op::Will:
      return "will";
    case Op::ClearWill:
      return "clear_will";
    case Op::QueueTake:
      return "queue_take";
    case Op::Enter:
      return "enter";
    case Op::Expect:
      return "expect";
  }
  return "";
}

// Names are bytes; what is no printable ASCII is shown as the character of the same number.
std::string quoted(std::string_view text) {
  std::string out = "\"";
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
  return out + '"';
}

void metric(std::ostream& out, std::string_view name, std::string_view type, std::string_view help,
            std::uint64_t value) {
  out << "# HELP ddprun_store_" << name << ' ' << help << "\n# TYPE ddprun_store_" << name << ' '
      << type << "\nddprun_store_" << name << ' ' << value << '\n';
}

void write_attendance(const Attendance& attendance, std::ostream& out) {
  out << "{\"world_size\": ";
  attendance.world_size ? out << *attendance.world_size : out << "null";
  out << ", \"announced\": " << attendance.expected_count
      << ", \"absent_count\": " << attendance.absent_count << ", \"absent\": [";
  const char* separator = "";
  for (const Roll::Absentee& absentee : attendance.absent) {
    out << separator << "\n  {\"who\": " << quoted(absentee.who)
        << ", \"host\": " << quoted(absentee.host) << ", \"pid\": " << absentee.pid << '}';
    separator = ",";
  }
  out << "]}";
}

}  // namespace

std::string metrics_page(const Figures& figures) {
  std::ostringstream out;
  metric(out, "connections", "gauge", "Open connections.", figures.connections);
  metric(out, "keys", "gauge", "Keys, queues not counted.", figures.keys);
  metric(out, "bytes", "gauge", "Memory of keys, values, queues, wills and waits, near enough.",
         figures.bytes);
  metric(out, "held_bytes", "gauge", "Memory of incomplete requests.", figures.held_bytes);
  metric(out, "waits", "gauge", "Waits, barriers and takes not answered yet.", figures.waits);
  metric(out, "spaces", "gauge", "Named spaces.", figures.spaces);
  metric(out, "accepted_total", "counter", "Connections accepted.", figures.accepted);
  metric(out, "refused_total", "counter", "Connections refused for their address.",
         figures.refused);
  metric(out, "turned_away_total", "counter", "Connections refused because there were too many.",
         figures.turned_away);
  metric(out, "disconnected_total", "counter", "Clients disconnected for what they did.",
         figures.disconnected);
  out << "# HELP ddprun_store_requests_total Requests carried out.\n"
         "# TYPE ddprun_store_requests_total counter\n";
  for (std::size_t op = 0; op < figures.requests.size(); ++op) {
    std::string_view name = name_of(static_cast<Op>(op));
    if (name.empty()) continue;
    out << "ddprun_store_requests_total{operation=\"" << name << "\"} " << figures.requests[op]
        << '\n';
  }
  return out.str();
}

std::string status_page(const Figures& figures, const Attendance& attendance,
                        const std::vector<Waiter>& waiters) {
  std::ostringstream out;
  out << "{\"connections\": " << figures.connections << ", \"keys\": " << figures.keys
      << ", \"bytes\": " << figures.bytes << ", \"waits\": " << figures.waits
      << ", \"spaces\": " << figures.spaces << ", \"refused\": " << figures.refused
      << ", \"turned_away\": " << figures.turned_away
      << ", \"joined\": " << quoted(attendance.joined) << ", \"expected\": ";
  write_attendance(attendance, out);
  out << ", \"waiting\": [";
  const char* separator = "";
  for (const Waiter& waiter : waiters) {
    out << separator << "\n  {\"peer\": " << quoted(waiter.peer) << ", \"pid\": ";
    waiter.pid ? out << *waiter.pid : out << "null";
    auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(waiter.since).count();
    out << ", \"space\": " << quoted(waiter.space) << ", \"waiting_ms\": " << ms
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
