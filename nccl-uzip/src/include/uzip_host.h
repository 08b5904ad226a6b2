// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0
//
// What NCCL's host code calls: one declaration per hook line. Included at the end of NCCL's comm.h.
// docs/HOOKS.md lists the places and the reasons.

#ifndef UZIP_HOST_H_
#define UZIP_HOST_H_

#include <cuda_runtime.h>
#include <stddef.h>
#include <stdint.h>

#include "nccl.h"

struct ncclComm;
struct ncclConnInfo;
struct ncclKernelComm;
struct ncclProxyState;
struct ncclTaskColl;
struct ncclUzipComm;  // ncclComm::uzip, the host's side of a communicator; see host/uzip_host.cc

// --- Life of a communicator, in this order -----------------------------------------------------------------

// Reads the knobs and puts the policy word into this rank's ncclPeerInfo. ncclInvalidArgument when a knob is wrong.
// parent: the communicator that this one is split off, shrunk or grown from; null for none.
ncclResult_t ncclUzipInit(struct ncclComm* comm, struct ncclComm* parent);

// After the first all-gather: enables UZIP when all ranks sent the same word. Collective when the words differ.
ncclResult_t ncclUzipAgree(struct ncclComm* comm);

// Bytes that each network buffer of protocol Simple grows by; 0 keeps stock's layout. Called once the topology is
// known.
int ncclUzipPadBytes(struct ncclComm* comm);

// Allocates counters and error record, and points devComm->uzip to them when UZIP is enabled.
ncclResult_t ncclUzipDevCommInit(struct ncclComm* comm, struct ncclKernelComm* devComm, cudaStream_t stream);

// Logs the final counts and frees the host's side; nothing for null, or for a communicator that did not get so far.
// Memory that the GPU sees goes with NCCL's own destructors.
void ncclUzipFree(struct ncclComm* comm);

// --- Network connections -----------------------------------------------------------------------------------

// Proxy side: grows a connection's buffer that was just laid out as the last one of its memory.
void ncclUzipNetGrow(struct ncclProxyState* proxyState, int* memBytes, int* buffBytes);

// Both sides: the padded stride and the link's flag.
void ncclUzipNetConnect(struct ncclComm* comm, struct ncclConnInfo* conn);

// --- Choice of UZIP ----------------------------------------------------------------------------------------

// NCCL_PROTO as NCCL's parser is to see it, once the ranks have agreed or failed to; null for no list.
char const* ncclUzipUpstreamProto(struct ncclComm* comm, char const* proto);

// Makes the entry of ring Simple the better of Simple and UZIP. `table` is [NCCL_NUM_ALGORITHMS][NCCL_NUM_PROTOCOLS].
void ncclUzipUpdateCost(struct ncclComm* comm, struct ncclTaskColl* task, size_t nBytes, int pipeOps, float** table);

// Once algorithm and protocol are chosen: sets task->uzip, and task->devFuncId when UZIP is to run.
void ncclUzipChoose(struct ncclComm* comm, struct ncclTaskColl* task, int pipeOps);

// The uzipType of a datatype.
uint8_t ncclUzipTypeOf(ncclDataType_t datatype);

// Protocol name for logs and profilers.
char const* ncclUzipProtoName(struct ncclTaskColl const* task);

// Row of our device functions, appended by device/generate_uzip.py; -1 when the build does not have it.
int ncclUzipDevFuncId(int func, int devRedOp, int datatype, int algorithm);

// --- Errors ------------------------------------------------------------------------------------------------

// ncclRemoteError once a kernel has refused a slot, until the communicator is being destroyed; says which in the log,
// once.
ncclResult_t ncclUzipAsyncError(struct ncclComm* comm);

#endif  // UZIP_HOST_H_
