// SPDX-License-Identifier: BSD-3-Clause
//
// The pages of a host about its runs.  rendezvous/decide/run_view writes them; this is the side of
// the server that serves them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rendezvous/decide/bundle_inquiry.h"
#include "rendezvous/decide/run_view.h"
#include "rendezvous/decide/stack_inquiry.h"
#include "store/page_source.h"

namespace ddprun::rendezvous {

// Threads: as its server.  Lifetime: what `sources` refers to must outlive it.
class RunPages final : public store::PageSource {
 public:
  // The stacks of a run (decide/stack_inquiry.h); `is_wanted`: they are to be taken, if that may
  // be.
  using Stacks =
      std::function<std::optional<std::string>(const StacksTarget& target, bool is_wanted)>;

  // Likewise the files of its nodes (decide/bundle_inquiry.h).
  using Bundle =
      std::function<std::optional<std::string>(const BundleTarget& target, bool is_wanted)>;

  RunPages(std::function<std::vector<RunsSource>()> sources, Stacks stacks, Bundle bundle)
      : sources_(std::move(sources)), stacks_(std::move(stacks)), bundle_(std::move(bundle)) {}

  std::uint64_t version() const override;
  std::unique_ptr<store::PageText> status(store::Reader reader) const override;
  std::unique_ptr<store::PageText> long_page(const std::string& target) const override;
  std::string metrics() const override;
  std::optional<store::Page> page(const std::string& target) const override;
  bool is_private(const std::string& target) const override;
  store::Page answer(const std::string& target, bool is_put) const override;

 private:
  store::Page bundle_page(const BundleTarget& target, bool is_put) const;

  std::function<std::vector<RunsSource>()> sources_;
  Stacks stacks_;
  Bundle bundle_;
};

}  // namespace ddprun::rendezvous
