// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/checkpoint/crc32c.h"

#include <doctest/doctest.h>

#include <string>
#include <string_view>

using ddprun::ddp::crc32c;
using ddprun::ddp::crc32c_portable;

TEST_SUITE("ddp/checkpoint/crc32c") {
  TEST_CASE("the sums of RFC 3720, appendix B.4") {
    std::string ascending(32, '\0');
    for (std::size_t i = 0; i < ascending.size(); ++i) ascending[i] = static_cast<char>(i);
    const std::pair<std::string, std::uint32_t> known[] = {
        {"123456789", 0xE3069283},
        {std::string(32, '\0'), 0x8A9136AA},
        {std::string(32, '\xff'), 0x62A8AB43},
        {ascending, 0x46DD794E},
        {"", 0},
    };
    for (const auto& [text, sum] : known) {
      CHECK(crc32c(0, text.data(), text.size()) == sum);
      CHECK(crc32c_portable(0, text.data(), text.size()) == sum);
    }
  }

  TEST_CASE("a sum can be continued at any place") {
    std::string_view text = "a checkpoint is written in pieces of any length";
    std::uint32_t whole = crc32c(0, text.data(), text.size());
    for (std::size_t cut = 0; cut <= text.size(); ++cut) {
      std::string_view rest = text.substr(cut);
      CHECK(crc32c(crc32c(0, text.data(), cut), rest.data(), rest.size()) == whole);
      CHECK(crc32c_portable(crc32c_portable(0, text.data(), cut), rest.data(), rest.size()) ==
            whole);
    }
  }
}
