// SPDX-License-Identifier: BSD-3-Clause
//
// A HostRegistry in a folder that all nodes share, such as one on NFS.  Of each generation there is
// one file; a claim is link(), which only one process can do, and no lock is needed.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <functional>
#include <memory>
#include <string>

#include "rendezvous/host_registry.h"
#include "store/base/error.h"

namespace ddprun::rendezvous {

// Whether this folder may tell where a run is: it exists, this user can write to it, and no other
// user can.  Fails with one sentence: with Errc::InvalidInput where it is the wrong folder, and
// otherwise where it may be away for a while.  Waits for the disk.
Result<void> check_host_folder(const std::string& path);

struct HostFilesConfig {
  std::string folder;
  std::string run;
  std::string node;  // member::Config::name
  // As RunFilePlace::run.
  std::function<void(std::string what, std::function<void()> work, std::function<void()> done)>
      on_disk;
};

// Lifetime: a call that waits for the disk may outlive it there.
class HostFiles final : public HostRegistry {
 public:
  HostFiles(boost::asio::any_io_executor executor, HostFilesConfig config);
  ~HostFiles() override;

  std::string name() const override;
  store::Async<HostEntry> newest() override;
  store::Async<bool> claim(HostEntry entry) override;
  store::Async<bool> note(HostEntry entry) override;
  void close() override;

 private:
  class Folder;
  struct Shared;
  template <class T>
  store::Async<T> call(std::function<Result<T>(const Folder&)> work);

  HostFilesConfig config_;
  std::shared_ptr<Shared> shared_;
};

}  // namespace ddprun::rendezvous
