// SPDX-License-Identifier: BSD-3-Clause
#include "worker/shm/decide/reduce.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "worker/shm/decide/half.h"

namespace {

using namespace ddprun::ddp::shm;

template <class T>
std::vector<T> reduced(Element element, Reduction reduction,
                       const std::vector<std::vector<T>>& sources) {
  std::vector<const std::byte*> pointers;
  for (const std::vector<T>& source : sources) {
    pointers.push_back(reinterpret_cast<const std::byte*>(source.data()));
  }
  std::vector<T> out(sources[0].size());
  reduce(element, reduction, pointers, out.size() * sizeof(T),
         reinterpret_cast<std::byte*>(out.data()));
  return out;
}

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// What a half can hold, by its definition: 11 bits, and steps of 2^-24 near zero.
double nearest_half(double value) {
  if (value == 0 || std::isinf(value)) return value;
  const int exponent = std::max(std::ilogb(value), -14);
  const double step = std::ldexp(1.0, exponent - 10);
  const double rounded = std::nearbyint(value / step) * step;  // to even where it is in the middle
  return std::abs(rounded) >= 65520 ? std::copysign(kInfinity, value) : rounded;
}

}  // namespace

TEST_SUITE("ddp/shm/reduce") {
  TEST_CASE("each reduction, over three ranks") {
    const std::vector<std::vector<float>> values{{1, -2, 8}, {3, 5, 0.5F}, {2, 6, 2}};
    CHECK(reduced(Element::Float32, Reduction::Sum, values) == std::vector<float>{6, 9, 10.5F});
    CHECK(reduced(Element::Float32, Reduction::Mean, values) == std::vector<float>{2, 3, 3.5F});
    CHECK(reduced(Element::Float32, Reduction::Product, values) == std::vector<float>{6, -60, 8});
    CHECK(reduced(Element::Float32, Reduction::Min, values) == std::vector<float>{1, -2, 0.5F});
    CHECK(reduced(Element::Float32, Reduction::Max, values) == std::vector<float>{3, 6, 8});
  }

  TEST_CASE("the order of the ranks is the order of the sum") {
    const float big = 1e8F;
    CHECK(reduced<float>(Element::Float32, Reduction::Sum, {{1}, {big}, {-big}})[0] == 0);
    CHECK(reduced<float>(Element::Float32, Reduction::Sum, {{big}, {-big}, {1}})[0] == 1);
  }

  TEST_CASE("a NaN of any rank is handed through") {
    for (Reduction reduction : {Reduction::Sum, Reduction::Min, Reduction::Max}) {
      CHECK(std::isnan(reduced<float>(Element::Float32, reduction, {{kNan}, {1}})[0]));
      CHECK(std::isnan(reduced<float>(Element::Float32, reduction, {{1}, {kNan}})[0]));
    }
  }

  TEST_CASE("integers wrap around") {
    CHECK(reduced<std::int8_t>(Element::Int8, Reduction::Sum, {{127}, {1}})[0] == -128);
    CHECK(reduced<std::uint8_t>(Element::UInt8, Reduction::Product, {{16}, {17}})[0] == 16);
    CHECK(reduced<std::int16_t>(Element::Int16, Reduction::Max, {{-5}, {-9}})[0] == -5);
    const auto top = std::numeric_limits<std::int32_t>::max();
    CHECK(reduced<std::int32_t>(Element::Int32, Reduction::Sum, {{top}, {1}})[0] == -top - 1);
    const auto most = std::numeric_limits<std::int64_t>::max();
    CHECK(reduced<std::int64_t>(Element::Int64, Reduction::Sum, {{most}, {1}})[0] == -most - 1);
  }

  TEST_CASE("all lengths around a block") {
    for (std::size_t length : {0, 1, 7, 1023, 1024, 1025, 3000}) {
      std::vector<std::vector<double>> values(2, std::vector<double>(length));
      for (std::size_t i = 0; i < length; ++i) values[0][i] = values[1][i] = static_cast<double>(i);
      std::vector<double> sum = reduced(Element::Float64, Reduction::Sum, values);
      for (std::size_t i = 0; i < length; ++i) CHECK(sum[i] == 2 * static_cast<double>(i));
    }
  }

  TEST_CASE("half types are rounded once") {
    // 2048 + 1 + 1 in halves is 2048, each step for itself; in float it is 2050.
    std::vector<std::vector<std::uint16_t>> halves{
        {half_of_float(2048)}, {half_of_float(1)}, {half_of_float(1)}};
    CHECK(float_of_half(reduced(Element::Float16, Reduction::Sum, halves)[0]) == 2050);
    std::vector<std::vector<std::uint16_t>> brains{
        {bfloat_of_float(256)}, {bfloat_of_float(1)}, {bfloat_of_float(1)}};
    CHECK(float_of_bfloat(reduced(Element::BFloat16, Reduction::Sum, brains)[0]) == 258);
  }

  TEST_CASE("what is not a mean") {
    CHECK(is_supported(Element::BFloat16, Reduction::Mean));
    CHECK(!is_supported(Element::Int8, Reduction::Mean));
    CHECK(is_supported(Element::Int64, Reduction::Min));
  }
}

TEST_SUITE("ddp/shm/half") {
  TEST_CASE("every half is a float, and comes back; one at a time or many") {
    std::vector<std::uint16_t> all(65536);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
    std::vector<float> floats(all.size());
    floats_of_halves(all.data(), all.size(), floats.data());
    std::vector<std::uint16_t> back(all.size());
    halves_of_floats(floats.data(), floats.size(), back.data());
    int wrong = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const bool is_nan = (i & 0x7C00) == 0x7C00 && (i & 0x3FF) != 0;
      const float alone = float_of_half(all[i]);
      if (is_nan) {
        wrong +=
            !std::isnan(alone) || !std::isnan(floats[i]) || !std::isnan(float_of_half(back[i]));
        continue;
      }
      wrong += std::memcmp(&alone, &floats[i], sizeof alone) != 0;
      wrong += half_of_float(alone) != all[i] || back[i] != all[i];
    }
    CHECK(wrong == 0);
  }

  TEST_CASE("floats become the nearest half") {
    std::mt19937 random(5);
    std::vector<float> floats{0.0F,     65504.0F, 65519.9F,   65520.0F, -65520.0F, 1e10F, kInfinity,
                              0x1p-24F, 0x1p-25F, 0x1.8p-25F, 2049.0F,  2051.0F,   1e-30F};
    for (int i = 0; i < 20000; ++i) {
      std::uint32_t bits = static_cast<std::uint32_t>(random());
      float value = 0;
      std::memcpy(&value, &bits, sizeof value);
      if (!std::isnan(value)) floats.push_back(value);
      floats.push_back(
          std::ldexp(static_cast<float>(random() % 4096), -static_cast<int>(random() % 32)));
    }
    std::vector<std::uint16_t> halves(floats.size());
    halves_of_floats(floats.data(), floats.size(), halves.data());
    int wrong = 0;
    for (std::size_t i = 0; i < floats.size(); ++i) {
      const double expected = nearest_half(floats[i]);
      wrong += float_of_half(half_of_float(floats[i])) != expected;
      wrong += float_of_half(halves[i]) != expected;
    }
    CHECK(wrong == 0);
    CHECK(std::isnan(float_of_half(half_of_float(kNan))));
  }

  TEST_CASE("floats become the nearest bfloat16") {
    CHECK(float_of_bfloat(bfloat_of_float(1.0F)) == 1.0F);
    CHECK(float_of_bfloat(bfloat_of_float(257.0F)) == 256.0F);  // the even one of 256 and 258
    CHECK(float_of_bfloat(bfloat_of_float(259.0F)) == 260.0F);
    CHECK(std::isinf(float_of_bfloat(bfloat_of_float(3.4e38F))));
    CHECK(std::isnan(float_of_bfloat(bfloat_of_float(kNan))));
  }
}
