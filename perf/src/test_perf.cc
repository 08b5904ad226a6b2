// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0
//
// Runs one host-side part of the perf programs on what standard input and the arguments give, for tests/perf.
// Values travel as raw little-endian bytes. Exit status as of the programs: 1 for Error, 2 for UsageError.

#include <stdio.h>
#include <string.h>

#include <iostream>
#include <iterator>

#include "json.h"
#include "options.h"
#include "payload_file.h"
#include "rendezvous.h"
#include "util.h"
#include "verify.h"

namespace perf {

namespace {

std::string readInput() {
  return std::string(std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>());
}

void writeOutput(const void* data, size_t bytes) { fwrite(data, 1, bytes, stdout); }

template <typename T>
T load(const std::string& bytes, size_t index) {
  T v;
  memcpy(&v, bytes.data() + index * sizeof v, sizeof v);
  return v;
}

DType typeNamed(const std::string& name) {
  std::string flag = "-d" + name;
  const char* argv[] = {"test_perf", flag.c_str()};
  return parseOptions(2, argv).types[0];
}

RedOp opNamed(const std::string& name) {
  std::string flag = "-o" + name;
  const char* argv[] = {"test_perf", flag.c_str()};
  return parseOptions(2, argv).ops[0];
}

// options FLAGS...
void showOptions(const Options& o) {
  JsonWriter j;
  j.beginObject();
  j.key("ops").beginArray();
  for (RedOp op : o.ops) j.value(redOpName(op));
  j.endArray().key("types").beginArray();
  for (DType t : o.types) j.value(kDTypeInfo[t].name);
  j.endArray();
  j.key("iters").integer(o.iters).key("agg_iters").integer(o.aggIters).key("warmup_iters").integer(o.warmupIters);
  j.key("run_cycles").integer(o.runCycles).key("check").integer(o.check).key("graph").integer(o.graphLaunches);
  j.key("timeout").integer(o.timeoutSeconds).key("root").integer(o.root).key("seed").integer(o.seed);
  j.key("offset").integer(o.offset).key("average").value(kAverageNames[o.average]);
  j.key("blocking")
      .value(o.blocking)
      .key("stream_null")
      .value(o.streamNull)
      .key("report_cputime")
      .value(o.reportCpuTime);
  j.key("hash").value(o.hash).key("payload").value(o.payload).key("payload_is_file").value(o.dist == kDistFile);
  j.key("json").value(o.json).key("dump").value(o.dump);
  j.key("sizes").beginArray();
  for (uint64_t s : sizeLadder(o)) j.integer(s);
  j.endArray().endObject();
  puts(j.text().c_str());
}

// payload NAME DTYPE RANK COUNT SEED: the rank's elements.
template <int DT>
void writePayload(const Payload& p, int rank, uint64_t count) {
  for (uint64_t i = 0; i < count; i++) {
    auto bits = rankElement<DT>(p, rank, i);
    writeOutput(&bits, sizeof bits);
  }
}

void payload(char** args) {
  const char* argv[] = {"test_perf", "--payload", args[0]};
  Options o = parseOptions(3, argv);
  DType type = typeNamed(args[1]);
  Payload p{o.dist, uint64_t(parseInt("SEED", args[4], 0, INT64_MAX)), nullptr, 1};
  std::vector<uint64_t> aligned;
  if (o.dist == kDistFile) {
    PayloadFile file(o.payload);
    std::vector<uint8_t> bits = file.convert(type);
    aligned.resize(bits.size() / 8 + 1);
    memcpy(aligned.data(), bits.data(), bits.size());
    p.data = aligned.data();
    p.length = file.elements();
  }
  int rank = int(parseInt("RANK", args[2], 0, 1 << 20));
  uint64_t count = uint64_t(parseInt("COUNT", args[3], 0, INT64_MAX));
  PERF_DISPATCH(type, DT, writePayload<DT>(p, rank, count));
}

// encode DTYPE: doubles in, bits out. decode DTYPE: bits in, doubles out. Float types.
template <int DT>
void convert(bool encode) {
  if constexpr (Elem<DT>::kFloat) {
    using Bits = typename Elem<DT>::Bits;
    std::string in = readInput();
    size_t n = in.size() / (encode ? sizeof(double) : sizeof(Bits));
    for (size_t i = 0; i < n; i++) {
      Bits bits = encode ? Elem<DT>::encode(load<double>(in, i)) : load<Bits>(in, i);
      double value = Elem<DT>::decode(bits);
      if (encode)
        writeOutput(&bits, sizeof bits);
      else
        writeOutput(&value, sizeof value);
    }
  } else {
    throw UsageError("a float type is needed");
  }
}

// judge DTYPE OP RANKS: records of an output and every rank's input; a digit per record comes out.
template <int DT>
void judge(RedOp op, int ranks) {
  using Bits = typename Elem<DT>::Bits;
  std::string in = readInput();
  size_t record = size_t(ranks) + 1, n = in.size() / sizeof(Bits) / record;
  for (size_t i = 0; i < n; i++) {
    auto input = [&](int r) { return load<Bits>(in, i * record + 1 + size_t(r)); };
    printf("%d", int(judgeReduction<DT>(load<Bits>(in, i * record), op, ranks, input)));
  }
}

// hash DTYPE: the output's hash.
template <int DT>
void hash() {
  using Bits = typename Elem<DT>::Bits;
  std::string in = readInput();
  uint64_t sum = 0;
  for (size_t i = 0; i < in.size() / sizeof(Bits); i++) sum += elementHash(uint64_t(load<Bits>(in, i)), i);
  printf("%016llx\n", (unsigned long long)sum);
}

// rendezvous ROUNDS: gathers a line of every rank so many times, and prints them.
void rendezvous(int rounds) {
  JobEnv job = jobFromEnv();
  Rendezvous r(job);
  for (int i = 0; i < rounds; i++) {
    std::string line;
    for (auto& blob : r.gather(format("%d.%d", i, job.rank) + std::string(size_t(job.rank) * 1000, '.'))) {
      line += blob.substr(0, blob.find_last_not_of('.') + 1) + ' ';
    }
    puts(line.c_str());
  }
  r.barrier();
}

int testMain(int argc, char** argv) {
  std::string what = argc > 1 ? argv[1] : "";
  char** args = argv + 2;
  int n = argc - 2;
  if (what == "options")
    showOptions(parseOptions(n + 1, argv + 1));
  else if (what == "payload" && n == 5)
    payload(args);
  else if (what == "encode" && n == 1) {
    PERF_DISPATCH(typeNamed(args[0]), DT, convert<DT>(true));
  } else if (what == "decode" && n == 1) {
    PERF_DISPATCH(typeNamed(args[0]), DT, convert<DT>(false));
  } else if (what == "judge" && n == 3) {
    PERF_DISPATCH(typeNamed(args[0]), DT, judge<DT>(opNamed(args[1]), int(parseInt("RANKS", args[2], 1, 1024))));
  } else if (what == "hash" && n == 1) {
    PERF_DISPATCH(typeNamed(args[0]), DT, hash<DT>());
  } else if (what == "rendezvous" && n == 1)
    rendezvous(int(parseInt("ROUNDS", args[0], 0, 1 << 20)));
  else if (what == "json" && n == 0)
    parseJson(readInput());
  else
    throw UsageError("see the comments of test_perf.cc");
  return 0;
}

}  // namespace

}  // namespace perf

int main(int argc, char** argv) {
  try {
    return perf::testMain(argc, argv);
  } catch (const perf::UsageError& e) {
    fprintf(stderr, "%s\n", e.what());
    return 2;
  } catch (const std::exception& e) {
    fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
