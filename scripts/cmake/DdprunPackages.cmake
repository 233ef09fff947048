# SPDX-License-Identifier: BSD-3-Clause
# The packages, all from Debian 12; scripts/setup installs them.

find_package(Threads REQUIRED)
find_package(Boost 1.81 REQUIRED)
find_package(spdlog 1.10 REQUIRED)
find_package(CLI11 2.1 REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
if(DDPRUN_TESTS)
  find_package(doctest 2.4 REQUIRED)
endif()
