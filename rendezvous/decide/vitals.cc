// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/vitals.h"

#include <charconv>
#include <concepts>
#include <limits>

#include "store/base/text.h"

namespace ddprun::rendezvous {
namespace {

// The first word, with the version of the form.
constexpr std::string_view kTitle = "vitals1";

constexpr std::string_view kStates = "RSDTtZXIWP-?";

template <class Number>
void put(std::string& text, const std::optional<Number>& number) {
  text += ' ';
  text += number ? std::to_string(*number) : "-";
}

// Takes words from the front of a line.
class Words {
 public:
  explicit Words(std::string_view line) : rest_(line) {}

  std::string_view next() {
    std::size_t end = rest_.find(' ');
    std::string_view word = rest_.substr(0, end);
    rest_ = end == std::string_view::npos ? std::string_view() : rest_.substr(end + 1);
    return word;
  }
  std::string_view rest() const { return rest_; }
  bool is_good() const { return is_good_; }

  // A number from 0 on.
  template <std::integral Number>
  Number number() {
    return parsed<Number>(next());
  }
  // The same, or "-".
  template <std::integral Number>
  std::optional<Number> optional_number() {
    std::string_view word = next();
    if (word == "-") return std::nullopt;
    return parsed<Number>(word);
  }
  void fail() { is_good_ = false; }

 private:
  template <std::integral Number>
  Number parsed(std::string_view word) {
    Number value{};
    auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    bool is_number = error == std::errc() && end == word.data() + word.size() && value >= 0;
    if (!is_number) is_good_ = false;
    return is_number ? value : Number{};
  }

  std::string_view rest_;
  bool is_good_ = true;
};

std::optional<WorkerVitals> decode_worker(std::string_view line) {
  Words words(line);
  WorkerVitals worker;
  worker.local_rank = words.number<int>();
  std::string_view state = words.next();
  if (state.size() != 1 || kStates.find(state[0]) == std::string_view::npos) return std::nullopt;
  worker.state = state[0];
  worker.pid = words.number<int>();
  worker.cpu_percent = words.number<int>();
  worker.rss_kib = words.number<std::uint64_t>();
  worker.output_bytes = words.optional_number<std::uint64_t>();
  worker.output_age_ms = words.optional_number<std::int64_t>();
  worker.heartbeat_age_ms = words.optional_number<std::int64_t>();
  worker.step = words.optional_number<std::int64_t>();
  if (auto used = words.optional_number<std::uint64_t>()) {
    worker.gpu.emplace();
    worker.gpu->used_mib = *used;
    worker.gpu->total_mib = words.number<std::uint64_t>();
    worker.gpu->busy_percent = words.optional_number<int>();
  }
  if (!words.is_good()) return std::nullopt;
  worker.last_line = printable(beginning_of(words.rest(), kMaxLastLine));
  return worker;
}

}  // namespace

std::string encode(const Vitals& vitals) {
  std::string text(kTitle);
  text += ' ' + std::to_string(vitals.number) + ' ' + std::to_string(vitals.round);
  std::string folder = printable(vitals.log_folder);
  if (!folder.empty() && folder.size() <= kMaxLogFolder) text += ' ' + folder;
  text += '\n';
  for (const WorkerVitals& worker : vitals.workers) {
    text += std::to_string(worker.local_rank) + ' ' + worker.state + ' ' +
            std::to_string(worker.pid) + ' ' + std::to_string(worker.cpu_percent) + ' ' +
            std::to_string(worker.rss_kib);
    put(text, worker.output_bytes);
    put(text, worker.output_age_ms);
    put(text, worker.heartbeat_age_ms);
    put(text, worker.step);
    if (worker.gpu) {
      text +=
          ' ' + std::to_string(worker.gpu->used_mib) + ' ' + std::to_string(worker.gpu->total_mib);
      put(text, worker.gpu->busy_percent);
    } else {
      text += " -";
    }
    if (!worker.last_line.empty())
      text += ' ' + printable(beginning_of(worker.last_line, kMaxLastLine));
    text += '\n';
  }
  return text;
}

std::optional<Vitals> decode_vitals(std::string_view text, std::size_t most) {
  if (text.size() > kMaxVitalsBytes) return std::nullopt;
  std::optional<Vitals> vitals;
  while (!text.empty() && (!vitals || vitals->workers.size() < most)) {
    std::size_t end = text.find('\n');
    if (end == std::string_view::npos) return std::nullopt;
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    if (!vitals) {
      Words words(line);
      if (words.next() != kTitle) return std::nullopt;
      vitals.emplace();
      vitals->number = words.number<std::uint64_t>();
      vitals->round = words.number<std::uint64_t>();
      if (!words.is_good()) return std::nullopt;
      if (words.rest().size() <= kMaxLogFolder) vitals->log_folder = printable(words.rest());
    } else if (auto worker = decode_worker(line)) {
      vitals->workers.push_back(std::move(*worker));
    } else {
      return std::nullopt;
    }
  }
  return vitals;
}

}  // namespace ddprun::rendezvous
