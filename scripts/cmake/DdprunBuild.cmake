# SPDX-License-Identifier: BSD-3-Clause
# How every target of the project is compiled.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

# ccache where present.  The sloppiness is what precompiled headers need.
find_program(DDPRUN_CCACHE ccache)
if(DDPRUN_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND};-E;env"
      "CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime"
      "${DDPRUN_CCACHE}")
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-fpch-preprocess)
  endif()
endif()

add_library(ddprun_options INTERFACE)
target_include_directories(ddprun_options INTERFACE "${PROJECT_SOURCE_DIR}")
target_compile_options(ddprun_options INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wswitch-enum
  -Wno-missing-field-initializers)  # configs are aggregates with defaults: {.port = 0} is complete
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 warns of overlaps in std::string's own operator+ (GCC bug 105651), and of the unused half
  # of variants and results as "maybe uninitialized" (GCC bug 105593); the debug preset looks for real.
  target_compile_options(ddprun_options INTERFACE -Wno-restrict -Wno-maybe-uninitialized)
endif()
if(DDPRUN_WERROR)
  target_compile_options(ddprun_options INTERFACE -Werror)
endif()
if(DDPRUN_SANITIZE)
  add_compile_options(-fsanitize=${DDPRUN_SANITIZE} -fno-omit-frame-pointer -O1)
  add_link_options(-fsanitize=${DDPRUN_SANITIZE})
endif()
