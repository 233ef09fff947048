// SPDX-License-Identifier: BSD-3-Clause
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "store/auth/handshake.h"
#include "store/auth/sealed_stream.h"
#include "store/auth/secret.h"
#include "tests/support/temp_dir.h"

using namespace ddprun::store;
using ddprun::Errc;
using ddprun::test::TempDir;

namespace {

Secret secret_of(std::string_view text) {
  return Secret::from_text(text).value();
}

struct Ends {
  SealedStream client;
  SealedStream server;
};

// Both ends after a handshake; nothing where one has refused the other.
std::optional<Ends> shake_hands(const Secret& of_client, const Secret& of_server) {
  ClientHandshake client;
  ServerHandshake server({of_server});
  auto challenge = server.challenge(client.challenge());
  auto proof = client.prove(of_client, challenge.value());
  auto proved = server.check(proof.value());
  if (!proved) return std::nullopt;
  auto stream = std::move(client).finish(proved->answer);
  if (!stream) return std::nullopt;
  return Ends{std::move(*stream), std::move(proved->stream)};
}

std::string sealed_by(SealedStream& stream, std::string_view plain) {
  std::string frames;
  stream.seal(plain, frames);
  return frames;
}

}  // namespace

TEST_SUITE("store/auth") {
  TEST_CASE("two ends that share a secret know each other, and open what the other has sealed") {
    auto ends = shake_hands(secret_of("a secret of the run"), secret_of(" a secret of the run\n"));
    REQUIRE(ends);
    const std::string large(100'000, 'x');
    for (const std::string& plain : {std::string("hello"), large, std::string("bye")}) {
      std::string opened;
      CHECK(ends->server.open(sealed_by(ends->client, plain), opened));
      CHECK(opened == plain);
      opened.clear();
      CHECK(ends->client.open(sealed_by(ends->server, plain), opened));
      CHECK(opened == plain);
    }
  }

  TEST_CASE("an end with another secret is not known") {
    CHECK_FALSE(shake_hands(secret_of("a secret of the run"), secret_of("a secret of the fun")));
  }

  TEST_CASE("what shows one server that a client knows the secret shows another one nothing") {
    Secret secret = secret_of("a secret of the run");
    ClientHandshake client;
    ServerHandshake first({secret});
    ServerHandshake second({secret});
    std::string proof = client.prove(secret, first.challenge(client.challenge()).value()).value();
    second.challenge(client.challenge());
    CHECK_FALSE(second.check(proof));
    CHECK(first.check(proof));
    CHECK_FALSE(first.check(proof));  // there is one try
  }

  TEST_CASE("a server that does not know the secret cannot answer, not even by what it was sent") {
    ClientHandshake client;
    std::string proof =
        client.prove(secret_of("a secret of the run"), std::string(kChallengeBytes, 's')).value();
    SUBCASE("the client's proof sent back") {
      CHECK_FALSE(std::move(client).finish(proof));
    }
    SUBCASE("no proof") {
      CHECK_FALSE(std::move(client).finish(""));
    }
    SUBCASE("a proof that is too long") {
      CHECK_FALSE(std::move(client).finish(proof + "x"));
    }
  }

  TEST_CASE("what is no challenge is refused") {
    ServerHandshake server({secret_of("a secret of the run")});
    CHECK_FALSE(server.challenge("short"));
    CHECK_FALSE(server.check(std::string(kProofBytes, 'x')));
    ClientHandshake client;
    CHECK_FALSE(client.prove(secret_of("a secret of the run"), "short"));
  }

  TEST_CASE("one changed bit of a handshake ends it") {
    Secret secret = secret_of("a secret of the run");
    for (std::size_t byte = 0; byte < kProofBytes; ++byte) {
      CAPTURE(byte);
      ClientHandshake client;
      ServerHandshake server({secret});
      std::string proof =
          client.prove(secret, server.challenge(client.challenge()).value()).value();
      proof[byte] = static_cast<char>(proof[byte] ^ 1);
      CHECK_FALSE(server.check(proof));
    }
    for (std::size_t byte = 0; byte < kProofBytes; ++byte) {
      CAPTURE(byte);
      ClientHandshake client;
      ServerHandshake server({secret});
      std::string proof =
          client.prove(secret, server.challenge(client.challenge()).value()).value();
      std::string answer = server.check(proof).value().answer;
      answer[byte] = static_cast<char>(answer[byte] ^ 1);
      CHECK_FALSE(std::move(client).finish(answer));
    }
  }

  TEST_CASE("a frame that is changed, repeated, left out or of the other direction is not opened") {
    auto ends = shake_hands(secret_of("a secret of the run"), secret_of("a secret of the run"));
    REQUIRE(ends);
    std::string first = sealed_by(ends->client, "one");
    std::string second = sealed_by(ends->client, "two");
    std::string opened;
    SUBCASE("changed") {
      for (std::size_t byte : {std::size_t{0}, std::size_t{3}, std::size_t{4}, first.size() - 1}) {
        auto fresh =
            shake_hands(secret_of("a secret of the run"), secret_of("a secret of the run"));
        std::string frame = sealed_by(fresh->client, "one");
        frame[byte] = static_cast<char>(frame[byte] ^ 1);
        bool is_opened = fresh->server.open(frame, opened);
        // A length that has become larger: the rest of the frame is waited for.
        CHECK((!is_opened || fresh->server.held_bytes() == frame.size()));
        CHECK(opened.empty());
      }
      return;
    }
    SUBCASE("repeated") {
      CHECK(ends->server.open(first, opened));
      CHECK_FALSE(ends->server.open(first, opened));
    }
    SUBCASE("left out") {
      CHECK_FALSE(ends->server.open(second, opened));
    }
    SUBCASE("of the other direction") {
      CHECK_FALSE(ends->client.open(first, opened));
    }
    SUBCASE("too long") {
      CHECK_FALSE(ends->server.open(std::string(8, '\xff'), opened));
    }
    SUBCASE("empty") {
      CHECK_FALSE(ends->server.open(std::string(4, '\0'), opened));
    }
  }

  TEST_CASE("frames may be cut anywhere") {
    auto ends = shake_hands(secret_of("a secret of the run"), secret_of("a secret of the run"));
    REQUIRE(ends);
    std::string frames = sealed_by(ends->client, "one");
    frames += sealed_by(ends->client, "two");
    std::string opened;
    for (char byte : frames) REQUIRE(ends->server.open(std::string_view(&byte, 1), opened));
    CHECK(opened == "onetwo");
    CHECK(ends->server.held_bytes() == 0);
  }

  TEST_CASE("a secret is neither short nor long, and no error shows it") {
    CHECK(to_string(Secret::from_text("swordfish").error()) ==
          "a secret of 9 bytes; it must have 16 to 4096 (ddprun --new-secret makes one)");
    CHECK_FALSE(Secret::from_text(" \n").has_value());
    CHECK_FALSE(Secret::from_text("").has_value());
    CHECK_FALSE(Secret::from_text(std::string(4097, 'x')).has_value());
    std::string text = Secret::new_text();
    CHECK(text.size() == 64);
    CHECK(Secret::new_text() != text);
    Secret secret = secret_of(text);
    CHECK(Secret::from_key_text(secret.key_text()).value().key() == secret.key());
    CHECK_FALSE(Secret::from_key_text(secret.key_text().substr(2)).has_value());
    CHECK_FALSE(Secret::from_key_text("x" + secret.key_text().substr(1)).has_value());
    CHECK(secret.is_page_token(secret.page_token()));
    CHECK_FALSE(secret.is_page_token(""));
    CHECK_FALSE(secret.is_page_token(secret.key_text()));
  }

  TEST_CASE("a file of a password is read as that of a secret is, however short it is") {
    TempDir folder;
    const std::string path = folder.path() + "/password";
    auto why_not = [&](const std::string& file) {
      auto read = password_from_file(file, "password_file");
      return read ? "" : to_string(read.error());
    };
    std::ofstream(path) << " p w\r\n";
    ::chmod(path.c_str(), 0644);
    CHECK(why_not(path) ==
          "password_file=" + path + ": other users may use it; run: chmod 600 " + path);
    ::chmod(path.c_str(), 0600);
    CHECK(password_from_file(path, "").value() == " p w");
    std::ofstream(path) << "\n";
    CHECK(why_not(path) == "password_file=" + path + ": it is empty");
    std::ofstream(path) << std::string(Secret::kMaxBytes + 1, 'x');
    CHECK(why_not(path) == "password_file=" + path + ": it has more than 4096 bytes");
    CHECK(why_not(folder.path()) == "password_file=" + folder.path() + ": it is no regular file");
  }

  TEST_CASE("a file of a secret is a regular one that nobody else may read") {
    TempDir folder;
    const std::string path = folder.path() + "/secret";
    auto why_not = [&](const std::string& file) {
      auto read = Secret::from_file(file, "--rdzv-secret-file");
      return read ? "" : to_string(read.error());
    };
    std::ofstream(path) << "a secret of the run\n";
    ::chmod(path.c_str(), 0644);
    CHECK(why_not(path) ==
          "--rdzv-secret-file=" + path + ": other users may use it; run: chmod 600 " + path);
    ::chmod(path.c_str(), 0620);
    CHECK(why_not(path) != "");
    // Root may have given it to a group, as Kubernetes does.
    ::chmod(path.c_str(), 0440);
    CHECK((why_not(path) == "") == (::geteuid() == 0));
    ::chmod(path.c_str(), 0600);
    CHECK(why_not(path) == "");
    CHECK(Secret::from_file(path, "").value().key() == secret_of("a secret of the run").key());
    std::ofstream(path) << "short";
    CHECK(why_not(path).find("a secret of 5 bytes") != std::string::npos);
    CHECK(why_not(folder.path() + "/missing").find("No such file") != std::string::npos);
    ::chmod(folder.path().c_str(), 0700);
    CHECK(why_not(folder.path()).find("it is no regular file") != std::string::npos);
    const std::string fifo = folder.path() + "/fifo";
    REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
    CHECK(why_not(fifo).find("it is no regular file") != std::string::npos);
    if (::geteuid() == 0) {
      ::chmod(path.c_str(), 0600);
      REQUIRE(::chown(path.c_str(), 54321, 54321) == 0);
      CHECK(why_not(path).find("it belongs to user 54321") != std::string::npos);
    }
  }
}
