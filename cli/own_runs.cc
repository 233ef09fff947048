// SPDX-License-Identifier: BSD-3-Clause
#include "cli/own_runs.h"

#include <arpa/inet.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <climits>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>
#include <vector>

#include "cli/json_fields.h"
#include "cli/page_client.h"
#include "store/base/count.h"
#include "store/base/endpoint.h"
#include "store/base/folder.h"
#include "store/base/number.h"
#include "store/base/text.h"

namespace ddprun::cli {
namespace {

// A process that stands still keeps a person waiting for so long.
constexpr Duration kPatience = std::chrono::seconds(2);
constexpr std::size_t kNamed = 8;

// A listening socket.
struct Listener {
  Endpoint at;  // where a process of this machine reaches it
  std::uint64_t inode = 0;
};

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

template <class Number>
std::optional<Number> hex_in(std::string_view text) {
  Number number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, 16);
  bool is_whole = error == std::errc() && end == text.data() + text.size() && !text.empty();
  return is_whole ? std::optional(number) : std::nullopt;
}

// "0100007F", or four such words for IPv6: each as this machine has it in memory.
std::optional<std::string> host_in(std::string_view words) {
  constexpr std::size_t kWord = 8;
  if (words.size() != kWord && words.size() != 4 * kWord) return std::nullopt;
  std::array<std::uint32_t, 4> address{};
  for (std::size_t i = 0; i * kWord < words.size(); ++i) {
    auto word = hex_in<std::uint32_t>(words.substr(i * kWord, kWord));
    if (!word) return std::nullopt;
    address.at(i) = *word;
  }
  std::array<char, INET6_ADDRSTRLEN> text{};
  const int family = words.size() == kWord ? AF_INET : AF_INET6;
  if (::inet_ntop(family, address.data(), text.data(), text.size()) == nullptr) return std::nullopt;
  std::string host = text.data();
  if (host == "0.0.0.0" || host == "::") return "127.0.0.1";
  return host;
}

std::optional<Listener> listener_in(const std::string& line) {
  constexpr std::string_view kListening = "0A";
  std::istringstream words(line);
  std::array<std::string, 10> fields;
  for (std::string& field : fields) words >> field;
  const std::string_view local = fields[1];
  std::size_t colon = local.find(':');
  if (!words || fields[3] != kListening || colon == std::string_view::npos) return std::nullopt;
  auto host = host_in(local.substr(0, colon));
  auto port = hex_in<std::uint16_t>(local.substr(colon + 1));
  auto inode = number_in<std::uint64_t>(fields[9]);
  if (!host || !port || !inode) return std::nullopt;
  return Listener{.at = {.host = std::move(*host), .port = *port}, .inode = *inode};
}

// Those in the text of /proc/net/tcp or /proc/net/tcp6; what is none is left out.
std::vector<Listener> listeners_in(const std::string& proc_net_tcp) {
  std::vector<Listener> found;
  std::istringstream lines(proc_net_tcp);
  for (std::string line; std::getline(lines, line);)
    if (auto listener = listener_in(line)) found.push_back(std::move(*listener));
  return found;
}

bool is_own(const std::string& process) {
  struct stat info {};
  if (::stat(process.c_str(), &info) != 0 || info.st_uid != ::geteuid()) return false;
  const std::string name = text_of(process + "/comm");
  return name == "ddprun\n" || name == "ddpd\n";
}

// Of all such processes.
std::set<std::uint64_t> own_sockets() {
  constexpr std::string_view kSocket = "socket:[";
  std::set<std::uint64_t> inodes;
  std::error_code gone;
  for (const auto& process : entries_of("/proc", gone)) {
    const std::string path = process.path().string();
    bool is_process = number_in<int>(process.path().filename().string()).has_value();
    if (!is_process || !is_own(path)) continue;
    for (const auto& descriptor : entries_of(path + "/fd", gone)) {
      std::array<char, PATH_MAX> target{};
      ssize_t size = ::readlink(descriptor.path().c_str(), target.data(), target.size());
      std::string_view link(target.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
      if (!link.starts_with(kSocket) || !link.ends_with(']')) continue;
      link.remove_prefix(kSocket.size());
      link.remove_suffix(1);
      if (auto inode = number_in<std::uint64_t>(link)) inodes.insert(*inode);
    }
  }
  return inodes;
}

std::vector<Endpoint> own_listeners() {
  const std::set<std::uint64_t> own = own_sockets();
  std::vector<Endpoint> found;
  for (const char* table : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    for (const Listener& listener : listeners_in(text_of(table)))
      if (own.contains(listener.inode)) found.push_back(listener.at);
  }
  return found;
}

// The runs of one place.
struct Place {
  std::string endpoint;
  std::vector<std::string> runs;
};

// A store of workers shows none.
std::vector<Place> own_places(const std::string& token) {
  std::vector<Place> places;
  for (const Endpoint& at : own_listeners()) {
    auto page = get_page(at, "/status", token, kPatience);
    if (!page) continue;
    Json json = Json::parse(*page, nullptr, /*allow_exceptions=*/false);
    Place place{.endpoint = to_string(at), .runs = {}};
    for (const Json& run : field(json, "runs")) {
      const Json& name = field(run, "run");
      if (name.is_string()) place.runs.push_back(name.get<std::string>());
    }
    if (!place.runs.empty()) places.push_back(std::move(place));
  }
  return places;
}

std::string describe(const Place& place) {
  std::string text = place.endpoint + " (" + printable(place.runs.front());
  if (place.runs.size() > 1) text += " and " + std::to_string(place.runs.size() - 1) + " more";
  return text + ")";
}

}  // namespace

Result<std::string> own_endpoint(const StatusQuestion& question) {
  auto wrong = [](std::string what) { return Error{Errc::InvalidInput, std::move(what)}; };
  Result<std::string> token = token_for(question);
  if (!token) return token.error();
  std::vector<Place> places = own_places(*token);
  if (!question.run.empty()) {
    std::erase_if(places, [&](const Place& place) {
      return std::ranges::find(place.runs, question.run) == place.runs.end();
    });
  }
  if (places.size() == 1) return places.front().endpoint;
  const std::string what = question.run.empty() ? "run" : "run '" + printable(question.run) + "'";
  if (places.empty())
    return wrong("no " + what +
                 " of this user shows itself on this machine; name where it does, "
                 "as the line 'started' of its log says (HOST[:PORT])");
  std::string names;
  for (std::size_t i = 0; i < std::min(places.size(), kNamed); ++i)
    names += (i > 0 ? ", " : "") + describe(places[i]);
  if (places.size() > kNamed) names += ", ...";
  return wrong("runs of this user show themselves at " + count_of(places.size(), "place") +
               " on this machine, name one: " + names);
}

}  // namespace ddprun::cli
