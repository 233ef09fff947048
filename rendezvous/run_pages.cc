// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/run_pages.h"

#include "rendezvous/page_source.h"
#include "store/clock.h"

namespace ddprun::rendezvous {

std::string RunPages::status(store::Reader reader) const {
  return runs_json(sources_(), reader == store::Reader::Trusted, read_clocks());
}

std::string RunPages::metrics() const {
  return runs_metrics(sources_(), read_clocks());
}

std::optional<store::Page> RunPages::page(const std::string& target) const {
  if (target != "/") return std::nullopt;
  return store::Page{.content_type = "text/html; charset=utf-8", .body = std::string(kPageSource)};
}

}  // namespace ddprun::rendezvous
