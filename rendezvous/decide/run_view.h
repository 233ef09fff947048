// SPDX-License-Identifier: BSD-3-Clause
//
// The runs of one host as the pages show them: as JSON, and as metrics.  Pure: it reads the
// coordinators' states, what has happened, and what nodes say of their workers.
//
// Who reads a page may be a stranger.  He sees hosts, ranks, states and numbers; what workers have
// said (messages, tracebacks, last lines) and paths are only for a trusted reader (SECURITY.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

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
  // Likewise of what it says of the workers' store (worker_waits.h).
  std::function<std::string(const std::string& node)> waits{};
  // Likewise of the stacks that it has taken last (stacks.h).
  std::function<std::string(const std::string& node)> stacks{};
};

// A piece of a long text has about so many bytes.  It takes a few milliseconds, and those who have
// it made serve others before the next one.
inline constexpr std::size_t kPieceBytes = std::size_t{64} << 10;

// The fields of /status (store/PROTOCOL.md) that are about runs, from "time" to "elsewhere", in
// pieces.  What happens between two of them is seen by the later one; a run or node that has gone
// is left out.
class RunsText {
 public:
  explicit RunsText(bool is_trusted) : is_trusted_(is_trusted) {}

  // Appends the next piece.  Whether there are more.
  bool add(std::span<const RunsSource> sources, Now now, std::string& out);

 private:
  struct Place {
    std::size_t source = 0;
    std::string run;
  };
  enum class Part : std::uint8_t { Beginning, Runs, Nodes, Ended, Done };

  void begin(std::span<const RunsSource> sources, Now now, std::string& out);
  void add_run(std::span<const RunsSource> sources, Now now, std::string& out);
  void add_node(std::span<const RunsSource> sources, Now now, std::string& out);
  void add_ended(std::span<const RunsSource> sources, Now now, std::string& out);

  bool is_trusted_;
  Part part_ = Part::Beginning;
  std::vector<Place> places_;  // of the runs
  std::size_t more_runs_ = 0;
  std::size_t run_ = 0;             // the next one, of `places_`
  std::size_t node_room_ = 0;       // so many nodes are still to be shown
  std::vector<std::string> nodes_;  // of the run before, which are to be shown
  std::size_t node_ = 0;            // the next one
  bool has_node_ = false;           // one was added
  struct Over {
    std::size_t source = 0;
    std::variant<runs::Verdict, runs::Past> end;
  };
  std::vector<Over> ended_;
  std::size_t over_ = 0;  // the next one
  bool needs_comma_ = false;
};

// The lines of /metrics.
std::string runs_metrics(std::span<const RunsSource> sources, Now now);

}  // namespace ddprun::rendezvous
