// SPDX-License-Identifier: BSD-3-Clause
//
// As much of HTTP as a server needs that shows a few pages to a person or a monitoring system: one
// request per connection, no body.  The parsing is Boost.Beast's, which is kept to http.cc for the
// sake of compile time.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace ddprun::store {

// Reads one request from bytes that may be cut anywhere.
class HttpReader {
 public:
  enum class State { NeedMore, Done, Malformed };

  HttpReader();
  ~HttpReader();

  // Takes the next bytes.  A header of more than 8 KiB is malformed.
  State feed(std::string_view bytes);

  // Of a request that has not arrived in full.
  std::size_t held_bytes() const;

  // Of a request that is done.
  std::string method() const;  // "GET"
  std::string target() const;  // "/status", without what follows a '?'
  std::string bearer() const;  // what follows "Authorization: Bearer "; empty where nothing does
  std::string host() const;    // "node0:29400"; empty where the client does not say it
  bool accepts(std::string_view type) const;  // named in the field Accept

  // Gives back what it holds, for as long as the response is on its way.  No other call follows.
  void clear();

 private:
  struct Parser;

  std::unique_ptr<Parser> parser_;
};

// By this header field our own server is known.
inline constexpr std::string_view kHttpServerField = "Server: ddprun";

struct Page {
  unsigned status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
  int retry_after_s =
      0;  // of one that is to be had a little later (Retry-After of RFC 9110); 0: none
};

// The head of a response, whose body has so many bytes, also where the answer is to HEAD; nullopt:
// it goes on until the connection is closed.
std::string http_head(const Page& page, std::optional<std::size_t> body_bytes);

}  // namespace ddprun::store
