// SPDX-License-Identifier: BSD-3-Clause
#include "store/http.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/status.hpp>
#include <sstream>
#include <utility>

namespace ddprun::store {
namespace http = boost::beast::http;

namespace {

constexpr std::uint32_t kMaxHeaderBytes = 8 * 1024;
constexpr std::string_view kEndOfLine = "\r\n";
constexpr std::string_view kEndOfHead = "\r\n\r\n";

// Whether it is the first line of a request.
bool is_request_line(std::string_view line) {
  http::request_parser<http::empty_body> parser;
  boost::beast::error_code error;
  const std::string head = std::string(line) + std::string(kEndOfHead);
  parser.put(boost::asio::buffer(head), error);
  return !error;
}

bool is_text(std::string_view bytes) {
  return std::ranges::all_of(bytes, [](char c) { return (c >= ' ' && c <= '~') || c == '\r'; });
}

}  // namespace

// Parsed fields take many times the room of the shortest ones' bytes, so nothing is parsed before
// the head is whole.
struct HttpReader::Parser {
  http::request_parser<http::empty_body> parser;
  std::string head;
  bool has_line = false;  // its first
};

HttpReader::HttpReader() : parser_(std::make_unique<Parser>()) {
  parser_->parser.header_limit(kMaxHeaderBytes);
  parser_->parser.body_limit(0);
}

HttpReader::~HttpReader() = default;

HttpReader::State HttpReader::feed(std::string_view bytes) {
  std::string& head = parser_->head;
  std::size_t from = head.size() - std::min(head.size(), kEndOfHead.size() - 1);
  head.append(bytes);
  // Of another protocol no more is waited for.
  if (bool& has_line = parser_->has_line; !has_line) {
    std::size_t end = head.find(kEndOfLine, from);
    has_line = end != std::string::npos;
    if (has_line ? !is_request_line(head.substr(0, end)) : !is_text(bytes)) return State::Malformed;
  }
  if (head.find(kEndOfHead, from) == std::string::npos)
    return head.size() > kMaxHeaderBytes ? State::Malformed : State::NeedMore;
  boost::beast::error_code error;
  parser_->parser.put(boost::asio::buffer(std::exchange(head, "")), error);
  return !error && parser_->parser.is_done() ? State::Done : State::Malformed;
}

std::size_t HttpReader::held_bytes() const {
  return parser_ ? parser_->head.capacity() : 0;
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

std::string http_head(const Page& page, std::optional<std::size_t> body_bytes) {
  std::ostringstream out;
  out << "HTTP/1.1 " << page.status << ' '
      << http::obsolete_reason(http::int_to_status(page.status))
      << "\r\nContent-Type: " << page.content_type << "\r\n";
  if (body_bytes) out << "Content-Length: " << *body_bytes << "\r\n";
  if (page.retry_after_s > 0) out << "Retry-After: " << page.retry_after_s << "\r\n";
  out << kHttpServerField << "\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n";
  return out.str();
}

}  // namespace ddprun::store
