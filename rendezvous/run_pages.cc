// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/run_pages.h"

#include <algorithm>
#include <string_view>

#include "rendezvous/page_source.h"
#include "store/base/percent.h"
#include "store/clock.h"

namespace ddprun::rendezvous {
namespace {

constexpr std::string_view kTimeline = "/timeline/";

}  // namespace

std::string RunPages::status(store::Reader reader) const {
  return runs_json(sources_(), reader == store::Reader::Trusted, read_clocks());
}

std::string RunPages::metrics() const {
  return runs_metrics(sources_(), read_clocks());
}

std::optional<store::Page> RunPages::page(const std::string& target) const {
  if (target == "/timeline" || target.starts_with(kTimeline)) return timeline_page(target);
  if (target != "/") return std::nullopt;
  return store::Page{.content_type = "text/html; charset=utf-8", .body = std::string(kPageSource)};
}

bool RunPages::is_private(const std::string& target) const {
  return stacks_target_of(target).has_value();
}

store::Page RunPages::answer(const std::string& target, bool is_put) const {
  auto wanted = stacks_target_of(target);
  auto text = wanted ? stacks_(*wanted, is_put) : std::nullopt;
  if (!text) return {.status = 404, .body = "no such run meets here\n"};
  return {.content_type = "application/json", .body = std::move(*text)};
}

store::Page RunPages::timeline_page(std::string_view target) const {
  target.remove_prefix(std::min(target.size(), kTimeline.size()));
  std::optional<std::string> run = percent_decoded(target);
  std::optional<std::string> trace = run ? run_trace(sources_(), *run) : std::nullopt;
  if (trace) return {.content_type = "application/json", .body = std::move(*trace)};
  if (run && run->empty())
    return {.status = 404,
            .body = "none or several runs meet here: /timeline/RUN is one of them\n"};
  return {.status = 404, .body = "no such run meets here\n"};
}

}  // namespace ddprun::rendezvous
