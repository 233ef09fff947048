// SPDX-License-Identifier: BSD-3-Clause
//
// One request to an HTTP server and its response, as bytes.  The parsing is Boost.Beast's, which is
// kept to http.cc for the sake of compile time.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "store/base/endpoint.h"

namespace ddprun::rendezvous::etcd {

// A POST of JSON, after which the connection is closed.  `token`: empty, or what etcd's gateway
// takes for Authorization; it must be a line of text.
std::string http_request(const Endpoint& server, std::string_view target, std::string_view body,
                         std::string_view token);

struct HttpResponse {
  unsigned status = 0;
  std::string body;
};

// Reads a response from bytes that may be cut anywhere.
class HttpResponseReader {
 public:
  enum class State { NeedMore, Done, Malformed };

  HttpResponseReader();
  ~HttpResponseReader();

  // Takes the next bytes.  More than 8 KiB of header or 4 MiB of body are malformed.
  State feed(std::string_view bytes);
  // No more will come: what it is then, Done or Malformed.
  State end();

  // Once it is done; the body is taken out.
  HttpResponse take();

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;
};

}  // namespace ddprun::rendezvous::etcd
