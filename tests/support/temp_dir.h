// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "store/base/check.h"

namespace ddprun::test {

// A fresh folder for one test, removed with all that is in it.
class TempDir {
 public:
  TempDir() {
    path_ = (std::filesystem::temp_directory_path() / "ddprun-test-XXXXXX").string();
    check(::mkdtemp(path_.data()) != nullptr, "cannot make a folder for a test");
  }
  ~TempDir() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  TempDir(const TempDir&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace ddprun::test
