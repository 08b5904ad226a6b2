// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0
//
// A network connection of the emulated ranks: the FIFO that device code uses, and the two proxies that carry its slots through a
// TCP socket with NCCL's steps and credits. Every message on the socket is its length in 8 bytes, then the slot's bytes.

#ifndef UZIP_EMU_NET_H_
#define UZIP_EMU_NET_H_

#include <stdint.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "nccl_shim.h"

// What the peers of a connection do wrong; ends the rank with a message.
struct EmuNetError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Damage done to one message on its way: xor one byte, or cut the message short.
struct EmuFault {
  int rank = -1, channel = 0;  // whose send
  int64_t message = 0;  // index of the message on the connection
  int64_t byte = -1;  // byte to change ...
  uint8_t flip = 0;  // ... by xor
  int64_t truncate = -1;  // bytes that remain
};

// Slots and counters of a connection. Guard bytes lie before and behind the slots. The two ends of a network link have one each;
// those of a direct link share one, in memory that both processes map.
class EmuFifo {
 public:
  // stride: bytes from one step's slot to the next, at least a step's payload. connFlags: ncclConnInfo::flags.
  // memory: at least bytesFor(stride) bytes that outlive this object, or null to have own ones. `direct`: the link has no proxies;
  // conn.connFifo is null. Only one end may `clear` what a direct link shares.
  EmuFifo(int stride, uint64_t firstStep, int connFlags, void* memory = nullptr, bool direct = false);
  EmuFifo(EmuFifo const&) = delete;
  static size_t bytesFor(int stride);
  static void clear(void* memory, int stride, uint64_t firstStep);
  // Throws EmuNetError if the guard bytes have changed.
  void checkGuards() const;

  ncclConnInfo conn;

 private:
  struct Layout;
  std::vector<char> own;
  Layout* layout;
  size_t slotBytes;
};

class EmuSendProxy {
 public:
  EmuSendProxy(EmuFifo* fifo, int fd, std::string name)
      : fifo(fifo), fd(fd), name(std::move(name)), base(fifo->conn.step) {}

  // Begins an operation of `steps` steps; the step counter goes on from the last one, rounded up to a chunk.
  void start(int64_t steps, int chunkSteps, int sliceSteps);
  // Sends what is ready and can be written without blocking. Returns whether anything moved.
  bool progress();
  bool done() const { return doneSteps == steps; }
  bool wantsWrite() const { return size >= 0; }
  int socket() const { return fd; }
  std::string state() const;

  std::vector<EmuFault> faults;
  uint64_t bytes = 0;  // payload of the messages sent, since the start of the program
  int64_t messages = 0;

 private:
  void beginMessage();

  EmuFifo* fifo;
  int fd;
  std::string name;
  uint64_t base;  // step at which the operation began
  int64_t steps = 0, doneSteps = 0;
  int sliceSteps = 1;
  char const* data = nullptr;
  std::vector<char> damaged;
  int64_t size = -1, sent = 0;  // of the message in flight, and with its length field
  uint64_t lengthField = 0;
};

class EmuRecvProxy {
 public:
  EmuRecvProxy(EmuFifo* fifo, int fd, std::string name)
      : fifo(fifo), fd(fd), name(std::move(name)), base(fifo->conn.step) {}

  void start(int64_t steps, int chunkSteps, int sliceSteps);
  bool progress();
  bool done() const;
  bool wantsRead() const;
  int socket() const { return fd; }
  std::string state() const;

 private:
  EmuFifo* fifo;
  int fd;
  std::string name;
  uint64_t base;  // step at which the operation began
  int64_t steps = 0, received = 0;
  int sliceSteps = 1;
  uint64_t lengthField = 0;
  int64_t got = 0;  // bytes of the message so far, length field included
};

#endif  // UZIP_EMU_NET_H_
