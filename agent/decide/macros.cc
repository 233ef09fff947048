// SPDX-License-Identifier: BSD-3-Clause
#include "agent/decide/macros.h"

namespace ddprun::agent {
namespace {

bool starts_name(char c) {
  return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
bool continues_name(char c) {
  return starts_name(c) || (c >= '0' && c <= '9');
}

// The identifier at the start of `text`; empty where there is none.
std::string_view name_at(std::string_view text) {
  if (text.empty() || !starts_name(text[0])) return {};
  std::size_t length = 1;
  while (length < text.size() && continues_name(text[length])) ++length;
  return text.substr(0, length);
}

// A `$`, what follows it, and what both together stand for.
struct Placeholder {
  std::size_t length = 1;  // of the text that it takes up
  std::string_view name;   // empty: not a macro
};

Placeholder placeholder_at(std::string_view text) {
  std::string_view rest = text.substr(1);
  if (rest.starts_with('{')) {
    std::string_view name = name_at(rest.substr(1));
    bool is_closed = !name.empty() && rest.substr(1 + name.size()).starts_with('}');
    return is_closed ? Placeholder{name.size() + 3, name} : Placeholder{};
  }
  std::string_view name = name_at(rest);
  return {name.size() + 1, name};
}

}  // namespace

std::string substitute(std::string_view text, const Macros& macros) {
  std::string result;
  while (!text.empty()) {
    auto dollar = text.find('$');
    result += text.substr(0, dollar);
    if (dollar == std::string_view::npos) break;
    text.remove_prefix(dollar);
    if (text.starts_with("$$")) {
      result += '$';
      text.remove_prefix(2);
      continue;
    }
    Placeholder placeholder = placeholder_at(text);
    auto macro = macros.find(placeholder.name);
    result += macro != macros.end() ? std::string_view(macro->second)
                                    : text.substr(0, placeholder.length);
    text.remove_prefix(placeholder.length);
  }
  return result;
}

}  // namespace ddprun::agent
