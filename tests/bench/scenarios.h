// SPDX-License-Identifier: BSD-3-Clause
//
// The scenarios of the load test.  Each plays once and prints one line of figures.
#pragma once

#include "tests/bench/figures.h"

namespace ddprun::bench {

// Every connection repeats its requests for a while (steady.cc): get, set, add, check,
// set_wait_get, multi_get, multi_set.
void steady(const Options& options);

// All connections do something together, once (together.cc).
void storm(const Options& options);        // connect, validate, ping, add
void barrier(const Options& options);      // BARRIER
void add_barrier(const Options& options);  // ADD, and WAIT for the last; as torch's library does it
void wake(const Options& options);         // all wait for one key, which is set
void all_gather(const Options& options);   // set, wait for all, multi_get all; as Gloo does it
void cancel(const Options& options);       // all wait for one key, and cancel
void vanish(const Options& options);       // all wait for one key, and are closed

// Somebody else is looked after meanwhile (others.cc).
void big(const Options& options);    // big_check, big_compare_set, big_multi_set, big_multi_get
void leave(const Options& options);  // most disconnect at once, while others wait
void many_list_keys(const Options& options);    // each asks for thousands of long names
void many_compare_set(const Options& options);  // each compares a value of 8 MiB
void leave_waiting(const Options& options);     // all wait for 4000 names, and are closed
void wake_many(const Options& options);         // 64 times each for one key, which is set
void append_read(const Options& options);       // to a value of 512 MiB that somebody reads
void garbage(const Options& options);        // connections that send garbage, one after the other
void nobody(const Options& options);         // to compare with
void byte_a_second(const Options& options);  // connections that send so much of a request
void half_open(const Options& options);      // connections that have sent half a handshake
void never_reads(const Options& options);    // connections that ask for much and read nothing

// Memory (memory.cc).
void idle_memory(const Options& options);  // of connections that do nothing
void key_memory(const Options& options);   // of keys of 1 KiB, and what is given back

}  // namespace ddprun::bench
