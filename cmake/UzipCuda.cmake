# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
#
# UZIP_CUDA_HOME: the CUDA toolkit, empty on a machine without one (components that need it are left out then).
# Sets what find_package(CUDAToolkit) and enable_language(CUDA) look at.

find_package(Python3 3.10 REQUIRED COMPONENTS Interpreter)
set(UZIP_PYTHON "${Python3_EXECUTABLE}" CACHE FILEPATH "Python of the tools")
set(UZIP_TOOLS ${CMAKE_CURRENT_SOURCE_DIR}/nccl-uzip/tools)

execute_process(
  COMMAND ${UZIP_PYTHON} ${UZIP_TOOLS}/cuda home --no-install
  OUTPUT_VARIABLE UZIP_CUDA_HOME
  OUTPUT_STRIP_TRAILING_WHITESPACE
  COMMAND_ERROR_IS_FATAL ANY)
if(UZIP_CUDA_HOME)
  execute_process(
    COMMAND ${UZIP_PYTHON} ${UZIP_TOOLS}/cuda archs --no-install
    OUTPUT_VARIABLE UZIP_CUDA_ARCHS
    OUTPUT_STRIP_TRAILING_WHITESPACE
    COMMAND_ERROR_IS_FATAL ANY)
  set(CUDAToolkit_ROOT ${UZIP_CUDA_HOME})
  set(CMAKE_CUDA_COMPILER ${UZIP_CUDA_HOME}/bin/nvcc)
  set(CMAKE_CUDA_ARCHITECTURES ${UZIP_CUDA_ARCHS})
  message(STATUS "CUDA toolkit: ${UZIP_CUDA_HOME}, architectures ${UZIP_CUDA_ARCHS}")
else()
  message(STATUS "CUDA toolkit: none")
endif()
