// SPDX-License-Identifier: BSD-3-Clause
#include "agent/decide/whereabouts.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

#include "store/base/text.h"

namespace ddprun::agent {
namespace {

using rendezvous::Finding;
using rendezvous::Whereabouts;

constexpr std::size_t kMostBytes = 120;  // of what a worker does

constexpr std::array<std::string_view, 5> kPairs = {"send", "recv", "isend", "irecv",
                                                    "batch_isend_irecv"};

bool is_pairwise(std::string_view name) {
  return std::ranges::find(kPairs, name) != kPairs.end();
}

// NCCL's watchdog says ALLREDUCE, which is no function's name.
bool is_function(std::string_view name) {
  return std::ranges::none_of(name, [](unsigned char c) { return std::isupper(c) != 0; });
}

bool is_another(std::string_view one, std::string_view other) {
  if (one.empty() || other.empty() || one == other) return false;
  return is_function(one) && is_function(other) && !is_pairwise(one) && !is_pairwise(other);
}

}  // namespace

Finding finding_of(const WorkerView& worker, const rendezvous::TimedOutWait& wait) {
  Finding finding{.rank = worker.rank, .pid = worker.pid};
  const process::Activity& activity = worker.activity;
  finding.doing = cut(activity.text, kMostBytes);
  if (worker.timed_out && is_another(worker.timed_out->in, wait.in)) {
    finding.place = Whereabouts::Elsewhere;
    finding.doing = "waited in " + cut(worker.timed_out->in, kMostBytes);
  } else if (worker.timed_out) {
    finding.place = Whereabouts::Waits;
  } else if (is_another(activity.collective, wait.in)) {
    finding.place = Whereabouts::Elsewhere;
    finding.doing = cut("waits in " + activity.collective + ", " + activity.text, kMostBytes);
  } else if (activity.is_waiting) {
    finding.place = *activity.is_waiting ? Whereabouts::Waits : Whereabouts::Elsewhere;
  } else if (worker.is_busy && wait.is_idle) {
    finding.place = Whereabouts::Elsewhere;
    finding.doing = "is at work" + (activity.place.empty() ? "" : " in " + activity.place);
    finding.doing = cut(finding.doing, kMostBytes);
  }
  return finding;
}

void limit(rendezvous::Findings& findings) {
  if (findings.workers.size() <= rendezvous::Findings::kMaxWorkers) return;
  std::ranges::stable_partition(findings.workers, [](const Finding& finding) {
    return finding.place == Whereabouts::Elsewhere;
  });
  findings.workers.resize(rendezvous::Findings::kMaxWorkers);
}

}  // namespace ddprun::agent
