// SPDX-License-Identifier: BSD-3-Clause
#include "worker/shm/decide/reduce.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "worker/shm/decide/half.h"

namespace ddprun::ddp::shm {
namespace {

constexpr std::size_t kBlock = 1024;  // elements that are kept beside the core while they add up

// How an element lies in memory (Stored) and is reckoned with (Value).
template <class T>
struct Plain {
  using Stored = T;
  using Value = T;
  static void load(const T* from, std::size_t count, T* to) {
    std::memcpy(to, from, count * sizeof(T));
  }
  static void store(const T* from, std::size_t count, T* to) { load(from, count, to); }
};

struct Half {
  using Stored = std::uint16_t;
  using Value = float;
  static void load(const Stored* from, std::size_t count, float* to) {
    floats_of_halves(from, count, to);
  }
  static void store(const float* from, std::size_t count, Stored* to) {
    halves_of_floats(from, count, to);
  }
};

struct BFloat {
  using Stored = std::uint16_t;
  using Value = float;
  static void load(const Stored* from, std::size_t count, float* to) {
    for (std::size_t i = 0; i < count; ++i) to[i] = float_of_bfloat(from[i]);
  }
  static void store(const float* from, std::size_t count, Stored* to) {
    for (std::size_t i = 0; i < count; ++i) to[i] = bfloat_of_float(from[i]);
  }
};

// Integers are added and multiplied without sign, where passing the limit is defined.
template <class T>
using Wrapping = std::conditional_t<std::is_integral_v<T>, std::uint64_t, T>;

template <Reduction kind, class T>
T combine(T a, T b) {
  if constexpr (kind == Reduction::Product) {
    return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
  } else if constexpr (kind == Reduction::Min) {
    return (a < b || a != a) ? a : b;
  } else if constexpr (kind == Reduction::Max) {
    return (a > b || a != a) ? a : b;
  } else {
    return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
  }
}

template <class Format, Reduction kind>
void reduce_as(std::span<const std::byte* const> sources, std::size_t bytes, std::byte* out) {
  using Stored = typename Format::Stored;
  using Value = typename Format::Value;
  alignas(64) Value sum[kBlock];
  alignas(64) Value next[kBlock];
  const std::size_t total = bytes / sizeof(Stored);
  const auto* const* from = reinterpret_cast<const Stored* const*>(sources.data());
  auto* to = reinterpret_cast<Stored*>(out);
  for (std::size_t begin = 0; begin < total; begin += kBlock) {
    const std::size_t count = std::min(kBlock, total - begin);
    Format::load(from[0] + begin, count, sum);
    for (std::size_t source = 1; source < sources.size(); ++source) {
      if constexpr (std::is_same_v<Stored, Value>) {
        const Value* values = from[source] + begin;
        for (std::size_t i = 0; i < count; ++i) sum[i] = combine<kind>(sum[i], values[i]);
      } else {
        Format::load(from[source] + begin, count, next);
        for (std::size_t i = 0; i < count; ++i) sum[i] = combine<kind>(sum[i], next[i]);
      }
    }
    if constexpr (kind == Reduction::Mean) {
      const auto divisor = static_cast<Value>(sources.size());
      for (std::size_t i = 0; i < count; ++i) sum[i] /= divisor;
    }
    Format::store(sum, count, to + begin);
  }
}

template <class Format>
void reduce_by(Reduction reduction, std::span<const std::byte* const> sources, std::size_t bytes,
               std::byte* out) {
  switch (reduction) {
    case Reduction::Sum:
      return reduce_as<Format, Reduction::Sum>(sources, bytes, out);
    case Reduction::Mean:
      return reduce_as<Format, Reduction::Mean>(sources, bytes, out);
    case Reduction::Product:
      return reduce_as<Format, Reduction::Product>(sources, bytes, out);
    case Reduction::Min:
      return reduce_as<Format, Reduction::Min>(sources, bytes, out);
    case Reduction::Max:
      return reduce_as<Format, Reduction::Max>(sources, bytes, out);
  }
}

}  // namespace

std::size_t bytes_of(Element element) {
  switch (element) {
    case Element::Int8:
    case Element::UInt8:
      return 1;
    case Element::Float16:
    case Element::BFloat16:
    case Element::Int16:
      return 2;
    case Element::Float32:
    case Element::Int32:
      return 4;
    case Element::Float64:
    case Element::Int64:
      return 8;
  }
  return 1;
}

const char* name_of(Element element) {
  switch (element) {
    case Element::Float32:
      return "float";
    case Element::Float64:
      return "double";
    case Element::Float16:
      return "half";
    case Element::BFloat16:
      return "bfloat16";
    case Element::Int8:
      return "int8";
    case Element::UInt8:
      return "uint8";
    case Element::Int16:
      return "int16";
    case Element::Int32:
      return "int32";
    case Element::Int64:
      return "int64";
  }
  return "?";
}

const char* name_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::Sum:
      return "sum";
    case Reduction::Mean:
      return "mean";
    case Reduction::Product:
      return "product";
    case Reduction::Min:
      return "min";
    case Reduction::Max:
      return "max";
  }
  return "?";
}

bool is_supported(Element element, Reduction reduction) {
  const bool is_float = element <= Element::BFloat16;
  return is_float || reduction != Reduction::Mean;
}

void reduce(Element element, Reduction reduction, std::span<const std::byte* const> sources,
            std::size_t bytes, std::byte* out) {
  switch (element) {
    case Element::Float32:
      return reduce_by<Plain<float>>(reduction, sources, bytes, out);
    case Element::Float64:
      return reduce_by<Plain<double>>(reduction, sources, bytes, out);
    case Element::Float16:
      return reduce_by<Half>(reduction, sources, bytes, out);
    case Element::BFloat16:
      return reduce_by<BFloat>(reduction, sources, bytes, out);
    case Element::Int8:
      return reduce_by<Plain<std::int8_t>>(reduction, sources, bytes, out);
    case Element::UInt8:
      return reduce_by<Plain<std::uint8_t>>(reduction, sources, bytes, out);
    case Element::Int16:
      return reduce_by<Plain<std::int16_t>>(reduction, sources, bytes, out);
    case Element::Int32:
      return reduce_by<Plain<std::int32_t>>(reduction, sources, bytes, out);
    case Element::Int64:
      return reduce_by<Plain<std::int64_t>>(reduction, sources, bytes, out);
  }
}

}  // namespace ddprun::ddp::shm
