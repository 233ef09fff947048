// SPDX-License-Identifier: BSD-3-Clause
//
// ddpd: store and coordinator as a daemon, for runs whose nodes come and go.  Parses, listens, says
// where, and ends on SIGTERM; everything else is rendezvous/host.h.
#include <fcntl.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/system/system_error.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "cli/ddpd_options.h"
#include "cli/print.h"
#include "cli/run_file_place.h"
#include "cli/standard_streams.h"
#include "cli/systemd.h"
#include "rendezvous/decide/exposure.h"
#include "rendezvous/host.h"
#include "store/base/endpoint.h"
#include "store/base/file.h"
#include "store/base/signal_mask.h"
#include "store/base/text.h"
#include "store/clock.h"
#include "store/server.h"
#include "worker/process/console.h"
#include "worker/process/io_thread.h"

namespace {

namespace asio = boost::asio;
using ddprun::Errc;
using ddprun::Error;
using ddprun::Result;
using ddprun::cli::DdpdOptions;
using ddprun::store::Server;

constexpr int kFailed = 1;
constexpr int kBadUsage = 2;

// How long a reader of the log that stands still is waited for at the end.
constexpr std::chrono::seconds kLastLinesLimit{1};

int fail(int exit_code, const std::string& why) {
  std::cerr << "ddpd: " << ddprun::printable(why) << std::endl;
  return exit_code;
}

// Writes the port so that a reader sees either nothing or all of it.
bool write_port(const std::string& path, std::uint16_t port) {
  // The folder may be one in which others can make files and links: /tmp.  They cannot tell the
  // name.
  std::random_device random;
  std::string partial = path + "." + std::to_string(random()) + std::to_string(random());
  std::string text = std::to_string(port) + "\n";
  return ddprun::replace_file(AT_FDCWD, path, partial, text, 0666).has_value();
}

// On the socket that systemd has opened, if it has, else where the user wants.
Result<std::unique_ptr<Server>> listen(const asio::any_io_executor& executor,
                                       const DdpdOptions& options) {
  auto passed = ddprun::cli::take_passed_socket();
  if (!passed) return passed.error();
  if (!*passed) return Server::listen(executor, options.server);
  if (options.has_listen) {
    return Error{Errc::InvalidInput, "--listen: systemd has passed a socket that listens already"};
  }
  return Server::serve(executor, std::move(**passed), options.server);
}

std::string host_name() {
  char name[256] = "localhost";
  ::gethostname(name, sizeof name - 1);
  return name;
}

// The first is as without a secret.
std::vector<std::string> marks_of(const std::vector<ddprun::store::Secret>& secrets) {
  std::vector<std::string> marks{""};
  for (std::size_t i = 1; i < secrets.size(); ++i) marks.push_back(secrets[i].mark());
  return marks;
}

// Runs the loop until `task` has ended, whatever else there is to do.
void run_to_end(asio::io_context& context, asio::awaitable<void> task) {
  context.restart();
  asio::co_spawn(context, std::move(task), [&](std::exception_ptr) { context.stop(); });
  context.run();
  context.restart();
}

asio::awaitable<void> open(ddprun::rendezvous::Host& host, ddprun::Result<void>& result) {
  result = co_await host.open();
}

using Log = std::function<void(const std::string& sentence)>;

// Until a signal, or a failure; fails with the exit code, when it has said why.
int serve(asio::io_context& context, DdpdOptions options, const Log& log) {
  auto fail = [&log](int exit_code, const std::string& why) {
    log(why);
    return exit_code;
  };
  options.server.log = log;
  ddprun::cli::Notifier notifier;
  // It takes descriptors, and throws where there are none: before there is what has to be stopped.
  asio::signal_set signals(context);
  auto server = listen(context.get_executor(), options);
  if (!server && server.error().code == std::errc::address_not_available) {
    return fail(kBadUsage, "--listen=" + to_string(options.server.listen) +
                               ": no interface of this machine has this address; 0.0.0.0 stands "
                               "for all of them");
  }
  if (!server) {
    bool is_usage = server.error().code == Errc::InvalidInput;
    return fail(is_usage ? kBadUsage : kFailed, to_string(server.error()));
  }
  std::string endpoint = to_string((*server)->endpoint());
  const std::uint16_t port = (*server)->port();
  if (options.server.secrets.empty()) {
    std::string exposure = ddprun::rendezvous::describe_exposure(
        (*server)->endpoint(), !options.server.allow.empty(), "--secret-file");
    if (!exposure.empty()) log(exposure);
  }
  ddprun::process::IoThread disk(context.get_executor(), [&log](const auto& stall) {
    if (!stall.is_over) log("'" + stall.what + "' stands still");
  });
  std::optional<std::string> failure;
  const ddprun::cli::Environment environment = ddprun::cli::read_environment();
  ddprun::rendezvous::Host host(
      context.get_executor(), std::move(*server),
      {.name = host_name(),
       .is_daemon = true,
       .node = ddprun::rendezvous::daemon_name(host_name()),
       .run_files = ddprun::cli::run_file_place(options.state_dir, environment, disk),
       .secret_marks = marks_of(options.server.secrets),
       .secrets = options.server.secrets,
       .log = log,
       .on_failed = [&](const std::string& why) {
         failure = why;
         context.stop();
       }});
  ddprun::Result<void> opened;
  run_to_end(context, open(host, opened));
  if (!opened) {
    host.close();
    run_to_end(context, host.stop());
    return fail(kFailed, to_string(opened.error()));
  }

  for (int signal : {SIGTERM, SIGINT}) signals.add(signal);
  signals.async_wait([&](const boost::system::error_code& cancelled, int) {
    if (cancelled) return;
    notifier.tell("STOPPING=1");
    host.close();
    context.stop();
  });
  // Who waits for the file may stop it at once, as who waits for its line.
  if (!failure && !options.port_file.empty() && !write_port(options.port_file, port))
    failure = "cannot write the port to " + options.port_file;
  if (!failure) {
    std::cout << "listening on " << endpoint << std::endl;
    notifier.tell("READY=1\nSTATUS=listening on " + endpoint);
    context.run();
  }
  signals.cancel();
  run_to_end(context, host.stop());
  return failure ? fail(kFailed, *failure) : 0;
}

// The runs do not wait for whoever reads the log.
int serve(DdpdOptions options) {
  std::signal(SIGHUP, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);
  asio::io_context context(1);
  ddprun::process::Console console(context.get_executor(), STDERR_FILENO);
  int exit_code = serve(context, std::move(options), [&console](const std::string& sentence) {
    console.write("ddpd: " + sentence + "\n");
  });
  run_to_end(context, console.finish(ddprun::mono_now() + kLastLinesLimit));
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  ddprun::cli::open_standard_streams();
  ddprun::unblock_signals();
  auto options = ddprun::cli::read_ddpd_options(argc, argv);
  if (!options) return fail(kBadUsage, to_string(options.error()));
  if (const auto* asked = std::get_if<ddprun::cli::DdpdText>(&*options)) {
    ddprun::Result<void> printed = ddprun::cli::print(asked->text);
    return printed ? 0 : fail(kFailed, to_string(printed.error()));
  }
  try {
    return serve(std::get<DdpdOptions>(std::move(*options)));
  } catch (const boost::system::system_error& error) {
    return fail(kFailed, "cannot begin: " + error.code().message());
  }
}
