// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0
//
// How the ranks of a run find each other: rank 0 listens, the others connect, and blobs are gathered through it.
// docs/PERF.md names the environment variables.

#ifndef PERF_RENDEZVOUS_H_
#define PERF_RENDEZVOUS_H_

#include <stdint.h>

#include <string>
#include <vector>

namespace perf {

struct JobEnv {
  int rank = 0, size = 1;
  int localRank = -1;  // -1: the launcher does not say
  std::string address = "127.0.0.1";
  int firstPort = 29500, ports = 16;  // rank 0 takes the first free one
  uint64_t job = 0;                   // tells jobs on neighbouring ports apart
  double timeoutSeconds = 300;
};

// Reads the launcher's variables. Throws UsageError that names the variable.
JobEnv jobFromEnv();

// A star of TCP connections between all ranks and rank 0. Every rank calls the same methods in the same order. A call fails
// with an Error that names the rank that is missing when one does not follow within the job's time-out, or is gone.
class Rendezvous {
 public:
  explicit Rendezvous(const JobEnv& job);
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  int rank() const { return job_.rank; }
  int size() const { return job_.size; }

  // The blobs of all ranks in rank order, on every rank. At most 1 MiB each.
  std::vector<std::string> gather(const std::string& mine);

  template <typename T>
  std::vector<T> gatherValues(const T& mine) {
    std::vector<T> out;
    for (auto& blob : gather(std::string(reinterpret_cast<const char*>(&mine), sizeof mine))) {
      T v;
      check(blob.size() == sizeof v);
      __builtin_memcpy(&v, blob.data(), sizeof v);
      out.push_back(v);
    }
    return out;
  }

  void barrier() { gather(""); }

  // The rank whose connection has ended, or -1. Safe to call from another thread while a gather runs.
  int lostRank() const;

 private:
  void listen();
  void connect();
  void send(int peer, const std::string& blob);
  std::string receive(int peer);
  static void check(bool ok);
  void closeAll();

  JobEnv job_;
  std::vector<int> fds_;  // by peer; rank 0 has all the others, they have rank 0
  uint32_t sequence_ = 0;
};

}  // namespace perf

#endif  // PERF_RENDEZVOUS_H_
