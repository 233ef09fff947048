// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/run_trace.h"

#include <algorithm>
#include <set>
#include <utility>

#include "rendezvous/decide/tracer.h"

namespace ddprun::rendezvous {
namespace {

// Empty where there is none, or several.
std::string only_run_of(std::span<const RunsSource> sources) {
  std::set<std::string> names;
  for (const RunsSource& source : sources)
    for (const auto& [name, run] : source.state->runs) names.insert(name);
  return names.size() == 1 ? *names.begin() : "";
}

}  // namespace

std::optional<TraceOfRun> TraceOfRun::of(std::span<const RunsSource> sources,
                                         const std::string& run) {
  constexpr std::size_t kMostBytes = std::size_t{16} << 20;
  constexpr std::size_t kLine = 160;
  TraceOfRun trace;
  trace.run_ = run.empty() ? only_run_of(sources) : run;
  bool is_known = false;
  std::size_t size = 0;
  for (std::size_t i = sources.size(); i-- > 0 && size < kMostBytes;) {
    const Tracer* tracer = sources[i].tracer;
    if (tracer == nullptr) continue;
    Part part{.source = i, .first = tracer->end(), .end = tracer->end()};
    while (part.first > tracer->first() && size < kMostBytes) {
      const auto& [name, event] = tracer->at(--part.first);
      if (name != trace.run_) continue;
      // An event of many workers has many lines.
      size += kLine * static_cast<std::size_t>(event.threads);
      is_known = true;
    }
    trace.parts_.insert(trace.parts_.begin(), part);
  }
  if (!is_known) return std::nullopt;
  return trace;
}

bool TraceOfRun::add(std::span<const RunsSource> sources, std::string& out) {
  // Events of other runs have no bytes.
  constexpr std::size_t kMostEvents = 4096;
  std::size_t before = out.size();
  if (!std::exchange(has_begun_, true)) out += TraceText::head();
  std::size_t events = 0;
  for (; part_ < parts_.size(); ++part_) {
    Part& part = parts_[part_];
    bool is_there = part.source < sources.size() && sources[part.source].tracer != nullptr;
    if (!is_there) continue;
    const Tracer& tracer = *sources[part.source].tracer;
    part.first = std::max(part.first, tracer.first());  // the oldest ones may have gone
    for (; part.first < std::min(part.end, tracer.end()); ++part.first) {
      if (++events > kMostEvents || out.size() - before >= kPieceBytes) return true;
      const auto& [name, event] = tracer.at(part.first);
      if (name == run_) out += writer_.lines(event);
    }
  }
  out += TraceText::tail();
  return false;
}

}  // namespace ddprun::rendezvous
