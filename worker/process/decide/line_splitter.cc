// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/decide/line_splitter.h"

namespace ddprun::process {

void LineSplitter::feed(std::string_view bytes, std::string& lines) {
  bool has_return = bytes.find('\r') != std::string_view::npos || partial_.ends_with('\r');
  if (has_return) return feed_with_returns(bytes, lines);
  for (;;) {
    auto newline = bytes.find('\n');
    if (newline == std::string_view::npos) break;
    lines.append(prefix_);
    if (!partial_.empty()) {
      lines.append(partial_);
      partial_.clear();
    }
    lines.append(bytes.data(), newline + 1);
    bytes.remove_prefix(newline + 1);
  }
  partial_.append(bytes);
  if (partial_.size() > kMaxLineBytes) finish(lines);
}

// "\r\n" ends a line as it is; a '\r' before anything else ends one as a newline would, and is
// nothing at the start of a line.  One at the end of the bytes is kept until it is known which.
void LineSplitter::feed_with_returns(std::string_view bytes, std::string& lines) {
  for (;;) {
    if (partial_.ends_with('\r') && !bytes.empty() && bytes.front() != '\n') {
      partial_.pop_back();
      end_line("", "\n", lines);
    }
    auto end = bytes.find_first_of("\r\n");
    bool is_last = end == std::string_view::npos || (bytes[end] == '\r' && end + 1 == bytes.size());
    if (is_last) break;
    bool is_newline = bytes[end] == '\n';
    bool is_both = !is_newline && bytes[end + 1] == '\n';
    std::size_t taken = end + (is_both ? 2 : 1);
    if (is_newline || is_both) {
      lines.append(prefix_).append(partial_).append(bytes.substr(0, taken));
      partial_.clear();
    } else {
      end_line(bytes.substr(0, end), "\n", lines);
    }
    bytes.remove_prefix(taken);
  }
  partial_.append(bytes);
  if (partial_.size() > kMaxLineBytes) finish(lines);
}

void LineSplitter::end_line(std::string_view end, std::string_view newline, std::string& lines) {
  if (!partial_.empty() || !end.empty())
    lines.append(prefix_).append(partial_).append(end).append(newline);
  partial_.clear();
}

void LineSplitter::finish(std::string& lines) {
  if (partial_.ends_with('\r')) partial_.pop_back();
  end_line("", "\n", lines);
}

}  // namespace ddprun::process
