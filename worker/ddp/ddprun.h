// SPDX-License-Identifier: BSD-3-Clause
//
// All that a training program uses, in one header; installed as <ddprun/ddprun.h>.
#pragma once

#include "worker/data/batch_plan.h"
#include "worker/data/sampler.h"
#include "worker/ddp/async_work.h"
#include "worker/ddp/checkpointer.h"
#include "worker/ddp/comm_hooks.h"
#include "worker/ddp/data_parallel.h"
#include "worker/ddp/error.h"
#include "worker/ddp/loader_sampler.h"
#include "worker/ddp/post_local_sgd.h"
#include "worker/ddp/power_sgd.h"
#include "worker/ddp/process_group.h"
#include "worker/ddp/stop_requests.h"
#include "worker/ddp/sync_batch_norm.h"
#include "worker/ddp/tensor_file.h"
#include "worker/ddp/training_state.h"
#include "worker/ddp/zero_optimizer.h"
#include "worker/env.h"
#include "worker/stop_reason.h"
