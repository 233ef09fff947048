// SPDX-License-Identifier: BSD-3-Clause
//
// How the values of options are written: each function reads one form and says what is accepted
// when the text is not of it.  `origin` names the option or variable in that sentence.
#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/options/options.h"
#include "store/base/error.h"

namespace ddprun::cli {

// "--max-restarts='x' is not a whole number of 0 or more".
Error invalid_value(const OptionValue& value, const std::string& accepted);

Result<int> parse_whole(const OptionValue& value, int min, int max);

// Seconds with a fraction, more than 0.
Result<double> parse_seconds(const OptionValue& value);

// Bytes, at least 1: "65536", or with K, M, G or T for powers of 1024.
Result<std::size_t> parse_size(const OptionValue& value);

// "N" or "MIN:MAX", 0 < MIN <= MAX.
Result<std::pair<int, int>> parse_nnodes(const OptionValue& value);

// Which of its streams torchrun's number 0..3 means for a worker.
struct Streams {
  bool out = false;
  bool err = false;
};

// "0".."3" for all, or "L:V,L:V" by local rank with 0 for the others; one entry a worker.  Local
// ranks that this node does not have are put into `unknown`.
Result<std::vector<Streams>> parse_streams(const OptionValue& value, int local_world_size,
                                           std::set<int>& unknown);

// "0,1,3".
Result<std::set<int>> parse_local_ranks(const OptionValue& value);

// "SIGTERM,SIGINT" into signal numbers, without those that cannot be caught.
Result<std::vector<int>> parse_signals(const OptionValue& value);

// torchelastic's "k=v,k=v".
Result<std::vector<std::pair<std::string, std::string>>> parse_rdzv_conf(const OptionValue& value);

// Cuts at commas, but ",," is a comma.  Empty pieces are kept.
std::vector<std::string> split_texts(const std::string& text);

// Cuts at commas, and takes blanks off the pieces.  Empty ones are kept.
std::vector<std::string> split_commas(const std::string& text);

}  // namespace ddprun::cli
