// SPDX-License-Identifier: BSD-3-Clause
#include "cli/slurm/nodelist.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "store/base/number.h"

namespace ddprun::cli {
namespace {

// A name is short; a long list of short names is not.
constexpr std::size_t kMaxNameBytes = 1024;

using Texts = std::vector<std::string>;

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

// A number of a range, with the width that it is written in.
struct Number {
  std::uint64_t value = 0;
  std::size_t width = 0;
};

std::optional<Number> bound_in(std::string_view text) {
  auto value = number_in<std::uint64_t>(text);
  return value ? std::optional(Number{.value = *value, .width = text.size()}) : std::nullopt;
}

std::string padded(std::uint64_t value, std::size_t width) {
  std::string digits = std::to_string(value);
  return digits.size() < width ? std::string(width - digits.size(), '0') + digits : digits;
}

// What is wrong, without the list around it.
using Wrong = std::string;

class Expander {
 public:
  explicit Expander(std::string_view list) : list_(list) {}

  Result<Texts> expand() {
    std::size_t begin = 0;
    while (begin < list_.size()) {
      std::size_t end = end_of_item(begin);
      std::string_view item = list_.substr(begin, end - begin);
      if (!item.empty()) {
        if (std::optional<Wrong> wrong = add_item(item)) return refused(*wrong);
      }
      begin = end + 1;
    }
    if (names_.empty()) return refused("it names no node");
    return std::move(names_);
  }

 private:
  Error refused(const std::string& wrong) const {
    constexpr std::size_t kShown = 200;
    std::string shown(list_.substr(0, kShown));
    if (list_.size() > kShown) shown += "...";
    return {Errc::InvalidInput, "node list '" + shown + "': " + wrong};
  }

  // Commas and blanks part items, but not inside brackets.
  std::size_t end_of_item(std::size_t begin) const {
    bool is_inside = false;
    for (std::size_t i = begin; i < list_.size(); ++i) {
      if (list_[i] == '[') is_inside = true;
      if (list_[i] == ']') is_inside = false;
      if (!is_inside && (list_[i] == ',' || is_blank(list_[i]))) return i;
    }
    return list_.size();
  }

  // An item is text, brackets, text, ...: the product of all its parts.  Slurm takes the last
  // brackets for the numbers of a row of names, and what stands before them for their common
  // beginnings, which it counts through from the left.
  std::optional<Wrong> add_item(std::string_view item) {
    Texts product = {""};
    std::size_t last_open = item.rfind('[');
    std::size_t size = item.size();
    while (!item.empty()) {
      Texts part;
      bool is_last = size - item.size() >= last_open;
      if (item.front() == '[') {
        std::size_t close = item.find(']');
        if (close == std::string_view::npos) return "a bracket is not closed";
        if (auto wrong = add_ranges(item.substr(1, close - 1), part)) return wrong;
        item.remove_prefix(close + 1);
      } else {
        std::size_t end = std::min(item.find('['), item.size());
        std::string_view text = item.substr(0, end);
        if (text.find(']') != std::string_view::npos) return "a bracket is closed and was not open";
        part.emplace_back(text);
        item.remove_prefix(end);
      }
      if (auto wrong = multiply(product, part, is_last)) return wrong;
    }
    if (names_.size() + product.size() > kMaxNodes) return too_many();
    names_.insert(names_.end(), product.begin(), product.end());
    return std::nullopt;
  }

  static std::optional<Wrong> multiply(Texts& left, const Texts& right, bool is_right_fastest) {
    std::size_t count = left.size() * right.size();
    if (count > kMaxNodes) return too_many();
    Texts product;
    product.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
      const std::string& head = left[is_right_fastest ? i / right.size() : i % left.size()];
      const std::string& tail = right[is_right_fastest ? i % right.size() : i / left.size()];
      if (head.size() + tail.size() > kMaxNameBytes) return "a name is too long";
      product.push_back(head + tail);
    }
    left = std::move(product);
    return std::nullopt;
  }

  // "1-3,07"
  static std::optional<Wrong> add_ranges(std::string_view ranges, Texts& numbers) {
    for (std::size_t begin = 0; begin <= ranges.size();) {
      std::size_t end = std::min(ranges.find(',', begin), ranges.size());
      std::string_view range = ranges.substr(begin, end - begin);
      if (auto wrong = add_range(range, numbers)) return wrong;
      begin = end + 1;
    }
    return std::nullopt;
  }

  static std::optional<Wrong> add_range(std::string_view range, Texts& numbers) {
    std::size_t dash = range.find('-');
    std::optional<Number> low = bound_in(range.substr(0, dash));
    std::optional<Number> high =
        dash == std::string_view::npos ? low : bound_in(range.substr(dash + 1));
    if (!low || !high) return "'" + std::string(range) + "' is no number and no range of numbers";
    if (high->value < low->value) return "'" + std::string(range) + "' counts down";
    if (high->value - low->value >= kMaxNodes - numbers.size()) return too_many();
    for (std::uint64_t value = low->value;; ++value) {
      numbers.push_back(padded(value, low->width));
      if (value == high->value) return std::nullopt;
    }
  }

  static Wrong too_many() { return "it names more than " + std::to_string(kMaxNodes) + " nodes"; }

  std::string_view list_;
  Texts names_;
};

}  // namespace

Result<std::vector<std::string>> expand_nodelist(std::string_view list) {
  return Expander(list).expand();
}

}  // namespace ddprun::cli
