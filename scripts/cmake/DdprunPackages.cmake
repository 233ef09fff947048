# SPDX-License-Identifier: BSD-3-Clause
# The packages, all from Debian 12; scripts/setup installs them.

find_package(Threads REQUIRED)
if(NOT TARGET nlohmann_json::nlohmann_json)  # which the package for Python brings
  find_package(nlohmann_json 3.11 REQUIRED)
endif()
if(NOT TARGET ZLIB::ZLIB)
  find_package(ZLIB REQUIRED)
endif()
if(NOT DDPRUN_LAUNCHER)
  return()
endif()
find_package(Boost 1.81 REQUIRED)
find_package(spdlog 1.10 REQUIRED)
find_package(CLI11 2.1 REQUIRED)

# Each library that the loader has to find and bind costs a start about 0.2 ms, on each node.  So spdlog
# and fmt are compiled in from their headers, and libsodium and zlib are linked in where their archives are there.
add_library(ddprun_spdlog INTERFACE)
target_include_directories(ddprun_spdlog SYSTEM INTERFACE
  $<TARGET_PROPERTY:spdlog::spdlog,INTERFACE_INCLUDE_DIRECTORIES>)
target_compile_definitions(ddprun_spdlog INTERFACE SPDLOG_FMT_EXTERNAL FMT_HEADER_ONLY)
find_library(DDPRUN_ZLIB_ARCHIVE NAMES libz.a)
mark_as_advanced(DDPRUN_ZLIB_ARCHIVE)
add_library(ddprun_zlib INTERFACE)
target_link_libraries(ddprun_zlib INTERFACE $<IF:$<BOOL:${DDPRUN_ZLIB_ARCHIVE}>,${DDPRUN_ZLIB_ARCHIVE},ZLIB::ZLIB>)
target_include_directories(ddprun_zlib SYSTEM INTERFACE
  $<TARGET_PROPERTY:ZLIB::ZLIB,INTERFACE_INCLUDE_DIRECTORIES>)
find_path(SODIUM_INCLUDE_DIR sodium.h REQUIRED)
find_library(SODIUM_LIBRARY NAMES libsodium.a sodium REQUIRED)
add_library(Sodium::sodium UNKNOWN IMPORTED)
set_target_properties(Sodium::sodium PROPERTIES
  IMPORTED_LOCATION "${SODIUM_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${SODIUM_INCLUDE_DIR}")
if(DDPRUN_TESTS)
  find_package(doctest 2.4 REQUIRED)
endif()
