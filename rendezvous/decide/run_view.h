// SPDX-License-Identifier: BSD-3-Clause
//
// The runs of one host as the pages show them: as JSON, and as metrics.  Pure: it reads the
// coordinators' states, what has happened, and what nodes say of their workers.
//
// Who reads a page may be a stranger.  He sees hosts, ranks, states and numbers; what workers have
// said (messages, tracebacks, last lines) and paths are only for a trusted reader (SECURITY.md).
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "rendezvous/decide/chronicle.h"
#include "rendezvous/decide/runs.h"
#include "rendezvous/decide/tracer.h"
#include "store/base/time.h"

namespace ddprun::rendezvous {

// The runs of those who know one secret.
struct RunsSource {
  const runs::State* state = nullptr;
  const Chronicle* chronicle = nullptr;
  const Tracer* tracer = nullptr;
  // The text of a node's vitals, which may be a stranger's; empty where there is none.
  std::function<std::string(const std::string& node)> vitals{};
};

// "\"runs\": [...], \"ended\": [...]": the fields of /status (store/PROTOCOL.md).
std::string runs_json(std::span<const RunsSource> sources, bool is_trusted, Now now);

// What has happened to a run, in the Trace Event format; nullopt: no such run is known.  Empty
// `run`: the only one that is; nullopt where there are several.  It has at most 16 MB, the last.
std::optional<std::string> run_trace(std::span<const RunsSource> sources, const std::string& run);

// The lines of /metrics.
std::string runs_metrics(std::span<const RunsSource> sources, Now now);

}  // namespace ddprun::rendezvous
