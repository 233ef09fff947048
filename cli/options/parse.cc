// SPDX-License-Identifier: BSD-3-Clause
#include "cli/options/parse.h"

#include <algorithm>
#include <csignal>
#include <limits>

#include "store/base/exit_status.h"
#include "store/base/number.h"

namespace ddprun::cli {
namespace {

constexpr double kMostSeconds = 1e9;
constexpr int kMostNodes = 1'000'000;  // that the rendezvous takes (rendezvous/decide/messages.h)

// Without blanks around it, which Python's int() and torchrun's lists allow, too.
std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  return text.substr(0, text.find_last_not_of(kBlanks) + 1);
}

template <class Number>
std::optional<Number> number_of(std::string_view text) {
  return number_in<Number>(trimmed(text));
}

std::optional<Streams> streams_of(std::string_view text) {
  std::optional<int> number = number_of<int>(text);
  if (!number || *number < 0 || *number > 3) return std::nullopt;
  return Streams{.out = (*number & 1) != 0, .err = (*number & 2) != 0};
}

}  // namespace

Error invalid_value(const OptionValue& value, const std::string& accepted) {
  return {Errc::InvalidInput, value.origin + "='" + value.text + "' is not " + accepted};
}

std::vector<std::string> split_commas(const std::string& text) {
  std::vector<std::string> pieces;
  std::size_t begin = 0;
  for (;;) {
    auto comma = text.find(',', begin);
    pieces.emplace_back(trimmed(std::string_view(text).substr(begin, comma - begin)));
    if (comma == std::string::npos) return pieces;
    begin = comma + 1;
  }
}

std::vector<std::string> split_texts(const std::string& text) {
  std::vector<std::string> pieces(1);
  for (std::size_t i = 0; i < text.size(); ++i) {
    bool is_comma = text[i] == ',';
    bool is_literal = is_comma && i + 1 < text.size() && text[i + 1] == ',';
    if (is_comma && !is_literal) {
      pieces.emplace_back();
      continue;
    }
    if (is_literal) ++i;
    pieces.back() += text[i];
  }
  return pieces;
}

Result<int> parse_whole(const OptionValue& value, int min, int max) {
  std::optional<int> number = number_of<int>(value.text);
  if (number && *number >= min && *number <= max) return *number;
  bool is_digits = trimmed(value.text).find_first_not_of("0123456789") == std::string::npos;
  bool is_too_large = is_digits && !trimmed(value.text).empty();
  std::string range = max == std::numeric_limits<int>::max() && !is_too_large
                          ? "of " + std::to_string(min) + " or more"
                          : "from " + std::to_string(min) + " to " + std::to_string(max);
  return invalid_value(value, "a whole number " + range);
}

Result<double> parse_seconds(const OptionValue& value) {
  std::optional<double> seconds = number_of<double>(value.text);
  if (!seconds || !(*seconds > 0)) return invalid_value(value, "a number of seconds above 0");
  if (*seconds > kMostSeconds) {
    return invalid_value(value, "a number of seconds above 0 and up to " +
                                    std::to_string(static_cast<int>(kMostSeconds)));
  }
  return *seconds;
}

Result<std::size_t> parse_size(const OptionValue& value) {
  constexpr std::string_view kUnits = "KMGT";
  std::string_view digits = trimmed(value.text);
  unsigned shift = 0;
  auto unit = digits.empty() ? std::string_view::npos : kUnits.find(digits.back());
  if (unit != std::string_view::npos) {
    shift = 10 * static_cast<unsigned>(unit + 1);
    digits.remove_suffix(1);
  }
  std::optional<std::size_t> count = number_in<std::size_t>(digits);
  if (!count || *count == 0 || *count > std::numeric_limits<std::size_t>::max() >> shift)
    return invalid_value(value, "a number of bytes such as 65536, 64K, 512M or 2G");
  return *count << shift;
}

Result<std::pair<int, int>> parse_nnodes(const OptionValue& value) {
  auto colon = value.text.find(':');
  std::optional<int> min = number_of<int>(std::string_view(value.text).substr(0, colon));
  std::optional<int> max = colon == std::string::npos
                               ? min
                               : number_of<int>(std::string_view(value.text).substr(colon + 1));
  if (!min || !max || *min < 1 || *max < *min || *max > kMostNodes) {
    return invalid_value(value, "a number of nodes N, or MIN:MAX with 1 <= MIN <= MAX <= " +
                                    std::to_string(kMostNodes));
  }
  return std::pair(*min, *max);
}

Result<std::vector<Streams>> parse_streams(const OptionValue& value, int local_world_size,
                                           std::set<int>& unknown) {
  auto size = static_cast<std::size_t>(local_world_size);
  if (std::optional<Streams> all = streams_of(value.text)) return std::vector<Streams>(size, *all);

  const char* accepted = "0, 1, 2 or 3 (none, stdout, stderr, both), or LOCAL_RANK:VALUE,...";
  std::vector<Streams> by_local_rank(size);
  for (const std::string& entry : split_commas(value.text)) {
    auto colon = entry.find(':');
    std::optional<int> local_rank = number_of<int>(std::string_view(entry).substr(0, colon));
    std::optional<Streams> streams;
    if (colon != std::string::npos) streams = streams_of(std::string_view(entry).substr(colon + 1));
    if (!local_rank || *local_rank < 0 || !streams) return invalid_value(value, accepted);
    if (*local_rank < local_world_size) {
      by_local_rank[static_cast<std::size_t>(*local_rank)] = *streams;
    } else {
      unknown.insert(*local_rank);
    }
  }
  return by_local_rank;
}

Result<std::set<int>> parse_local_ranks(const OptionValue& value) {
  std::set<int> local_ranks;
  for (const std::string& entry : split_commas(value.text)) {
    std::optional<int> local_rank = number_of<int>(entry);
    if (!local_rank || *local_rank < 0)
      return invalid_value(value, "a list of local ranks such as 0,1");
    local_ranks.insert(*local_rank);
  }
  return local_ranks;
}

Result<std::vector<int>> parse_signals(const OptionValue& value) {
  std::vector<int> signals;
  for (const std::string& name : split_commas(value.text)) {
    std::optional<int> number = process::signal_number(name);
    bool can_be_handled = number && *number != SIGKILL && *number != SIGSTOP && *number != SIGCHLD;
    if (!can_be_handled) {
      return invalid_value(value, "a list of signals that can be handled, such as SIGTERM,SIGINT");
    }
    signals.push_back(*number);
  }
  return signals;
}

Result<std::vector<std::pair<std::string, std::string>>> parse_rdzv_conf(const OptionValue& value) {
  std::vector<std::pair<std::string, std::string>> settings;
  for (const std::string& entry : split_commas(value.text)) {
    auto equals = entry.find('=');
    bool is_setting = equals != std::string::npos && equals > 0 && equals + 1 < entry.size();
    if (!is_setting) return invalid_value(value, "of the form KEY=VALUE,KEY=VALUE");
    settings.emplace_back(trimmed(std::string_view(entry).substr(0, equals)),
                          trimmed(std::string_view(entry).substr(equals + 1)));
  }
  return settings;
}

}  // namespace ddprun::cli
