// SPDX-License-Identifier: BSD-3-Clause
#include "store/decide/large_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>
#include <vector>

namespace ddprun::store {
namespace {

// What of it is left; given back from its end.
struct Mapping {
  char* begin;
  std::size_t bytes;
};

class Released {
 public:
  Released() = default;
  Released(const Released&) = delete;
  Released& operator=(const Released&) = delete;
  ~Released() {
    while (!mappings_.empty()) give_back(bytes_);
  }

  void add(Mapping mapping) {
    mappings_.push_back(mapping);
    bytes_ += mapping.bytes;
  }
  std::size_t bytes() const { return bytes_; }

  void give_back(std::size_t most) {
    if (mappings_.empty()) return;
    Mapping& last = mappings_.back();
    std::size_t count = std::min(most, last.bytes);
    last.bytes -= count;
    bytes_ -= count;
    ::munmap(last.begin + last.bytes, count);
    if (last.bytes == 0) mappings_.pop_back();
  }

 private:
  std::vector<Mapping> mappings_;
  std::size_t bytes_ = 0;
};

thread_local Released released;

std::size_t whole_pages(std::size_t bytes) {
  constexpr std::size_t kPage = 4096;
  return (bytes + kPage - 1) / kPage * kPage;
}

}  // namespace

void* allocate_memory(std::size_t bytes) {
  if (bytes < kLargeMemory) return ::operator new(bytes);
  void* memory = ::mmap(nullptr, whole_pages(bytes), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return memory;
}

void release_memory(void* memory, std::size_t bytes) {
  if (bytes < kLargeMemory) return ::operator delete(memory);
  released.add({.begin = static_cast<char*>(memory), .bytes = whole_pages(bytes)});
}

std::size_t bytes_to_give_back() {
  return released.bytes();
}

void give_back_some() {
  released.give_back(kGivenBackAtOnce);
}

}  // namespace ddprun::store
