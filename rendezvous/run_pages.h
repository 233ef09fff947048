// SPDX-License-Identifier: BSD-3-Clause
//
// The pages of a host about its runs.  rendezvous/decide/run_view writes them; this is the side of
// the server that serves them.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rendezvous/decide/run_view.h"
#include "store/page_source.h"

namespace ddprun::rendezvous {

// Threads: as its server.  Lifetime: what `sources` refers to must outlive it.
class RunPages final : public store::PageSource {
 public:
  explicit RunPages(std::function<std::vector<RunsSource>()> sources)
      : sources_(std::move(sources)) {}

  std::string status(store::Reader reader) const override;
  std::string metrics() const override;
  std::optional<store::Page> page(const std::string& target) const override;

 private:
  store::Page timeline_page(std::string_view target) const;

  std::function<std::vector<RunsSource>()> sources_;
};

}  // namespace ddprun::rendezvous
