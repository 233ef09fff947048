# SPDX-License-Identifier: BSD-3-Clause
# LibTorch out of the official wheel or zip, as the target ddprun::torch.
#
# The wheel's own find_package(Torch) stops without a CUDA toolkit, and with a toolkit whose NCCL is
# older than the wheel's it configures and then fails to link.  A program needs far less: two
# libraries, two include folders, two definitions, and to build the runtime Gloo's headers, which
# neither has.
#
# Looked for in this order: -DDDPRUN_TORCH=<dir>; in a project that uses the installed runtime, the
# torch that this was built with; the torch of the active Python ($VIRTUAL_ENV, then python3 on PATH;
# it is asked without importing torch); the project's .venv.
#
# The installed packages set what their messages call the way out; one that is built already, ddprun_built_torch.

set(DDPRUN_TORCH_OLDEST 2.6)
if(NOT DEFINED ddprun_without_runtime)
  set(ddprun_without_runtime "or configure with -DDDPRUN_RUNTIME=OFF to build without the C++ runtime")
  set(ddprun_get_torch "run scripts/setup, give its folder with -DDDPRUN_TORCH=<dir>")
endif()

# Sets `out` to the torch folder of the Python `interpreter`, or to "" when it has none.
function(ddprun_torch_of_python interpreter out)
  execute_process(
    COMMAND "${interpreter}" -c
      "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s and s.submodule_search_locations else '', end='')"
    OUTPUT_VARIABLE folder ERROR_QUIET RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    set(folder "")
  endif()
  set(${out} "${folder}" PARENT_SCOPE)
endfunction()

# Sets `out` to the torch folder to build with; ends the configuration when there is none.
function(ddprun_find_torch out)
  set(folder "${DDPRUN_TORCH}")
  if(NOT folder AND EXISTS "${ddprun_built_torch}/lib/libtorch_cpu.so")
    set(folder "${ddprun_built_torch}")
  endif()
  if(NOT folder)
    set(interpreters)
    if(DEFINED ENV{VIRTUAL_ENV})
      list(APPEND interpreters "$ENV{VIRTUAL_ENV}/bin/python3")
    endif()
    find_program(ddprun_python3 python3 NO_CACHE)
    if(ddprun_python3)
      list(APPEND interpreters "${ddprun_python3}")
    endif()
    list(APPEND interpreters "${PROJECT_SOURCE_DIR}/.venv/bin/python3")
    foreach(interpreter IN LISTS interpreters)
      if(NOT folder AND EXISTS "${interpreter}")
        ddprun_torch_of_python("${interpreter}" folder)
      endif()
    endforeach()
  endif()
  if(NOT folder)
    message(FATAL_ERROR "The C++ runtime needs the torch wheel, and no Python here has it: "
      "${ddprun_get_torch}, ${ddprun_without_runtime}.")
  endif()
  set(${out} "${folder}" PARENT_SCOPE)
endfunction()

# Refuses a `folder` that is no torch, an older torch than we support, or one of the old C++ ABI;
# else sets `out` to its version, such as 2.15.0.
function(ddprun_check_torch folder out)
  set(version_file version.py)  # of a wheel
  if(NOT EXISTS "${folder}/version.py")
    set(version_file build-version)  # of a zip
  endif()
  foreach(file lib/libtorch_cpu.so lib/libc10.so include/torch/csrc/api/include/torch/torch.h ${version_file})
    if(NOT EXISTS "${folder}/${file}")
      message(FATAL_ERROR "${folder} is neither the torch folder of a wheel nor an unpacked LibTorch "
        "(it has no ${file}): give another one with -DDDPRUN_TORCH=<dir>, ${ddprun_without_runtime}.")
    endif()
  endforeach()
  file(STRINGS "${folder}/${version_file}" line REGEX "^(__version__|[0-9])" LIMIT_COUNT 1)
  if(NOT line MATCHES "^(__version__.*['\"])?([0-9]+\\.[0-9]+[0-9.]*)")
    message(FATAL_ERROR "${folder}/${version_file} names no version: give another torch with "
      "-DDDPRUN_TORCH=<dir>, ${ddprun_without_runtime}.")
  endif()
  string(REGEX REPLACE "\\.$" "" version "${CMAKE_MATCH_2}")
  if(version VERSION_LESS DDPRUN_TORCH_OLDEST)
    message(FATAL_ERROR "torch ${version} in ${folder} is too old: ${DDPRUN_TORCH_OLDEST} or newer "
      "is needed; install one, ${ddprun_without_runtime}.")
  endif()
  set(config "${folder}/share/cmake/Torch/TorchConfig.cmake")
  if(EXISTS "${config}")
    file(STRINGS "${config}" old_abi REGEX "_GLIBCXX_USE_CXX11_ABI=0" LIMIT_COUNT 1)
    if(old_abi)
      message(FATAL_ERROR "torch ${version} in ${folder} is built with the old C++ ABI "
        "(_GLIBCXX_USE_CXX11_ABI=0), with which this library cannot be linked: install torch 2.7 or "
        "newer or a cxx11-abi build of this version, ${ddprun_without_runtime}.")
    endif()
  endif()
  set(${out} "${version}" PARENT_SCOPE)
endfunction()

ddprun_find_torch(DDPRUN_TORCH_DIR)
ddprun_check_torch("${DDPRUN_TORCH_DIR}" DDPRUN_TORCH_VERSION)

find_path(DDPRUN_GLOO_INCLUDE gloo/rendezvous/store.h HINTS "${DDPRUN_TORCH_DIR}/include")
mark_as_advanced(DDPRUN_GLOO_INCLUDE)
if(NOT DDPRUN_GLOO_INCLUDE AND NOT DEFINED ddprun_built_torch)
  message(FATAL_ERROR "The C++ runtime needs Gloo's headers, which the torch wheel lacks: install "
    "the package libgloo-dev, ${ddprun_without_runtime}.")
endif()

add_library(ddprun_c10 SHARED IMPORTED)
set_target_properties(ddprun_c10 PROPERTIES IMPORTED_LOCATION "${DDPRUN_TORCH_DIR}/lib/libc10.so")
add_library(ddprun_torch SHARED IMPORTED)
set_target_properties(ddprun_torch PROPERTIES
  IMPORTED_LOCATION "${DDPRUN_TORCH_DIR}/lib/libtorch_cpu.so"
  # What libtorch_cpu itself needs it finds by its own run path; the linker need not resolve it.
  INTERFACE_LINK_OPTIONS "LINKER:--allow-shlib-undefined")
target_include_directories(ddprun_torch SYSTEM INTERFACE
  "${DDPRUN_TORCH_DIR}/include"
  "${DDPRUN_TORCH_DIR}/include/torch/csrc/api/include")
target_compile_definitions(ddprun_torch INTERFACE USE_DISTRIBUTED)
if(DDPRUN_GLOO_INCLUDE)
  target_include_directories(ddprun_torch SYSTEM INTERFACE "${DDPRUN_GLOO_INCLUDE}")
  target_compile_definitions(ddprun_torch INTERFACE USE_C10D_GLOO)
endif()
target_link_libraries(ddprun_torch INTERFACE ddprun_c10)
add_library(ddprun::torch ALIAS ddprun_torch)
message(STATUS "torch ${DDPRUN_TORCH_VERSION} in ${DDPRUN_TORCH_DIR}")
if(DEFINED ddprun_built_torch)
  if(NOT DDPRUN_TORCH)
    message(STATUS "-DDDPRUN_TORCH=<dir> names another torch of the same minor version")
  endif()
  return()
endif()

# CUDA's and NCCL's headers out of the wheels beside torch, as DDPRUN_NCCL_INCLUDES; empty when this
# torch has no CUDA or they are not there.  A toolkit's nccl.h is never taken: with another version
# than the wheel's library it links, and memory is overwritten.  CUDA 13's headers lie in one folder,
# CUDA 12's in one for each library.
# CUDA 13's have no crt/, which is in the wheel nvidia-cuda-crt; torch asks for triton, which brings
# a copy, and a toolkit has one.  It comes last, so that nothing else is taken from its folder.
# Neither have they nv/target, which their cuda_fp16.h includes: it is in the wheel nvidia-cuda-cccl,
# which torch 2.15 brings and torch 2.11 does not, and in a toolkit.
set(DDPRUN_NCCL_INCLUDES)
if(EXISTS "${DDPRUN_TORCH_DIR}/lib/libtorch_cuda.so")
  get_filename_component(ddprun_nvidia "${DDPRUN_TORCH_DIR}/../nvidia" ABSOLUTE)
  file(GLOB ddprun_cuda_includes "${ddprun_nvidia}/cu[0-9]*/include" "${ddprun_nvidia}/cu[a-z]*/include")
  find_file(ddprun_cuda_header cuda_runtime.h PATHS ${ddprun_cuda_includes}
    NO_DEFAULT_PATH NO_CACHE)
  find_path(ddprun_crt crt/host_config.h NO_DEFAULT_PATH NO_CACHE
    PATHS ${ddprun_cuda_includes} "${ddprun_nvidia}/../triton/backends/nvidia/include"
    ENV CUDA_HOME /usr/local/cuda PATH_SUFFIXES include)
  find_path(ddprun_cccl nv/target NO_DEFAULT_PATH NO_CACHE
    PATHS ${ddprun_cuda_includes} ENV CUDA_HOME /usr/local/cuda
    PATH_SUFFIXES cccl include include/cccl)
  find_file(ddprun_half cuda_fp16.h PATHS ${ddprun_cuda_includes} NO_DEFAULT_PATH NO_CACHE)
  set(ddprun_needs_cccl)
  if(ddprun_half)
    file(STRINGS "${ddprun_half}" ddprun_needs_cccl REGEX "include <nv/target>" LIMIT_COUNT 1)
  endif()
  if(NOT ddprun_cuda_header OR NOT EXISTS "${ddprun_nvidia}/nccl/include/nccl.h")
    message(STATUS "no NCCL plug-in: ${ddprun_nvidia} lacks nccl.h or cuda_runtime.h (pip install what "
      "this torch asks for of nvidia-nccl-cu* and nvidia-cuda-runtime*, and configure again)")
  elseif(NOT ddprun_crt)
    message(STATUS "no NCCL plug-in: crt/host_config.h is missing (pip install nvidia-cuda-crt)")
  elseif(ddprun_needs_cccl AND NOT ddprun_cccl)
    message(STATUS "no NCCL plug-in: nv/target is missing (pip install nvidia-cuda-cccl)")
  else()
    set(DDPRUN_NCCL_INCLUDES "${ddprun_nvidia}/nccl/include" ${ddprun_cuda_includes})
    list(APPEND DDPRUN_NCCL_INCLUDES "${ddprun_crt}")
    if(ddprun_needs_cccl)
      list(APPEND DDPRUN_NCCL_INCLUDES "${ddprun_cccl}")
    endif()
    list(REMOVE_DUPLICATES DDPRUN_NCCL_INCLUDES)
  endif()
endif()
