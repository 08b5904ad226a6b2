// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0
//
// The main program of every perf binary.

#ifndef PERF_RUNNER_H_
#define PERF_RUNNER_H_

#include "options.h"

namespace perf {

// Runs the collective as argv and the environment say. Returns the exit status.
int perfMain(Collective collective, int argc, char** argv);

}  // namespace perf

#endif  // PERF_RUNNER_H_
