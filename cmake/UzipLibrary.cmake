# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
#
# The fork itself is built by NCCL's own makefiles, which know their dependencies; these targets always ask them.
# Settings come from the environment (CUDA_ARCHS, UZIP_FUNCS, CUDA_HOME, NCCL_SRC, NCCL_TARBALL, JOBS), see tools/build.

foreach(target IN ITEMS nccl-tree lib lib-for-tests lib-stock)
  set(arguments)
  set(tool build)
  if(target STREQUAL nccl-tree)
    set(tool tree)
  elseif(target STREQUAL lib-stock)
    set(arguments --stock)
  elseif(target STREQUAL lib-for-tests)
    set(arguments --for-tests)
  endif()
  add_custom_target(${target}
    COMMAND ${CMAKE_COMMAND} -E env UZIP_BUILD=${CMAKE_BINARY_DIR} ${UZIP_PYTHON} ${UZIP_TOOLS}/${tool} ${arguments}
    USES_TERMINAL VERBATIM)
endforeach()
