// SPDX-License-Identifier: BSD-3-Clause
//
// Where a host of this user keeps its run files on this machine, and its agents their node files.
#pragma once

#include <string>

#include "cli/machine.h"
#include "rendezvous/run_files.h"
#include "worker/process/io_thread.h"

namespace ddprun::cli {

// `given`: the user's folder; empty: $XDG_RUNTIME_DIR/ddprun, or /run/ddprun for root, or
// /tmp/ddprun-UID.  `disk` must outlive every use of it.
rendezvous::RunFilePlace run_file_place(const std::string& given, const Environment& environment,
                                        process::IoThread& disk);

// The folder of the node files (rendezvous/node_files.h) of this user.
std::string node_file_folder();

}  // namespace ddprun::cli
