// SPDX-License-Identifier: BSD-3-Clause
#include "store/task_group.h"

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/error.hpp>
#include <utility>

#include "store/base/check.h"

namespace ddprun::store {
namespace asio = boost::asio;

namespace {

bool is_cancellation(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const boost::system::system_error& failure) {
    return failure.code() == asio::error::operation_aborted;
  } catch (...) {
    return false;
  }
}

}  // namespace

void rethrow(std::exception_ptr error) {
  std::rethrow_exception(std::move(error));
}

TaskGroup::TaskGroup(asio::any_io_executor executor, ErrorHandler on_error)
    : executor_(std::move(executor)), on_error_(std::move(on_error)), emptied_(executor_) {}

TaskGroup::~TaskGroup() {
  check(tasks_.empty(), "a task group died before its tasks");
}

void TaskGroup::spawn(asio::awaitable<void> task) {
  auto place = tasks_.emplace(tasks_.end());
  asio::co_spawn(
      executor_, std::move(task),
      asio::bind_cancellation_slot(place->slot(), [this, place](std::exception_ptr error) {
        finished(place, std::move(error));
      }));
}

void TaskGroup::cancel() {
  for (auto task = tasks_.begin(); task != tasks_.end();) {
    auto current = task++;
    current->emit(asio::cancellation_type::terminal);
  }
}

asio::awaitable<void> TaskGroup::join() {
  while (!tasks_.empty()) co_await emptied_.wait();
}

void TaskGroup::finished(Tasks::iterator task, std::exception_ptr error) {
  tasks_.erase(task);
  if (tasks_.empty()) emptied_.notify();
  if (error && !is_cancellation(error)) on_error_(std::move(error));
}

}  // namespace ddprun::store
