// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0
//
// uzip_ranks: collectives of several ranks on a CPU. Each rank is a process that runs prims_uzip.h under the warp emulator, a block
// per channel, and network proxies that carry the slots through loopback sockets. See `uzip_ranks --help`.

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "cuda_emu.h"
#include "net.h"
#include "nccl_shim.h"
#include "ring.h"

#include "../src/device/prims_uzip.h"
#include "../src/device/uzip_all_reduce.h"
#include "../src/device/uzip_broadcast.h"

namespace {

// Exit codes.
enum { kOk = 0, kDiffers = 1, kUsage = 2, kHang = 3, kFailed = 4, kSlotErrors = 5 };

constexpr uint64_t kRankShift = 4099;  // rank r's element i is the payload's element i + r * kRankShift
constexpr int kMaxRanks = 64;

[[noreturn]] void usageError(char const* format, ...) {
  va_list args;
  va_start(args, format);
  fputs("uzip_ranks: ", stderr);
  vfprintf(stderr, format, args);
  fputs("\n  `uzip_ranks --help` lists the options\n", stderr);
  va_end(args);
  exit(kUsage);
}

double now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return double(t.tv_sec) + double(t.tv_nsec) * 1e-9;
}

// --- Options -------------------------------------------------------------------------------------------------------------

enum class Collective { AllReduce, Broadcast };
enum class Op { Sum, Prod, Min, Max, Avg, PreMulSum };
enum class Type { Bf16, F16, F32 };
char const* const kCollectiveNames[] = {"all_reduce", "broadcast"};
char const* const kOpNames[] = {"sum", "prod", "min", "max", "avg", "premulsum"};
char const* const kTypeNames[] = {"bf16", "f16", "f32"};
char const* const kModeNames[] = {"simple", "uzip"};

struct Options {
  int ranks = 2;
  std::vector<Collective> collectives = {Collective::AllReduce};
  Op op = Op::Sum;
  Type type = Type::Bf16;
  bool uzip = true;
  bool compare = false;
  std::string payload, json, out;
  uint64_t count = 0;
  bool countGiven = false;
  int channels = 2;
  int buffSize = 4 << 20;
  int root = 0;
  int threads = NCCL_SIMPLE_MAX_NTHREADS + WARP_SIZE;
  bool inPlace = false;
  uint64_t misalign = 0;
  uint64_t firstStep = 0;
  uint64_t seed = 0;
  uint32_t typeMask = 0xffffffffu;
  std::vector<bool> unframed, direct;  // by sending rank
  std::vector<EmuFault> faults;
  uint64_t abortAfter = 0;
  double timeout = 120;

  uint64_t elementBytes() const { return type == Type::F32 ? 4 : 2; }
  uint32_t uzipTypeOfPayload() const {
    return type == Type::Bf16 ? UZIP_TYPE_BF16 : type == Type::F16 ? UZIP_TYPE_F16 : UZIP_TYPE_F32;
  }
};

void printHelp() {
  puts(
      "usage: uzip_ranks --payload FILE [options]\n"
      "Runs collectives of N local processes over loopback sockets, with the device code of libnccl-uzip on the CPU.\n"
      "\n"
      "  --ranks N              processes, 2 to 64 (2)\n"
      "  --collective NAME      all_reduce, broadcast, or several with commas, run one after the other; the last one's "
      "result\n"
      "                         counts (all_reduce)\n"
      "  --op NAME              sum, prod, min, max, avg, premulsum (by 1.5) (sum)\n"
      "  --dtype NAME           bf16, f16, f32 (from the payload's name, else bf16)\n"
      "  --mode MODE            simple or uzip (uzip)\n"
      "  --compare              also run in mode simple and compare all outputs bit for bit\n"
      "  --payload FILE         raw little-endian values; rank r begins at element r * 4099, and the file repeats "
      "without end\n"
      "  --count N              elements (those of the payload)\n"
      "  --channels C           rings, each in another order, 1 to 64 (2)\n"
      "  --buffsize BYTES       payload of a connection's 8 steps, a multiple of 4096 (4194304)\n"
      "  --root R               of a broadcast (0)\n"
      "  --threads T            of a block, a multiple of 32 from 64 to 640 (544)\n"
      "  --in-place             one buffer for input and output\n"
      "  --misalign E           buffers begin E elements behind a 128-byte boundary (0)\n"
      "  --first-step S         step counters begin at S (0)\n"
      "  --seed S               order of threads is drawn from S; 0 is ascending (0)\n"
      "  --encode MASK          bit t set: type t (1 bf16, 2 f16, 3 f32) is encoded (all)\n"
      "  --unframed R[,R...]    links out of these ranks carry plain values\n"
      "  --direct R[,R...]      links out of these ranks are shared memory, as between GPUs of a node: plain values, "
      "no proxies\n"
      "  --fault SPEC           damage a message: rank=R,channel=C,message=N and byte=B,xor=X or truncate=BYTES\n"
      "  --abort-after BYTES    every rank raises its abort flag once it has sent so much\n"
      "  --timeout S            seconds without progress that count as a hang (120)\n"
      "  --json FILE            results; `-` is standard output\n"
      "  --out PREFIX           rank r writes its output to PREFIX.r\n"
      "\n"
      "Exit status: 0 done, 1 outputs differ, 2 usage, 3 hang, 4 a rank failed, 5 a slot was refused (see \"errors\" "
      "in the JSON).");
}

template <size_t N>
int nameIndex(char const* option, std::string const& value, char const* const (&names)[N]) {
  std::string all;
  for (size_t i = 0; i < N; i++) {
    if (value == names[i]) return int(i);
    all += (i ? ", " : "") + std::string(names[i]);
  }
  usageError("--%s %s: allowed are %s", option, value.c_str(), all.c_str());
}

uint64_t number(char const* option, std::string const& value, uint64_t least, uint64_t most) {
  char* end;
  errno = 0;
  unsigned long long v = strtoull(value.c_str(), &end, 0);
  if (value.empty() || value[0] == '-' || *end != '\0' || errno != 0 || v < least || v > most) {
    usageError("--%s %s: needs a number from %" PRIu64 " to %" PRIu64, option, value.c_str(), least, most);
  }
  return v;
}

std::vector<std::string> split(std::string const& text, char by) {
  std::vector<std::string> parts(1);
  for (char c : text) {
    if (c == by)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

// Which ranks a list names.
std::vector<bool> ranksNamed(char const* option, std::string const& list, int ranks) {
  std::vector<bool> named(static_cast<size_t>(ranks), false);
  if (list.empty()) return named;
  for (std::string const& r : split(list, ',')) named[number(option, r, 0, uint64_t(ranks - 1))] = true;
  return named;
}

EmuFault parseFault(std::string const& spec) {
  EmuFault fault;
  for (std::string const& part : split(spec, ',')) {
    size_t const eq = part.find('=');
    std::string const key = part.substr(0, eq), value = eq == std::string::npos ? "" : part.substr(eq + 1);
    uint64_t const v = number("fault", value, 0, 1u << 30);
    if (key == "rank")
      fault.rank = int(v);
    else if (key == "channel")
      fault.channel = int(v);
    else if (key == "message")
      fault.message = int64_t(v);
    else if (key == "byte")
      fault.byte = int64_t(v);
    else if (key == "xor")
      fault.flip = uint8_t(v);
    else if (key == "truncate")
      fault.truncate = int64_t(v);
    else
      usageError("--fault %s: allowed keys are rank, channel, message, byte, xor, truncate", spec.c_str());
  }
  if (fault.rank < 0 || (fault.truncate < 0 && (fault.byte < 0 || fault.flip == 0))) {
    usageError("--fault %s: needs rank, and byte with a nonzero xor, or truncate", spec.c_str());
  }
  return fault;
}

Options parseOptions(int argc, char** argv) {
  Options o;
  bool typeGiven = false;
  std::string unframed, direct;
  enum {
    kFirst = 256,
    kRanks,
    kCollective,
    kOp,
    kType,
    kMode,
    kCompare,
    kPayload,
    kCount,
    kChannels,
    kBuffSize,
    kRoot,
    kThreads,
    kInPlace,
    kMisalign,
    kFirstStep,
    kSeed,
    kEncode,
    kUnframed,
    kDirect,
    kFault,
    kAbortAfter,
    kTimeout,
    kJson,
    kOut,
    kHelp
  };
  static option const known[] = {{"ranks", 1, nullptr, kRanks},
                                 {"collective", 1, nullptr, kCollective},
                                 {"op", 1, nullptr, kOp},
                                 {"dtype", 1, nullptr, kType},
                                 {"mode", 1, nullptr, kMode},
                                 {"compare", 0, nullptr, kCompare},
                                 {"payload", 1, nullptr, kPayload},
                                 {"count", 1, nullptr, kCount},
                                 {"channels", 1, nullptr, kChannels},
                                 {"buffsize", 1, nullptr, kBuffSize},
                                 {"root", 1, nullptr, kRoot},
                                 {"threads", 1, nullptr, kThreads},
                                 {"in-place", 0, nullptr, kInPlace},
                                 {"misalign", 1, nullptr, kMisalign},
                                 {"first-step", 1, nullptr, kFirstStep},
                                 {"seed", 1, nullptr, kSeed},
                                 {"encode", 1, nullptr, kEncode},
                                 {"unframed", 1, nullptr, kUnframed},
                                 {"direct", 1, nullptr, kDirect},
                                 {"fault", 1, nullptr, kFault},
                                 {"abort-after", 1, nullptr, kAbortAfter},
                                 {"timeout", 1, nullptr, kTimeout},
                                 {"json", 1, nullptr, kJson},
                                 {"out", 1, nullptr, kOut},
                                 {"help", 0, nullptr, kHelp},
                                 {}};
  int which;
  while ((which = getopt_long(argc, argv, "", known, nullptr)) != -1) {
    std::string const v = optarg ? optarg : "";
    switch (which) {
      case kRanks: o.ranks = int(number("ranks", v, 2, kMaxRanks)); break;
      case kCollective:
        o.collectives.clear();
        for (std::string const& name : split(v, ','))
          o.collectives.push_back(Collective(nameIndex("collective", name, kCollectiveNames)));
        break;
      case kOp: o.op = Op(nameIndex("op", v, kOpNames)); break;
      case kType: o.type = Type(nameIndex("dtype", v, kTypeNames)), typeGiven = true; break;
      case kMode: o.uzip = nameIndex("mode", v, kModeNames) == 1; break;
      case kCompare: o.compare = true; break;
      case kPayload: o.payload = v; break;
      case kCount: o.count = number("count", v, 0, uint64_t(1) << 34), o.countGiven = true; break;
      case kChannels: o.channels = int(number("channels", v, 1, MAXCHANNELS)); break;
      case kBuffSize: o.buffSize = int(number("buffsize", v, 4096, 1 << 28)); break;
      case kRoot: o.root = int(number("root", v, 0, kMaxRanks - 1)); break;
      case kThreads: o.threads = int(number("threads", v, 64, NCCL_MAX_NTHREADS)); break;
      case kInPlace: o.inPlace = true; break;
      case kMisalign: o.misalign = number("misalign", v, 0, 64); break;
      case kFirstStep: o.firstStep = number("first-step", v, 0, uint64_t(1) << 62); break;
      case kSeed: o.seed = number("seed", v, 0, ~uint64_t(0)); break;
      case kEncode: o.typeMask = uint32_t(number("encode", v, 0, 0xffffffffu)); break;
      case kUnframed: unframed = v; break;
      case kDirect: direct = v; break;
      case kFault: o.faults.push_back(parseFault(v)); break;
      case kAbortAfter: o.abortAfter = number("abort-after", v, 1, uint64_t(1) << 62); break;
      case kTimeout: o.timeout = double(number("timeout", v, 1, 100000)); break;
      case kJson: o.json = v; break;
      case kOut: o.out = v; break;
      case kHelp: printHelp(); exit(kOk);
      default: usageError("unknown option or missing value");
    }
  }
  if (optind != argc) usageError("%s: not an option", argv[optind]);
  if (o.payload.empty()) usageError("--payload is needed");
  size_t const dot = o.payload.rfind('.');
  std::string const suffix = dot == std::string::npos ? "" : o.payload.substr(dot + 1);
  for (int t = 0; t < 3; t++) {
    if (suffix != kTypeNames[t]) continue;
    if (typeGiven && o.type != Type(t))
      usageError("--payload %s holds %s, --dtype says %s", o.payload.c_str(), kTypeNames[t], kTypeNames[int(o.type)]);
    o.type = Type(t);
  }
  if (o.buffSize % 4096 != 0) usageError("--buffsize %d: must be a multiple of 4096", o.buffSize);
  if (o.threads % WARP_SIZE != 0) usageError("--threads %d: must be a multiple of %d", o.threads, WARP_SIZE);
  if (o.root >= o.ranks) usageError("--root %d: there are %d ranks", o.root, o.ranks);
  o.unframed = ranksNamed("unframed", unframed, o.ranks);
  o.direct = ranksNamed("direct", direct, o.ranks);
  for (EmuFault const& f : o.faults) {
    if (f.rank >= o.ranks || f.channel >= o.channels)
      usageError("--fault: there are %d ranks and %d channels", o.ranks, o.channels);
  }
  return o;
}

// A whole file, mapped read-only.
struct Payload {
  char const* data;
  uint64_t bytes;

  explicit Payload(std::string const& path) {
    int const fd = open(path.c_str(), O_RDONLY);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0) usageError("--payload %s: %s", path.c_str(), strerror(errno));
    if (!S_ISREG(st.st_mode) || st.st_size == 0) usageError("--payload %s: not a file with values", path.c_str());
    bytes = uint64_t(st.st_size);
    void* p = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED) usageError("--payload %s: cannot be mapped: %s", path.c_str(), strerror(errno));
    close(fd);
    data = (char const*)p;
  }
};

// --- What the ranks share --------------------------------------------------------------------------------------------------

struct RankResult {
  int finished;
  int aborted;
  double seconds;  // of the collectives in the asked mode
  uint64_t rawBytes;  // what mode simple would send
  uint64_t wireBytes;
  uint64_t sentNow;  // progress
  ncclUzipGroupStats stats;
  ncclUzipErrorRecord error;
  uint64_t differences;  // bytes that differ from mode simple
};

struct Shared {
  RankResult ranks[kMaxRanks];
};

// Ring of a channel: ring[i] is the rank at place i. Channels differ by stride, and so by the order of reductions.
std::vector<int> ringOf(int ranks, int channel) {
  std::vector<int> strides;
  for (int s = 1; s < ranks; s++) {
    if (std::gcd(s, ranks) == 1) strides.push_back(s);
  }
  int const stride = strides[size_t(channel) % strides.size()];
  std::vector<int> ring;
  for (int i = 0; i < ranks; i++) ring.push_back((i * stride + channel) % ranks);
  return ring;
}

// The link [channel][place] from the rank at `place` to the next one: a socket, or memory that both map.
struct Wire {
  int sendFd, recvFd;
  char* memory;
};

int strideOf(Options const& o) {
  int const step = o.buffSize / NCCL_STEPS;
  return step + int(uzipStepPad(uint32_t(step)));
}

Wire connectPair() {
  int const listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  Wire wire = {socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), -1, nullptr};
  int const on = 1;
  if (listener < 0 || wire.sendFd < 0 || bind(listener, (sockaddr*)&address, length) != 0 || listen(listener, 1) != 0 ||
      getsockname(listener, (sockaddr*)&address, &length) != 0 ||
      connect(wire.sendFd, (sockaddr*)&address, length) != 0 ||
      (wire.recvFd = accept(listener, nullptr, nullptr)) < 0 ||
      setsockopt(wire.sendFd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0) {
    fprintf(stderr, "uzip_ranks: loopback socket: %s\n", strerror(errno));
    exit(kFailed);
  }
  close(listener);
  return wire;
}

// The FIFO of a direct link, twice: a run with --compare has one for each mode.
Wire mapPair(Options const& o) {
  size_t const bytes = 2 * EmuFifo::bytesFor(strideOf(o));
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) {
    perror("uzip_ranks: shared memory");
    exit(kFailed);
  }
  for (int mode = 0; mode < 2; mode++) EmuFifo::clear((char*)p + mode * (bytes / 2), strideOf(o), o.firstStep);
  return Wire{-1, -1, (char*)p};
}

// --- Kernels -------------------------------------------------------------------------------------------------------------

template <typename T, typename RedOp>
void kernel(Collective collective, bool uzip, ncclDevWorkColl* work) {
  int const tid = int(threadIdx.x), nthreads = int(blockDim.x);
  using Byte = int8_t;
  using Copy = FuncCopy<Byte>;
  if (uzip && collective == Collective::AllReduce) {
    RunWorkColl<ncclFuncAllReduce, T, RedOp, NCCL_ALGO_RING, NCCL_PROTO_UZIP>().run(tid, nthreads, work);
  } else if (uzip) {
    RunWorkColl<ncclFuncBroadcast, Byte, Copy, NCCL_ALGO_RING, NCCL_PROTO_UZIP>().run(tid, nthreads, work);
  } else if (collective == Collective::AllReduce) {
    emuRingAllReduce<T, RedOp, ProtoPlain<ALLREDUCE_CHUNKSTEPS / ALLREDUCE_SLICESTEPS, ALLREDUCE_SLICESTEPS>>(
        tid, nthreads, work);
  } else {
    runRing<Byte, Copy, ProtoPlain<BROADCAST_CHUNKSTEPS / BROADCAST_SLICESTEPS, BROADCAST_SLICESTEPS>>(tid, nthreads,
                                                                                                       work);
  }
}

using Kernel = void (*)(Collective, bool, ncclDevWorkColl*);

template <typename T>
Kernel kernelOf(Op op) {
  switch (op) {
    case Op::Sum: return kernel<T, FuncSum<T>>;
    case Op::Prod: return kernel<T, FuncProd<T>>;
    case Op::Min:
    case Op::Max: return kernel<T, FuncMinMax<T>>;
    case Op::Avg:
    case Op::PreMulSum: return kernel<T, FuncPreMulSum<T>>;
  }
  return nullptr;
}

template <typename T>
uint64_t redOpArgOf(Op op, int ranks) {
  if (op == Op::Max) return 1;
  if (op != Op::Avg && op != Op::PreMulSum) return 0;
  T const scalar = emuRound<T>(op == Op::Avg ? 1.0f / float(ranks) : 1.5f);
  uint64_t arg = 0;
  memcpy(&arg, &scalar, sizeof(T));
  return arg;
}

// --- One rank ------------------------------------------------------------------------------------------------------------

class Rank {
 public:
  Rank(Options const& o, int rank, Payload const& payload, std::vector<std::vector<Wire>> const& wires,
       RankResult* result)
      : o(o), rank(rank), payload(payload), wires(wires), result(result) {}

  int run() {
    uint64_t const bytes = o.count * o.elementBytes();
    result->seconds = runMode(o.uzip, &output);
    if (!o.out.empty() && !writeOutput(outAt(output), bytes)) return kFailed;
    if (o.compare && o.uzip && !result->aborted && result->error.code == 0) {
      std::vector<char> reference;
      runMode(false, &reference);
      char const *a = outAt(output), *b = outAt(reference);
      for (uint64_t i = 0; i < bytes; i++) result->differences += a[i] != b[i];
    }
    result->finished = 1;
    return kOk;
  }

 private:
  struct Channel {
    std::vector<int> ring, userRanks;
    std::unique_ptr<EmuFifo> sendFifo, recvFifo;
    std::unique_ptr<EmuSendProxy> send;
    std::unique_ptr<EmuRecvProxy> recv;
    std::vector<ncclDevChannelPeer> peers;
    std::vector<ncclDevChannelPeer*> peerPtrs;
    ncclDevWorkColl work;
    std::unique_ptr<EmuBlock> block;
    bool blockDone = true, moved = true;
  };

  // Payload begins `misalign` elements behind a 128-byte boundary; guard bytes lie around it.
  static constexpr size_t kGuard = 256;
  char* place(std::vector<char>* buffer) const {
    return (char*)((uintptr_t(buffer->data()) + kGuard + 127) & ~uintptr_t(127)) + o.misalign * o.elementBytes();
  }
  char* outAt(std::vector<char>& buffer) const { return place(&buffer); }
  size_t bufferBytes() const { return o.count * o.elementBytes() + 2 * kGuard + 128 + o.misalign * o.elementBytes(); }

  void fillInput(char* to) const {
    uint64_t const size = o.elementBytes(), length = payload.bytes / size;
    uint64_t at = (uint64_t(rank) * kRankShift) % length;
    for (uint64_t done = 0; done < o.count;) {
      uint64_t const n = min(o.count - done, length - at);
      memcpy(to + done * size, payload.data + at * size, n * size);
      done += n;
      at = 0;
    }
  }

  bool writeOutput(char const* from, uint64_t bytes) const {
    std::string const path = o.out + "." + std::to_string(rank);
    FILE* f = fopen(path.c_str(), "wb");
    bool ok = f != nullptr && fwrite(from, 1, bytes, f) == bytes;
    if (f != nullptr) ok = fclose(f) == 0 && ok;
    if (!ok) fprintf(stderr, "uzip_ranks: --out %s: %s\n", path.c_str(), strerror(errno));
    return ok;
  }

  // Runs all collectives in one mode, over fresh FIFOs. Returns the seconds they took.
  double runMode(bool uzip, std::vector<char>* out) {
    ncclUzipDevComm devComm = {};
    std::vector<ncclUzipGroupStats> stats(MAXCHANNELS * NCCL_MAX_GROUPS), statsHost(MAXCHANNELS * NCCL_MAX_GROUPS);
    memset(stats.data(), 0, stats.size() * sizeof(stats[0]));
    memset(statsHost.data(), 0, statsHost.size() * sizeof(stats[0]));
    ncclUzipErrorRecord error = {};
    devComm.stats = stats.data();
    devComm.statsHost = statsHost.data();
    devComm.error = &error;
    devComm.typeMask = o.typeMask;
    uint32_t volatile abortFlag = 0;

    std::vector<char> input(bufferBytes(), char(0x5a));
    fillInput(place(&input));
    std::vector<Channel> channels(size_t(o.channels));
    for (int c = 0; c < o.channels; c++) openChannel(&channels[size_t(c)], c, uzip);

    double const start = now();
    for (Collective collective : o.collectives) {
      out->assign(bufferBytes(), char(0xa5));
      bool const inPlace = o.inPlace && (collective == Collective::AllReduce || rank == o.root);
      if (inPlace) memcpy(place(out), place(&input), o.count * o.elementBytes());
      for (int c = 0; c < o.channels; c++) {
        startWork(&channels[size_t(c)], c, collective, uzip, inPlace ? place(out) : place(&input), place(out),
                  &abortFlag, &devComm);
      }
      if (!pump(&channels, &abortFlag)) break;
    }
    double const seconds = now() - start;

    for (char const *p = out->data(), *end = p + out->size(); p < end; p++) {
      if (p == place(out)) p += o.count * o.elementBytes();
      if (p < end && *p != char(0xa5)) throw EmuNetError("bytes around the output were written");
    }
    uint64_t wire = 0, raw = 0;
    for (int c = 0; c < o.channels; c++) {
      Channel& ch = channels[size_t(c)];
      ch.sendFifo->checkGuards();
      ch.recvFifo->checkGuards();
      ncclUzipGroupStats const& s = statsHost[size_t(c) * NCCL_MAX_GROUPS];
      wire += ch.send->bytes;
      bool const framed = ch.sendFifo->conn.flags & NCCL_UZIP_LINK;
      raw += framed ? s.sendRawBytes : ch.send->bytes;
      if (framed && !abortFlag && o.faults.empty() && s.sendWireBytes != ch.send->bytes) {
        throw EmuNetError("channel " + std::to_string(c) + ": the device counted " + std::to_string(s.sendWireBytes) +
                          " wire bytes, the proxy " + std::to_string(ch.send->bytes));
      }
      if (uzip == o.uzip) addStats(s);
    }
    if (uzip == o.uzip) {
      result->wireBytes = wire;
      result->rawBytes = raw;
      result->error = error;
      result->aborted = int(abortFlag);
    }
    return seconds;
  }

  void addStats(ncclUzipGroupStats const& s) {
    ncclUzipGroupStats& sum = result->stats;
    sum.sendRawBytes += s.sendRawBytes;
    sum.sendWireBytes += s.sendWireBytes;
    sum.recvRawBytes += s.recvRawBytes;
    sum.recvWireBytes += s.recvWireBytes;
    sum.sendSlices += s.sendSlices;
    sum.sendSlicesRaw += s.sendSlicesRaw;
    sum.fwdSlices += s.fwdSlices;
    sum.recvSlices += s.recvSlices;
    sum.ops += s.ops;
  }

  void openChannel(Channel* ch, int c, bool uzip) {
    ch->ring = ringOf(o.ranks, c);
    int place = 0;
    while (ch->ring[size_t(place)] != rank) place++;
    int const prevPlace = (place + o.ranks - 1) % o.ranks;
    for (int i = 0; i < o.ranks; i++) ch->userRanks.push_back(ch->ring[size_t((place + i) % o.ranks)]);
    int const prev = ch->userRanks.back(), next = ch->userRanks[1];
    int const stride = strideOf(o);
    Wire const out = wires[size_t(c)][size_t(place)], in = wires[size_t(c)][size_t(prevPlace)];
    auto fifo = [&](int sender, Wire const& wire) {
      bool const direct = wire.memory != nullptr, framed = uzip && !direct && !o.unframed[size_t(sender)];
      char* const memory = direct ? wire.memory + (uzip ? EmuFifo::bytesFor(stride) : 0) : nullptr;
      return new EmuFifo(stride, o.firstStep, framed ? NCCL_UZIP_LINK : 0, memory, direct);
    };
    ch->sendFifo.reset(fifo(rank, out));
    ch->recvFifo.reset(fifo(prev, in));
    std::string const where = "rank " + std::to_string(rank) + " channel " + std::to_string(c);
    ch->send.reset(new EmuSendProxy(ch->sendFifo.get(), out.sendFd, where + " send to " + std::to_string(next)));
    ch->recv.reset(new EmuRecvProxy(ch->recvFifo.get(), in.recvFd, where + " receive from " + std::to_string(prev)));
    for (EmuFault const& f : o.faults) {
      if (f.rank == rank && f.channel == c && uzip) ch->send->faults.push_back(f);
    }
    ch->peers.resize(size_t(o.ranks));
    for (ncclDevChannelPeer& p : ch->peers) {
      memset(&p, 0, sizeof(p));
      ch->peerPtrs.push_back(&p);
    }
    ch->peers[size_t(next)].send[0] = ch->sendFifo->conn;
    ch->peers[size_t(prev)].recv[0] = ch->recvFifo->conn;
  }

  void startWork(Channel* ch, int c, Collective collective, bool uzip, char const* in, char* out,
                 uint32_t volatile* abortFlag, ncclUzipDevComm* devComm) {
    // Channels get whole multiples of 512 bytes, as even as that allows; the last ones may get nothing.
    bool const bytes = collective == Collective::Broadcast;
    uint64_t const size = bytes ? 1 : o.elementBytes(), count = bytes ? o.count * o.elementBytes() : o.count,
                   grain = 512 / size;
    uint64_t const each = roundUp(divUp(count, uint64_t(o.channels)), grain), offset = min(count, uint64_t(c) * each);
    int const chunkSteps = bytes ? BROADCAST_CHUNKSTEPS : ALLREDUCE_CHUNKSTEPS;
    int const sliceSteps = bytes ? BROADCAST_SLICESTEPS : ALLREDUCE_SLICESTEPS;
    ch->work = ncclDevWorkColl();
    ch->work.root = o.root;
    ch->work.sendbuff = in;
    ch->work.recvbuff = out;
    ch->work.partOffset = ssize_t(offset);
    ch->work.partCount = ssize_t(min(count - offset, each));
    ch->work.chunkCount = ssize_t(uint64_t(o.buffSize / NCCL_STEPS * chunkSteps) / 512 * grain);
    Kernel run = nullptr;
    switch (o.type) {
      case Type::Bf16:
        run = kernelOf<__nv_bfloat16>(o.op), ch->work.redOpArg = redOpArgOf<__nv_bfloat16>(o.op, o.ranks);
        break;
      case Type::F16: run = kernelOf<half>(o.op), ch->work.redOpArg = redOpArgOf<half>(o.op, o.ranks); break;
      case Type::F32: run = kernelOf<float>(o.op), ch->work.redOpArg = redOpArgOf<float>(o.op, o.ranks); break;
    }
    if (bytes) ch->work.redOpArg = o.uzipTypeOfPayload();
    if (ch->work.partCount == 0) return;

    int64_t const steps = bytes ? emuBroadcastSteps(ch->work) : emuAllReduceSteps(ch->work, o.ranks);
    bool const sends = !bytes || ch->userRanks[1] != o.root, receives = !bytes || rank != o.root;
    ch->send->start(sends && ch->send->socket() >= 0 ? steps : 0, chunkSteps, sliceSteps);
    ch->recv->start(receives && ch->recv->socket() >= 0 ? steps : 0, chunkSteps, sliceSteps);

    EmuOptions options;
    options.block = dim3(unsigned(c));
    options.grid = dim3(unsigned(o.channels));
    options.sharedBytes = kEmuSharedBytes;
    options.seed = o.seed == 0 ? 0 : o.seed + uint64_t(rank) * 1000 + uint64_t(c);
    ncclDevWorkColl* const work = &ch->work;
    ch->block.reset(new EmuBlock(o.threads, [=] { run(collective, uzip, work); }, options));
    ncclShmemData* const shm = (ncclShmemData*)ch->block->shared();
    shm->channelId = c;
    shm->comm.rank = rank;
    shm->comm.nRanks = o.ranks;
    shm->comm.buffSizes[NCCL_PROTO_SIMPLE] = o.buffSize;
    shm->comm.abortFlag = abortFlag;
    shm->comm.uzip = uzip ? devComm : nullptr;
    shm->channel.peers = ch->peerPtrs.data();
    int place = 0;
    while (ch->ring[size_t(place)] != rank) place++;
    shm->channel.ring = ncclRing{ch->userRanks.back(), ch->userRanks[1], ch->userRanks.data(), place};
    ch->blockDone = false;
    ch->moved = true;
  }

  // Runs blocks and proxies until all are done. False after an abort.
  bool pump(std::vector<Channel>* channels, uint32_t volatile* abortFlag) {
    double lastMove = now();
    for (;;) {
      bool moved = false, allDone = true, anyDirect = false;
      uint64_t sent = 0;
      for (Channel& ch : *channels) {
        bool const direct = ch.send->socket() < 0 || ch.recv->socket() < 0;
        if (!ch.blockDone && (ch.moved || direct)) {
          uint64_t const before = ch.block->events();
          ch.blockDone = ch.block->run() == EmuState::Done;
          moved = moved || ch.block->events() != before;
        }
        anyDirect = anyDirect || (direct && !ch.blockDone);
        try {
          ch.moved = ch.send->progress();
          ch.moved = ch.recv->progress() || ch.moved;
        } catch (EmuNetError const&) {
          if (o.abortAfter == 0) throw;
          sent = o.abortAfter;  // a peer aborted before us
        }
        moved = moved || ch.moved;
        sent += ch.send->bytes;
        allDone = allDone && ch.blockDone && ch.send->done() && ch.recv->done();
      }
      result->sentNow = sent;
      if (allDone) return true;
      if (o.abortAfter != 0 && sent >= o.abortAfter && !*abortFlag) {
        *abortFlag = 1;
        for (Channel& ch : *channels) {
          if (!ch.blockDone && ch.block->run() != EmuState::Done)
            hang(*channels, "threads go on polling after an abort");
        }
        return false;
      }
      if (moved) {
        lastMove = now();
        continue;
      }
      if (now() - lastMove > o.timeout) hang(*channels, "nothing has moved before the time-out");
      std::vector<pollfd> fds;
      for (Channel& ch : *channels) {
        if (ch.send->wantsWrite()) fds.push_back(pollfd{ch.send->socket(), POLLOUT, 0});
        if (ch.recv->wantsRead()) fds.push_back(pollfd{ch.recv->socket(), POLLIN, 0});
      }
      poll(fds.data(), nfds_t(fds.size()), anyDirect ? 1 : 100);  // nothing wakes us when a direct peer posts
    }
  }

  // Says where everything stands, and ends the process.
  [[noreturn]] void hang(std::vector<Channel> const& channels, char const* what) const {
    fprintf(stderr, "rank %d: %s\n", rank, what);
    for (Channel const& ch : channels) {
      fprintf(stderr, "%s\n%s\n", ch.send->state().c_str(), ch.recv->state().c_str());
      if (!ch.blockDone) ch.block->dump();
    }
    exit(kHang);
  }

  Options const& o;
  int const rank;
  Payload const& payload;
  std::vector<std::vector<Wire>> const& wires;
  RankResult* const result;
  std::vector<char> output;
};

// --- Results -------------------------------------------------------------------------------------------------------------

struct Totals {
  uint64_t raw = 0, wire = 0, differences = 0, slices = 0, slicesRaw = 0, forwarded = 0;
  double seconds = 0;
  bool slotErrors = false, aborted = false;
};

Totals totalsOf(Options const& o, Shared const& shared) {
  Totals t;
  for (int r = 0; r < o.ranks; r++) {
    RankResult const& x = shared.ranks[r];
    t.raw += x.rawBytes;
    t.wire += x.wireBytes;
    t.differences += x.differences;
    t.slices += x.stats.sendSlices;
    t.slicesRaw += x.stats.sendSlicesRaw;
    t.forwarded += x.stats.fwdSlices;
    t.seconds = max(t.seconds, x.seconds);
    t.slotErrors = t.slotErrors || x.error.code != 0;
    t.aborted = t.aborted || x.aborted;
  }
  return t;
}

bool writeJson(Options const& o, Shared const& shared, Totals const& t) {
  FILE* f = o.json == "-" ? stdout : fopen(o.json.c_str(), "w");
  if (f == nullptr) {
    fprintf(stderr, "uzip_ranks: --json %s: %s\n", o.json.c_str(), strerror(errno));
    return false;
  }
  std::string collectives;
  for (Collective c : o.collectives)
    collectives += (collectives.empty() ? "" : ",") + std::string(kCollectiveNames[int(c)]);
  fprintf(f,
          "{\"collective\": \"%s\", \"mode\": \"%s\", \"dtype\": \"%s\", \"op\": \"%s\", \"ranks\": %d, \"channels\": "
          "%d,\n",
          collectives.c_str(), kModeNames[o.uzip], kTypeNames[int(o.type)], kOpNames[int(o.op)], o.ranks, o.channels);
  fprintf(f,
          " \"count\": %" PRIu64 ", \"buffsize\": %d, \"raw_bytes\": %" PRIu64 ", \"wire_bytes\": %" PRIu64
          ", \"ratio\": %.6f, \"seconds\": %.3f,\n",
          o.count, o.buffSize, t.raw, t.wire, t.raw ? double(t.wire) / double(t.raw) : 1.0, t.seconds);
  fprintf(f,
          " \"send_slices\": %" PRIu64 ", \"send_slices_raw\": %" PRIu64 ", \"forwarded_slices\": %" PRIu64
          ", \"aborted\": %s,\n",
          t.slices, t.slicesRaw, t.forwarded, t.aborted ? "true" : "false");
  if (o.compare)
    fprintf(f, " \"identical\": %s, \"different_bytes\": %" PRIu64 ",\n",
            t.differences || t.slotErrors ? "false" : "true", t.differences);
  fprintf(f, " \"errors\": [");
  bool first = true;
  for (int r = 0; r < o.ranks; r++) {
    ncclUzipErrorRecord const& e = shared.ranks[r].error;
    if (e.code == 0) continue;
    fprintf(f, "%s{\"rank\": %d, \"code\": %u, \"channel\": %u, \"peer\": %d, \"detail\": %u, \"step\": %" PRIu64 "}",
            first ? "" : ", ", r, e.code, e.channel, e.peer, e.detail, e.step);
    first = false;
  }
  fprintf(f, "]}\n");
  return (f == stdout ? fflush(f) : fclose(f)) == 0;
}

// Waits for all ranks, showing progress. Returns the first nonzero exit code.
int waitForRanks(Options const& o, std::vector<pid_t> pids, Shared const& shared) {
  int code = kOk;
  double const start = now();
  double shown = start, killAt = 0;
  for (size_t left = pids.size(); left > 0;) {
    int status;
    pid_t const pid = waitpid(-1, &status, WNOHANG);
    if (pid > 0) {
      for (pid_t& p : pids) {
        if (p != pid) continue;
        p = 0;
        left -= 1;
        int const rankCode = WIFEXITED(status) ? WEXITSTATUS(status) : kFailed;
        if (WIFSIGNALED(status) && killAt == 0)
          fprintf(stderr, "uzip_ranks: a rank died from signal %d\n", WTERMSIG(status));
        if (code == kOk) code = rankCode;
      }
      continue;
    }
    // The others learn of a failure by themselves or not at all; they get a moment to report their own state.
    if (code != kOk && killAt == 0) killAt = now() + (code == kHang ? 5 : 1);
    if (killAt != 0 && now() > killAt) {
      for (pid_t p : pids) {
        if (p != 0) kill(p, SIGKILL);
      }
    }
    if (now() - shown > 5) {
      uint64_t sent = 0;
      for (int r = 0; r < o.ranks; r++) sent += shared.ranks[r].sentNow;
      fprintf(stderr, "uzip_ranks: %.0f s, %.1f MB on the wire\n", now() - start, double(sent) / 1e6);
      shown = now();
    }
    usleep(2000);
  }
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  Options o = parseOptions(argc, argv);
  Payload const payload(o.payload);
  if (payload.bytes % o.elementBytes() != 0) {
    usageError("--payload %s: %" PRIu64 " bytes are not whole %s values", o.payload.c_str(), payload.bytes,
               kTypeNames[int(o.type)]);
  }
  if (!o.countGiven) o.count = payload.bytes / o.elementBytes();

  Shared* const shared =
      (Shared*)mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) {
    perror("uzip_ranks: shared memory");
    return kFailed;
  }
  std::vector<std::vector<Wire>> wires(static_cast<size_t>(o.channels));
  for (auto& ring : wires) {
    std::vector<int> const order = ringOf(o.ranks, int(&ring - wires.data()));
    for (int sender : order) ring.push_back(o.direct[size_t(sender)] ? mapPair(o) : connectPair());
  }
  fflush(stdout);
  std::vector<pid_t> pids;
  for (int r = 0; r < o.ranks; r++) {
    pid_t const pid = fork();
    if (pid < 0) {
      perror("uzip_ranks: fork");
      for (pid_t p : pids) kill(p, SIGKILL);
      return kFailed;
    }
    if (pid == 0) {
      // Only this rank's ends stay open, so that a peer that dies is noticed.
      for (int c = 0; c < o.channels; c++) {
        std::vector<int> const ring = ringOf(o.ranks, c);
        for (int i = 0; i < o.ranks; i++) {
          Wire const& wire = wires[size_t(c)][size_t(i)];
          if (wire.memory != nullptr) continue;
          if (ring[size_t(i)] != r) close(wire.sendFd);
          if (ring[size_t((i + 1) % o.ranks)] != r) close(wire.recvFd);
        }
      }
      int code;
      try {
        code = Rank(o, r, payload, wires, &shared->ranks[r]).run();
      } catch (std::exception const& e) {
        fprintf(stderr, "uzip_ranks: rank %d: %s\n", r, e.what());
        code = kFailed;
      }
      exit(code);
    }
    pids.push_back(pid);
  }
  for (auto& ring : wires) {
    for (Wire const& w : ring) {
      if (w.memory == nullptr) close(w.sendFd), close(w.recvFd);
    }
  }
  int code = waitForRanks(o, pids, *shared);
  Totals const t = totalsOf(o, *shared);
  if (code != kOk) return code;
  if (t.slotErrors)
    code = kSlotErrors;
  else if (o.compare && t.differences != 0)
    code = kDiffers;
  if (!o.json.empty() && !writeJson(o, *shared, t)) return kFailed;
  fprintf(stderr, "uzip_ranks: %s, ratio %.4f, %.2f s%s\n", kModeNames[o.uzip],
          t.raw ? double(t.wire) / double(t.raw) : 1.0, t.seconds,
          !o.compare      ? ""
          : t.slotErrors  ? ", a slot was refused"
          : t.differences ? ", OUTPUTS DIFFER"
                          : ", identical");
  return code;
}
