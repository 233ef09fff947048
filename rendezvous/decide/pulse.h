// SPDX-License-Identifier: BSD-3-Clause
//
// What a coordinator publishes ten times a second where the hosts of its runs may change: the time
// by its own clock, and the runs of which too few nodes are heard.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "store/base/time.h"

namespace ddprun::rendezvous {

// The end of a pulse that renews no lease: too few nodes are heard.
inline constexpr std::string_view kAloneMark = " alone";

// The value of the key.  Where there is no room for the names of all runs in `alone`, it says that
// of all runs there.
std::string encode_pulse(MonoTime published, std::span<const std::string> alone);

// What is in it for a node of `run`: the time in nanoseconds, with kAloneMark if it is in `alone`.
// A counter, from a coordinator whose runs have one host, stays as it is.
std::string pulse_for(std::string_view run, std::string_view text);

}  // namespace ddprun::rendezvous
