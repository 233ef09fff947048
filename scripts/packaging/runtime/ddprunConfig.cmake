# SPDX-License-Identifier: BSD-3-Clause
# find_package(ddprun CONFIG): the C++ runtime, as the target ddprun::ddp, out of the Python package, the tree
# for /opt or the Debian package libddprun-dev.
#
# Its sources are compiled in the build tree of the project that asks for it, once, with the torch
# that it finds: -DDDPRUN_TORCH=<dir>, else the one that is installed beside this package, else the
# active Python's.  A C++20 compiler is needed, and no library but torch: what it uses of others is in
# third_party, or, in Debian's package, is Debian's.
if(TARGET ddprun::ddp)
  return()
endif()
get_filename_component(ddprun_package "${CMAKE_CURRENT_LIST_DIR}/.." ABSOLUTE)
set(ddprun_third_party "${ddprun_package}/runtime/third_party")

if(NOT DDPRUN_TORCH AND EXISTS "${ddprun_package}/../torch/lib/libtorch_cpu.so")
  get_filename_component(DDPRUN_TORCH "${ddprun_package}/../torch" ABSOLUTE)
endif()
if(EXISTS "${ddprun_third_party}/gloo")
  find_path(DDPRUN_GLOO_INCLUDE gloo/rendezvous/store.h
    HINTS "${DDPRUN_TORCH}/include" "${ddprun_third_party}/gloo" NO_DEFAULT_PATH)
endif()
set(ddprun_get_torch "pip install torch, give its folder with -DDDPRUN_TORCH=<dir>")
set(ddprun_without_runtime "or do without find_package(ddprun)")
include("${ddprun_package}/runtime/scripts/cmake/DdprunTorch.cmake")
set_target_properties(ddprun_c10 ddprun_torch PROPERTIES IMPORTED_GLOBAL TRUE)

# What the runtime uses of other libraries, unless the project has them already.
if(NOT EXISTS "${ddprun_third_party}")
  find_package(nlohmann_json 3.11 REQUIRED GLOBAL)
  find_package(ZLIB REQUIRED GLOBAL)
endif()
if(NOT TARGET nlohmann_json::nlohmann_json)
  add_library(nlohmann_json::nlohmann_json INTERFACE IMPORTED GLOBAL)
  target_include_directories(nlohmann_json::nlohmann_json SYSTEM INTERFACE "${ddprun_third_party}/nlohmann")
endif()
if(NOT TARGET ZLIB::ZLIB)
  enable_language(C)
  add_library(ddprun_zlib STATIC EXCLUDE_FROM_ALL "${ddprun_third_party}/zlib/crc32.c")
  # zlib 1.2 defines its functions as C had it before 1989.
  target_compile_options(ddprun_zlib PRIVATE -fPIC -w)
  target_include_directories(ddprun_zlib SYSTEM INTERFACE "${ddprun_third_party}/zlib")
  add_library(ZLIB::ZLIB ALIAS ddprun_zlib)
endif()

set(DDPRUN_LAUNCHER OFF)
set(DDPRUN_RUNTIME ON)
set(DDPRUN_TESTS OFF)
set(DDPRUN_WERROR OFF)
set(DDPRUN_SANITIZE "")
# A newer compiler than ours warns of what it sees in torch's headers.
set(ddprun_project_flags "${CMAKE_CXX_FLAGS}")
string(APPEND CMAKE_CXX_FLAGS " -w")
add_subdirectory("${ddprun_package}/runtime" "${CMAKE_BINARY_DIR}/ddprun" EXCLUDE_FROM_ALL)
set(CMAKE_CXX_FLAGS "${ddprun_project_flags}")
foreach(name IN ITEMS LAUNCHER RUNTIME TESTS WERROR SANITIZE)
  unset(DDPRUN_${name})
endforeach()

# Without the flags that the runtime itself is compiled with.
find_package(Threads REQUIRED)
set(ddprun_archives)
foreach(library IN ITEMS ddp checkpoint data shm env base)
  list(APPEND ddprun_archives "$<TARGET_FILE:ddprun_${library}>")
endforeach()
add_library(ddprun::ddp INTERFACE IMPORTED GLOBAL)
add_dependencies(ddprun::ddp ddprun_ddp)
target_include_directories(ddprun::ddp SYSTEM INTERFACE "${ddprun_package}/include")
target_compile_features(ddprun::ddp INTERFACE cxx_std_20)
target_link_libraries(ddprun::ddp INTERFACE
  ${ddprun_archives} ddprun_torch Threads::Threads ${CMAKE_DL_LIBS} ZLIB::ZLIB)
if(TARGET ddprun_nccl)
  # A program finds the plug-in by its run path when it asks for NCCL.
  add_dependencies(ddprun::ddp ddprun_nccl)
  target_link_options(ddprun::ddp INTERFACE "LINKER:-rpath,$<TARGET_FILE_DIR:ddprun_nccl>")
endif()
