// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/run_pages.h"

#include <algorithm>
#include <string_view>

#include "rendezvous/decide/run_trace.h"
#include "rendezvous/page_source.h"
#include "store/base/percent.h"
#include "store/clock.h"

namespace ddprun::rendezvous {
namespace {

using Sources = std::function<std::vector<RunsSource>()>;

constexpr std::string_view kTimeline = "/timeline/";

bool is_timeline(const std::string& target) {
  return target == "/timeline" || target.starts_with(kTimeline);
}

// The run that is meant; empty: the only one; nullopt: that is no name.
std::optional<std::string> run_of(std::string_view timeline) {
  timeline.remove_prefix(std::min(timeline.size(), kTimeline.size()));
  return percent_decoded(timeline);
}

// The hosts' states are looked up for each piece: a host may have gone.
class StatusText final : public store::PageText {
 public:
  StatusText(Sources sources, bool is_trusted) : sources_(std::move(sources)), runs_(is_trusted) {}
  bool add(std::string& out) override { return runs_.add(sources_(), read_clocks(), out); }

 private:
  Sources sources_;
  RunsText runs_;
};

class TimelineText final : public store::PageText {
 public:
  TimelineText(Sources sources, TraceOfRun trace)
      : sources_(std::move(sources)), trace_(std::move(trace)) {}
  bool add(std::string& out) override { return trace_.add(sources_(), out); }

 private:
  Sources sources_;
  TraceOfRun trace_;
};

}  // namespace

// What happens to a run is an event of its trace.
std::uint64_t RunPages::version() const {
  std::uint64_t version = 0;
  for (const RunsSource& source : sources_()) version += source.tracer->end();
  return version;
}

std::unique_ptr<store::PageText> RunPages::status(store::Reader reader) const {
  return std::make_unique<StatusText>(sources_, reader == store::Reader::Trusted);
}

std::unique_ptr<store::PageText> RunPages::long_page(const std::string& target) const {
  std::optional<std::string> run = is_timeline(target) ? run_of(target) : std::nullopt;
  auto trace = run ? TraceOfRun::of(sources_(), *run) : std::nullopt;
  return trace ? std::make_unique<TimelineText>(sources_, std::move(*trace)) : nullptr;
}

std::string RunPages::metrics() const {
  return runs_metrics(sources_(), read_clocks());
}

// Of timelines those that are not known.
std::optional<store::Page> RunPages::page(const std::string& target) const {
  if (is_timeline(target)) {
    bool is_any = run_of(target) == "";
    return store::Page{
        .status = 404,
        .body = is_any ? "none or several runs meet here: /timeline/RUN is one of them\n"
                       : "no such run meets here\n"};
  }
  if (target != "/") return std::nullopt;
  return store::Page{.content_type = "text/html; charset=utf-8", .body = std::string(kPageSource)};
}

bool RunPages::is_private(const std::string& target) const {
  return stacks_target_of(target).has_value() || bundle_target_of(target).has_value();
}

store::Page RunPages::bundle_page(const BundleTarget& target, bool is_put) const {
  auto text = bundle_(target, is_put);
  bool is_piece = target.kind == BundleTarget::Kind::Piece;
  if (!text) {
    return {.status = 404,
            .body = is_piece ? "the files are not asked for any more, or the node has gone\n"
                             : "no such run meets here\n"};
  }
  return {.content_type = is_piece ? "application/octet-stream" : "application/json",
          .body = std::move(*text)};
}

store::Page RunPages::answer(const std::string& target, bool is_put) const {
  if (auto bundle = bundle_target_of(target)) return bundle_page(*bundle, is_put);
  auto wanted = stacks_target_of(target);
  auto text = wanted ? stacks_(*wanted, is_put) : std::nullopt;
  if (!text) return {.status = 404, .body = "no such run meets here\n"};
  return {.content_type = "application/json", .body = std::move(*text)};
}

}  // namespace ddprun::rendezvous
