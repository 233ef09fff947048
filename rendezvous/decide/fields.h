// SPDX-License-Identifier: BSD-3-Clause
//
// The fields of a message's JSON: each is read with its limits, and written so that they hold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "rendezvous/decide/messages.h"
#include "store/base/time.h"

namespace ddprun::rendezvous {

using Json = nlohmann::json;

inline constexpr std::size_t kMaxNameBytes = 256;

// Reads the fields of one object, and remembers the first that is wrong; that one reads as nothing.
// Lifetime: the object must outlive it.
class Reader {
 public:
  explicit Reader(const Json& json) : json_(json) {}

  std::int64_t number(const char* name, std::int64_t least, std::int64_t most);
  int integer(const char* name, int least, int most = kMaxCount);
  std::uint64_t whole(const char* name);
  std::uint64_t round(const char* name) { return whole(name); }
  std::uint64_t next_round(const char* name);  // so that many more can be counted from it
  std::uint16_t port(const char* name);
  Duration duration(const char* name);
  Duration period(const char* name);  // of at least a millisecond
  bool flag(const char* name);
  // Texts are quoted, as printable() does: they are shown to people.
  std::string text(const char* name, std::size_t max_bytes = kMaxMessageBytes);
  std::string lines(const char* name);  // of several lines
  std::string name(const char* name);   // a short text that is not empty
  const Json& object(const char* name);
  const Json& array(const char* name);
  // What `read` makes of each object of an array, which has at most so many: read(Reader& part).
  template <class Read>
  auto list(const char* name, std::size_t most, const Read& read) {
    std::vector<decltype(read(*this))> all;
    for (const Json& each : array(name)) {
      if (all.size() >= most) {
        wrong(name, "too many");
        break;
      }
      Reader part(each);
      all.push_back(read(part));
      include(part);
    }
    return all;
  }

  // Whether there is such a field, for those that may be left out.
  bool has(const char* name) const { return json_.contains(name); }

  // Notes what is wrong with a field: "out of range".  Returns 0.
  std::int64_t wrong(const char* name, const std::string& what);
  // Takes over what was wrong in an object of this one's.
  void include(const Reader& part);
  // A sentence, "field 'pid' is out of range"; empty where nothing is wrong.
  const std::string& problem() const { return problem_; }

 private:
  std::string raw(const char* name, std::size_t max_bytes);
  const Json& child(const char* name, const Json& nothing, const char* what);

  const Json& json_;
  std::string problem_;
};

// Of a text the end that takes at most `max_cost` bytes as JSON, after "..." if that is not all of
// it.
std::string shortened(const std::string& text, std::size_t max_cost);

// Bytes that are no UTF-8 become U+FFFD.
std::string written(const Json& json);

std::int64_t milliseconds(Duration duration);

}  // namespace ddprun::rendezvous
