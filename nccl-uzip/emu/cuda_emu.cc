// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0

#include "cuda_emu.h"

#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <string>
#include <tuple>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <pthread.h>
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define UZIP_EMU_ASAN 1
#else
#define UZIP_EMU_ASAN 0
#endif

// --- Context switch ------------------------------------------------------------------------------------------------------
//
// uzipEmuSwap(&from, to) saves the callee-saved registers on the running stack, stores its stack pointer in `from`, and continues
// at `to`. A fresh stack is laid out so that the first swap returns into uzipEmuStart.

extern "C" void uzipEmuSwap(void** from, void* to);
extern "C" void uzipEmuStart();

#if defined(__x86_64__)
asm(R"(
.text
.globl uzipEmuSwap
.type uzipEmuSwap,@function
uzipEmuSwap:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size uzipEmuSwap,.-uzipEmuSwap
)");

static void* freshStack(char* top) {
  void** sp = (void**)(uintptr_t(top) & ~uintptr_t(15));
  *--sp = nullptr;  // uzipEmuStart finds the stack as after a call
  *--sp = (void*)&uzipEmuStart;
  for (int i = 0; i < 6; i++) *--sp = nullptr;
  return sp;
}
#elif defined(__aarch64__)
asm(R"(
.text
.globl uzipEmuSwap
.type uzipEmuSwap,%function
uzipEmuSwap:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size uzipEmuSwap,.-uzipEmuSwap
)");

static void* freshStack(char* top) {
  uint64_t* sp = (uint64_t*)(uintptr_t(top) & ~uintptr_t(15)) - 20;
  for (int i = 0; i < 20; i++) sp[i] = 0;
  sp[11] = (uint64_t)&uzipEmuStart;  // x30
  return sp;
}
#else
#error "the warp emulator's context switch is written for x86-64 and aarch64"
#endif

// --- Stacks --------------------------------------------------------------------------------------------------------------

namespace {

// Stacks begin at different cache sets (Colour), or 32 fibers with equal frames would fight for the same few cache lines.
constexpr size_t kPage = 4096, kStackBytes = UZIP_EMU_ASAN ? 256 << 10 : 64 << 10, kColourBytes = 4096;
constexpr size_t kStackStride = kPage + kStackBytes + kColourBytes;

struct Stack {
  char* base = nullptr;  // lowest usable byte; a guard page is below
};

struct StackPool {
  std::vector<Stack> free;
  ~StackPool() {
    for (Stack& s : free) munmap(s.base - kPage, kStackStride);
  }
  Stack take() {
    if (!free.empty()) {
      Stack s = free.back();
      free.pop_back();
      return s;
    }
    void* p = mmap(nullptr, kStackStride, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED || mprotect(p, kPage, PROT_NONE) != 0) {
      perror("warp emulator: cannot map a thread's stack");
      abort();
    }
    return Stack{(char*)p + kPage};
  }
};
thread_local StackPool stackPool;

enum class Wait : uint8_t { Ready, Warp, Barrier, Poll, Returned };
char const* const kOpNames[] = {"__syncwarp",        "__shfl*_sync",      "__ballot/any/all_sync", "__reduce_add_sync",
                                "__reduce_max_sync", "__reduce_min_sync", "__reduce_and_sync",     "__reduce_or_sync",
                                "__reduce_xor_sync", "__match_any_sync"};

struct Fiber : EmuThread {
  void* sp;
  EmuBlock::Impl* block;
  Wait wait;
  uint8_t op;            // EmuOp, or the id of the barrier
  bool vote;             // in, then out
  uint32_t arg;          // mask of the collective, or threads of the barrier
  char const* file;
  int line;
  Stack stack;
  char* stackTop;
#if UZIP_EMU_ASAN
  void* fake;
  void const* asanBottom;
  size_t asanSize;
#endif
};

// A collective in progress, or one whose lanes have not all picked up its result.
struct Meeting {
  EmuExchange x;
  uint32_t arrived;
  uint32_t toLeave;  // lanes that have yet to read; only kept for partial masks
  EmuOp op;
  char const* file;
  int line;
};

struct Warp {
  uint32_t ready;    // lanes that can run
  uint32_t polling;
  uint32_t alive;
  uint32_t parity;   // which of the two meetings of full masks is open
  Meeting full[2];   // the lanes of one read it while the next fills
  std::vector<std::unique_ptr<Meeting>> partial;
};

struct Barrier {
  uint32_t expected;
  uint32_t arrived;
  bool any;
  uint32_t waiting[kEmuMaxWarps];
};

}  // namespace

struct EmuBlock::Impl {
  int nthreads, nwarps;
  std::function<void()> kernel;
  EmuOptions options;
  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  Barrier barriers[kEmuBarriers];
  uint32_t readyWarps;
  uint32_t live;
  uint64_t random;
  std::vector<char> shared;
  char* sharedBase;
  Fiber host;
};

thread_local EmuThread const* uzipEmuThread __attribute__((tls_model("initial-exec"))) = nullptr;

static inline Fiber* self() { return const_cast<Fiber*>(static_cast<Fiber const*>(uzipEmuThread)); }

static inline uint32_t nextRandom(EmuBlock::Impl* b) {
  b->random ^= b->random << 13;
  b->random ^= b->random >> 7;
  b->random ^= b->random << 17;
  return uint32_t(b->random >> 32);
}

static inline uint32_t pickBit(EmuBlock::Impl* b, uint32_t bits) {
  if (b->options.seed == 0) return uint32_t(__builtin_ctz(bits));
  for (uint32_t n = nextRandom(b) % uint32_t(__builtin_popcount(bits)); n > 0; n--) bits &= bits - 1;
  return uint32_t(__builtin_ctz(bits));
}

static inline void swapTo(Fiber* from, Fiber* to) {
  uzipEmuThread = to;
#if UZIP_EMU_ASAN
  __sanitizer_start_switch_fiber(from->wait == Wait::Returned ? nullptr : &from->fake, to->asanBottom, to->asanSize);
#endif
  uzipEmuSwap(&from->sp, to->sp);
#if UZIP_EMU_ASAN
  __sanitizer_finish_switch_fiber(from->fake, nullptr, nullptr);
#endif
}

// Leaves the running fiber, which is not ready, for another one. Prefers its own warp, which is in cache.
static inline void leave(Fiber* f) {
  EmuBlock::Impl* b = f->block;
  uint32_t w = f->warp;
  if (b->warps[w].ready == 0 || (b->options.seed != 0 && b->readyWarps != 0)) {
    if (b->readyWarps == 0) return swapTo(f, &b->host);
    uint32_t later = b->options.seed == 0 ? b->readyWarps & ~((2u << w) - 1) : 0;
    w = pickBit(b, later != 0 ? later : b->readyWarps);
  }
  Warp* warp = &b->warps[w];
  uint32_t lane = pickBit(b, warp->ready);
  warp->ready &= ~(1u << lane);
  if (warp->ready == 0) b->readyWarps &= ~(1u << w);
  Fiber* to = &b->fibers[w * 32 + lane];
  if (to != f) swapTo(f, to);
}

static inline void wake(EmuBlock::Impl* b, uint32_t w, uint32_t lanes) {
  if (lanes == 0) return;
  b->warps[w].ready |= lanes;
  b->readyWarps |= 1u << w;
}

extern "C" void uzipEmuStart() {
  Fiber* f = self();
#if UZIP_EMU_ASAN
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
  f->block->kernel();
  f->wait = Wait::Returned;
  f->file = "", f->line = 0;
  f->block->warps[f->warp].alive &= ~(1u << f->lane);
  f->block->live -= 1;
  leave(f);
  abort();  // never resumed
}

// --- Failures ------------------------------------------------------------------------------------------------------------

static std::string placeOf(Fiber const& f) {
  char text[512];
  char const* slash = strrchr(f.file, '/');
  char const* file = slash ? slash + 1 : f.file;
  switch (f.wait) {
    case Wait::Ready:
      return "running or ready";
    case Wait::Returned:
      return "returned";
    case Wait::Poll:
      snprintf(text, sizeof(text), "polls at %s:%d", file, f.line);
      return text;
    case Wait::Warp:
      snprintf(text, sizeof(text), "waits in %s, mask 0x%08x, at %s:%d", kOpNames[f.op], f.arg, file, f.line);
      return text;
    case Wait::Barrier:
      snprintf(text, sizeof(text), "waits at barrier %d of %u threads, at %s:%d", f.op, f.arg, file, f.line);
      return text;
  }
  return "";
}

static void dumpBlock(EmuBlock::Impl const* b) {
  std::map<std::string, std::vector<uint32_t>> places;
  for (Fiber const& f : b->fibers) places[placeOf(f)].push_back(f.tid);
  fprintf(stderr, "block %u, %d threads, rng seed %llu:\n", b->options.blockIdx.x, b->nthreads,
          (unsigned long long)b->options.seed);
  for (auto const& [place, tids] : places) {
    fprintf(stderr, "  %s: threads", place.c_str());
    for (size_t i = 0; i < tids.size();) {
      size_t j = i;
      while (j + 1 < tids.size() && tids[j + 1] == tids[j] + 1) j++;
      fprintf(stderr, j == i ? " %u" : " %u-%u", tids[i], tids[j]);
      i = j + 1;
    }
    fprintf(stderr, "\n");
  }
  fflush(stderr);
}

void uzipEmuFail(char const* message) {
  fprintf(stderr, "warp emulator: %s\n", message);
  if (uzipEmuThread != nullptr) {
    fprintf(stderr, "  in thread %u\n", uzipEmuThread->tid);
    dumpBlock(self()->block);
  }
  abort();
}

// --- Collectives ---------------------------------------------------------------------------------------------------------

// Adds a lane's value to what the lanes before it brought.
static inline void contribute(Meeting* m, uint32_t lane, uint32_t v) {
  uint32_t& r = m->x.result;
  switch (m->op) {
    case EmuOp::Ballot:
      r |= v << lane;
      break;
    case EmuOp::ReduceAdd:
      r += v;
      break;
    case EmuOp::ReduceOr:
      r |= v;
      break;
    case EmuOp::ReduceXor:
      r ^= v;
      break;
    case EmuOp::ReduceMax:
      r = v > r ? v : r;
      break;
    case EmuOp::ReduceMin:
      r = v < r ? v : r;
      break;
    case EmuOp::ReduceAnd:
      r &= v;
      break;
    case EmuOp::Shuffle:
    case EmuOp::Match:
      m->x.val[lane] = v;
      break;
    case EmuOp::SyncWarp:
      break;
  }
}

static void openMeeting(Meeting* m, EmuOp op, uint32_t mask, char const* file, int line) {
  m->x.mask = mask;
  m->x.result = op == EmuOp::ReduceMin || op == EmuOp::ReduceAnd ? ~0u : 0u;
  m->op = op;
  m->file = file;
  m->line = line;
  m->arrived = 0;
}

EmuExchange const* uzipEmuExchange(EmuOp op, uint32_t mask, uint32_t value, char const* file, int line) {
  Fiber* f = self();
  EmuBlock::Impl* b = f->block;
  Warp* warp = &b->warps[f->warp];
  uint32_t const bit = 1u << f->lane;
  f->wait = Wait::Warp;
  f->op = uint8_t(op);
  f->arg = mask;
  f->file = file;
  f->line = line;
  Meeting* m = nullptr;
  if (mask == 0xffffffffu) {
    m = &warp->full[warp->parity];
    if (m->arrived == 0xffffffffu) m->arrived = 0;  // of the collective before last; every lane has read it
    if (m->arrived == 0) openMeeting(m, op, mask, file, line);
  } else {
    if (!(mask & bit)) uzipEmuFail("a thread is not in the mask of its own warp collective");
    for (auto& p : warp->partial) {
      if (p->x.mask == mask && p->arrived != mask) m = p.get();
    }
    if (m == nullptr) {
      for (auto& p : warp->partial) {
        if (p->toLeave == 0) m = p.get();
      }
      if (m == nullptr) {
        warp->partial.push_back(std::unique_ptr<Meeting>(new Meeting()));
        m = warp->partial.back().get();
      }
      openMeeting(m, op, mask, file, line);
      m->toLeave = mask;
    }
  }
  if (m->op != op) uzipEmuFail("threads of one warp are at different collectives");
  if (m->arrived & bit) uzipEmuFail("a thread arrived twice at a warp collective");
  if ((mask & ~warp->alive) != 0) uzipEmuFail("a warp collective names lanes that have returned");
  contribute(m, f->lane, value);
  m->arrived |= bit;
  if (m->arrived == mask) {
    if (mask == 0xffffffffu) warp->parity ^= 1;
    if (b->options.seed != 0) {
      wake(b, f->warp, mask);
      leave(f);
    } else {
      wake(b, f->warp, mask & ~bit);
    }
  } else {
    leave(f);
  }
  f->wait = Wait::Ready;
  if (mask != 0xffffffffu) m->toLeave &= ~bit;
  return &m->x;
}

uint32_t __activemask() { return self()->block->warps[self()->warp].alive; }

bool uzipEmuBarrier(unsigned id, unsigned nthreads, bool vote, char const* file, int line) {
  Fiber* f = self();
  EmuBlock::Impl* b = f->block;
  if (nthreads == 0) nthreads = unsigned(b->nthreads);
  f->wait = Wait::Barrier;
  f->op = uint8_t(id);
  f->arg = nthreads;
  f->file = file;
  f->line = line;
  if (id >= unsigned(kEmuBarriers)) uzipEmuFail("barrier number out of range");
  if (nthreads % 32 != 0 || nthreads > unsigned(b->nthreads)) uzipEmuFail("a barrier's threads must be whole warps of the block");
  Barrier* bar = &b->barriers[id];
  if (bar->arrived == 0) {
    bar->expected = nthreads;
    bar->any = false;
  }
  if (bar->expected != nthreads) uzipEmuFail("threads name different counts at one barrier");
  bar->arrived += 1;
  bar->any |= vote;
  bar->waiting[f->warp] |= 1u << f->lane;
  if (bar->arrived == nthreads) {
    for (int w = 0; w < b->nwarps; w++) {
      uint32_t lanes = bar->waiting[w];
      if (lanes != 0 && lanes != 0xffffffffu) uzipEmuFail("a barrier was completed by parts of warps");
      bar->waiting[w] = 0;
      for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) b->fibers[w * 32 + __builtin_ctz(rest)].vote = bar->any;
      wake(b, uint32_t(w), lanes);
    }
    bar->arrived = 0;
    if (b->options.seed != 0) {
      leave(f);
    } else {
      Warp* warp = &b->warps[f->warp];
      warp->ready &= ~(1u << f->lane);
      if (warp->ready == 0) b->readyWarps &= ~(1u << f->warp);
    }
  } else {
    leave(f);
  }
  f->wait = Wait::Ready;
  return f->vote;
}

void uzipEmuYield(char const* file, int line) {
  Fiber* f = self();
  f->wait = Wait::Poll;
  f->file = file;
  f->line = line;
  f->block->warps[f->warp].polling |= 1u << f->lane;
  leave(f);
  f->wait = Wait::Ready;
}

// --- Blocks --------------------------------------------------------------------------------------------------------------

EmuBlock::EmuBlock(int nthreads, std::function<void()> kernel, EmuOptions const& options) : impl(new Impl()) {
  Impl* b = impl.get();
  if (nthreads <= 0 || nthreads > kEmuMaxThreads || nthreads % 32 != 0) {
    fprintf(stderr, "warp emulator: a block of %d threads; allowed are multiples of 32 up to %d\n", nthreads, kEmuMaxThreads);
    abort();
  }
  b->nthreads = nthreads;
  b->nwarps = nthreads / 32;
  b->kernel = std::move(kernel);
  b->options = options;
  b->random = options.seed * 0x9e3779b97f4a7c15ull + 0x2545f4914f6cdd1dull;
  b->fibers.resize(size_t(nthreads));
  b->warps.resize(size_t(b->nwarps));
  b->readyWarps = b->nwarps == 32 ? ~0u : (1u << b->nwarps) - 1;
  b->live = uint32_t(nthreads);
  memset(b->barriers, 0, sizeof(b->barriers));
  b->shared.assign(options.sharedBytes + 128, 0);
  b->sharedBase = (char*)((uintptr_t(b->shared.data()) + 127) & ~uintptr_t(127));
  for (Warp& w : b->warps) {
    w.ready = w.alive = 0xffffffffu;
    w.polling = w.parity = 0;
    w.full[0].arrived = w.full[1].arrived = 0;
  }
  for (int t = 0; t < nthreads; t++) {
    Fiber& f = b->fibers[size_t(t)];
    f.tid = unsigned(t);
    f.lane = unsigned(t) % 32;
    f.warp = unsigned(t) / 32;
    f.nthreads = unsigned(nthreads);
    f.blockIdx = options.blockIdx;
    f.gridDim = options.gridDim;
    f.shared = b->sharedBase;
    f.block = b;
    f.wait = Wait::Ready;
    f.file = "", f.line = 0;
    f.stack = stackPool.take();
    f.stackTop = f.stack.base + kStackBytes + (size_t(t) * 33 * 64) % kColourBytes;
#if UZIP_EMU_ASAN
    __asan_unpoison_memory_region(f.stack.base, kStackBytes + kColourBytes);
    f.fake = nullptr;
    f.asanBottom = f.stack.base;
    f.asanSize = size_t(f.stackTop - f.stack.base);
#endif
    f.sp = freshStack(f.stackTop);
  }
  b->host.block = b;
  b->host.wait = Wait::Ready;
}

EmuBlock::~EmuBlock() {
  for (Fiber& f : impl->fibers) stackPool.free.push_back(f.stack);
}

void* EmuBlock::shared() const { return impl->sharedBase; }
void EmuBlock::dump() const { dumpBlock(impl.get()); }

EmuState EmuBlock::run() {
  Impl* b = impl.get();
  if (b->live == 0) return EmuState::Done;
  for (int w = 0; w < b->nwarps; w++) {
    wake(b, uint32_t(w), b->warps[w].polling);
    b->warps[w].polling = 0;
  }
  if (b->readyWarps == 0) {
    fprintf(stderr, "warp emulator: deadlock\n");
    dump();
    abort();
  }
#if UZIP_EMU_ASAN
  pthread_attr_t attr;
  void* bottom;
  size_t size;
  if (pthread_getattr_np(pthread_self(), &attr) != 0 || pthread_attr_getstack(&attr, &bottom, &size) != 0) abort();
  pthread_attr_destroy(&attr);
  b->host.asanBottom = bottom;
  b->host.asanSize = size;
#endif
  EmuThread const* const outer = uzipEmuThread;
  uint32_t w = pickBit(b, b->readyWarps), lane = pickBit(b, b->warps[w].ready);
  b->warps[w].ready &= ~(1u << lane);
  if (b->warps[w].ready == 0) b->readyWarps &= ~(1u << w);
  swapTo(&b->host, &b->fibers[w * 32 + lane]);
  uzipEmuThread = outer;
  if (b->live == 0) return EmuState::Done;
  for (Warp const& warp : b->warps) {
    if (warp.polling != 0) return EmuState::Polling;
  }
  fprintf(stderr, "warp emulator: deadlock: no thread can run and none polls\n");
  dump();
  abort();
}

void uzipEmuRunBlock(int nthreads, std::function<void()> kernel, EmuOptions const& options) {
  EmuBlock block(nthreads, std::move(kernel), options);
  for (int idle = 0; block.run() != EmuState::Done; idle++) {
    if (idle == 1000000) {
      fprintf(stderr, "warp emulator: threads poll for something that nobody will change\n");
      block.dump();
      abort();
    }
  }
}
