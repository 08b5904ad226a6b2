// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0
//
// Notices, while the main thread waits inside CUDA or NCCL, that another rank has ended or that a signal asks to stop.

#ifndef PERF_WATCHDOG_H_
#define PERF_WATCHDOG_H_

#include <atomic>
#include <string>
#include <thread>

#include "rendezvous.h"

namespace perf {

class Watchdog {
 public:
  // Takes SIGINT and SIGTERM over.
  explicit Watchdog(const Rendezvous& rendezvous);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // Throws Error once a reason to stop was seen. Call it in every wait loop.
  void check() const;

  // From here on ranks may leave: the run is over on this rank and only the last barrier is left.
  void expectLeaving() { leaving_ = true; }

  // Ends the process with status 1 unless it has ended by itself within `seconds`: cleaning up after a failure may block.
  void exitWithin(double seconds) { exitAt_ = nowPlus(seconds); }

 private:
  static double nowPlus(double seconds);
  void run();
  // Empty: none.
  std::string reason() const;

  const Rendezvous& rendezvous_;
  std::atomic<bool> stop_{false}, leaving_{false};
  std::atomic<int> lost_{-1};
  std::atomic<double> exitAt_{0};  // 0: never
  std::thread thread_;
};

}  // namespace perf

#endif  // PERF_WATCHDOG_H_
