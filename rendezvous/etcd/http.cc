// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/etcd/http.h"

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <utility>

namespace ddprun::rendezvous::etcd {
namespace http = boost::beast::http;

namespace {

constexpr std::uint32_t kMaxHeaderBytes = 8 * 1024;
constexpr std::uint64_t kMaxBodyBytes = 4 * 1024 * 1024;

}  // namespace

std::string http_request(const Endpoint& server, std::string_view target, std::string_view body,
                         std::string_view token) {
  std::string request = "POST ";
  request.append(target).append(" HTTP/1.1\r\nHost: ").append(to_string(server));
  request += "\r\nContent-Type: application/json\r\nAccept: application/json";
  // A member that knows no leader says so, and does not keep the request until there is one.
  request += "\r\nGrpc-Metadata-Hasleader: true";
  if (!token.empty()) request.append("\r\nAuthorization: ").append(token);
  request += "\r\nConnection: close\r\nContent-Length: " + std::to_string(body.size());
  request.append("\r\n\r\n").append(body);
  return request;
}

struct HttpResponseReader::Parser {
  http::response_parser<http::string_body> parser;
  std::string unread;  // Beast wants to see again what it could not use
};

HttpResponseReader::HttpResponseReader() : parser_(std::make_unique<Parser>()) {
  parser_->parser.eager(true);
  parser_->parser.header_limit(kMaxHeaderBytes);
  parser_->parser.body_limit(kMaxBodyBytes);
}

HttpResponseReader::~HttpResponseReader() = default;

HttpResponseReader::State HttpResponseReader::feed(std::string_view bytes) {
  std::string& unread = parser_->unread;
  unread.append(bytes);
  // It takes one chunk of the body at a time.
  while (!unread.empty() && !parser_->parser.is_done()) {
    boost::beast::error_code error;
    std::size_t used = parser_->parser.put(boost::asio::buffer(unread), error);
    unread.erase(0, used);
    if (error && error != http::error::need_more) return State::Malformed;
    if (error || used == 0) break;
  }
  if (unread.size() > kMaxHeaderBytes) return State::Malformed;
  return parser_->parser.is_done() ? State::Done : State::NeedMore;
}

HttpResponseReader::State HttpResponseReader::end() {
  if (parser_->parser.is_done()) return State::Done;
  if (!parser_->parser.got_some()) return State::Malformed;
  boost::beast::error_code error;
  parser_->parser.put_eof(error);
  return !error && parser_->parser.is_done() ? State::Done : State::Malformed;
}

HttpResponse HttpResponseReader::take() {
  auto message = parser_->parser.release();
  return {.status = message.result_int(), .body = std::move(message.body())};
}

}  // namespace ddprun::rendezvous::etcd
