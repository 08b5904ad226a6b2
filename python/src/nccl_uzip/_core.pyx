# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""The calls of nccl_uzip.h through function pointers of a library opened at run time. Policy lives in _api.py."""

from libc.stddef cimport size_t
from libc.stdint cimport uint32_t, uint64_t, uintptr_t

from nccl_uzip._types import NcclError


cdef extern from "dlfcn.h" nogil:
    """
    #ifndef _GNU_SOURCE
    #error "_core.c is compiled with _GNU_SOURCE, for dladdr"
    #endif
    """
    int RTLD_NOW
    int RTLD_LOCAL
    int RTLD_NOLOAD
    ctypedef struct Dl_info:
        const char* dli_fname
    void* dlopen(const char* path, int flags)
    void* dlsym(void* handle, const char* name)
    int dlclose(void* handle)
    char* dlerror()
    int dladdr(const void* address, Dl_info* info)


# ncclUzipStats_t and ncclUzipPolicy_t of nccl_uzip.h; tests/python compares them with the header.
cdef struct Stats:
    size_t size
    uint64_t sendRawBytes
    uint64_t sendWireBytes
    uint64_t recvRawBytes
    uint64_t recvWireBytes
    uint64_t sendSlices
    uint64_t sendSlicesRaw
    uint64_t fwdSlices
    uint64_t recvSlices
    uint64_t ops
    uint64_t padBytes


cdef struct Policy:
    size_t size
    int enabled
    char reason[256]
    uint32_t links
    uint32_t types
    uint64_t minBytes
    int exact
    int forced


ctypedef int (*get_version_t)(int*, int*) noexcept nogil
ctypedef int (*get_nccl_version_t)(int*) noexcept nogil
ctypedef int (*get_stats_t)(void*, Stats*) noexcept nogil
ctypedef int (*reset_stats_t)(void*) noexcept nogil
ctypedef int (*get_policy_t)(void*, Policy*) noexcept nogil
ctypedef const char* (*get_error_string_t)(int) noexcept nogil
ctypedef const char* (*get_last_error_t)(void*) noexcept nogil


cdef class Library:
    """An opened libnccl-uzip.so. Stays open for the life of the process."""

    cdef void* _handle
    cdef get_version_t _version
    cdef get_nccl_version_t _nccl_version
    cdef get_stats_t _stats
    cdef reset_stats_t _reset_stats
    cdef get_policy_t _policy
    cdef get_error_string_t _error_string
    cdef get_last_error_t _last_error
    cdef readonly str path

    def __init__(self):
        raise TypeError("Library is made by open_library() and find_loaded()")

    cdef void* _symbol(self, const char* name) except NULL:
        cdef void* found = dlsym(self._handle, name)
        if found == NULL:
            raise OSError(f"{self.path}: no symbol {name.decode()}: not a libnccl-uzip.so of this version")
        return found

    cdef _resolve(self, str path):
        cdef Dl_info info
        self.path = path
        self._version = <get_version_t>self._symbol(b"ncclUzipGetVersion")
        if dladdr(<const void*>self._version, &info) != 0 and info.dli_fname != NULL:
            self.path = info.dli_fname.decode("utf-8", "surrogateescape")
        self._nccl_version = <get_nccl_version_t>self._symbol(b"ncclGetVersion")
        self._stats = <get_stats_t>self._symbol(b"ncclUzipCommGetStats")
        self._reset_stats = <reset_stats_t>self._symbol(b"ncclUzipCommResetStats")
        self._policy = <get_policy_t>self._symbol(b"ncclUzipCommGetPolicy")
        self._error_string = <get_error_string_t>self._symbol(b"ncclGetErrorString")
        self._last_error = <get_last_error_t>self._symbol(b"ncclGetLastError")

    cdef _check(self, str function, int code, void* comm):
        cdef const char* detail
        if code == 0:
            return
        text = self._error_string(code)
        detail = self._last_error(comm)
        raise NcclError(
            code,
            function,
            (<bytes>text).decode("utf-8", "replace"),
            "" if detail == NULL else (<bytes>detail).decode("utf-8", "replace").strip(),
        )

    def version(self):
        cdef int version = 0, form = 0, nccl = 0, code
        with nogil:
            code = self._version(&version, &form)
        self._check("ncclUzipGetVersion", code, NULL)
        with nogil:
            code = self._nccl_version(&nccl)
        self._check("ncclGetVersion", code, NULL)
        return version, form, nccl

    def stats(self, uintptr_t comm):
        cdef Stats s
        cdef int code
        s.size = sizeof(Stats)
        with nogil:
            code = self._stats(<void*>comm, &s)
        self._check("ncclUzipCommGetStats", code, <void*>comm)
        return (
            s.sendRawBytes,
            s.sendWireBytes,
            s.recvRawBytes,
            s.recvWireBytes,
            s.sendSlices,
            s.sendSlicesRaw,
            s.fwdSlices,
            s.recvSlices,
            s.ops,
            s.padBytes,
        )

    def reset_stats(self, uintptr_t comm):
        cdef int code
        with nogil:
            code = self._reset_stats(<void*>comm)
        self._check("ncclUzipCommResetStats", code, <void*>comm)

    def policy(self, uintptr_t comm):
        cdef Policy p
        cdef int code
        p.size = sizeof(Policy)
        with nogil:
            code = self._policy(<void*>comm, &p)
        self._check("ncclUzipCommGetPolicy", code, <void*>comm)
        reason = (<bytes>p.reason[: sizeof(p.reason)]).split(b"\0", 1)[0].decode("utf-8", "replace")
        return bool(p.enabled), reason, p.links, p.types, p.minBytes, bool(p.exact), bool(p.forced)


cdef Library _wrap(void* handle, str path):
    cdef Library library = Library.__new__(Library)
    library._handle = handle
    library._resolve(path)
    return library


def open_library(str path):
    """Open the file ``path``. Raises OSError when it cannot be loaded or is not a libnccl-uzip.so."""
    encoded = path.encode("utf-8", "surrogateescape")
    cdef const char* name = encoded
    cdef void* handle
    with nogil:
        handle = dlopen(name, RTLD_NOW | RTLD_LOCAL)
    if handle == NULL:
        raise OSError(dlerror().decode("utf-8", "replace"))
    try:
        return _wrap(handle, path)
    except OSError:
        dlclose(handle)
        raise


def find_loaded():
    """The NCCL that the process has loaded: ``(library, path)``.

    ``library`` is None when there is none (``path`` None too) or when it is another NCCL (``path`` names it).
    Loads nothing.
    """
    cdef Dl_info info
    cdef void* symbol
    cdef void* handle = dlopen(b"libnccl.so.2", RTLD_NOW | RTLD_NOLOAD)
    if handle == NULL:
        return None, None
    if dlsym(handle, b"ncclUzipGetVersion") != NULL:
        return _wrap(handle, "libnccl.so.2"), None
    path = "libnccl.so.2"
    symbol = dlsym(handle, b"ncclGetVersion")
    if symbol != NULL and dladdr(symbol, &info) != 0 and info.dli_fname != NULL:
        path = info.dli_fname.decode("utf-8", "surrogateescape")
    dlclose(handle)
    return None, path
