// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <boost/asio/awaitable.hpp>

#include "store/base/error.h"

namespace ddprun::store {

// A call that completes later, with a value or with the reason why there is none.
template <class T>
using Async = boost::asio::awaitable<Result<T>>;

}  // namespace ddprun::store
