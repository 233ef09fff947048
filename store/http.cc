// SPDX-License-Identifier: BSD-3-Clause
#include "store/http.h"

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/status.hpp>
#include <sstream>

namespace ddprun::store {
namespace http = boost::beast::http;

namespace {

constexpr std::uint32_t kMaxHeaderBytes = 8 * 1024;

}  // namespace

struct HttpReader::Parser {
  http::request_parser<http::empty_body> parser;
  std::string unread;  // Beast wants to see again what it could not use
};

HttpReader::HttpReader() : parser_(std::make_unique<Parser>()) {
  parser_->parser.header_limit(kMaxHeaderBytes);
  parser_->parser.body_limit(0);
}

HttpReader::~HttpReader() = default;

HttpReader::State HttpReader::feed(std::string_view bytes) {
  std::string& unread = parser_->unread;
  unread.append(bytes);
  boost::beast::error_code error;
  std::size_t used = parser_->parser.put(boost::asio::buffer(unread), error);
  unread.erase(0, used);
  if (error && error != http::error::need_more) return State::Malformed;
  if (unread.size() > kMaxHeaderBytes) return State::Malformed;
  return parser_->parser.is_done() ? State::Done : State::NeedMore;
}

std::size_t HttpReader::held_bytes() const {
  return parser_ ? parser_->unread.capacity() : 0;
}

void HttpReader::clear() {
  parser_.reset();
}

std::string HttpReader::method() const {
  return std::string(parser_->parser.get().method_string());
}

std::string HttpReader::target() const {
  std::string target(parser_->parser.get().target());
  return target.substr(0, target.find('?'));
}

std::string HttpReader::bearer() const {
  constexpr std::string_view kScheme = "Bearer ";  // in any case: RFC 9110, 11.1
  std::string_view value = parser_->parser.get()[http::field::authorization];
  bool is_bearer = boost::beast::iequals(value.substr(0, kScheme.size()), kScheme);
  return is_bearer ? std::string(value.substr(kScheme.size())) : "";
}

std::string HttpReader::host() const {
  return std::string(parser_->parser.get()[http::field::host]);
}

bool HttpReader::accepts(std::string_view type) const {
  std::string_view value = parser_->parser.get()[http::field::accept];
  return value.find(type) != std::string_view::npos;
}

std::string http_response(const Page& page, bool has_body) {
  std::ostringstream out;
  out << "HTTP/1.1 " << page.status << ' '
      << http::obsolete_reason(http::int_to_status(page.status))
      << "\r\nContent-Type: " << page.content_type << "\r\nContent-Length: " << page.body.size()
      << "\r\n"
      << kHttpServerField << "\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n";
  if (has_body) out << page.body;
  return out.str();
}

}  // namespace ddprun::store
