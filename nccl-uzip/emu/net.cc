// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0

#include "net.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

static constexpr char kGuardByte = char(0xc3);
// What slots hold before anything is received, and behind a message that was cut short.
static constexpr char kEmptyByte = char(0xee);

static constexpr size_t kGuardBytes = 256;

struct EmuFifo::Layout {
  alignas(64) uint64_t head;
  alignas(64) uint64_t tail;
  alignas(64) ncclConnFifo fifo[NCCL_STEPS];
  alignas(128) char guarded[];  // guard, slots, guard
};

static char* alignedUp(void* p) { return (char*)((uintptr_t(p) + 127) & ~uintptr_t(127)); }

size_t EmuFifo::bytesFor(int stride) { return 128 + sizeof(Layout) + 2 * kGuardBytes + size_t(stride) * NCCL_STEPS; }

void EmuFifo::clear(void* memory, int stride, uint64_t firstStep) {
  Layout* const l = (Layout*)alignedUp(memory);
  size_t const slotBytes = size_t(stride) * NCCL_STEPS;
  memset(l->guarded, kGuardByte, slotBytes + 2 * kGuardBytes);
  memset(l->guarded + kGuardBytes, kEmptyByte, slotBytes);
  for (ncclConnFifo& f : l->fifo) f = ncclConnFifo{NCCL_MODE_NORMAL, 0, -1, nullptr};
  l->head = l->tail = firstStep;
}

EmuFifo::EmuFifo(int stride, uint64_t firstStep, int connFlags, void* memory, bool direct) {
  if (memory == nullptr) {
    own.resize(bytesFor(stride));
    memory = own.data();
    clear(memory, stride, firstStep);
  }
  layout = (Layout*)alignedUp(memory);
  slotBytes = size_t(stride) * NCCL_STEPS;
  conn = ncclConnInfo();
  conn.buffs[NCCL_PROTO_SIMPLE] = layout->guarded + kGuardBytes;
  conn.head = &layout->head;
  conn.tail = &layout->tail;
  conn.flags = connFlags;
  conn.stepSize = stride;
  conn.connFifo = direct ? nullptr : layout->fifo;
  conn.step = firstStep;
}

void EmuFifo::checkGuards() const {
  for (size_t i = 0; i < kGuardBytes; i++) {
    if (layout->guarded[i] != kGuardByte || layout->guarded[kGuardBytes + slotBytes + i] != kGuardByte) {
      throw EmuNetError("a slot was written out of its bounds");
    }
  }
}

static int fifoSlot(uint64_t step) { return int(step % NCCL_STEPS); }
static char* slotAt(EmuFifo* f, uint64_t step) {
  return f->conn.buffs[NCCL_PROTO_SIMPLE] + fifoSlot(step) * int64_t(f->conn.stepSize);
}

// --- Send ----------------------------------------------------------------------------------------------------------------

void EmuSendProxy::start(int64_t steps, int chunkSteps, int sliceSteps) {
  base = roundUp(base + uint64_t(this->steps), uint64_t(chunkSteps));
  this->steps = steps;
  this->sliceSteps = sliceSteps;
  doneSteps = 0;
}

void EmuSendProxy::beginMessage() {
  uint64_t const step = base + uint64_t(doneSteps);
  ncclConnFifo volatile* f = &fifo->conn.connFifo[fifoSlot(step)];
  if (doneSteps == steps || f->size == -1 || __atomic_load_n(fifo->conn.tail, __ATOMIC_ACQUIRE) <= step) return;
  size = f->size;
  if (size < 0 || size > int64_t(sliceSteps) * fifo->conn.stepSize) {
    throw EmuNetError(name + ": the device posted " + std::to_string(size) + " bytes at step " + std::to_string(step));
  }
  data = slotAt(fifo, step);
  for (EmuFault const& fault : faults) {
    if (fault.message != messages) continue;
    damaged.assign(data, data + size);
    if (fault.byte >= 0 && fault.byte < size) damaged[size_t(fault.byte)] ^= char(fault.flip);
    if (fault.truncate >= 0 && fault.truncate < size) size = fault.truncate;
    data = damaged.data();
  }
  lengthField = uint64_t(size);
  sent = 0;
}

bool EmuSendProxy::progress() {
  bool moved = false;
  for (;;) {
    if (size < 0) beginMessage();
    if (size < 0) return moved;
    iovec parts[2] = {{&lengthField, sizeof(lengthField)}, {(void*)data, size_t(size)}};
    int64_t skip = sent;
    for (iovec& part : parts) {
      int64_t const n = min(skip, int64_t(part.iov_len));
      part.iov_base = (char*)part.iov_base + n;
      part.iov_len -= size_t(n);
      skip -= n;
    }
    msghdr message = {};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    ssize_t const n = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return moved;
    if (n < 0) throw EmuNetError(name + ": send: " + strerror(errno));
    moved = true;
    sent += n;
    if (sent < size + int64_t(sizeof(lengthField))) continue;
    bytes += uint64_t(size);
    messages += 1;
    size = -1;
    // The size is cleared before the head moves, or the device's next size might be overwritten.
    fifo->conn.connFifo[fifoSlot(base + uint64_t(doneSteps))].size = -1;
    doneSteps += sliceSteps;
    __atomic_store_n(fifo->conn.head, base + uint64_t(doneSteps), __ATOMIC_RELEASE);
  }
}

std::string EmuSendProxy::state() const {
  return name + ": sent " + std::to_string(doneSteps) + " of " + std::to_string(steps) + " steps from " +
         std::to_string(base) + ", head " + std::to_string(*fifo->conn.head) + ", tail " +
         std::to_string(*fifo->conn.tail) + (size >= 0 ? ", a message in flight" : "");
}

// --- Receive -------------------------------------------------------------------------------------------------------------

void EmuRecvProxy::start(int64_t steps, int chunkSteps, int sliceSteps) {
  base = roundUp(base + uint64_t(this->steps), uint64_t(chunkSteps));
  this->steps = steps;
  this->sliceSteps = sliceSteps;
  received = 0;
}

// A slot may be filled again once the device has moved the head past it.
bool EmuRecvProxy::wantsRead() const {
  return received < steps && __atomic_load_n(fifo->conn.head, __ATOMIC_ACQUIRE) + NCCL_STEPS >=
                                 base + uint64_t(received) + uint64_t(sliceSteps);
}

bool EmuRecvProxy::progress() {
  bool moved = false;
  while (wantsRead()) {
    uint64_t const step = base + uint64_t(received);
    int64_t const capacity = int64_t(sliceSteps) * fifo->conn.stepSize;
    bool const inLength = got < int64_t(sizeof(lengthField));
    if (!inLength && lengthField > uint64_t(capacity)) {
      throw EmuNetError(name + ": message truncated: " + std::to_string(lengthField) +
                        " bytes for a posted receive of " + std::to_string(capacity));
    }
    int64_t const end = inLength ? int64_t(sizeof(lengthField)) : int64_t(sizeof(lengthField) + lengthField);
    if (got < end) {
      char* const to = inLength ? (char*)&lengthField + got : slotAt(fifo, step) + got - int64_t(sizeof(lengthField));
      ssize_t const n = recv(fd, to, size_t(end - got), MSG_DONTWAIT);
      if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return moved;
      if (n < 0) throw EmuNetError(name + ": recv: " + strerror(errno));
      if (n == 0) throw EmuNetError(name + ": the peer has gone");
      moved = true;
      got += n;
    }
    if (got < int64_t(sizeof(lengthField)) || got < int64_t(sizeof(lengthField) + lengthField)) continue;
    memset(slotAt(fifo, step) + lengthField, kEmptyByte, size_t(capacity) - lengthField);
    got = 0;
    moved = true;
    received += sliceSteps;
    fifo->conn.connFifo[fifoSlot(step)].size = -1;
    __atomic_store_n(fifo->conn.tail, base + uint64_t(received), __ATOMIC_RELEASE);
  }
  return moved;
}

bool EmuRecvProxy::done() const {
  return received == steps &&
         (steps == 0 || __atomic_load_n(fifo->conn.head, __ATOMIC_ACQUIRE) >= base + uint64_t(steps));
}

std::string EmuRecvProxy::state() const {
  return name + ": received " + std::to_string(received) + " of " + std::to_string(steps) + " steps from " +
         std::to_string(base) + ", head " + std::to_string(*fifo->conn.head) + ", tail " +
         std::to_string(*fifo->conn.tail);
}
