// SPDX-License-Identifier: BSD-3-Clause
#include "store/auth/sealed_stream.h"

#include <sodium.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "store/base/check.h"

namespace ddprun::store {
namespace {

static_assert(sizeof(Secret::Key) == crypto_secretstream_xchacha20poly1305_KEYBYTES);
static_assert(SealedStream::kHeaderBytes == crypto_secretstream_xchacha20poly1305_HEADERBYTES);

constexpr std::size_t kLengthBytes = sizeof(std::uint32_t);
constexpr std::size_t kOverhead = crypto_secretstream_xchacha20poly1305_ABYTES;
constexpr unsigned char kTag = crypto_secretstream_xchacha20poly1305_TAG_MESSAGE;

unsigned char* bytes_of(char* text) {
  return reinterpret_cast<unsigned char*>(text);
}
const unsigned char* bytes_of(const char* text) {
  return reinterpret_cast<const unsigned char*>(text);
}

std::uint32_t length_at(const char* bytes) {
  std::uint32_t length = 0;
  for (std::size_t i = kLengthBytes; i-- > 0;)
    length = (length << 8) | static_cast<unsigned char>(bytes[i]);
  return length;
}

void append_length(std::size_t length, std::string& out) {
  for (std::size_t i = 0; i < kLengthBytes; ++i)
    out += static_cast<char>((length >> (8 * i)) & 0xff);
}

}  // namespace

struct SealedStream::States {
  crypto_secretstream_xchacha20poly1305_state seals;
  crypto_secretstream_xchacha20poly1305_state opens;
  unsigned char header[kHeaderBytes];
  Secret::Key opens_by;

  ~States() { ::sodium_memzero(this, sizeof *this); }
};

SealedStream::SealedStream(const Secret::Key& sends_by, const Secret::Key& opens_by)
    : states_(std::make_unique<States>()) {
  ::crypto_secretstream_xchacha20poly1305_init_push(&states_->seals, states_->header,
                                                    sends_by.data());
  states_->opens_by = opens_by;
}

SealedStream::~SealedStream() = default;
SealedStream::SealedStream(SealedStream&&) noexcept = default;
SealedStream& SealedStream::operator=(SealedStream&&) noexcept = default;

std::string SealedStream::header() const {
  return {reinterpret_cast<const char*>(states_->header), kHeaderBytes};
}

bool SealedStream::set_peer_header(std::string_view header) {
  if (header.size() != kHeaderBytes) return false;
  return ::crypto_secretstream_xchacha20poly1305_init_pull(&states_->opens, bytes_of(header.data()),
                                                           states_->opens_by.data()) == 0;
}

void SealedStream::seal(std::string_view plain, std::string& frames) {
  for (; !plain.empty(); plain.remove_prefix(std::min(plain.size(), kFrameBytes))) {
    std::string_view piece = plain.substr(0, kFrameBytes);
    append_length(piece.size() + kOverhead, frames);
    std::size_t at = frames.size();
    frames.resize(at + piece.size() + kOverhead);
    int status = ::crypto_secretstream_xchacha20poly1305_push(
        &states_->seals, bytes_of(frames.data() + at), nullptr, bytes_of(piece.data()),
        piece.size(), nullptr, 0, kTag);
    check(status == 0, "a frame could not be sealed");
  }
}

bool SealedStream::open(std::string_view bytes, std::string& plain) {
  held_.append(bytes);
  std::size_t at = 0;
  while (held_.size() - at >= kLengthBytes) {
    std::size_t length = length_at(held_.data() + at);
    if (length <= kOverhead || length > kFrameBytes + kOverhead) return false;
    if (held_.size() - at - kLengthBytes < length) break;
    const char* frame = held_.data() + at + kLengthBytes;
    std::size_t end = plain.size();
    plain.resize(end + length - kOverhead);
    unsigned char tag = 0;
    int status = ::crypto_secretstream_xchacha20poly1305_pull(
        &states_->opens, bytes_of(plain.data() + end), nullptr, &tag, bytes_of(frame), length,
        nullptr, 0);
    if (status != 0 || tag != kTag) {
      plain.resize(end);
      return false;
    }
    at += kLengthBytes + length;
  }
  held_.erase(0, at);
  return true;
}

}  // namespace ddprun::store
