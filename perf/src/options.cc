// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0

#include "options.h"

#include <getopt.h>
#include <string.h>

#include "util.h"

namespace perf {

namespace {

enum LongOnly { kOptPayload = 256, kOptSeed, kOptOffset, kOptHash, kOptDump, kOptJson };

const option kLong[] = {{"nthreads", required_argument, nullptr, 't'},
                        {"ngpus", required_argument, nullptr, 'g'},
                        {"minbytes", required_argument, nullptr, 'b'},
                        {"maxbytes", required_argument, nullptr, 'e'},
                        {"stepbytes", required_argument, nullptr, 'i'},
                        {"stepfactor", required_argument, nullptr, 'f'},
                        {"iters", required_argument, nullptr, 'n'},
                        {"agg_iters", required_argument, nullptr, 'm'},
                        {"warmup_iters", required_argument, nullptr, 'w'},
                        {"run_cycles", required_argument, nullptr, 'N'},
                        {"parallel_init", required_argument, nullptr, 'p'},
                        {"check", required_argument, nullptr, 'c'},
                        {"op", required_argument, nullptr, 'o'},
                        {"datatype", required_argument, nullptr, 'd'},
                        {"root", required_argument, nullptr, 'r'},
                        {"blocking", required_argument, nullptr, 'z'},
                        {"stream_null", required_argument, nullptr, 'y'},
                        {"timeout", required_argument, nullptr, 'T'},
                        {"cudagraph", required_argument, nullptr, 'G'},
                        {"report_cputime", required_argument, nullptr, 'C'},
                        {"average", required_argument, nullptr, 'a'},
                        {"local_register", required_argument, nullptr, 'R'},
                        {"version", no_argument, nullptr, 'V'},
                        {"help", no_argument, nullptr, 'h'},
                        {"payload", required_argument, nullptr, kOptPayload},
                        {"seed", required_argument, nullptr, kOptSeed},
                        {"offset", required_argument, nullptr, kOptOffset},
                        {"hash", no_argument, nullptr, kOptHash},
                        {"dump", required_argument, nullptr, kOptDump},
                        {"json", required_argument, nullptr, kOptJson},
                        {nullptr, 0, nullptr, 0}};

constexpr const char* kRedOpNames[] = {"sum", "prod", "max", "min", "avg", "mulsum"};

constexpr struct {
  const char* name;
  DType type;
} kAliases[] = {{"char", kInt8},     {"int", kInt32},           {"float16", kHalf},       {"f16", kHalf},
                {"float32", kFloat}, {"f32", kFloat},           {"float64", kDouble},     {"f64", kDouble},
                {"bf16", kBfloat16}, {"fp8_e4m3", kFloat8e4m3}, {"fp8_e5m2", kFloat8e5m2}};

std::vector<RedOp> parseOps(const std::string& text) {
  std::vector<RedOp> all;
  std::string names;
  for (int i = 0; i < kRedOps; i++) {
    if (text == kRedOpNames[i]) return {RedOp(i)};
    all.push_back(RedOp(i));
    names += format("%s, ", kRedOpNames[i]);
  }
  if (text == "all") return all;
  throw UsageError(format("-o: '%s' is not an operation; choose %sor all", text.c_str(), names.c_str()));
}

std::vector<DType> parseTypes(const std::string& text) {
  std::vector<DType> all;
  std::string names;
  for (int i = 0; i < kDTypes; i++) {
    if (text == kDTypeInfo[i].name) return {DType(i)};
    all.push_back(DType(i));
    names += format("%s, ", kDTypeInfo[i].name);
  }
  for (auto& a : kAliases) {
    if (text == a.name) return {a.type};
  }
  if (text == "all") return all;
  throw UsageError(format("-d: '%s' is not a datatype; choose %sor all", text.c_str(), names.c_str()));
}

Dist parseDist(const std::string& text) {
  for (int i = 0; i < kDistFile; i++) {
    if (text == kDistNames[i]) return Dist(i);
  }
  return kDistFile;
}

void requireOne(const char* flag, const std::string& text, const char* what) {
  if (parseInt(flag, text, 0, 1 << 20) != 1) {
    throw UsageError(format("%s %s: one process drives one %s here; start one process per rank with torchrun or mpirun",
                            flag, text.c_str(), what));
  }
}

}  // namespace

const char* collectiveName(Collective c) { return c == Collective::kAllReduce ? "all_reduce" : "broadcast"; }
const char* redOpName(RedOp op) { return kRedOpNames[op]; }

Options parseOptions(int argc, const char* const* argv) {
  Options o;
  constexpr int kMany = 1 << 30;
  optind = 0;  // the parser may run more than once in a process
  opterr = 0;
  for (;;) {
    int before = optind == 0 ? 1 : optind;
    int c = getopt_long(argc, const_cast<char* const*>(argv), ":t:g:b:e:i:f:n:m:w:N:p:c:o:d:r:z:y:T:G:C:a:R:Vh", kLong,
                        nullptr);
    if (c == -1) break;
    std::string v = optarg ? optarg : "";
    auto number = [&](const char* flag, int64_t min, int64_t max) { return int(parseInt(flag, v, min, max)); };
    switch (c) {
      case 't': requireOne("-t", v, "thread"); break;
      case 'g': requireOne("-g", v, "GPU"); break;
      case 'b': o.minBytes = parseBytes("-b", v); break;
      case 'e': o.maxBytes = parseBytes("-e", v); break;
      case 'i': o.stepBytes = parseBytes("-i", v); break;
      case 'f': o.stepFactor = parseInt("-f", v, 1, kMany); break;
      case 'n': o.iters = number("-n", 1, kMany); break;
      case 'm': o.aggIters = number("-m", 1, 1 << 16); break;
      case 'w': o.warmupIters = number("-w", 0, kMany); break;
      case 'N': o.runCycles = number("-N", 1, kMany); break;
      case 'p': number("-p", 0, 1); break;
      case 'c': o.check = number("-c", 0, kMany); break;
      case 'o': o.ops = parseOps(v); break;
      case 'd': o.types = parseTypes(v); break;
      case 'r': o.root = v == "all" ? -1 : number("-r", 0, kMany); break;
      case 'z': o.blocking = number("-z", 0, 1) != 0; break;
      case 'y': o.streamNull = number("-y", 0, 1) != 0; break;
      case 'T': o.timeoutSeconds = number("-T", 0, kMany); break;
      case 'G': o.graphLaunches = number("-G", 0, kMany); break;
      case 'C': o.reportCpuTime = number("-C", 0, 1) != 0; break;
      case 'a': o.average = Average(number("-a", 0, 3)); break;
      case 'R':
        if (parseInt("-R", v, 0, 2) != 0)
          throw UsageError(format("-R %s: buffer registration is not offered here; use -R 0", v.c_str()));
        break;
      case 'V': o.version = true; break;
      case 'h': o.help = true; break;
      case kOptPayload:
        o.payload = v;
        o.dist = parseDist(v);
        if (v.empty()) throw UsageError("--payload: an empty name");
        break;
      case kOptSeed: o.seed = uint64_t(parseInt("--seed", v, 0, INT64_MAX)); break;
      case kOptOffset: o.offset = uint64_t(parseInt("--offset", v, 0, 1 << 20)); break;
      case kOptHash: o.hash = true; break;
      case kOptDump: o.dump = v; break;
      case kOptJson: o.json = v; break;
      case ':': throw UsageError(format("%s: needs a value", argv[before]));
      default: throw UsageError(format("%s: no such flag; -h lists them", argv[before]));
    }
  }
  if (optind < argc) throw UsageError(format("'%s': not a flag; -h lists them", argv[optind]));
  if (o.minBytes > o.maxBytes) {
    throw UsageError(
        format("-b %llu is above -e %llu", (unsigned long long)o.minBytes, (unsigned long long)o.maxBytes));
  }
  if (o.stepFactor == 1 && o.stepBytes == 0 && o.minBytes != o.maxBytes) {
    throw UsageError("-i 0: with no -f above 1 the size would never grow");
  }
  if (o.stepFactor > 1 && o.minBytes == 0 && o.maxBytes > 0)
    throw UsageError("-b 0: a factor (-f) never makes it grow");
  if (o.graphLaunches > 0 && o.streamNull) throw UsageError("-G with -y 1: the null stream cannot be captured");
  return o;
}

std::vector<uint64_t> sizeLadder(const Options& o) {
  std::vector<uint64_t> sizes;
  for (uint64_t s = o.minBytes; s <= o.maxBytes;) {
    sizes.push_back(s);
    if (s == o.maxBytes || (o.stepFactor > 1 && s > o.maxBytes / uint64_t(o.stepFactor))) break;
    if (sizes.size() > 1000000) throw UsageError("-b, -e, -i, -f: more than a million sizes");
    s = o.stepFactor > 1 ? s * uint64_t(o.stepFactor) : s + o.stepBytes;
  }
  return sizes;
}

std::string helpText(const char* program) {
  return format(
      "USAGE: %s\n"
      "  -b,--minbytes SIZE       smallest size, K M G T are powers of 1024 (32M)\n"
      "  -e,--maxbytes SIZE       largest size (32M)\n"
      "  -i,--stepbytes SIZE      step between sizes (1M)\n"
      "  -f,--stepfactor N        factor between sizes, replaces the step (1)\n"
      "  -n,--iters N             timed iterations (20)\n"
      "  -m,--agg_iters N         collectives grouped in an iteration (1)\n"
      "  -w,--warmup_iters N      untimed iterations before each row (1)\n"
      "  -N,--run_cycles N        runs of the whole ladder (1)\n"
      "  -c,--check N             checked runs per row, 0 = none (1)\n"
      "  -o,--op OP               sum prod max min avg mulsum all (sum)\n"
      "  -d,--datatype TYPE       int8 uint8 int32 uint32 int64 uint64 half float double bfloat16 f8e4m3 f8e5m2 all "
      "(float)\n"
      "  -r,--root RANK           root of a broadcast, or all (0)\n"
      "  -z,--blocking 0|1        wait for each iteration (0)\n"
      "  -y,--stream_null 0|1     use the null stream (0)\n"
      "  -T,--timeout SECONDS     abort when a row takes longer, 0 = never (0)\n"
      "  -G,--cudagraph N         capture the iterations once and launch them N times (0)\n"
      "  -C,--report_cputime 0|1  report the host's launch time (0)\n"
      "  -a,--average 0|1|2|3     time over ranks: rank 0, average, minimum, maximum (3)\n"
      "  -t 1  -g 1  -p 0|1  -R 0 accepted for scripts: one process per rank, one GPU each\n"
      "  -V,--version  -h,--help\n"
      "  --payload X              normal uniform random zeros grad const ramp, or a file named *.bf16 *.f16 *.f32\n"
      "                           *.safetensors (normal)\n"
      "  --seed N                 seed of the named payloads (1)\n"
      "  --offset N               place the buffers N elements behind an aligned address (0)\n"
      "  --hash                   add a hash of all ranks' outputs to each row\n"
      "  --dump FILE              write the output of the last row to FILE.RANK\n"
      "  --json FILE              write all rows to FILE\n"
      "One process per rank: torchrun --no-python --nproc-per-node N %s ..., or mpirun -np N %s ...\n",
      program, program, program);
}

}  // namespace perf
