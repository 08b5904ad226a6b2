// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0

#include "runner.h"

int main(int argc, char** argv) { return perf::perfMain(perf::Collective::kAllReduce, argc, argv); }
