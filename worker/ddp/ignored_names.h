// SPDX-License-Identifier: BSD-3-Clause
//
// What of a module DistributedDataParallel does not keep equal on the ranks
// (DataParallelOptions::ignored), for who is given the module and not the wrapper: a Checkpointer.
//
// Threads: any.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <set>
#include <string>

namespace ddprun::ddp {

// Notes it of a module that is being wrapped, in the place of what was noted of it before.
void note_ignored_names(const std::shared_ptr<torch::nn::Module>& module,
                        const std::set<std::string>& names);

// The names, in `module`, of what was noted of it and of the modules in it.  A tensor that has
// another name as well, which is not ignored, is not ignored either.
std::set<std::string> ignored_names(const torch::nn::Module& module);

}  // namespace ddprun::ddp
