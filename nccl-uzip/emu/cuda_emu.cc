// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0

#include "cuda_emu.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <string>
#include <tuple>
#include <vector>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) && !defined(__SANITIZE_ADDRESS__)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif
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

char const* const kOpNames[] = {"__syncwarp",        "__shfl*_sync",      "__ballot/any/all_sync", "__reduce_add_sync",
                                "__reduce_max_sync", "__reduce_min_sync", "__reduce_and_sync",     "__reduce_or_sync",
                                "__reduce_xor_sync", "__match_any_sync"};

struct Warp;

struct alignas(64) Fiber : EmuThread {
  void* sp;
  Warp* home;
  EmuBlock::Impl* impl;
  // Of the poll or barrier that the thread waits at; collectives keep theirs in the Meeting.
  char const* file;
  int line;
  uint8_t barrier;
  bool vote;  // result of the barrier
  Stack stack;
  void* fake;  // AddressSanitizer's shadow of this stack
  void const* asanBottom;
  size_t asanSize;
};

// A collective in progress, or one whose lanes have not all picked up its result.
struct Meeting {
  EmuExchange x;
  uint32_t arrived;
  uint32_t toLeave;  // lanes that have yet to read; only kept for partial masks
  EmuOp op;
  int line;
  char const* file;
};

struct alignas(64) Warp {
  uint32_t ready;  // lanes that can run
  uint32_t polling;
  uint32_t alive;
  uint32_t parity;  // which of the two meetings of full masks is open
  uint32_t index;
  uint32_t urgency;
  Fiber* lanes;
  std::vector<std::unique_ptr<Meeting>> partial;
  Meeting full[2];  // the lanes of one read it while the next fills
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
  uint64_t events;  // collectives begun, barriers reached, threads returned
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

static inline void swapTo(Fiber* from, Fiber* to, bool returned = false) {
  uzipEmuThread = to;
#if UZIP_EMU_ASAN
  __sanitizer_start_switch_fiber(returned ? nullptr : &from->fake, to->asanBottom, to->asanSize);
#endif
  uzipEmuSwap(&from->sp, to->sp);
#if UZIP_EMU_ASAN
  __sanitizer_finish_switch_fiber(from->fake, nullptr, nullptr);
#endif
  (void)returned;
}

static inline Fiber* takeLane(EmuBlock::Impl* b, Warp* warp) {
  uint32_t lane = pickBit(b, warp->ready);
  warp->ready &= ~(1u << lane);
  if (warp->ready == 0) b->readyWarps &= ~(1u << warp->index);
  return warp->lanes + lane;
}

// With a seed, warps have priorities that change now and then, so that some get far ahead of others.
static uint32_t urgentWarp(EmuBlock::Impl* b) {
  uint32_t best = 0;
  uint32_t urgency = 0;
  for (uint32_t rest = b->readyWarps; rest != 0; rest &= rest - 1) {
    uint32_t const w = uint32_t(__builtin_ctz(rest));
    if (b->warps[w].urgency < urgency) continue;
    best = w;
    urgency = b->warps[w].urgency;
  }
  if (nextRandom(b) % 512 == 0) b->warps[best].urgency = nextRandom(b);
  return best;
}

// The fiber to run next: one of the same warp, which is in cache, else of the next warp, else the host.
static Fiber* nextElsewhere(EmuBlock::Impl* b, uint32_t w) {
  if (b->readyWarps == 0) return &b->host;
  if (b->options.seed != 0) return takeLane(b, &b->warps[urgentWarp(b)]);
  uint32_t const later = b->readyWarps & ~((2u << w) - 1);
  return takeLane(b, &b->warps[__builtin_ctz(later != 0 ? later : b->readyWarps)]);
}

// Leaves the running fiber for another one.
static inline void leave(Fiber* f, bool returned = false) {
  EmuBlock::Impl* b = f->impl;
  bool const stay = f->home->ready != 0 && b->options.seed == 0;
  Fiber* to = stay ? takeLane(b, f->home) : nextElsewhere(b, f->warp);
  if (to != f) swapTo(f, to, returned);
}

static inline void wake(EmuBlock::Impl* b, Warp* warp, uint32_t lanes) {
  if (lanes == 0) return;
  warp->ready |= lanes;
  b->readyWarps |= 1u << warp->index;
}

// Goes on after what the fiber waited for has come, its other lanes being ready. With a seed, some ready fiber goes on instead.
static inline void proceed(Fiber* f) {
  if (f->impl->options.seed == 0) return;
  wake(f->impl, f->home, 1u << f->lane);
  leave(f);
}

extern "C" void uzipEmuStart() {
  Fiber* f = self();
#if UZIP_EMU_ASAN
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
  f->impl->kernel();
  f->home->alive &= ~(1u << f->lane);
  f->impl->live -= 1;
  f->impl->events += 1;
  leave(f, /*returned=*/true);
  abort();  // never resumed
}

// --- Failures ------------------------------------------------------------------------------------------------------------

static std::string placeOf(EmuBlock::Impl const* b, Fiber const& f) {
  auto at = [](std::string what, char const* file, int line) {
    char const* slash = strrchr(file, '/');
    return what + " at " + (slash ? slash + 1 : file) + ":" + std::to_string(line);
  };
  uint32_t const bit = 1u << f.lane;
  Warp const& warp = *f.home;
  if (!(warp.alive & bit)) return "returned";
  if (warp.ready & bit) return "ready";
  if (warp.polling & bit) return at("polls", f.file, f.line);
  Barrier const& bar = b->barriers[f.barrier];
  if (bar.waiting[f.warp] & bit) {
    return at("waits at barrier " + std::to_string(f.barrier) + " of " + std::to_string(bar.expected) + " threads",
              f.file, f.line);
  }
  std::vector<Meeting const*> meetings = {&warp.full[warp.parity]};
  for (auto const& p : warp.partial) meetings.push_back(p.get());
  for (Meeting const* m : meetings) {
    char text[64];
    snprintf(text, sizeof(text), "waits in %s, mask 0x%08x,", kOpNames[int(m->op)], m->x.mask);
    if (m->arrived != m->x.mask && (m->arrived & bit)) return at(text, m->file, m->line);
  }
  return "running";
}

static void dumpBlock(EmuBlock::Impl const* b) {
  std::map<std::string, std::vector<uint32_t>> places;
  for (Fiber const& f : b->fibers) places[placeOf(b, f)].push_back(f.tid);
  fprintf(stderr, "block %u, %d threads, rng seed %llu:\n", b->options.block.x, b->nthreads,
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
    dumpBlock(self()->impl);
  }
  abort();
}

// --- Collectives ---------------------------------------------------------------------------------------------------------

// Adds a lane's value to what the lanes before it brought.
static inline void contribute(Meeting* m, uint32_t lane, uint32_t v) {
  uint32_t& r = m->x.result;
  switch (m->op) {
    case EmuOp::Ballot: r |= v << lane; break;
    case EmuOp::ReduceAdd: r += v; break;
    case EmuOp::ReduceOr: r |= v; break;
    case EmuOp::ReduceXor: r ^= v; break;
    case EmuOp::ReduceMax: r = v > r ? v : r; break;
    case EmuOp::ReduceMin: r = v < r ? v : r; break;
    case EmuOp::ReduceAnd: r &= v; break;
    case EmuOp::Shuffle:
    case EmuOp::Match: m->x.val[lane] = v; break;
    case EmuOp::SyncWarp: break;
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

static Meeting* partialMeeting(Warp* warp, EmuOp op, uint32_t mask, char const* file, int line) {
  Meeting* unused = nullptr;
  for (auto& p : warp->partial) {
    if (p->arrived != p->x.mask && p->x.mask == mask) return p.get();
    if (p->arrived == p->x.mask && p->toLeave == 0) unused = p.get();
  }
  if (unused == nullptr) {
    warp->partial.push_back(std::unique_ptr<Meeting>(new Meeting()));
    unused = warp->partial.back().get();
  }
  openMeeting(unused, op, mask, file, line);
  unused->toLeave = mask;
  return unused;
}

EmuExchange const* uzipEmuExchange(EmuOp op, uint32_t mask, uint32_t value, char const* file, int line) {
  Fiber* f = self();
  Warp* warp = f->home;
  uint32_t const bit = 1u << f->lane;
  bool const full = mask == 0xffffffffu;
  Meeting* m;
  if (full) {
    m = &warp->full[warp->parity];
    // All lanes have read the collective before last, since all have arrived at the last one.
    if (m->arrived == 0 || m->arrived == mask) {
      openMeeting(m, op, mask, file, line);
      f->impl->events += 1;
    }
  } else {
    m = partialMeeting(warp, op, mask, file, line);
    f->impl->events += 1;
  }
  if (m->op != op) uzipEmuFail("threads of one warp are at different collectives");
  if (!(mask & bit) || (m->arrived & bit)) uzipEmuFail("a thread is not in the mask of its own warp collective");
  if ((mask & ~warp->alive) != 0) uzipEmuFail("a warp collective names lanes that have returned");
  contribute(m, f->lane, value);
  m->arrived |= bit;
  if (m->arrived != mask) {
    leave(f);
  } else {
    if (full) warp->parity ^= 1;
    wake(f->impl, warp, mask & ~bit);
    proceed(f);
  }
  if (!full) m->toLeave &= ~bit;
  return &m->x;
}

uint32_t __activemask() { return self()->home->alive; }

bool uzipEmuBarrier(unsigned id, unsigned nthreads, bool vote, char const* file, int line) {
  Fiber* f = self();
  EmuBlock::Impl* b = f->impl;
  if (nthreads == 0) nthreads = unsigned(b->nthreads);
  if (id >= unsigned(kEmuBarriers)) uzipEmuFail("barrier number out of range");
  if (nthreads % 32 != 0 || nthreads > unsigned(b->nthreads))
    uzipEmuFail("a barrier's threads must be whole warps of the block");
  f->barrier = uint8_t(id);
  f->file = file;
  f->line = line;
  b->events += 1;
  Barrier* bar = &b->barriers[id];
  if (bar->arrived == 0) {
    bar->expected = nthreads;
    bar->any = false;
  }
  if (bar->expected != nthreads) uzipEmuFail("threads name different counts at one barrier");
  bar->arrived += 1;
  bar->any |= vote;
  bar->waiting[f->warp] |= 1u << f->lane;
  if (bar->arrived < nthreads) {
    leave(f);
    return f->vote;
  }
  for (Warp& warp : b->warps) {
    uint32_t const lanes = bar->waiting[warp.index];
    if (lanes != 0 && lanes != 0xffffffffu) uzipEmuFail("a barrier was completed by parts of warps");
    bar->waiting[warp.index] = 0;
    for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) warp.lanes[__builtin_ctz(rest)].vote = bar->any;
    wake(b, &warp, &warp == f->home ? lanes & ~(1u << f->lane) : lanes);
  }
  bar->arrived = 0;
  proceed(f);
  return f->vote;
}

void uzipEmuYield(char const* file, int line) {
  Fiber* f = self();
  f->file = file;
  f->line = line;
  f->home->polling |= 1u << f->lane;
  leave(f);
}

// --- Blocks --------------------------------------------------------------------------------------------------------------

EmuBlock::EmuBlock(int nthreads, std::function<void()> kernel, EmuOptions const& options) : impl(new Impl()) {
  Impl* b = impl.get();
  if (nthreads <= 0 || nthreads > kEmuMaxThreads || nthreads % 32 != 0) {
    fprintf(stderr, "warp emulator: a block of %d threads; allowed are multiples of 32 up to %d\n", nthreads,
            kEmuMaxThreads);
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
  b->events = 0;
  memset(b->barriers, 0, sizeof(b->barriers));
  b->shared.assign(options.sharedBytes + 128, 0);
  b->sharedBase = (char*)((uintptr_t(b->shared.data()) + 127) & ~uintptr_t(127));
  for (int w = 0; w < b->nwarps; w++) {
    Warp& warp = b->warps[size_t(w)];
    warp.ready = warp.alive = 0xffffffffu;
    warp.polling = warp.parity = 0;
    warp.index = uint32_t(w);
    warp.urgency = nextRandom(b);
    warp.lanes = &b->fibers[size_t(w) * 32];
    for (Meeting& m : warp.full) {
      m.x.mask = 0xffffffffu;
      m.arrived = 0;
      m.op = EmuOp::SyncWarp;
    }
  }
  for (int t = 0; t < nthreads; t++) {
    Fiber& f = b->fibers[size_t(t)];
    f.tid = unsigned(t);
    f.lane = unsigned(t) % 32;
    f.warp = unsigned(t) / 32;
    f.nthreads = unsigned(nthreads);
    f.block = options.block;
    f.grid = options.grid;
    f.shared = b->sharedBase;
    f.impl = b;
    f.home = &b->warps[f.warp];
    f.file = "", f.line = 0, f.barrier = 0;
    f.stack = stackPool.take();
    char* const top = f.stack.base + kStackBytes + (size_t(t) * 33 * 64) % kColourBytes;
#if UZIP_EMU_ASAN
    __asan_unpoison_memory_region(f.stack.base, kStackBytes + kColourBytes);
    f.fake = nullptr;
    f.asanBottom = f.stack.base;
    f.asanSize = size_t(top - f.stack.base);
#endif
    f.sp = freshStack(top);
  }
  b->host.impl = b;
}

EmuBlock::~EmuBlock() {
  for (Fiber& f : impl->fibers) stackPool.free.push_back(f.stack);
}

void* EmuBlock::shared() const { return impl->sharedBase; }
uint64_t EmuBlock::events() const { return impl->events; }
void EmuBlock::dump() const { dumpBlock(impl.get()); }

EmuState EmuBlock::run() {
  Impl* b = impl.get();
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
  // A thread may read what it polls for before it yields, and look at it after. So two rounds in which nothing but polling
  // happens show that nothing more can happen.
  for (int quiet = 0; b->live != 0 && quiet < 2;) {
    for (Warp& warp : b->warps) {
      wake(b, &warp, warp.polling);
      warp.polling = 0;
    }
    if (b->readyWarps == 0) {
      fprintf(stderr, "warp emulator: deadlock: no thread can run and none polls\n");
      dump();
      abort();
    }
    uint64_t const before = b->events;
    swapTo(&b->host, nextElsewhere(b, kEmuMaxWarps - 1));
    quiet = b->events == before ? quiet + 1 : 0;
  }
  uzipEmuThread = outer;
  return b->live == 0 ? EmuState::Done : EmuState::Polling;
}

void uzipEmuRunBlock(int nthreads, std::function<void()> kernel, EmuOptions const& options) {
  EmuBlock block(nthreads, std::move(kernel), options);
  if (block.run() == EmuState::Done) return;
  fprintf(stderr, "warp emulator: threads poll for something that nobody will change\n");
  block.dump();
  abort();
}
