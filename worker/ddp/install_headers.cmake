# SPDX-License-Identifier: BSD-3-Clause
# Run by "cmake --install" and by scripts/package: writes `ddprun_headers`, which lie below `ddprun_sources`, below ddprun/
# in `ddprun_include_dir` of the prefix, and changes the names by which they include each other:
#
#   worker/ddp/ddprun.h   ddprun/ddprun.h, which includes all that a program uses
#   worker/ddp/join.h     ddprun/ddp/join.h
#   store/base/error.h    ddprun/store/base/error.h
foreach(header IN LISTS ddprun_headers)
  file(READ "${ddprun_sources}/${header}" text)
  string(REGEX REPLACE "#include \"worker/" "#include \"ddprun/" text "${text}")
  string(REGEX REPLACE "#include \"store/" "#include \"ddprun/store/" text "${text}")
  string(REGEX REPLACE "^worker/" "" place "${header}")
  if(header STREQUAL "worker/ddp/ddprun.h")
    set(place ddprun.h)
  endif()
  cmake_path(ABSOLUTE_PATH ddprun_include_dir BASE_DIRECTORY "${CMAKE_INSTALL_PREFIX}"
    OUTPUT_VARIABLE include_dir)
  set(path "${include_dir}/ddprun/${place}")
  message(STATUS "Installing: $ENV{DESTDIR}${path}")
  file(WRITE "$ENV{DESTDIR}${path}" "${text}")
endforeach()
