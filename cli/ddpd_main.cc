// SPDX-License-Identifier: BSD-3-Clause
//
// ddpd: the store as a daemon, for runs whose nodes come and go.  Parses, listens, says where, and
// ends on SIGTERM; everything else is store/server.h.
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>

#include "store/base/endpoint.h"
#include "store/server.h"

namespace {

constexpr int kFailed = 1;
constexpr int kBadUsage = 2;
constexpr std::uint16_t kDefaultPort = 29500;  // torch's, for a store

struct Options {
  std::string listen = "0.0.0.0:29500";
  std::string port_file;
};

int fail(int exit_code, const std::string& why) {
  std::cerr << "ddpd: " << why << std::endl;
  return exit_code;
}

// As many descriptors as the system allows this user: each client of the store is one.
void raise_file_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

// Writes the port so that a reader sees either nothing or all of it.
bool write_port(const std::string& path, std::uint16_t port) {
  std::string partial = path + ".partial";
  std::ofstream file(partial);
  file << port << '\n';
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(partial, path, error);
  return file && !error;
}

int serve(const Options& options) {
  ddprun::Result<ddprun::Endpoint> listen = ddprun::parse_endpoint(options.listen, kDefaultPort);
  if (!listen) return fail(kBadUsage, "--listen: " + to_string(listen.error()));

  std::signal(SIGHUP, SIG_IGN);
  raise_file_limit();
  boost::asio::io_context context(1);
  ddprun::store::ServerConfig config{.listen = *listen};
  config.log = [](const std::string& sentence) { std::cerr << "ddpd: " << sentence << std::endl; };
  auto server = ddprun::store::Server::listen(context.get_executor(), config);
  if (!server) {
    bool is_usage = server.error().code == ddprun::Errc::InvalidInput;
    return fail(is_usage ? kBadUsage : kFailed, to_string(server.error()));
  }
  listen->port = (*server)->port();
  if (!options.port_file.empty() && !write_port(options.port_file, listen->port)) {
    return fail(kFailed, "cannot write the port to " + options.port_file);
  }

  boost::asio::signal_set signals(context, SIGTERM, SIGINT);
  signals.async_wait([&](const boost::system::error_code&, int) {
    (*server)->close();
    context.stop();
  });
  std::cout << "listening on " << to_string(*listen) << std::endl;
  context.run();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"A TCPStore server for torch.distributed and ddprun.", "ddpd"};
  Options options;
  app.add_option("--listen", options.listen,
                 "HOST:PORT to listen on; HOST is a numeric address or localhost, "
                 "PORT 0 takes any that is free")
      ->capture_default_str();
  app.add_option("--port-file", options.port_file, "Write the port to this file once it is known");
  app.set_version_flag("--version", DDPRUN_VERSION);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {
    return app.exit(asked);
  } catch (const CLI::ParseError& error) {
    return fail(kBadUsage, error.what());
  }
  return serve(options);
}
