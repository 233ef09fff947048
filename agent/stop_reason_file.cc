// SPDX-License-Identifier: BSD-3-Clause
#include "agent/stop_reason_file.h"

#include <fcntl.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>
#include <utility>

#include "agent/log_dir.h"
#include "store/base/fd.h"
#include "store/clock.h"

namespace ddprun::agent {
namespace {

namespace asio = boost::asio;
using worker::StopCause;
using worker::StopReason;

// What a process has written into a file that only it and we have.
std::string text_of(const Fd& file) {
  std::string text;
  std::array<char, 4096> part{};
  ssize_t count = 0;
  while ((count = ::pread(file.get(), part.data(), part.size(), static_cast<off_t>(text.size()))) >
         0) {
    text.append(part.data(), static_cast<std::size_t>(count));
  }
  return text;
}

}  // namespace

StopReasonFile::StopReasonFile(asio::any_io_executor executor, process::Reaper& reaper,
                               std::set<pid_t>& spared, StopReasonFileConfig config,
                               std::shared_ptr<spdlog::logger> logger)
    : executor_(executor),
      reaper_(reaper),
      spared_(spared),
      config_(std::move(config)),
      logger_(std::move(logger)),
      disk_(executor, [](const process::IoThread::Stall&) {}),  // the log files' thread says it
      questions_(executor, [](std::exception_ptr error) { std::rethrow_exception(error); }),
      answered_(executor) {
  if (!config_.scheduler || !config_.scheduler->question) return;
  for (const std::string& assignment : config_.scheduler->question->environment)
    config_.environment.push_back(assignment);
}

void StopReasonFile::clear() {
  if (!std::exchange(has_written_, false)) return;
  disk_.run("remove " + config_.path, [path = config_.path] { ::unlink(path.c_str()); });
}

void StopReasonFile::publish(StopCause cause, std::string words) {
  if (!is_stopping_)
    write({.cause = cause, .words = std::move(words), .seconds_left = std::nullopt});
}

void StopReasonFile::signalled(int signal, bool is_stop) {
  OutsideRequest request{.signal = signal, .is_stop = is_stop};
  learn(reason_of(request, ""));
  signal_ = signal;
  if (is_stop) is_stopping_ = true;
  ask(request, Whose::Own);
}

void StopReasonFile::other_signalled(int signal) {
  if (signal_ == 0) signal_ = signal;
  ask({.signal = signal, .is_stop = true}, Whose::Others);
}

StopReason StopReasonFile::reason_of(OutsideRequest request, std::string_view answer) const {
  return config_.scheduler ? config_.scheduler->reason_of(request, wall_now(), answer)
                           : plain_reason_of(request);
}

void StopReasonFile::ask(OutsideRequest request, Whose whose) {
  if (!config_.scheduler || !config_.scheduler->question || asking_ >= kMostQuestions) return;
  ++asking_;
  questions_.spawn(learn_answer(request, whose));
}

asio::awaitable<void> StopReasonFile::learn_answer(OutsideRequest request, Whose whose) {
  std::string text = co_await answer();
  StopReason reason = reason_of(request, text);
  bool is_of_job = reason.cause != StopCause::Signal;
  if (!text.empty() && (is_of_job || whose == Whose::Own)) learn(std::move(reason));
  --asking_;
  answered_.notify();
}

// Empty where there is none.
asio::awaitable<std::string> StopReasonFile::answer() {
  const SchedulerQuestion& question = *config_.scheduler->question;
  Result<std::string> program = process::find_program(question.program, config_.search_path);
  if (!program) co_return "";
  asio::steady_timer timer(executor_, question.delay);
  co_await timer.async_wait(asio::use_awaitable);
  Fd answer(::memfd_create("answer", MFD_CLOEXEC));
  Fd nothing(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  if (!answer || !nothing) co_return "";
  process::ProcessSpec spec{.argv = question.arguments,
                            .environment = config_.environment,
                            .stdout_fd = answer.get(),
                            .stderr_fd = nothing.get()};
  spec.argv.insert(spec.argv.begin(), *program);
  Result<process::Process> process = process::spawn(spec);
  if (!process) co_return "";
  pid_t pid = process->pid;
  spared_.insert(pid);
  // The callback may outlive this coroutine.
  auto ended = std::make_shared<asio::steady_timer>(executor_, kAnswerLimit);
  auto has_ended = std::make_shared<bool>(false);
  reaper_.watch(std::move(*process), [ended, has_ended](process::ExitStatus) {
    *has_ended = true;
    ended->cancel();
  });
  co_await ended->async_wait(asio::as_tuple(asio::use_awaitable));
  if (!*has_ended) ::kill(-pid, SIGKILL);
  spared_.erase(pid);
  co_return text_of(answer);
}

// What is known already is not given up for less.
void StopReasonFile::learn(StopReason reason) {
  bool was_preempted = reason_ && reason_->cause == StopCause::Preempted;
  bool is_known = reason_ && reason_->cause != StopCause::Signal;
  if (is_known && reason.cause == StopCause::Signal) return;
  if (was_preempted && reason.cause == StopCause::Requeued) return;
  bool is_news = !reason_ || reason_->words != reason.words;
  reason_ = std::move(reason);
  write(*reason_);
  if (is_news && reason_->cause != StopCause::Signal) logger_->warn("{}", reason_->words);
}

void StopReasonFile::write(const StopReason& reason) {
  if (config_.path.empty()) return;
  has_written_ = true;
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

asio::awaitable<void> StopReasonFile::written() {
  co_await disk_.settled(std::chrono::steady_clock::now() + kDiskPatience);
}

asio::awaitable<void> StopReasonFile::settled() {
  auto limit = mono_now() + kPatience;
  while (is_asking() && mono_now() < limit) {
    co_await answered_.wait_until(limit);
  }
}

asio::awaitable<void> StopReasonFile::stop() {
  questions_.cancel();
  co_await questions_.join();
  clear();
  co_await written();
}

}  // namespace ddprun::agent
