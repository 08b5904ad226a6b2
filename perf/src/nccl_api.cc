// SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
// SPDX-License-Identifier: Apache-2.0

#include "nccl_api.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>

#include "util.h"

namespace perf {

namespace {

std::string fileOf(void* symbol) {
  Dl_info info;
  if (!symbol || !dladdr(symbol, &info) || !info.dli_fname) return "";
  char resolved[PATH_MAX];
  return realpath(info.dli_fname, resolved) ? resolved : info.dli_fname;
}

template <typename Fn>
void bind(void* handle, const char* name, Fn* fn, const std::string& path) {
  *fn = reinterpret_cast<Fn>(dlsym(handle, name));
  if (!*fn)
    throw Error(format("%s has no symbol %s: not an NCCL 2 library, or one that is too old", path.c_str(), name));
}

}  // namespace

NcclApi loadNccl() {
  std::string wanted = envString("UZIP_PERF_NCCL");
  std::string preloaded = fileOf(dlsym(RTLD_DEFAULT, "ncclGetVersion"));
  const char* name = wanted.empty() ? "libnccl.so.2" : wanted.c_str();
  void* handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char* why = dlerror();
    throw Error(
        format("cannot load NCCL: %s; put libnccl.so.2 on LD_LIBRARY_PATH, preload it with LD_PRELOAD, or name the "
               "file in UZIP_PERF_NCCL",
               why ? why : name));
  }
  void* version = dlsym(handle, "ncclGetVersion");
  NcclApi api{};
  api.path = version ? fileOf(version) : name;
  if (!wanted.empty() && !preloaded.empty() && preloaded != api.path) {
    throw Error(
        format("UZIP_PERF_NCCL names %s but %s is preloaded; set one of LD_PRELOAD and UZIP_PERF_NCCL, not both",
               wanted.c_str(), preloaded.c_str()));
  }
  bind(handle, "ncclGetVersion", &api.getVersion, api.path);
  bind(handle, "ncclGetUniqueId", &api.getUniqueId, api.path);
  bind(handle, "ncclCommInitRank", &api.commInitRank, api.path);
  bind(handle, "ncclCommDestroy", &api.commDestroy, api.path);
  bind(handle, "ncclCommAbort", &api.commAbort, api.path);
  bind(handle, "ncclCommGetAsyncError", &api.commGetAsyncError, api.path);
  bind(handle, "ncclGetErrorString", &api.getErrorString, api.path);
  bind(handle, "ncclGetLastError", &api.getLastError, api.path);
  bind(handle, "ncclGroupStart", &api.groupStart, api.path);
  bind(handle, "ncclGroupEnd", &api.groupEnd, api.path);
  bind(handle, "ncclAllReduce", &api.allReduce, api.path);
  bind(handle, "ncclBroadcast", &api.broadcast, api.path);
  bind(handle, "ncclRedOpCreatePreMulSum", &api.redOpCreatePreMulSum, api.path);
  bind(handle, "ncclRedOpDestroy", &api.redOpDestroy, api.path);
  api.uzipGetVersion = reinterpret_cast<decltype(api.uzipGetVersion)>(dlsym(handle, "ncclUzipGetVersion"));
  api.uzipCommGetStats = reinterpret_cast<decltype(api.uzipCommGetStats)>(dlsym(handle, "ncclUzipCommGetStats"));
  api.uzipCommGetPolicy = reinterpret_cast<decltype(api.uzipCommGetPolicy)>(dlsym(handle, "ncclUzipCommGetPolicy"));
  NcclResult rc = api.getVersion(&api.version);
  if (rc != kNcclSuccess) throw Error(format("ncclGetVersion of %s: %s", api.path.c_str(), api.getErrorString(rc)));
  return api;
}

}  // namespace perf
