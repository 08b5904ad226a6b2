// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0

#include "rendezvous.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "util.h"

namespace perf {

namespace {

constexpr char kMagic[8] = {'u', 'z', 'p', 'e', 'r', 'f', '0', '1'};
constexpr uint64_t kMaxBlob = 1 << 20;

// First bytes on a connection, from the rank that connects, and the answer. Native byte order: all hosts are little endian.
struct Hello {
  char magic[8];
  uint64_t job;
  int32_t rank, size;
};
enum Answer : uint32_t { kWelcome = 0x11, kOtherJob = 0x12, kOtherSize = 0x13, kTakenRank = 0x14 };
struct HelloReply {
  char magic[8];
  uint32_t answer;
  int32_t size;
};

struct Frame {
  uint32_t sequence, reserved;
  uint64_t bytes;
};

// Waits for `events` until `deadline`. False on time-out.
bool waitFor(int fd, short events, double deadline) {
  for (;;) {
    double left = deadline - nowSeconds();
    pollfd p{fd, events, 0};
    int n = poll(&p, 1, left > 0 ? int(left * 1e3) + 1 : 0);
    if (n > 0) return true;
    if (n == 0 && left <= 0) return false;
    if (n < 0 && errno != EINTR) return true;  // the next call on fd reports it
  }
}

enum class Io { kDone, kClosed, kTimeout };

Io sendAll(int fd, const void* data, size_t bytes, double deadline) {
  const char* p = static_cast<const char*>(data);
  while (bytes > 0) {
    ssize_t n = ::send(fd, p, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) {
      p += n;
      bytes -= size_t(n);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!waitFor(fd, POLLOUT, deadline)) return Io::kTimeout;
    } else if (errno != EINTR) {
      return Io::kClosed;
    }
  }
  return Io::kDone;
}

Io recvAll(int fd, void* data, size_t bytes, double deadline) {
  char* p = static_cast<char*>(data);
  while (bytes > 0) {
    ssize_t n = ::recv(fd, p, bytes, MSG_DONTWAIT);
    if (n > 0) {
      p += n;
      bytes -= size_t(n);
    } else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      if (!waitFor(fd, POLLIN, deadline)) return Io::kTimeout;
    } else if (n == 0 || errno != EINTR) {
      return Io::kClosed;
    }
  }
  return Io::kDone;
}

void tune(int fd) {
  int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
}

// A listening socket for IPv6 and IPv4, or IPv4 alone where there is no IPv6; -1 with errno.
int openListener(int port) {
  for (int family : {AF_INET6, AF_INET}) {
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    int zero = 0, one = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    sockaddr_in6 a6{};
    sockaddr_in a4{};
    int rc;
    if (family == AF_INET6) {
      setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
      a6.sin6_family = AF_INET6;
      a6.sin6_port = htons(uint16_t(port));
      rc = bind(fd, reinterpret_cast<sockaddr*>(&a6), sizeof a6);
    } else {
      a4.sin_family = AF_INET;
      a4.sin_port = htons(uint16_t(port));
      rc = bind(fd, reinterpret_cast<sockaddr*>(&a4), sizeof a4);
    }
    if (rc == 0 && ::listen(fd, 1024) == 0) return fd;
    int err = errno;
    close(fd);
    errno = err;
    if (err == EADDRINUSE || err == EACCES) return -1;
  }
  return -1;
}

// A connection within `deadline`, or -1 with errno.
int connectTo(const addrinfo* a, int port, double deadline) {
  int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  sockaddr_storage addr{};
  memcpy(&addr, a->ai_addr, a->ai_addrlen);
  if (a->ai_family == AF_INET)
    reinterpret_cast<sockaddr_in*>(&addr)->sin_port = htons(uint16_t(port));
  else
    reinterpret_cast<sockaddr_in6*>(&addr)->sin6_port = htons(uint16_t(port));
  int rc = ::connect(fd, reinterpret_cast<sockaddr*>(&addr), a->ai_addrlen), err = rc == 0 ? 0 : errno;
  if (err == EINPROGRESS) {
    socklen_t len = sizeof err;
    if (!waitFor(fd, POLLOUT, deadline))
      err = ETIMEDOUT;
    else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len) != 0)
      err = errno;
  }
  if (err != 0) {
    close(fd);
    errno = err;
    return -1;
  }
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
  return fd;
}

// The first pair of variables of which one is set; false where none is.
bool rankFrom(const char* rankVar, const char* sizeVar, JobEnv* job) {
  std::string rank = envString(rankVar), size = envString(sizeVar);
  if (rank.empty() && size.empty()) return false;
  if (rank.empty() || size.empty()) {
    throw UsageError(format("%s is set but %s is not; a launcher sets both", rank.empty() ? sizeVar : rankVar,
                            rank.empty() ? rankVar : sizeVar));
  }
  job->size = int(parseInt(sizeVar, size, 1, 1 << 20));
  job->rank = int(parseInt(rankVar, rank, 0, job->size - 1));
  return true;
}

std::string portsText(const JobEnv& job) {
  return job.ports == 1 ? format("port %d", job.firstPort)
                        : format("ports %d to %d", job.firstPort, job.firstPort + job.ports - 1);
}

}  // namespace

JobEnv jobFromEnv() {
  JobEnv job;
  if (!rankFrom("RANK", "WORLD_SIZE", &job) && !rankFrom("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", &job) &&
      !rankFrom("PMI_RANK", "PMI_SIZE", &job)) {
    rankFrom("SLURM_PROCID", "SLURM_NTASKS", &job);
  }
  for (const char* name : {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"}) {
    std::string v = envString(name);
    if (v.empty()) continue;
    job.localRank = int(parseInt(name, v, 0, 1 << 20));
    break;
  }
  if (!envString("MASTER_ADDR").empty()) job.address = envString("MASTER_ADDR");
  bool torchrun = !envString("TORCHELASTIC_RUN_ID").empty();
  std::string port = envString("MASTER_PORT"), own = envString("UZIP_PERF_PORT");
  if (!port.empty()) job.firstPort = int(parseInt("MASTER_PORT", port, 1, 65535));
  if (torchrun) job.firstPort++;  // torchrun's own store listens on MASTER_PORT
  if (!own.empty()) {
    job.firstPort = int(parseInt("UZIP_PERF_PORT", own, 1, 65535));
    job.ports = 1;
  }
  if (job.firstPort + job.ports > 65536) job.firstPort = 65536 - job.ports;
  std::string timeout = envString("UZIP_PERF_TIMEOUT");
  if (!timeout.empty()) job.timeoutSeconds = double(parseInt("UZIP_PERF_TIMEOUT", timeout, 1, 1 << 20));
  std::string id;
  for (const char* name : {"TORCHELASTIC_RUN_ID", "MASTER_PORT", "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid",
                           "SLURM_JOB_ID", "SLURM_STEP_ID"}) {
    id += envString(name) + '\n';
  }
  job.job = fnv1a(id.data(), id.size());
  return job;
}

Rendezvous::Rendezvous(const JobEnv& job) : job_(job), fds_(size_t(job.size), -1) {
  if (job_.size == 1) return;
  try {
    if (job_.rank == 0)
      listen();
    else
      connect();
  } catch (...) {
    closeAll();
    throw;
  }
}

Rendezvous::~Rendezvous() { closeAll(); }

void Rendezvous::closeAll() {
  for (int& fd : fds_) {
    if (fd >= 0) close(fd);
    fd = -1;
  }
}

void Rendezvous::check(bool ok) {
  if (!ok) throw Error("ranks disagree on the size of a gathered value: they run different programs");
}

void Rendezvous::listen() {
  int listener = -1, err = 0;
  for (int i = 0; i < job_.ports && listener < 0; i++) {
    listener = openListener(job_.firstPort + i);
    if (listener < 0) err = errno;
  }
  if (listener < 0) {
    throw Error(format("rank 0 cannot listen on %s: %s; choose a free port with UZIP_PERF_PORT (for all ranks)",
                       portsText(job_).c_str(), strerror(err)));
  }
  double deadline = nowSeconds() + job_.timeoutSeconds;
  int missing = job_.size - 1, wrongSize = 0;
  while (missing > 0 && wrongSize == 0 && waitFor(listener, POLLIN, deadline)) {
    int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) continue;
    tune(fd);
    // A stranger on the port must not hold up the others.
    Hello hello;
    double patience = nowSeconds() + 2;
    if (recvAll(fd, &hello, sizeof hello, patience) != Io::kDone || memcmp(hello.magic, kMagic, sizeof kMagic) != 0) {
      close(fd);
      continue;
    }
    HelloReply reply;
    memcpy(reply.magic, kMagic, sizeof kMagic);
    reply.size = job_.size;
    if (hello.job != job_.job)
      reply.answer = kOtherJob;
    else if (hello.size != job_.size || hello.rank < 1 || hello.rank >= job_.size)
      reply.answer = kOtherSize;
    else if (fds_[size_t(hello.rank)] >= 0)
      reply.answer = kTakenRank;
    else
      reply.answer = kWelcome;
    bool sent = sendAll(fd, &reply, sizeof reply, patience) == Io::kDone;
    if (sent && reply.answer == kWelcome) {
      fds_[size_t(hello.rank)] = fd;
      missing--;
      continue;
    }
    close(fd);
    if (reply.answer == kOtherSize) wrongSize = hello.size;
  }
  close(listener);
  if (wrongSize != 0) {
    throw Error(
        format("a rank says that the job has %d ranks, rank 0 says %d; check WORLD_SIZE", wrongSize, job_.size));
  }
  if (missing > 0) {
    std::string who;
    for (int r = 1; r < job_.size; r++) {
      if (fds_[size_t(r)] < 0) who += format("%s%d", who.empty() ? "" : ", ", r);
    }
    throw Error(
        format("rank(s) %s did not connect to rank 0 within %g s; were they started, with MASTER_ADDR and MASTER_PORT "
               "of rank 0's host? UZIP_PERF_TIMEOUT sets the limit",
               who.c_str(), job_.timeoutSeconds));
  }
}

void Rendezvous::connect() {
  double deadline = nowSeconds() + job_.timeoutSeconds;
  std::string last = "no answer";
  for (bool first = true; first || nowSeconds() < deadline; first = false) {
    addrinfo hints{}, *list = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    int rc = getaddrinfo(job_.address.c_str(), nullptr, &hints, &list);
    if (rc != 0) {
      last = gai_strerror(rc);
      usleep(200 * 1000);
      continue;
    }
    for (int i = 0; i < job_.ports; i++) {
      for (addrinfo* a = list; a; a = a->ai_next) {
        if (a->ai_family != AF_INET && a->ai_family != AF_INET6) continue;
        double now = nowSeconds(), patience = now + 5 < deadline ? now + 5 : deadline;
        int fd = connectTo(a, job_.firstPort + i, patience);
        if (fd < 0) {
          if (errno != ECONNREFUSED || last == "no answer") last = strerror(errno);
          continue;
        }
        tune(fd);
        Hello hello;
        memcpy(hello.magic, kMagic, sizeof kMagic);
        hello.job = job_.job;
        hello.rank = job_.rank;
        hello.size = job_.size;
        HelloReply reply;
        bool ours = sendAll(fd, &hello, sizeof hello, patience) == Io::kDone &&
                    recvAll(fd, &reply, sizeof reply, patience) == Io::kDone &&
                    memcmp(reply.magic, kMagic, sizeof kMagic) == 0;
        if (ours && reply.answer == kWelcome) {
          freeaddrinfo(list);
          fds_[0] = fd;
          return;
        }
        close(fd);
        if (ours && reply.answer == kOtherSize) {
          freeaddrinfo(list);
          throw Error(format("rank %d says that the job has %d ranks, rank 0 says %d; check WORLD_SIZE", job_.rank,
                             job_.size, reply.size));
        }
        last = !ours                        ? "another program listens there"
               : reply.answer == kTakenRank ? "rank 0 already has a rank of this number"
                                            : "another job's rank 0 listens there";
      }
    }
    freeaddrinfo(list);
    usleep(100 * 1000);
  }
  throw Error(
      format("rank %d found no rank 0 at %s %s within %g s (%s); was it started, is MASTER_ADDR right? UZIP_PERF_PORT "
             "sets another port, UZIP_PERF_TIMEOUT the limit",
             job_.rank, job_.address.c_str(), portsText(job_).c_str(), job_.timeoutSeconds, last.c_str()));
}

void Rendezvous::send(int peer, const std::string& blob) {
  Frame f{sequence_, 0, blob.size()};
  std::string bytes(reinterpret_cast<char*>(&f), sizeof f);
  bytes += blob;
  Io io = sendAll(fds_[size_t(peer)], bytes.data(), bytes.size(), nowSeconds() + job_.timeoutSeconds);
  if (io == Io::kTimeout) throw Error(format("rank %d takes no data since %g s", peer, job_.timeoutSeconds));
  if (io == Io::kClosed) throw Error(format("rank %d has ended; its own message says why", peer));
}

std::string Rendezvous::receive(int peer) {
  double deadline = nowSeconds() + job_.timeoutSeconds;
  Frame f{};
  Io io = recvAll(fds_[size_t(peer)], &f, sizeof f, deadline);
  std::string blob;
  if (io == Io::kDone) {
    if (f.sequence != sequence_ || f.bytes > (job_.rank == 0 ? kMaxBlob : (kMaxBlob + 8) * uint64_t(job_.size))) {
      throw Error(format("rank %d is out of step with rank %d: do all ranks run the same command?", peer, job_.rank));
    }
    blob.resize(f.bytes);
    io = recvAll(fds_[size_t(peer)], &blob[0], blob.size(), deadline);
  }
  if (io == Io::kTimeout) {
    throw Error(format("rank %d sent nothing for %g s (UZIP_PERF_TIMEOUT sets the limit)", peer, job_.timeoutSeconds));
  }
  if (io == Io::kClosed) throw Error(format("rank %d has ended; its own message says why", peer));
  return blob;
}

std::vector<std::string> Rendezvous::gather(const std::string& mine) {
  if (mine.size() > kMaxBlob) throw Error("a gathered blob is larger than 1 MiB");
  sequence_++;
  std::vector<std::string> out(size_t(job_.size), mine);
  if (job_.size == 1) return out;
  if (job_.rank == 0) {
    std::string all;
    for (int r = 0; r < job_.size; r++) {
      if (r > 0) out[size_t(r)] = receive(r);
      uint64_t n = out[size_t(r)].size();
      all.append(reinterpret_cast<char*>(&n), sizeof n);
      all += out[size_t(r)];
    }
    for (int r = 1; r < job_.size; r++) send(r, all);
    return out;
  }
  send(0, mine);
  std::string all = receive(0);
  size_t at = 0;
  for (auto& blob : out) {
    uint64_t n = 0;
    check(all.size() - at >= sizeof n);
    memcpy(&n, all.data() + at, sizeof n);
    at += sizeof n;
    check(n <= all.size() - at);
    blob = all.substr(at, n);
    at += n;
  }
  check(at == all.size());
  return out;
}

int Rendezvous::lostRank() const {
  for (int r = 0; r < job_.size; r++) {
    if (fds_[size_t(r)] < 0) continue;
    pollfd p{fds_[size_t(r)], POLLRDHUP, 0};
    if (poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR))) return r;
  }
  return -1;
}

}  // namespace perf
