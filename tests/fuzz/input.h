// SPDX-License-Identifier: BSD-3-Clause
//
// libFuzzer's bytes, taken from the front.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ddprun::test {

class FuzzInput {
 public:
  FuzzInput(const std::uint8_t* data, std::size_t size)
      : rest_(reinterpret_cast<const char*>(data), size) {}

  bool empty() const { return rest_.empty(); }
  std::string_view rest() const { return rest_; }

  // 0 where nothing is left.
  std::size_t next_byte() {
    if (rest_.empty()) return 0;
    std::size_t byte = static_cast<unsigned char>(rest_.front());
    rest_.remove_prefix(1);
    return byte;
  }

  // A byte says how long it is; as much of that as there is.
  std::string_view next_part() {
    std::size_t size = next_byte();
    std::string_view part = rest_.substr(0, size);
    rest_.remove_prefix(part.size());
    return part;
  }

 private:
  std::string_view rest_;
};

}  // namespace ddprun::test
