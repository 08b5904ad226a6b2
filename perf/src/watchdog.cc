// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0

#include "watchdog.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include <chrono>

#include "util.h"

namespace perf {

namespace {

// How long the main thread has to leave by itself once there is a reason to stop.
constexpr double kGraceSeconds = 10;

volatile sig_atomic_t gSignal = 0;
void onSignal(int s) { gSignal = s; }

}  // namespace

Watchdog::Watchdog(const Rendezvous& rendezvous) : rendezvous_(rendezvous) {
  struct sigaction action{};
  action.sa_handler = onSignal;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  thread_ = std::thread([this] { run(); });
}

Watchdog::~Watchdog() {
  stop_ = true;
  thread_.join();
}

double Watchdog::nowPlus(double seconds) { return nowSeconds() + seconds; }

std::string Watchdog::reason() const {
  if (gSignal != 0) return format("stopped by signal %d", int(gSignal));
  if (lost_ >= 0) return format("rank %d has ended; its own message says why", int(lost_));
  return "";
}

void Watchdog::check() const {
  std::string why = reason();
  if (!why.empty()) throw Error(why);
}

void Watchdog::run() {
  while (!stop_) {
    if (!leaving_ && lost_ < 0) lost_ = rendezvous_.lostRank();
    if (exitAt_ == 0.0 && !reason().empty()) exitAt_ = nowPlus(kGraceSeconds);
    if (exitAt_ != 0.0 && nowSeconds() > exitAt_) {
      std::string why = reason();
      fprintf(stderr, "rank %d: %s; leaving without clean-up\n", rendezvous_.rank(),
              why.empty() ? "clean-up blocks" : why.c_str());
      _exit(1);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

}  // namespace perf
