// SPDX-License-Identifier: BSD-3-Clause
//
// The one translation unit that compiles Asio itself (BOOST_ASIO_SEPARATE_COMPILATION).
#include <boost/asio/impl/src.hpp>
