// SPDX-License-Identifier: BSD-3-Clause
//
// Where it is written down who hosts a run, if no endpoint names a fixed host: a shared folder, or
// a service.  decide/host_search.h decides what an agent does with what it reads here, and
// RunEndpoint does it.
//
// A registry holds entries of one run, numbered by generation.  It does not decide who may form a
// round: the coordinators' rules do (quorum.h), whatever a registry says.  It is only needed where
// the host is looked for or changes.  While it does not answer, what runs goes on.
#pragma once

#include <functional>
#include <string>

#include "rendezvous/decide/host_entry.h"
#include "store/async.h"
#include "store/base/time.h"

namespace ddprun::rendezvous {

inline constexpr Duration kRegistryPatience = std::chrono::seconds(2);

// Threads: used from the executor's only thread, which no call blocks.  Calls may overlap.
// Lifetime: each call completes within kRegistryPatience, or soon after close(); all must have
// completed, stop() too, before the destructor runs.
//
// Errors are for people, in one sentence that names the place: Errc::TimedOut where it does not
// answer, Errc::Closed after close(), Errc::InvalidInput where trying again would fail the same way
// (no such folder, wrong password), others of the system.  Of a claim() or note() that has failed
// it is not known whether it has taken effect; newest() shows it.
class HostRegistry {
 public:
  virtual ~HostRegistry() = default;

  // Who is told, in a sentence, what people need to know of it beside the errors of calls.
  virtual void log_to(std::function<void(const std::string&)>) {}

  // What people call it: "file:/shared/run1".
  virtual std::string name() const = 0;

  // The entry with the largest generation; generation 0 where there has never been one.  It is at
  // least as new as any entry that was there when an earlier call of this process completed.
  // Its `file` is that of the newest round that is written down, in whatever entry.
  virtual store::Async<HostEntry> newest() = 0;

  // Adds this entry, if its generation is that of the newest one and one more.  Of several that
  // claim one generation, in whatever processes, exactly one is answered true.  False: another
  // entry has that generation, or a later one.  The registry does not keep the claimer from
  // claiming again.
  virtual store::Async<bool> claim(HostEntry entry) = 0;

  // Replaces the entry of this generation, which this process has claimed: another run file, or
  // is_over.  False: there is a newer entry.  True: there was none, at a time after the new content
  // could be read by all.  So of a note() and another process's claim() of the next generation,
  // either the note() is answered false, or newest() after that claim() shows what was noted; or
  // both.
  virtual store::Async<bool> note(HostEntry entry) = 0;

  // Ends what is under way.
  virtual void close() = 0;
  // After close(): completes when nothing is under way that the registry does by itself.
  virtual boost::asio::awaitable<void> stop() { co_return; }
};

}  // namespace ddprun::rendezvous
