// SPDX-License-Identifier: BSD-3-Clause
#include "cli/options/completion.h"

#include <doctest/doctest.h>

#include "cli/options/option_table.h"

using namespace ddprun;
using namespace ddprun::cli;

TEST_SUITE("cli/options/completion") {
  TEST_CASE("every shell's script knows every option in both spellings") {
    for (const char* shell : {"bash", "zsh", "fish", "tcsh"}) {
      CAPTURE(shell);
      auto script = completion(shell);
      REQUIRE(script.has_value());
      for (const OptionSpec& spec : option_specs()) {
        CAPTURE(spec.name);
        CHECK(script->find(spec.name) != std::string::npos);
        CHECK(script->find(with_underscores(spec.name)) != std::string::npos);
      }
      CHECK(script->find("node socket exclusive core-complex") != std::string::npos);
    }
  }

  TEST_CASE("another shell is refused") {
    CHECK(to_string(completion("ksh").error()) ==
          "--print-completion='ksh' is not bash, zsh, fish or tcsh");
  }
}
