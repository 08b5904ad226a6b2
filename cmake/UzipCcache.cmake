# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0

find_program(UZIP_CCACHE ccache)
if(UZIP_CCACHE)
  foreach(language IN ITEMS C CXX CUDA)
    set(CMAKE_${language}_COMPILER_LAUNCHER ${UZIP_CCACHE})
  endforeach()
endif()
