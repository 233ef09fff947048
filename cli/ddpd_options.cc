// SPDX-License-Identifier: BSD-3-Clause
#include "cli/ddpd_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

#include "cli/options/parse.h"
#include "store/base/endpoint.h"
#include "store/base/number.h"

namespace ddprun::cli {
namespace {

constexpr std::uint16_t kDefaultPort = 29500;  // torch's, for a store

// One option: what it is called, what its value is called, what it says, and what it sets.
struct Row {
  const char* name;
  const char* type;
  const char* help;
  Result<void> (*set)(const OptionValue&, DdpdOptions&);
};

Result<void> set_size(const OptionValue& value, std::size_t& size) {
  Result<std::size_t> bytes = parse_size(value);
  if (!bytes) return bytes.error();
  size = *bytes;
  return {};
}

Result<void> set_count(const OptionValue& value, std::size_t& count) {
  Result<int> number = parse_whole(value, 1, std::numeric_limits<int>::max());
  if (!number) return number.error();
  count = static_cast<std::size_t>(*number);
  return {};
}

Result<void> set_secrets(const OptionValue& value, DdpdOptions& options) {
  std::istringstream paths(value.text);
  for (std::string path; std::getline(paths, path, ',');) {
    Result<store::Secret> secret = store::Secret::from_file(path, "--secret-file");
    if (!secret) return secret.error();
    auto is_same = [&](const store::Secret& other) { return other.key() == secret->key(); };
    if (std::ranges::any_of(options.server.secrets, is_same))
      return Error{Errc::InvalidInput, "--secret-file=" + path + ": another file has this secret"};
    options.server.secrets.push_back(*secret);
  }
  if (options.server.secrets.empty()) return invalid_value(value, "the path of a file");
  return {};
}

Result<void> set_listen(const OptionValue& value, DdpdOptions& options) {
  Result<Endpoint> listen = parse_endpoint(value.text, kDefaultPort);
  if (!listen) return Error{listen.error().code, "--listen: " + to_string(listen.error())};
  options.server.listen = *listen;
  options.has_listen = true;
  return {};
}

Result<void> set_allow(const OptionValue& value, DdpdOptions& options) {
  Result<store::AllowList> allow = store::AllowList::parse(value.text);
  if (!allow) return Error{allow.error().code, "--allow: " + to_string(allow.error())};
  options.server.allow = *allow;
  return {};
}

// Requests on their way in, and unread replies, may each take as much again as what is stored.
Result<void> set_memory(const OptionValue& value, DdpdOptions& options) {
  Result<void> read = set_size(value, options.server.keyspace.max_bytes);
  options.server.max_held_bytes =
      std::min(options.server.max_held_bytes, options.server.keyspace.max_bytes);
  options.server.max_reply_bytes = options.server.keyspace.max_bytes;
  return read;
}

Result<void> set_time(const OptionValue& value, Duration& time) {
  Result<double> seconds = parse_seconds(value);
  if (!seconds) return seconds.error();
  time = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(*seconds));
  return {};
}

constexpr Row kRows[] = {
    {"--listen", "HOST:PORT",
     "Where to listen (default 0.0.0.0:29500): HOST is a numeric address or localhost, [::] takes "
     "IPv4 as well, PORT 0 takes any that is free",
     set_listen},
    {"--port-file", "PATH", "Write the port to this file once it is known",
     [](const OptionValue& value, DdpdOptions& options) -> Result<void> {
       options.port_file = value.text;
       return {};
     }},
    {"--state-dir", "DIR",
     "Where to keep which runs may have living workers, for the next ddpd should this one be "
     "killed "
     "(default: $XDG_RUNTIME_DIR/ddprun, or /run/ddprun for root, or /tmp/ddprun-UID)",
     [](const OptionValue& value, DdpdOptions& options) -> Result<void> {
       if (!value.text.starts_with('/')) return invalid_value(value, "an absolute path");
       options.state_dir = value.text;
       return {};
     }},
    {"--allow", "CIDR,...",
     "Whose connections are taken, as 10.0.0.0/8,192.168.1.7,fd00::/8 (default: everybody's); this "
     "machine's own addresses too only if they are named",
     set_allow},
    {"--secret-file", "PATH,...",
     "A secret that the nodes must share to take part (ddprun's --rdzv-secret-file), or one of "
     "several: nodes with different ones never meet, and a run belongs to the secret that it was "
     "begun with.  The pages but /healthz then ask for the first (default: none)",
     set_secrets},
    {"--max-connections", "N",
     "Connections of clients at one time, without the nodes of runs (default: seven eighths of the "
     "system's limit)",
     [](const OptionValue& value, DdpdOptions& options) {
       return set_count(value, options.server.max_connections);
     }},
    {"--max-memory", "SIZE",
     "Bytes of all keys, values, queues, last wills and waits, as 512M or 2G (default: no limit); "
     "requests on their way in, and unread replies, may each take as much again",
     set_memory},
    {"--max-keys", "N", "Keys at one time (default: no limit)",
     [](const OptionValue& value, DdpdOptions& options) {
       return set_count(value, options.server.keyspace.max_keys);
     }},
    {"--max-queue-items", "N", "Items in one queue (default: no limit)",
     [](const OptionValue& value, DdpdOptions& options) {
       return set_count(value, options.server.keyspace.max_queue_items);
     }},
    {"--max-key-bytes", "SIZE", "Bytes of one key or queue name (default 8192, torch's)",
     [](const OptionValue& value, DdpdOptions& options) {
       return set_size(value, options.server.wire.max_key_bytes);
     }},
    {"--max-value-bytes", "SIZE", "Bytes of one value or queue item (default 8M, torch's)",
     [](const OptionValue& value, DdpdOptions& options) {
       return set_size(value, options.server.wire.max_value_bytes);
     }},
    {"--max-request-keys", "N",
     "Keys in one CHECK, WAIT, MULTI_GET or MULTI_SET (default 131072, torch's)",
     [](const OptionValue& value, DdpdOptions& options) {
       return set_count(value, options.server.wire.max_keys_per_request);
     }},
    {"--max-request-bytes", "SIZE", "Bytes of one such request (default 64M)",
     [](const OptionValue& value, DdpdOptions& options) {
       return set_size(value, options.server.wire.max_request_bytes);
     }},
    {"--max-held-bytes", "SIZE",
     "Bytes of all requests that have not arrived in full (default 4G, or --max-memory if that is "
     "less)",
     [](const OptionValue& value, DdpdOptions& options) {
       return set_size(value, options.server.max_held_bytes);
     }},
    {"--max-awaited-keys", "N", "Keys that one connection waits for (default 262144)",
     [](const OptionValue& value, DdpdOptions& options) {
       return set_count(value, options.server.keyspace.max_awaited_keys);
     }},
    {"--max-waits", "N",
     "WAITs, BARRIERs and QUEUE_TAKEs of one connection that are not answered (default 64)",
     [](const OptionValue& value, DdpdOptions& options) {
       return set_count(value, options.server.keyspace.max_waits);
     }},
    {"--max-namespaces", "N", "Namespaces of runs and of ddprun's own clients (default 1024)",
     [](const OptionValue& value, DdpdOptions& options) {
       return set_count(value, options.server.max_namespaces);
     }},
    {"--max-unread-bytes", "SIZE",
     "A client that leaves so much of its replies unread is not read from (default 1M)",
     [](const OptionValue& value, DdpdOptions& options) {
       return set_size(value, options.server.max_unread_bytes);
     }},
    {"--unread-timeout", "SECONDS",
     "And is closed when it has taken nothing for so long (default 120)",
     [](const OptionValue& value, DdpdOptions& options) {
       return set_time(value, options.server.unread_timeout);
     }},
    {"--handshake-timeout", "SECONDS",
     "A peer that has not shaken hands by then is closed (default 30)",
     [](const OptionValue& value, DdpdOptions& options) {
       return set_time(value, options.server.handshake_timeout);
     }},
};

}  // namespace

Result<std::variant<DdpdOptions, DdpdText>> read_ddpd_options(int argc, const char* const* argv) {
  CLI::App app{"A TCPStore server for torch.distributed and ddprun.", "ddpd"};
  std::map<std::string, std::string> given;
  for (const Row& row : kRows) {
    app.add_option_function<std::string>(
           row.name, [&given, &row](const std::string& text) { given[row.name] = text; }, row.help)
        ->type_name(row.type);
  }
  app.set_version_flag("--version", DDPRUN_VERSION);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForVersion&) {
    return DdpdText{DDPRUN_VERSION "\n"};
  } catch (const CLI::Success&) {
    return DdpdText{app.help()};
  } catch (const CLI::ParseError& error) {
    return Error{Errc::InvalidInput, error.what()};
  }
  DdpdOptions options;
  for (const Row& row : kRows) {
    auto found = given.find(row.name);
    if (found == given.end()) continue;
    Result<void> outcome = row.set({found->second, row.name}, options);
    if (!outcome) return outcome.error();
  }
  return options;
}

}  // namespace ddprun::cli
