// SPDX-License-Identifier: BSD-3-Clause
#include "agent/stop_reason_file.h"

#include <fcntl.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/mman.h>
#include <unistd.h>

#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <utility>

#include "agent/log_dir.h"
#include "store/base/fd.h"
#include "store/base/file.h"
#include "store/base/variant.h"
#include "store/clock.h"

namespace ddprun::agent {
namespace {

namespace asio = boost::asio;
using worker::StopReason;

// What a process has written into a file that only it and we have.
std::string text_of(const Fd& file) {
  constexpr std::size_t kMost = 1024 * 1024;
  Result<std::string> text = read_from(file.get(), kMost, "read an answer");
  return text ? std::move(*text) : "";
}

}  // namespace

StopReasonFile::StopReasonFile(asio::any_io_executor executor, process::Reaper& reaper,
                               StopReasonFileConfig config, std::shared_ptr<spdlog::logger> logger)
    : executor_(executor),
      reaper_(reaper),
      config_(std::move(config)),
      logger_(std::move(logger)),
      disk_(executor, [](const process::IoThread::Stall&) {}),  // kDiskPatience bounds the wait
      questions_(executor),
      answered_(executor) {
  if (!config_.scheduler || !config_.scheduler->question) return;
  for (const std::string& assignment : config_.scheduler->question->environment)
    config_.environment.push_back(assignment);
  // Once, before there is anything to wait for: the search may meet a disk that stands still.
  auto found = process::find_program(config_.scheduler->question->program, config_.search_path);
  if (found) program_ = std::move(*found);
}

void StopReasonFile::on(const stop_reason::Event& event) {
  for (const auto& action : stop_reason::step(state_, event, read_clocks(), config_.scheduler)) {
    std::visit(
        Overloaded{
            [this](const stop_reason::action::Write& wanted) { write(wanted.reason); },
            [this](const stop_reason::action::Remove&) { remove(); },
            [this](const stop_reason::action::Ask& ask) {
              questions_.spawn(learn_answer(ask.request, ask.whose));
            },
            [this](const stop_reason::action::Announce& news) { logger_->warn("{}", news.words); },
        },
        action);
  }
}

asio::awaitable<void> StopReasonFile::learn_answer(OutsideRequest request,
                                                   stop_reason::Whose whose) {
  std::string text = co_await answer();
  on(stop_reason::event::Answered{request, whose, std::move(text)});
  answered_.notify();
}

// Empty where there is none.
asio::awaitable<std::string> StopReasonFile::answer() {
  const SchedulerQuestion& question = *config_.scheduler->question;
  if (program_.empty()) co_return "";
  asio::steady_timer timer(executor_, question.delay);
  co_await timer.async_wait(asio::use_awaitable);
  Fd answer(::memfd_create("answer", MFD_CLOEXEC));
  Fd nothing(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  if (!answer || !nothing) co_return "";
  process::ProcessSpec spec{.argv = question.arguments,
                            .environment = config_.environment,
                            .stdout_fd = answer.get(),
                            .stderr_fd = nothing.get()};
  spec.argv.insert(spec.argv.begin(), program_);
  // Not even its exec is waited for.  Where that fails, it ends without an answer.
  Result<process::StartingProcess> starting = process::begin_spawn(spec);
  if (!starting) co_return "";
  pid_t pid = starting->process.pid;
  programs_.insert(pid);
  auto ended = co_await reaper_.ended(std::move(starting->process), mono_now() + kAnswerLimit);
  if (!ended) process::signal_group(pid, SIGKILL);
  programs_.erase(pid);
  co_return text_of(answer);
}

void StopReasonFile::write(const StopReason& reason) {
  if (config_.path.empty()) return;
  auto written = std::make_shared<Result<void>>();
  disk_.run(
      "write " + config_.path,
      [path = config_.path, text = worker::to_stop_file(reason), written] {
        *written = write_file(path, text);
      },
      [logger = logger_, written] {
        if (!*written)
          logger->warn("the workers are not told why: {}", to_string(written->error()));
      });
}

void StopReasonFile::remove() {
  if (config_.path.empty()) return;
  disk_.run("remove " + config_.path, [path = config_.path] { ::unlink(path.c_str()); });
}

asio::awaitable<void> StopReasonFile::written() {
  co_await disk_.settled(mono_now() + kDiskPatience);
}

asio::awaitable<void> StopReasonFile::settled() {
  auto limit = mono_now() + kPatience;
  while (is_asking() && mono_now() < limit) {
    co_await answered_.wait_until(limit);
  }
  if (is_asking())
    logger_->warn("{} does not answer, so the scheduler's reason is not known", program_);
}

asio::awaitable<void> StopReasonFile::stop() {
  questions_.cancel();
  for (pid_t program : programs_)
    process::signal_group(program, SIGKILL);  // none was reaped before this turn
  co_await questions_.join();
  on(stop_reason::event::Cleared{});
  co_await written();
}

}  // namespace ddprun::agent
