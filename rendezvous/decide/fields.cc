// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/fields.h"

#include <limits>

#include "store/base/text.h"

namespace ddprun::rendezvous {
namespace {

constexpr std::int64_t kMaxMilliseconds = 1'000'000'000;  // eleven days

// No run comes near it, and one more than it is a number, too.
constexpr std::int64_t kMaxRound = std::int64_t{1} << 53U;

// What a byte takes as JSON, at most: one that is no UTF-8 becomes U+FFFD.
std::size_t cost(char byte) {
  auto code = static_cast<unsigned char>(byte);
  if (code < 0x20 || code == 0x7f) return 6;
  return code >= 0x80 ? 3 : byte == '"' || byte == '\\' ? 2 : 1;
}

}  // namespace

std::int64_t Reader::number(const char* name, std::int64_t least, std::int64_t most) {
  auto found = json_.find(name);
  if (found == json_.end() || !found->is_number_integer()) return wrong(name, "no whole number");
  bool is_huge = found->is_number_unsigned() &&
                 found->get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max();
  if (is_huge) return wrong(name, "out of range");
  auto value = found->get<std::int64_t>();
  if (value < least || value > most) return wrong(name, "out of range");
  return value;
}

int Reader::integer(const char* name, int least, int most) {
  return static_cast<int>(number(name, least, most));
}

std::uint64_t Reader::whole(const char* name) {
  return static_cast<std::uint64_t>(number(name, 0, kMaxRound));
}

std::uint64_t Reader::next_round(const char* name) {
  return static_cast<std::uint64_t>(number(name, 0, kMaxRound / 2));
}

std::uint16_t Reader::port(const char* name) {
  return static_cast<std::uint16_t>(number(name, 0, 65535));
}

Duration Reader::duration(const char* name) {
  return std::chrono::milliseconds(number(name, 0, kMaxMilliseconds));
}

Duration Reader::period(const char* name) {
  return std::chrono::milliseconds(number(name, 1, kMaxMilliseconds));
}

bool Reader::flag(const char* name) {
  auto found = json_.find(name);
  if (found == json_.end() || !found->is_boolean()) return wrong(name, "no boolean") != 0;
  return found->get<bool>();
}

std::string Reader::text(const char* name, std::size_t max_bytes) {
  return printable(raw(name, max_bytes));
}

std::string Reader::lines(const char* name) {
  return printable(raw(name, kMaxMessageBytes), true);
}

std::string Reader::raw(const char* name, std::size_t max_bytes) {
  auto found = json_.find(name);
  bool is_good = found != json_.end() && found->is_string() &&
                 found->get_ref<const std::string&>().size() <= max_bytes;
  if (is_good) return found->get<std::string>();
  wrong(name, "no text of at most " + std::to_string(max_bytes) + " bytes");
  return "";
}

std::string Reader::name(const char* name) {
  std::string read = text(name, kMaxNameBytes);
  if (read.empty()) wrong(name, "empty");
  return read;
}

const Json& Reader::object(const char* name) {
  static const Json kNothing = Json::object();
  return child(name, kNothing, "no object");
}

const Json& Reader::array(const char* name) {
  static const Json kNothing = Json::array();
  return child(name, kNothing, "no array");
}

const Json& Reader::child(const char* name, const Json& nothing, const char* what) {
  auto found = json_.find(name);
  if (found != json_.end() && found->type() == nothing.type()) return *found;
  wrong(name, what);
  return nothing;
}

std::int64_t Reader::wrong(const char* name, const std::string& what) {
  if (problem_.empty()) problem_ = "field '" + std::string(name) + "' is " + what;
  return 0;
}

void Reader::include(const Reader& part) {
  if (problem_.empty()) problem_ = part.problem_;
}

// The end of a long text says more than its beginning: a traceback ends with the error.
std::string shortened(const std::string& text, std::size_t max_cost) {
  std::size_t begin = text.size();
  for (std::size_t total = 0; begin > 0; --begin) {
    total += cost(text[begin - 1]);
    if (total > max_cost) break;
  }
  return begin == 0 ? text : "..." + std::string(end_of(text, text.size() - begin));
}

std::string written(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::int64_t milliseconds(Duration duration) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
}

}  // namespace ddprun::rendezvous
