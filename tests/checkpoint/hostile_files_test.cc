// SPDX-License-Identifier: BSD-3-Clause
//
// Damaged and hostile files by the thousand, through the fuzz target's own checks, and what they
// make the readers allocate.  scripts/fuzz goes on where this ends.
#include <doctest/doctest.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <random>

#include "worker/checkpoint/formats/file_layout.h"
#include "worker/checkpoint/formats/manifest.h"
#include "worker/checkpoint/formats/pickle.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

std::atomic<std::size_t> largest{0};  // allocation since it was last set to 0
std::atomic<std::size_t> live{0};
std::atomic<std::size_t> peak{0};  // of `live`, since it was last set

}  // namespace

// GCC inlines one of them into a caller and not the other, and takes malloc and delete for a
// mismatch.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
#endif

void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  if (size > largest) largest = size;
  void* memory = std::malloc(size);
  if (!memory) return nullptr;
  const std::size_t now = live += ::malloc_usable_size(memory);
  if (now > peak) peak = now;
  return memory;
}
void* operator new(std::size_t size) {
  void* memory = operator new(size, std::nothrow);
  if (!memory) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept {
  live -= ::malloc_usable_size(memory);
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  operator delete(memory);
}

namespace {

using namespace ddprun::ddp;

// A .pt file of the pickle `program` and one storage of six floats.
std::string pt_file(const std::string& program) {
  zip::Layout layout = zip::lay_out({{"f/data.pkl", program.size()}, {"f/data/0", 24}});
  std::string file(layout.file_bytes, '\0');
  program.copy(file.data() + layout.records[0].begin, program.size());
  zip::complete(layout, file.data());
  return file;
}

// A pickle of a dict of `leaf`, a list of 60 times that, a list of 60 times that list, and so on.
std::string nested_lists(const std::string& leaf, int depth) {
  auto memo = [](char operation, int place) {
    return std::string{operation, static_cast<char>(place)};
  };
  auto list_of = [](const std::string& item) {
    std::string text = "](";
    for (int i = 0; i < 60; ++i) text += item;
    return text + "e";
  };
  auto key_of = [](int level) {
    return std::string("X\1\0\0\0", 5) + static_cast<char>('0' + level);
  };
  std::string program("\x80\2}");
  program += key_of(0) + leaf + memo('q', 0) + "s";
  for (int level = 1; level <= depth; ++level) {
    program += key_of(level) + list_of(memo('h', level - 1)) + memo('q', level) + "s";
  }
  return program + ".";
}

std::string file_of(TensorFormat format) {
  FileLayout layout = lay_out(format,
                              {{.name = "conv.weight", .dtype = "F32", .shape = {2, 3}},
                               {.name = "steps", .dtype = "I64", .shape = {}},
                               {.name = "small", .dtype = "U16", .shape = {5}},
                               {.name = "none", .dtype = "BF16", .shape = {0, 2}}},
                              {{"format", "pt"}})
                          .value();
  std::string file(layout.file_bytes, '\x2a');
  complete(layout, file.data());
  return file;
}

// A good input of each kind: the reader's number, then what it reads.
std::vector<std::string> seeds() {
  const std::string manifest = to_json(
      {.step = 3, .world_size = 2, .torch_version = "2.15.0", .files = {{"model.pt", 100, 7}}});
  return {std::string(1, '\0') + file_of(TensorFormat::Safetensors),
          std::string(1, '\1') + file_of(TensorFormat::Pt),
          "\2" + pickle::write({{.name = "w", .dtype = "F32", .shape = {2, 3}}}).value(),
          "\3" + manifest};
}

void play(const std::string& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
}

}  // namespace

TEST_SUITE("ddp/checkpoint/hostile_files") {
  TEST_CASE("damage of any kind ends in an answer, within memory in proportion to the file") {
    constexpr unsigned kSeed = 71;
    MESSAGE("seed ", kSeed);
    std::mt19937 random(kSeed);
    auto pick = [&](std::size_t count) { return random() % count; };
    const std::vector<std::string> good = seeds();
    constexpr std::size_t kMost = 256 * 1024;  // for files of 2 KiB at most
    for (int round = 0; round < 40'000; ++round) {
      std::string input = good[pick(good.size())];
      for (std::size_t change = 1 + pick(4); change > 0; --change) {
        const std::size_t at = 1 + pick(input.size() - 1);
        switch (pick(5)) {
          case 0:
            input[at] = static_cast<char>(random());
            break;
          case 1:
            input[at] = static_cast<char>(input[at] ^ (1 << pick(8)));
            break;
          case 2:
            input[at] = pick(2) != 0 ? '\xff' : '\x7f';
            break;
          case 3:
            input.resize(at + 1);
            break;
          case 4:
            input.insert(at, input, pick(input.size()), pick(40));
            break;
        }
      }
      largest = 0;
      play(input);
      REQUIRE(largest < kMost);
    }
  }

  TEST_CASE("lists in lists take memory in proportion to the file") {
    using namespace std::string_literals;
    const std::string tensor =
        "ctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storagectorch\nFloatStorage\n"
        "X\1\0\0\0"
        "0X\3\0\0\0cpuK\6tQK\0K\6\x85K\1\x85\x89"
        "ccollections\nOrderedDict\n)RtR"s;
    for (const std::string& leaf : {"N"s, "X\x0b\0\0\0ten letters"s, tensor}) {
      CHECK(read_tensors(pt_file(nested_lists(leaf, 1))).has_value());
      for (int depth = 3; depth <= 6; ++depth) {
        CAPTURE(depth);
        const std::string file = pt_file(nested_lists(leaf, depth));
        REQUIRE(file.size() < 4096);
        peak = live.load();
        const std::size_t before = peak;
        CHECK(!read_tensors(file));
        CHECK(peak - before < 500 * file.size());
      }
    }
  }

  TEST_CASE("lengths that no memory could hold are refused without asking for it") {
    const std::string huge = "\xff\xff\xff\xff\xff\xff\xff\x7f";
    std::string header = R"({"a":{"dtype":"F32","shape":[4611686018427387903,2],)"
                         R"("data_offsets":[0,9223372036854775807]}})";
    std::string length(8, '\0');
    length[0] = static_cast<char>(header.size());
    for (const std::string& input :
         {std::string(1, '\0') + huge, std::string(1, '\0') + length + header,
          std::string("\2\x80\2X\xff\xff\xff\x7f"), std::string("\2\x80\2\x8a\xff")}) {
      largest = 0;
      play(input);
      CHECK(largest < 64 * 1024);
    }
  }
}
