// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0

#include "runner.h"

#include <cuda_runtime.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "json.h"
#include "kernels.h"
#include "payload_file.h"
#include "rendezvous.h"
#include "util.h"
#include "verify.h"
#include "watchdog.h"

extern char** environ;

namespace perf {

namespace {

// Bytes before and behind every buffer that no collective may touch.
constexpr uint64_t kGuardBytes = 512;
constexpr uint8_t kPoison = 0xa5;

void checkCuda(cudaError_t e, const char* what) {
  if (e != cudaSuccess) throw Error(format("%s: %s", what, cudaGetErrorString(e)));
}
#define CUDACHECK(call) checkCuda((call), #call)

// A guarded device buffer for `bytes` bytes that begin `shift` bytes behind an aligned address.
class DeviceBuffer {
 public:
  void allocate(uint64_t bytes, uint64_t shift) {
    release();
    total_ = bytes + shift + 2 * kGuardBytes;
    cudaError_t e = cudaMalloc(&base_, total_);
    if (e != cudaSuccess) {
      base_ = nullptr;
      throw Error(format("cannot allocate %llu bytes on the GPU: %s; choose a smaller -e", (unsigned long long)total_,
                         cudaGetErrorString(e)));
    }
    head_ = kGuardBytes + shift;
  }
  void release() {
    if (base_) cudaFree(base_);
    base_ = nullptr;
  }
  ~DeviceBuffer() { release(); }
  DeviceBuffer() = default;
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  uint8_t* base() const { return static_cast<uint8_t*>(base_); }
  uint8_t* data() const { return base() + head_; }
  uint64_t headBytes() const { return head_; }

 private:
  void* base_ = nullptr;
  uint64_t total_ = 0, head_ = 0;
};

struct Traffic {
  bool known;
  uint64_t raw, wire;
};

// What one rank measured of a phase.
struct RankTimes {
  double seconds, cpuSeconds;  // per collective
  Traffic traffic;
};

struct RankCheck {
  unsigned long long wrong, unjudged, hash;
};

// One half of a row, over all ranks.
struct Phase {
  double timeUs, minUs, avgUs, maxUs, cpuUs, algBw, busBw;
  bool checked, hashed;
  unsigned long long wrong, unjudged, hash;
  uint64_t ops;
  Traffic traffic;
};

double reduceRanks(const std::vector<RankTimes>& ranks, double RankTimes::* field, Average how) {
  double sum = 0, lo = HUGE_VAL, hi = 0;
  for (auto& r : ranks) {
    sum += r.*field;
    lo = std::min(lo, r.*field);
    hi = std::max(hi, r.*field);
  }
  return how == kAvgRank0 ? ranks[0].*field : how == kAvgMean ? sum / double(ranks.size()) : how == kAvgMin ? lo : hi;
}

// At most seven characters, as many digits as fit.
std::string timeText(double us) { return format(us < 9999.995 ? "%7.2f" : us < 99999.95 ? "%7.1f" : "%7.0f", us); }

std::string hostName() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

class Runner {
 public:
  Runner(Collective collective, const Options& options, std::vector<std::string> command)
      : collective_(collective), opt_(options), command_(std::move(command)) {}
  ~Runner();

  // The exit status.
  int run();

  int rank() const { return job_.rank; }
  void abortAfterError();

 private:
  bool allReduce() const { return collective_ == Collective::kAllReduce; }
  bool first() const { return job_.rank == 0; }
  void say(const char* fmt, ...) __attribute__((format(printf, 2, 3)));
  void checkNccl(NcclResult rc, const char* what);

  void checkArguments();
  void agreeOnCommand();
  void chooseDevice();
  void initComm();
  void printHeader();
  void useType(DType type);
  void runRow(uint64_t size, int root, int cycle, bool lastRow);
  Phase runPhase(bool inPlace, bool dump);
  void measure(bool inPlace, RankTimes* mine);
  void verify(bool inPlace, Phase* phase, bool dump);

  void prepare(bool inPlace);
  void launch(bool inPlace, int iterations);
  void launchOne(bool inPlace, uint64_t count);
  void iterate(bool inPlace, uint64_t times);
  void alignRanks();
  void sync();
  void checkAsync();
  Traffic traffic();
  uint64_t opsBeforeOverflow(bool inPlace) const;
  void dumpOutput(const void* data, uint64_t bytes);
  void appendJson(int cycle, int root, const Phase& out, const Phase& in);

  Collective collective_;
  Options opt_;
  std::vector<std::string> command_;
  JobEnv job_;
  std::unique_ptr<Rendezvous> rendezvous_;
  std::unique_ptr<Watchdog> watchdog_;
  std::unique_ptr<PayloadFile> file_;
  NcclApi nccl_{};
  NcclComm comm_ = nullptr;
  cudaStream_t stream_ = nullptr;
  cudaGraphExec_t graph_ = nullptr;
  std::string deviceName_;
  int uzipVersion_ = 0, uzipFormat_ = 0;

  DeviceBuffer send_, recv_, scratch_, payloadData_;
  CheckCounters* counters_ = nullptr;

  // The row that runs.
  Payload payload_{};
  DType type_ = kFloat;
  RedOp op_ = kSum;
  int ncclOp_ = 0;
  int root_ = 0;
  uint64_t count_ = 0;
  double rowBegin_ = 0;

  JsonWriter json_;
  unsigned long long wrong_ = 0;
  double busBwSum_ = 0;
  uint64_t busBwRows_ = 0;
};

Runner::~Runner() {
  if (counters_) cudaFree(counters_);
  if (stream_) cudaStreamDestroy(stream_);
}

void Runner::say(const char* fmt, ...) {
  if (!first()) return;
  va_list args;
  va_start(args, fmt);
  vprintf(fmt, args);
  va_end(args);
  fflush(stdout);
}

void Runner::checkNccl(NcclResult rc, const char* what) {
  if (rc == kNcclSuccess || rc == kNcclInProgress) return;
  const char* detail = nccl_.getLastError(comm_);
  throw Error(
      format("%s: %s%s%s", what, nccl_.getErrorString(rc), detail && *detail ? ": " : "", detail ? detail : ""));
}
#define NCCLCHECK(call) checkNccl((call), #call)

void Runner::abortAfterError() {
  if (watchdog_) watchdog_->exitWithin(10);
  if (comm_) nccl_.commAbort(comm_);
  comm_ = nullptr;
}

// What can be refused before any GPU or network is touched.
void Runner::checkArguments() {
  job_ = jobFromEnv();
  if (!allReduce() && opt_.root >= job_.size) {
    throw UsageError(format("-r %d: the job has ranks 0 to %d", opt_.root, job_.size - 1));
  }
  if (opt_.dist == kDistFile) {
    file_ = std::make_unique<PayloadFile>(opt_.payload);
    for (DType t : opt_.types) {
      if (!kDTypeInfo[t].isFloat) file_->convert(t);  // throws: it names the type
    }
  }
  if (first() && !opt_.json.empty()) {
    size_t slash = opt_.json.rfind('/');
    std::string folder = slash == std::string::npos ? "." : slash == 0 ? "/" : opt_.json.substr(0, slash);
    if (access(folder.c_str(), W_OK | X_OK) != 0) {
      throw UsageError(
          format("--json %s: cannot write into %s: %s", opt_.json.c_str(), folder.c_str(), strerror(errno)));
    }
  }
}

// All ranks must run the same program on the same data: the check computes every rank's input here.
void Runner::agreeOnCommand() {
  struct Digest {
    uint64_t command, payload;
  };
  std::string text = collectiveName(collective_);
  for (size_t i = 1; i < command_.size(); i++) text += '\n' + command_[i];
  Digest mine{fnv1a(text.data(), text.size()), file_ ? file_->contentHash() : 0};
  std::vector<Digest> all = rendezvous_->gatherValues(mine);
  for (int r = 1; r < job_.size; r++) {
    if (all[size_t(r)].command != all[0].command) {
      throw UsageError(format("rank %d runs another command line than rank 0; give all ranks the same", r));
    }
    if (all[size_t(r)].payload != all[0].payload) {
      throw UsageError(format("rank %d has another payload file %s than rank 0", r, opt_.payload.c_str()));
    }
  }
}

void Runner::chooseDevice() {
  int devices = 0;
  cudaError_t e = cudaGetDeviceCount(&devices);
  if (e != cudaSuccess || devices == 0) {
    throw Error(format("no usable GPU: %s", e != cudaSuccess ? cudaGetErrorString(e) : "none is visible"));
  }
  std::string node = hostName() + '\n' + envString("NCCL_HOSTID");
  std::vector<std::string> nodes = rendezvous_->gather(node);
  int local = job_.localRank;
  if (local < 0) local = int(std::count(nodes.begin(), nodes.begin() + job_.rank, node));
  int device = local % devices;
  std::string wanted = envString("NCCL_TESTS_DEVICE");
  if (!wanted.empty()) device = int(parseInt("NCCL_TESTS_DEVICE", wanted, 0, devices - 1));
  CUDACHECK(cudaSetDevice(device));
  cudaDeviceProp prop;
  CUDACHECK(cudaGetDeviceProperties(&prop, device));
  deviceName_ = prop.name;
  std::string line = format("Rank %2d Pid %6d on %10s device %2d [%04x:%02x] %s", job_.rank, int(getpid()),
                            hostName().c_str(), device, unsigned(prop.pciDomainID), unsigned(prop.pciBusID), prop.name);
  say("# Using devices\n");
  for (auto& l : rendezvous_->gather(line)) say("#  %s\n", l.c_str());
}

void Runner::initComm() {
  NcclUniqueId id{};
  if (first()) NCCLCHECK(nccl_.getUniqueId(&id));
  id = rendezvous_->gatherValues(id)[0];
  NcclComm comm = nullptr;
  checkNccl(nccl_.commInitRank(&comm, job_.size, id, job_.rank), "ncclCommInitRank");
  comm_ = comm;
  if (!opt_.streamNull) CUDACHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  CUDACHECK(cudaMalloc(&counters_, sizeof *counters_));
}

void Runner::printHeader() {
  const Options& o = opt_;
  say("# nThread 1 nGpus 1 minBytes %llu maxBytes %llu step: %llu(%s) warmup iters: %d iters: %d agg iters: %d "
      "validation: %d "
      "graph: %d\n",
      (unsigned long long)o.minBytes, (unsigned long long)o.maxBytes,
      (unsigned long long)(o.stepFactor > 1 ? uint64_t(o.stepFactor) : o.stepBytes),
      o.stepFactor > 1 ? "factor" : "bytes", o.warmupIters, o.iters, o.aggIters, o.check, o.graphLaunches);
  say("# %s, %d rank(s), payload: %s, times over ranks: %s\n", collectiveName(collective_), job_.size,
      o.payload.c_str(), kAverageNames[o.average]);
  if (nccl_.uzipGetVersion) {
    nccl_.uzipGetVersion(&uzipVersion_, &uzipFormat_);
    say("# NCCL version %d, uzip version %d format %d, %s\n#\n", nccl_.version, uzipVersion_, uzipFormat_,
        nccl_.path.c_str());
  } else {
    say("# NCCL version %d, no uzip, %s\n#\n", nccl_.version, nccl_.path.c_str());
  }
}

// Buffers, payload data and the type's parameters.
void Runner::useType(DType type) {
  type_ = type;
  uint64_t es = uint64_t(kDTypeInfo[type].bytes);
  uint64_t shift = opt_.offset * es;
  send_.allocate(opt_.maxBytes, shift);
  recv_.allocate(opt_.maxBytes, shift);
  scratch_.allocate(es, 0);
  CUDACHECK(cudaMemset(scratch_.base(), 0, 2 * kGuardBytes + es));
  payload_ = Payload{opt_.dist, opt_.seed, nullptr, 1};
  if (file_) {
    std::vector<uint8_t> bits = file_->convert(type);
    payloadData_.allocate(bits.size(), 0);
    CUDACHECK(cudaMemcpy(payloadData_.data(), bits.data(), bits.size(), cudaMemcpyHostToDevice));
    payload_.data = payloadData_.data();
    payload_.length = bits.size() / es;
  }
  CUDACHECK(cudaDeviceSynchronize());  // copies on the null stream come before all work on stream_
}

// Inputs in place, outputs poisoned. Only the row's part of the buffers and its guards are touched.
void Runner::prepare(bool inPlace) {
  uint64_t bytes = count_ * uint64_t(kDTypeInfo[type_].bytes);
  for (DeviceBuffer* b : {&send_, &recv_}) {
    if (inPlace && b == &send_) continue;
    CUDACHECK(cudaMemsetAsync(b->base(), kPoison, b->headBytes() + bytes + kGuardBytes, stream_));
  }
  bool hasInput = !inPlace || allReduce() || job_.rank == root_;
  void* input = inPlace ? recv_.data() : send_.data();
  if (hasInput && count_ > 0) CUDACHECK(fillInput(type_, input, count_, payload_, job_.rank, stream_));
}

void Runner::launchOne(bool inPlace, uint64_t count) {
  const void* in = inPlace ? recv_.data() : send_.data();
  if (allReduce())
    NCCLCHECK(nccl_.allReduce(in, recv_.data(), count, type_, ncclOp_, comm_, stream_));
  else
    NCCLCHECK(nccl_.broadcast(in, recv_.data(), count, type_, root_, comm_, stream_));
}

void Runner::launch(bool inPlace, int iterations) {
  for (int i = 0; i < iterations; i++) {
    if (opt_.aggIters > 1) NCCLCHECK(nccl_.groupStart());
    for (int a = 0; a < opt_.aggIters; a++) launchOne(inPlace, count_);
    if (opt_.aggIters > 1) NCCLCHECK(nccl_.groupEnd());
  }
}

void Runner::checkAsync() {
  NcclResult async = kNcclSuccess;
  NCCLCHECK(nccl_.commGetAsyncError(comm_, &async));
  checkNccl(async, "asynchronous error");
}

// Waits for the stream, watching the communicator, the other ranks and the clock.
void Runner::sync() {
  double lastLook = nowSeconds();
  for (;;) {
    cudaError_t e = cudaStreamQuery(stream_);
    if (e == cudaSuccess) return checkAsync();
    if (e != cudaErrorNotReady) checkCuda(e, "waiting for the stream");
    double now = nowSeconds();
    if (now - lastLook > 1e-3) {
      lastLook = now;
      watchdog_->check();
      checkAsync();
      if (opt_.timeoutSeconds > 0 && now - rowBegin_ > opt_.timeoutSeconds) {
        throw Error(format("%s of %llu elements not done after %d s (-T)", collectiveName(collective_),
                           (unsigned long long)count_, opt_.timeoutSeconds));
      }
    }
    sched_yield();
  }
}

// All ranks leave this together, as near as one tiny collective can bring them: a TCP barrier alone would put its skew into
// short measurements.
void Runner::alignRanks() {
  rendezvous_->barrier();
  void* s = scratch_.data();
  if (allReduce())
    NCCLCHECK(nccl_.allReduce(s, s, 1, type_, ncclOp_, comm_, stream_));
  else
    NCCLCHECK(nccl_.broadcast(s, s, 1, type_, root_, comm_, stream_));
  sync();
}

Traffic Runner::traffic() {
  Traffic t{};
  if (!nccl_.uzipCommGetStats) return t;
  UzipStats s{};
  s.size = sizeof s;
  NCCLCHECK(nccl_.uzipCommGetStats(comm_, &s));
  return {true, s.sendRawBytes, s.sendWireBytes};
}

// A sum in place grows by the number of ranks with every iteration. How many fit before values like a weight's overflow.
uint64_t Runner::opsBeforeOverflow(bool inPlace) const {
  bool grows = inPlace && allReduce() && (op_ == kSum || op_ == kMulSum) && kDTypeInfo[type_].isFloat && job_.size > 1;
  if (!grows) return UINT64_MAX;
  int bias = type_ == kHalf || type_ == kFloat8e5m2 ? 15 : type_ == kFloat8e4m3 ? 7 : type_ == kDouble ? 1023 : 127;
  double ops = floor((bias - 4) / log2(op_ == kMulSum ? 1.5 * job_.size : job_.size));
  return ops < 1 ? 1 : uint64_t(ops);
}

void Runner::measure(bool inPlace, RankTimes* mine) {
  uint64_t limit = opsBeforeOverflow(inPlace);
  uint64_t agg = uint64_t(opt_.aggIters);
  auto refillEvery = [&](uint64_t opsPerLaunch) {
    return limit == UINT64_MAX ? UINT64_MAX : std::max<uint64_t>(1, limit / opsPerLaunch);
  };
  for (uint64_t done = 0; done < uint64_t(opt_.warmupIters);) {
    uint64_t n = std::min(refillEvery(agg), uint64_t(opt_.warmupIters) - done);
    prepare(inPlace);
    launch(inPlace, int(n));
    sync();
    done += n;
  }
  if (opt_.graphLaunches > 0) {
    cudaGraph_t graph;
    CUDACHECK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    launch(inPlace, opt_.iters);
    CUDACHECK(cudaStreamEndCapture(stream_, &graph));
    CUDACHECK(cudaGraphInstantiate(&graph_, graph, 0));
    CUDACHECK(cudaGraphDestroy(graph));
    CUDACHECK(cudaGraphUpload(graph_, stream_));
    sync();
  }
  uint64_t launches = uint64_t(graph_ ? opt_.graphLaunches : opt_.iters);
  uint64_t perLaunch = graph_ ? uint64_t(opt_.iters) * agg : agg;
  *mine = RankTimes{};
  for (uint64_t done = 0; done < launches;) {
    uint64_t n = std::min(refillEvery(perLaunch), launches - done);
    prepare(inPlace);
    sync();
    alignRanks();
    Traffic before = traffic();
    double begin = nowSeconds();
    for (uint64_t i = 0; i < n; i++) {
      if (graph_)
        CUDACHECK(cudaGraphLaunch(graph_, stream_));
      else
        launch(inPlace, 1);
      if (opt_.blocking) sync();
    }
    double launched = nowSeconds();
    sync();
    double end = nowSeconds();
    Traffic after = traffic();
    mine->seconds += end - begin;
    mine->cpuSeconds += launched - begin;
    mine->traffic.known = after.known;
    mine->traffic.raw += after.raw - before.raw;
    mine->traffic.wire += after.wire - before.wire;
    done += n;
  }
  mine->seconds /= double(launches * perLaunch);
  mine->cpuSeconds /= double(launches * perLaunch);
  if (graph_) CUDACHECK(cudaGraphExecDestroy(graph_));
  graph_ = nullptr;
}

void Runner::dumpOutput(const void* data, uint64_t bytes) {
  std::string text(bytes, '\0');
  CUDACHECK(cudaMemcpy(&text[0], data, bytes, cudaMemcpyDeviceToHost));
  writeFileAtomically(format("%s.%d", opt_.dump.c_str(), job_.rank), text);
}

void Runner::verify(bool inPlace, Phase* phase, bool dump) {
  int runs = std::max(opt_.check, opt_.hash || dump ? 1 : 0);
  uint64_t bytes = count_ * uint64_t(kDTypeInfo[type_].bytes);
  for (int i = 0; i < runs; i++) {
    prepare(inPlace);
    CUDACHECK(cudaMemsetAsync(counters_, 0, sizeof *counters_, stream_));
    sync();
    rendezvous_->barrier();
    if (opt_.graphLaunches > 0) {
      cudaGraph_t graph;
      cudaGraphExec_t exec;
      CUDACHECK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
      launchOne(inPlace, count_);
      CUDACHECK(cudaStreamEndCapture(stream_, &graph));
      CUDACHECK(cudaGraphInstantiate(&exec, graph, 0));
      CUDACHECK(cudaGraphLaunch(exec, stream_));
      sync();
      CUDACHECK(cudaGraphExecDestroy(exec));
      CUDACHECK(cudaGraphDestroy(graph));
    } else {
      launchOne(inPlace, count_);
      sync();
    }
    if (opt_.check > 0) {
      if (allReduce()) {
        CUDACHECK(checkReduction(type_, recv_.data(), count_, payload_, op_, job_.size, counters_, stream_));
      } else {
        CUDACHECK(checkCopy(type_, recv_.data(), count_, payload_, root_, counters_, stream_));
      }
      CUDACHECK(checkBytes(recv_.base(), recv_.headBytes(), kPoison, counters_, stream_));
      CUDACHECK(checkBytes(recv_.data() + bytes, kGuardBytes, kPoison, counters_, stream_));
      if (!inPlace) {
        CUDACHECK(checkCopy(type_, send_.data(), count_, payload_, job_.rank, counters_, stream_));
        CUDACHECK(checkBytes(send_.base(), send_.headBytes(), kPoison, counters_, stream_));
        CUDACHECK(checkBytes(send_.data() + bytes, kGuardBytes, kPoison, counters_, stream_));
      }
    }
    CUDACHECK(hashOutput(type_, recv_.data(), count_, counters_, stream_));
    sync();
    CheckCounters mine;
    CUDACHECK(cudaMemcpy(&mine, counters_, sizeof mine, cudaMemcpyDeviceToHost));
    std::vector<uint64_t> hashes;
    for (auto& r : rendezvous_->gatherValues(RankCheck{mine.wrong, mine.unjudged, mine.hash})) {
      hashes.push_back(r.hash);
      phase->wrong += r.wrong + (r.hash != hashes[0] ? 1 : 0);
      phase->unjudged += r.unjudged;
    }
    phase->hash = combineHashes(hashes.data(), job_.size);
    if (dump && i == runs - 1) dumpOutput(recv_.data(), bytes);
  }
  phase->checked = opt_.check > 0;
  phase->hashed = opt_.hash;
  if (!phase->checked) phase->wrong = phase->unjudged = 0;
}

Phase Runner::runPhase(bool inPlace, bool dump) {
  Phase p{};
  RankTimes mine{};
  measure(inPlace, &mine);
  std::vector<RankTimes> all = rendezvous_->gatherValues(mine);
  p.timeUs = 1e6 * reduceRanks(all, &RankTimes::seconds, opt_.average);
  p.minUs = 1e6 * reduceRanks(all, &RankTimes::seconds, kAvgMin);
  p.avgUs = 1e6 * reduceRanks(all, &RankTimes::seconds, kAvgMean);
  p.maxUs = 1e6 * reduceRanks(all, &RankTimes::seconds, kAvgMax);
  p.cpuUs = 1e6 * reduceRanks(all, &RankTimes::cpuSeconds, opt_.average);
  p.ops = uint64_t(opt_.iters) * uint64_t(opt_.aggIters) * uint64_t(std::max(1, opt_.graphLaunches));
  p.traffic.known = true;
  for (auto& r : all) {
    p.traffic.known &= r.traffic.known;
    p.traffic.raw += r.traffic.raw;
    p.traffic.wire += r.traffic.wire;
  }
  double us = opt_.reportCpuTime ? p.cpuUs : p.timeUs;
  double bytes = double(count_) * kDTypeInfo[type_].bytes;
  p.algBw = us > 0 ? bytes / (us * 1e3) : 0;
  p.busBw = p.algBw * (allReduce() ? 2.0 * (job_.size - 1) / job_.size : 1.0);
  verify(inPlace, &p, dump);
  return p;
}

void Runner::runRow(uint64_t size, int root, int cycle, bool lastRow) {
  uint64_t es = uint64_t(kDTypeInfo[type_].bytes);
  root_ = root;
  count_ = size / es;
  rowBegin_ = nowSeconds();
  say("%12llu  %12llu  %8s  %6s  %6d", (unsigned long long)(count_ * es), (unsigned long long)count_,
      kDTypeInfo[type_].name, allReduce() ? redOpName(op_) : "none", allReduce() ? -1 : root);
  Phase phases[2];
  for (int i = 0; i < 2; i++) {
    Phase& p = phases[i];
    p = runPhase(i == 1, lastRow && i == 0 && !opt_.dump.empty());
    std::string wrong = p.checked ? format("%llu", p.wrong) : "N/A";
    say("  %s  %6.2f  %6.2f  %5s", timeText(opt_.reportCpuTime ? p.cpuUs : p.timeUs).c_str(), p.algBw, p.busBw,
        wrong.c_str());
    wrong_ += p.wrong;
    busBwSum_ += p.busBw;
    busBwRows_++;
  }
  uint64_t raw = phases[0].traffic.raw + phases[1].traffic.raw, wire = phases[0].traffic.wire + phases[1].traffic.wire;
  if (raw > 0)
    say("  %7.4f  %13.0f", double(wire) / double(raw), double(wire) / double(phases[0].ops + phases[1].ops));
  else
    say("  %7s  %13s", "-", "-");
  if (opt_.hash) say("  %016llx  %016llx", phases[0].hash, phases[1].hash);
  say("\n");
  if (first()) appendJson(cycle, root, phases[0], phases[1]);
}

void Runner::appendJson(int cycle, int root, const Phase& out, const Phase& in) {
  JsonWriter& j = json_;
  j.beginObject();
  j.key("schema").integer(1);
  j.key("collective").value(collectiveName(collective_));
  j.key("ranks").integer(job_.size);
  j.key("size").integer(count_ * uint64_t(kDTypeInfo[type_].bytes));
  j.key("count").integer(count_);
  j.key("dtype").value(kDTypeInfo[type_].name);
  j.key("redop").value(allReduce() ? redOpName(op_) : "none");
  j.key("root").integer(allReduce() ? -1 : root);
  j.key("payload").value(opt_.payload);
  j.key("seed").integer(opt_.seed);
  j.key("offset").integer(opt_.offset);
  j.key("iters").integer(opt_.iters);
  j.key("agg_iters").integer(opt_.aggIters);
  j.key("warmup_iters").integer(opt_.warmupIters);
  j.key("check").integer(opt_.check);
  j.key("graph").integer(opt_.graphLaunches);
  j.key("blocking").integer(opt_.blocking ? 1 : 0);
  j.key("cycle").integer(cycle);
  j.key("average").value(kAverageNames[opt_.average]);
  for (const Phase* p : {&out, &in}) {
    bool framed = p->traffic.known && p->traffic.raw > 0;
    j.key(p == &out ? "out_of_place" : "in_place").beginObject();
    j.key("time_us").value(p->timeUs);
    j.key("time_min_us").value(p->minUs);
    j.key("time_avg_us").value(p->avgUs);
    j.key("time_max_us").value(p->maxUs);
    j.key("cpu_us").value(p->cpuUs);
    j.key("algbw").value(p->algBw);
    j.key("busbw").value(p->busBw);
    if (p->checked)
      j.key("wrong").integer(p->wrong).key("unjudged").integer(p->unjudged);
    else
      j.key("wrong").null().key("unjudged").null();
    if (p->hashed)
      j.key("hash").value(format("%016llx", p->hash));
    else
      j.key("hash").null();
    j.key("ops").integer(p->ops);
    if (framed) {
      j.key("total_raw_bytes").integer(p->traffic.raw).key("total_wire_bytes").integer(p->traffic.wire);
      j.key("ratio").value(double(p->traffic.wire) / double(p->traffic.raw));
    } else {
      j.key("total_raw_bytes").null().key("total_wire_bytes").null().key("ratio").null();
    }
    j.endObject();
  }
  uint64_t raw = out.traffic.raw + in.traffic.raw, wire = out.traffic.wire + in.traffic.wire, ops = out.ops + in.ops;
  if (raw > 0) {
    j.key("raw_bytes").integer((raw + ops / 2) / ops).key("wire_bytes").integer((wire + ops / 2) / ops);
    j.key("ratio").value(double(wire) / double(raw));
  } else {
    j.key("raw_bytes").null().key("wire_bytes").null().key("ratio").null();
  }
  j.key("library").beginObject().key("path").value(nccl_.path).key("version").integer(nccl_.version);
  if (nccl_.uzipGetVersion)
    j.key("uzip_version").integer(uzipVersion_).key("uzip_format").integer(uzipFormat_);
  else
    j.key("uzip_version").null().key("uzip_format").null();
  j.endObject();
  UzipPolicy policy{};
  policy.size = sizeof policy;
  if (nccl_.uzipCommGetPolicy && nccl_.uzipCommGetPolicy(comm_, &policy) == kNcclSuccess) {
    policy.reason[sizeof policy.reason - 1] = '\0';
    j.key("uzip").beginObject().key("enabled").value(policy.enabled != 0).key("reason").value(policy.reason);
    j.key("min_bytes").integer(policy.minBytes).key("exact").value(policy.exact != 0);
    j.key("forced").value(policy.forced != 0).endObject();
  } else {
    j.key("uzip").null();
  }
  j.key("device").value(deviceName_);
  int runtime = 0, driver = 0;
  cudaRuntimeGetVersion(&runtime);
  cudaDriverGetVersion(&driver);
  j.key("cuda_runtime").integer(runtime).key("cuda_driver").integer(driver);
  j.key("host").value(hostName());
  j.key("env").beginObject();
  for (char** e = environ; *e; e++) {
    std::string entry = *e;
    size_t equals = entry.find('=');
    if (entry.compare(0, 5, "NCCL_") == 0 && equals != entry.npos)
      j.key(entry.substr(0, equals)).value(entry.substr(equals + 1));
  }
  j.endObject();
  j.key("command").beginArray();
  for (auto& arg : command_) j.value(arg);
  j.endArray().endObject();
}

int Runner::run() {
  checkArguments();
  rendezvous_ = std::make_unique<Rendezvous>(job_);
  watchdog_ = std::make_unique<Watchdog>(*rendezvous_);
  agreeOnCommand();
  nccl_ = loadNccl();
  printHeader();
  chooseDevice();
  initComm();
  const char* hashHead = opt_.hash ? "              hash              hash" : "";
  say("#\n#%62sout-of-place%23sin-place\n", "", "");
  say("#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw "
      "#wrong"
      "    ratio           wire%s\n",
      hashHead);
  say("#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)   "
      "    "
      "                      (B)%s\n",
      opt_.hash ? "      out-of-place          in-place" : "");
  json_.beginArray();
  std::vector<uint64_t> sizes = sizeLadder(opt_);
  std::vector<RedOp> ops = allReduce() ? opt_.ops : std::vector<RedOp>{kSum};
  int rootBegin = allReduce() || opt_.root < 0 ? 0 : opt_.root;
  int rootEnd = allReduce() ? 1 : opt_.root < 0 ? job_.size : opt_.root + 1;
  for (int cycle = 0; cycle < opt_.runCycles; cycle++) {
    for (DType type : opt_.types) {
      useType(type);
      for (RedOp op : ops) {
        op_ = op;
        ncclOp_ = op;
        if (op == kMulSum) {
          uint64_t scalar = 0;  // little endian: its first bytes are the scalar of any type
          PERF_DISPATCH(type, DT, scalar = mulScalarBits<DT>(job_.rank));
          NCCLCHECK(nccl_.redOpCreatePreMulSum(&ncclOp_, &scalar, type, kScalarHostImmediate, comm_));
        }
        for (int root = rootBegin; root < rootEnd; root++) {
          for (uint64_t size : sizes) {
            bool last = cycle == opt_.runCycles - 1 && type == opt_.types.back() && op == ops.back() &&
                        root == rootEnd - 1 && size == sizes.back();
            runRow(size, root, cycle, last);
          }
        }
        if (op == kMulSum) NCCLCHECK(nccl_.redOpDestroy(ncclOp_, comm_));
      }
    }
  }
  json_.endArray();
  if (first() && !opt_.json.empty()) writeFileAtomically(opt_.json, json_.text() + '\n');
  watchdog_->expectLeaving();
  rendezvous_->barrier();
  NcclComm comm = comm_;
  comm_ = nullptr;
  NCCLCHECK(nccl_.commDestroy(comm));

  double average = busBwRows_ > 0 ? busBwSum_ / double(busBwRows_) : 0;
  std::string floorText = envString("NCCL_TESTS_MIN_BW");
  bool fast = floorText.empty() || average >= strtod(floorText.c_str(), nullptr);
  say("# Out of bounds values : %llu %s\n", wrong_, wrong_ == 0 ? "OK" : "FAILED");
  say("# Avg bus bandwidth    : %g %s\n#\n", average, floorText.empty() ? "" : fast ? "OK" : "FAILED");
  return wrong_ == 0 && fast ? 0 : 1;
}

}  // namespace

int perfMain(Collective collective, int argc, char** argv) {
  std::unique_ptr<Runner> runner;
  int status = 0;
  std::string who;
  try {
    Options options = parseOptions(argc, argv);
    const char* slash = strrchr(argv[0], '/');
    const char* program = slash ? slash + 1 : argv[0];
    if (options.help) {
      fputs(helpText(program).c_str(), stdout);
      return 0;
    }
    if (options.version) {
      NcclApi api = loadNccl();
      printf("%s of nccl-uzip, NCCL version %d, %s\n", program, api.version, api.path.c_str());
      return 0;
    }
    runner = std::make_unique<Runner>(collective, options, std::vector<std::string>(argv, argv + argc));
    return runner->run();
  } catch (const UsageError& e) {
    status = 2;
    who = e.what();
  } catch (const std::exception& e) {
    status = 1;
    who = e.what();
  }
  fflush(stdout);
  fprintf(stderr, "%s: rank %d: %s\n", argv[0], runner ? runner->rank() : 0, who.c_str());
  if (runner) runner->abortAfterError();
  // Destructors would touch a GPU that may be in any state.
  fflush(nullptr);
  _exit(status);
}

}  // namespace perf
