// SPDX-License-Identifier: BSD-3-Clause
#include "cli/options/options.h"

#include <doctest/doctest.h>

#include <map>

using namespace ddprun;
using namespace ddprun::cli;

namespace {

using Variables = std::map<std::string, std::string, std::less<>>;

Result<std::variant<Options, Answer>> parse(const std::vector<std::string>& arguments,
                                            const Variables& variables = {}) {
  return parse_options(arguments, [&](std::string_view name) -> std::optional<std::string> {
    auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

// What was understood, as text: "nnodes=2 (--nnodes) | train.py --lr 1", or why it was not.
std::string read(const std::vector<std::string>& arguments, const Variables& variables = {}) {
  auto parsed = parse(arguments, variables);
  if (!parsed) return to_string(parsed.error());
  if (std::holds_alternative<Answer>(*parsed)) return "answer";
  const Options& options = std::get<Options>(*parsed);
  std::string text;
  for (const auto& [name, value] : options.values)
    text += name + "=" + value.text + " (" + value.origin + ") ";
  text += "|";
  for (const std::string& word : options.command) text += " " + word;
  return text;
}

}  // namespace

TEST_SUITE("cli/options/options") {
  TEST_CASE("both spellings, with and without '=', mean the same") {
    for (const char* spelling : {"--nproc-per-node", "--nproc_per_node"}) {
      CHECK(read({spelling, "2", "train.py"}) == "nproc-per-node=2 (--nproc-per-node) | train.py");
      CHECK(read({std::string(spelling) + "=2", "train.py"}) ==
            "nproc-per-node=2 (--nproc-per-node) | train.py");
    }
    CHECK(read({"-r", "3", "x"}) == "redirects=3 (--redirects) | x");
    CHECK(read({"-r3", "x"}) == "redirects=3 (--redirects) | x");
    CHECK(read({"-t=1:2", "x"}) == "tee=1:2 (--tee) | x");
    CHECK(read({"-m", "pkg.train"}) == "module=1 (--module) | pkg.train");
    CHECK(read({"-mr3", "x"}) == "module=1 (--module) redirects=3 (--redirects) | x");
    CHECK(read({"-mr", "3", "x"}) == "module=1 (--module) redirects=3 (--redirects) | x");
  }

  TEST_CASE("the last of several wins, and a value may look like an option") {
    CHECK(read({"--max-restarts=1", "--max-restarts=2", "x"}) ==
          "max-restarts=2 (--max-restarts) | x");
    CHECK(read({"--log-line-prefix-template", "--> ", "x"}) ==
          "log-line-prefix-template=-->  (--log-line-prefix-template) | x");
    CHECK(read({"--rdzv-id=", "x"}) == "rdzv-id= (--rdzv-id) | x");
    CHECK(read({"--rdzv-id", "", "x"}) == "rdzv-id= (--rdzv-id) | x");
    CHECK(read({"--standalone", "--standalone", "x"}) == "standalone=1 (--standalone) | x");
  }

  TEST_CASE("an option may be shortened while it is unambiguous") {
    CHECK(read({"--stand", "x"}) == "standalone=1 (--standalone) | x");
    CHECK(read({"--nproc-p", "2", "x"}) == "nproc-per-node=2 (--nproc-per-node) | x");
    CHECK(read({"--max_r=1", "x"}) == "max-restarts=1 (--max-restarts) | x");
    CHECK(read({"--rdzv", "1", "x"}) ==
          "option --rdzv is ambiguous: it could be --rdzv-backend, --rdzv-endpoint, --rdzv-id, "
          "--rdzv-conf");
    CHECK(read({"--h"}) == "answer");
    CHECK(read({"--vers"}) == "answer");
  }

  TEST_CASE("our own options make no abbreviation of torchrun's ambiguous") {
    CHECK(read({"--signals", "SIGINT", "x"}) ==
          "signals-to-handle=SIGINT (--signals-to-handle) | x");
    CHECK(read({"--e=null", "x"}) == "event-log-handler=null (--event-log-handler) | x");
    CHECK(read({"--v", "x"}) == "virtual-local-rank=1 (--virtual-local-rank) | x");
    CHECK(read({"--no", "x"}) == "option --no is ambiguous: it could be --node-rank, --no-python");
    CHECK(read({"--signals-to-f=SIGINT", "x"}) ==
          "signals-to-forward=SIGINT (--signals-to-forward) | x");
    CHECK(read({"--hang=1", "x"}) == "hang-timeout=1 (--hang-timeout) | x");
  }

  TEST_CASE("an option is no value of the one before it, and a negative number is") {
    CHECK(read({"-r", "--no-python", "true"}) == "--redirects needs a value: 0-3|L:V,...");
    CHECK(read({"--tee", "--", "x"}) == "--tee needs a value: 0-3|L:V,...");
    CHECK(read({"--node-rank", "-1", "x"}) == "node-rank=-1 (--node-rank) | x");
  }

  TEST_CASE("what follows the script is the script's own") {
    CHECK(read({"--nnodes=1", "train.py", "--log=1", "--nnodes", "7", "--", "-h"}) ==
          "nnodes=1 (--nnodes) | train.py --log=1 --nnodes 7 -- -h");
    CHECK(read({"--standalone", "--", "train.py", "-x"}) ==
          "standalone=1 (--standalone) | train.py -x");
    // argparse takes the first "--" away, where it stands at the script.
    CHECK(read({"train.py", "--", "--lr", "--", "1"}) == "| train.py --lr -- 1");
    CHECK(read({"--", "train.py", "--", "-x"}) == "| train.py -- -x");
    CHECK(read({"train.py", "--"}) == "| train.py");
  }

  TEST_CASE("PET_ variables are defaults; the command line wins") {
    Variables variables = {{"PET_NNODES", "1:1"},
                           {"PET_MAX_RESTARTS", "3"},
                           {"PET_STANDALONE", "1"},
                           {"PET_MODULE", "0"}};
    CHECK(
        read({"--nnodes=1", "x"}, variables) ==
        "max-restarts=3 (PET_MAX_RESTARTS) nnodes=1 (--nnodes) standalone=1 (PET_STANDALONE) | x");
    CHECK(read({"x"}, {{"PET_STANDALONE", "true"}}) == "PET_STANDALONE='true' is neither 0 nor 1");
    CHECK(read({"x"}, {{"PET_REDIRECTS", "3"}}) == "redirects=3 (PET_REDIRECTS) | x");
  }

  TEST_CASE("bad usage is one line") {
    CHECK(read({"--nodes=2", "x"}) == "unknown option '--nodes=2'; see ddprun --help");
    CHECK(read({"-x", "y"}) == "unknown option '-x'; see ddprun --help");
    CHECK(read({"--max-restarts"}) == "--max-restarts needs a value: N");
    CHECK(read({"--standalone=yes", "x"}) == "--standalone takes no value, and was given 'yes'");
    CHECK(read({"--help=1"}) == "--help takes no value, and was given '1'");
    CHECK(read({"--=1", "x"}) == "unknown option '--=1'; see ddprun --help");
    CHECK(read({"-h3"}) == "unknown option '-3'; see ddprun --help");
    CHECK(read({"-é", "x"}) == "unknown option '-é'; see ddprun --help");
  }

  TEST_CASE("help and version answer, whatever else is there") {
    CHECK(read({"--help"}) == "answer");
    CHECK(read({"-h", "train.py"}) == "answer");
    CHECK(read({"--help", "--nodes=2"}) == "unknown option '--nodes=2'; see ddprun --help");
    auto version = parse({"--version"});
    REQUIRE(version.has_value());
    CHECK(std::get<Answer>(*version).text.starts_with("ddprun "));
    auto both = parse({"--help", "--version"});
    REQUIRE(both.has_value());
    CHECK(std::get<Answer>(*both).text == std::get<Answer>(*version).text);
  }

  TEST_CASE("completion scripts are an answer, and need no script to run") {
    CHECK(read({"--print-completion", "bash"}) == "answer");
    CHECK(read({"--print_comp=fish"}) == "answer");
    CHECK(read({"--print-completion=ksh", "x"}) ==
          "--print-completion='ksh' is not bash, zsh, fish or tcsh");
  }

  TEST_CASE("a new secret is asked for, and needs no script to run") {
    auto asked = parse({"--new-secret"});
    REQUIRE(asked.has_value());
    CHECK(std::get<Answer>(*asked).is_new_secret);
  }

  TEST_CASE("help names every option and fits a terminal of 100 columns") {
    auto parsed = parse({"--help"});
    REQUIRE(parsed.has_value());
    std::string help = std::get<Answer>(*parsed).text;
    for (const char* option : {"--nnodes", "--nproc-per-node", "--rdzv-backend", "--max-restarts",
                               "--tee", "--numa-binding", "--print-completion"}) {
      CHECK(help.find(option) != std::string::npos);
    }
    std::size_t begin = 0;
    while (begin < help.size()) {
      auto end = help.find('\n', begin);
      REQUIRE(end != std::string::npos);
      CAPTURE(help.substr(begin, end - begin));
      CHECK(end - begin <= 100);
      begin = end + 1;
    }
  }
}
