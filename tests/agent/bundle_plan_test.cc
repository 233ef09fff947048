// SPDX-License-Identifier: BSD-3-Clause
#include "agent/decide/bundle_plan.h"

#include <doctest/doctest.h>

using namespace ddprun::agent;

TEST_SUITE("agent/bundle_plan") {
  TEST_CASE("what could be a secret is masked, and nothing else") {
    for (const char* name : {"HF_TOKEN", "DDPRUN_SECRET", "AWS_SECRET_ACCESS_KEY", "PGPASSWORD",
                             "wandb_api_key", "MY_PASSWD", "GOOGLE_CREDENTIALS"})
      CHECK(masked(std::string(name) + "=hunter2") == std::string(name) + "=***");
    CHECK(masked("HF_TOKEN=") == "HF_TOKEN=");
    CHECK(masked("PATH=/usr/bin:/bin") == "PATH=/usr/bin:/bin");
    CHECK(masked("PROXY=http://me:hunter2@proxy:80/x http://a:b@c") ==
          "PROXY=http://me:***@proxy:80/x http://a:***@c");
    CHECK(masked("PROXY=http://me:hunter@2@proxy") == "PROXY=http://me:***@proxy");
    CHECK(masked("URL=https://host:443/a@b:c") == "URL=https://host:443/a@b:c");
    CHECK(masked("nothing") == "nothing");
    for (const char* name : {"MYSQL_PWD", "GITHUB_PAT", "SSH_PASSPHRASE", "SESSION_COOKIE", "JWT",
                             "XCREDS", "KUBECONFIG_DATA", "AZURE_STORAGE_CONNECTION_STRING",
                             "SENTRY_DSN", "DB_PASS", "SLACK_WEBHOOK_URL", "SMTPPASS", "MYSQLPWD"})
      CHECK(masked(std::string(name) + "=hunter2") == std::string(name) + "=***");
    for (const char* harmless :
         {"PWD=/home/me", "OLDPWD=/tmp", "LD_LIBRARY_PATH=/a:/b", "PYTHONPATH=/x",
          "GIT=ssh://git@github.com/x", "XLA_FLAGS=--xla_gpu_autotune=1 --xla_dump",
          "LS_COLORS=ow=30:di=34", "NOTE=basic"})
      CHECK(masked(harmless) == harmless);
  }

  TEST_CASE("a secret in a value is masked by what stands before it, or by its looks") {
    auto value = [](const std::string& text) { return masked("X=" + text).substr(2); };
    CHECK(value("https://abcdefghijklmnop@github.com/x") == "https://***@github.com/x");
    CHECK(value("https://h/x?a=1&token=hunter2&b=2") == "https://h/x?a=1&token=***&b=2");
    CHECK(value("--lr 1 --password hunter2 --api-key=hunter2 -v") ==
          "--lr 1 --password *** --api-key=*** -v");
    CHECK(value("--password --verbose") == "--password --verbose");
    CHECK(value("Name=a;AccountKey=hunter2==;Suffix=b") == "Name=a;AccountKey=***;Suffix=b");
    CHECK(value("Authorization: Bearer hunter2") == "Authorization: Bearer ***");
    CHECK(value("a hf_abcdefghijklmnop, ghp_abcdefghijklmnop") == "a ***, ***");
    CHECK(value("AKIAIOSFODNN7EXAMPLE") == "***");
    CHECK(value("sk_live_abcdefghijk AIzaabcdefghijk SG.abcdefghijk") == "*** *** ***");
    CHECK(value("https://h/x?sv=1&sig=hunter2") == "https://h/x?sv=1&sig=***");
    CHECK(value("curl -H 'X-Api-Key: hunter2' -u me:hunter2 -v") ==
          "curl -H 'X-Api-Key: ***' -u me:*** -v");
    CHECK(value("Authorization: Basic hunter2 x") == "Authorization: Basic *** x");
    CHECK(value("{\"password\":\"hunter2\", \"token\" : \"hunter2\", \"lr\": 1}") ==
          "{\"password\":\"***\", \"token\" : \"***\", \"lr\": 1}");
    CHECK(value("-----BEGIN PRIVATE KEY----- hunter2 -----END PRIVATE KEY-----") == "***");
    CHECK(value("-u me --user -x a:b the key of it") == "-u me --user -x a:b the key of it");
    CHECK(value("x=eyJhbGciOiJIUzI1NiJ9.e30.abc") == "x=***");
  }

  TEST_CASE("those that say most come first, of one kind the newest") {
    std::vector<LogFile> files{{"attempt_0/0/stdout.log", 1, 9},   {"attempt_0/0/heartbeat", 1, 9},
                               {"attempt_0/1/stderr.log", 1, 5},   {"attempt_1/1/stderr.log", 1, 7},
                               {"attempt_1/1/stack.py-spy", 1, 1}, {"report.json", 1, 1}};
    sort_by_use(files);
    std::vector<std::string> paths;
    for (const LogFile& file : files) paths.push_back(file.path);
    CHECK(paths == std::vector<std::string>{"report.json", "attempt_1/1/stack.py-spy",
                                            "attempt_1/1/stderr.log", "attempt_0/1/stderr.log",
                                            "attempt_0/0/stdout.log", "attempt_0/0/heartbeat"});
  }

  TEST_CASE("a name of another machine leads nowhere else") {
    for (const char* path : {"a", "logs/attempt_0/0/stderr.log", "...", "a/..b"})
      CHECK(is_plain_path(path));
    for (const char* path :
         {"", "/etc/passwd", "..", "a/../b", "a//b", "a/", "./a", "a\nb", "a\x1b[2J"})
      CHECK_FALSE(is_plain_path(path));
    CHECK(as_folder_name("node0.example.org") == "node0.example.org");
    CHECK(as_folder_name("../x y") == "_._x_y");
    CHECK(as_folder_name("..") == "_.");
    CHECK(as_folder_name("") == "node");
    CHECK(is_plain_path(as_folder_name(std::string(300, '/'))));
  }

  TEST_CASE("a header is read as it was written") {
    for (const std::string& name : {std::string("a"), std::string(100, 'x'),
                                    std::string(150, 'p') + "/" + std::string(90, 'x')}) {
      auto header = tar_header(name, 8'000'000'000, 1'700'000'000);
      REQUIRE(header);
      CHECK(header->size() == kTarBlock);
      auto entry = read_tar_header(*header);
      REQUIRE(entry);
      CHECK(entry->name == name);
      CHECK(entry->size == 8'000'000'000);
      CHECK(entry->mtime == 1'700'000'000);
      (*header)[3] ^= 1;
      CHECK_FALSE(read_tar_header(*header));
    }
    CHECK_FALSE(tar_header(std::string(101, 'x'), 1, 1));
    CHECK_FALSE(tar_header(std::string(156, 'p') + "/" + std::string(100, 'x'), 1, 1));
    CHECK(read_tar_header(std::string(kTarBlock, '\0'))->name.empty());
    CHECK_FALSE(read_tar_header("short"));
    CHECK((kTarBlock - tar_padding(1).size()) == 1);
    CHECK(tar_padding(kTarBlock).empty());
  }
}
