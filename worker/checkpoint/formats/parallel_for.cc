// SPDX-License-Identifier: BSD-3-Clause
#include "worker/checkpoint/formats/parallel_for.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <system_error>
#include <thread>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace ddprun::ddp {
namespace {

constexpr int kMostThreads = 4;
constexpr std::size_t kPieceBytes = 4 << 20;  // what one thread copies in one go
constexpr std::size_t kAloneBytes = 8 << 20;  // below, starting a thread costs more than it saves
constexpr std::size_t kStreamBytes = 256 << 10;  // from here on, past the caches

#if defined(__x86_64__)
// Past the caches: the lines that are written need not be fetched first.
void stream(char* to, const char* from, std::size_t bytes) {
  constexpr std::size_t kLine = 64;
  const std::size_t lead = std::min(bytes, -reinterpret_cast<std::uintptr_t>(to) % kLine);
  std::memcpy(to, from, lead);
  std::size_t done = lead;
  for (; bytes - done >= kLine; done += kLine) {
    const auto* source = reinterpret_cast<const __m128i*>(from + done);
    auto* target = reinterpret_cast<__m128i*>(to + done);
    const __m128i first = _mm_loadu_si128(source);
    const __m128i second = _mm_loadu_si128(source + 1);
    const __m128i third = _mm_loadu_si128(source + 2);
    const __m128i fourth = _mm_loadu_si128(source + 3);
    _mm_stream_si128(target, first);
    _mm_stream_si128(target + 1, second);
    _mm_stream_si128(target + 2, third);
    _mm_stream_si128(target + 3, fourth);
  }
  _mm_sfence();
  std::memcpy(to + done, from + done, bytes - done);
}
#else
void stream(char* to, const char* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}
#endif

void copy(const Copy& piece) {
  if (piece.bytes >= kStreamBytes) {
    stream(piece.to, piece.from, piece.bytes);
  } else if (piece.bytes > 0) {
    std::memcpy(piece.to, piece.from, piece.bytes);
  }
}

}  // namespace

int memory_threads() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return 1;  // more than 1,024 processors
  return std::clamp(CPU_COUNT(&set), 1, kMostThreads);
}

void parallel_for(std::size_t count, int threads, const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next = 0;
  auto take_parts = [&] {
    for (std::size_t i = next++; i < count; i = next++) work(i);
  };
  std::vector<std::jthread> helpers;  // joined at the end
  try {
    for (int i = 1; i < threads && static_cast<std::size_t>(i) < count; ++i) {
      helpers.emplace_back(take_parts);
    }
  } catch (const std::system_error&) {  // no more threads: those there are do it
  }
  take_parts();
}

void copy_all(const std::vector<Copy>& copies) {
  std::vector<Copy> pieces;
  std::size_t bytes = 0;
  for (const Copy& whole : copies) {
    for (std::size_t begin = 0; begin < whole.bytes; begin += kPieceBytes) {
      const std::size_t size = std::min(kPieceBytes, whole.bytes - begin);
      pieces.push_back({whole.to + begin, whole.from + begin, size});
      bytes += size;
    }
  }
  parallel_for(pieces.size(), bytes < kAloneBytes ? 1 : memory_threads(),
               [&](std::size_t i) { copy(pieces[i]); });
}

}  // namespace ddprun::ddp
