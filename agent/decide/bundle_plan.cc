// SPDX-License-Identifier: BSD-3-Clause
#include "agent/decide/bundle_plan.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstring>
#include <utility>

#include "store/base/text.h"

namespace ddprun::agent {
namespace {

constexpr std::string_view kMask = "***";

std::string upper_of(std::string_view text) {
  std::string upper(text);
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return upper;
}

// Of a variable, an option or a parameter.
bool is_secret_name(std::string_view name) {
  const std::string upper = upper_of(name);
  constexpr std::array<std::string_view, 14> kWords{
      "TOKEN", "SECRET", "KEY",    "PASSW", "PASSPHRASE",        "CRED",    "AUTH",
      "JWT",   "COOKIE", "BEARER", "DSN",   "CONNECTION_STRING", "WEBHOOK", "KUBECONFIG_DATA"};
  bool has_word = std::ranges::any_of(
      kWords, [&](std::string_view word) { return upper.find(word) != std::string::npos; });
  // PAT is a part of PATH.
  const bool is_folder = upper == "PWD" || upper == "OLDPWD";
  return has_word || (upper.ends_with("PWD") && !is_folder) || upper.ends_with("_PAT") ||
         upper.find("_PAT_") != std::string::npos || upper.ends_with("PASS") || upper == "SIG" ||
         upper.ends_with("SIGNATURE");
}

// "https://me:hunter2@host/x": "https://me:***@host/x", everywhere in `text`.  A long name without
// a password is a token.
std::string without_passwords(std::string_view text) {
  constexpr std::size_t kLongName = 12;
  std::string out;
  for (;;) {
    auto scheme = text.find("://");
    if (scheme == std::string_view::npos) return out.append(text);
    std::size_t begin = scheme + 3;
    std::size_t end = std::min(text.find_first_of("/?# \t\n\"'", begin), text.size());
    std::string_view place = text.substr(begin, end - begin);
    auto at = place.rfind('@');
    auto colon = place.find(':');
    if (at != std::string_view::npos && colon < at) {
      out.append(text.substr(0, begin)).append(place.substr(0, colon + 1)).append(kMask);
      out.append(place.substr(at));
    } else if (at != std::string_view::npos && at >= kLongName) {
      out.append(text.substr(0, begin)).append(kMask).append(place.substr(at));
    } else {
      out.append(text.substr(0, end));
    }
    text.remove_prefix(end);
  }
}

// As the best known services write theirs.
bool is_known_token(std::string_view word) {
  constexpr auto kBeginnings = std::to_array<std::string_view>(
      {"ghp_",   "gho_",  "ghs_",  "ghr_",  "ghu_",     "github_pat_", "hf_",
       "glpat-", "xoxb-", "xoxp-", "xoxa-", "xoxe",     "xapp-",       "AKIA",
       "ASIA",   "AIza",  "ya29.", "sk-",   "sk_live_", "sk_test_",    "rk_live_",
       "gsk_",   "SG.",   "npm_",  "pypi-", "eyJ",      "nvapi-",      "dckr_pat_"});
  constexpr std::size_t kShortest = 12;
  return word.size() >= kShortest && std::ranges::any_of(kBeginnings, [&](std::string_view begin) {
           return word.starts_with(begin);
         });
}

// The kind of a header's secret, which follows.
bool is_scheme(std::string_view word) {
  constexpr auto kSchemes =
      std::to_array<std::string_view>({"BEARER", "BASIC", "DIGEST", "NEGOTIATE"});
  const std::string upper = upper_of(word);
  return std::ranges::find(kSchemes, upper) != kSchemes.end();
}

// Whether `rest`, behind a name, goes on as in JSON: `": "hunter2"`.
bool is_value_next(std::string_view rest) {
  auto at = rest.find_first_not_of(" \"'");
  return at != std::string_view::npos && at > 0 && rest[at] == ':';
}

// Masks what follows a secret's name in options ("--api-key=X", "--password X"), parameters
// ("?token=X"), headers ("X-Api-Key: X"), JSON and connection strings ("AccountKey=X;"), "Bearer
// X", "-u me:X", and tokens by their looks.  A text with a private key is masked as a whole.
std::string without_secrets(std::string_view text) {
  constexpr std::string_view kBetween = " \t\n\"',;&?";
  if (text.find("PRIVATE KEY-----") != std::string_view::npos) return std::string(kMask);
  std::string out;
  bool is_next = false;
  bool is_user_next = false;
  while (!text.empty()) {
    std::size_t length = std::min(text.find_first_of(kBetween), text.size());
    std::string_view word = text.substr(0, length);
    auto equals = word.find('=');
    bool has_value = equals != std::string_view::npos && equals + 1 < word.size();
    const bool is_user = std::exchange(is_user_next, is_user_next && word.empty());
    const bool is_filler = word.empty() || word == ":" || is_scheme(word);
    if (is_next && !is_filler && !word.starts_with("-")) {
      out.append(kMask);
      is_next = false;
    } else if (is_user && word.find(':') != std::string_view::npos) {
      out.append(word.substr(0, word.find(':') + 1)).append(kMask);
    } else if (has_value && (is_secret_name(word.substr(0, equals)) ||
                             is_known_token(word.substr(equals + 1)))) {
      out.append(word.substr(0, equals + 1)).append(kMask);
    } else if (is_known_token(word)) {
      out.append(kMask);
    } else {
      bool is_name =
          equals == std::string_view::npos && is_secret_name(word) &&
          (word.starts_with("-") || word.ends_with(':') || is_value_next(text.substr(length)));
      if (!is_filler) is_next = is_name;
      if (is_scheme(word)) is_next = true;
      is_user_next = is_user_next || word == "-u" || word == "--user";
      out.append(word);
    }
    if (length == text.size()) break;
    out.push_back(text[length]);
    text.remove_prefix(length + 1);
  }
  return out;
}

int kind_of(const std::string& path) {
  std::string_view name = std::string_view(path).substr(path.rfind('/') + 1);
  if (name == "report.json" || name == "timeline.json") return 0;
  if (name == "error.json" || name.starts_with("stack.")) return 1;
  if (name == "stderr.log") return 2;
  if (name == "stdout.log") return 3;
  return 4;
}

// Octal, with a zero byte behind it.
void put_octal(char* field, std::size_t width, std::uint64_t value) {
  for (std::size_t i = width - 1; i-- > 0; value >>= 3)
    field[i] = static_cast<char>('0' + (value & 7));
  field[width - 1] = '\0';
}

struct Header {  // POSIX ustar
  char name[100];
  char mode[8];
  char uid[8];
  char gid[8];
  char size[12];
  char mtime[12];
  char checksum[8];
  char type;
  char link[100];
  char magic[6];
  char version[2];
  char user[32];
  char group[32];
  char device[16];
  char prefix[155];
  char unused[12];
};
static_assert(sizeof(Header) == kTarBlock);

unsigned checksum_of(Header header) {
  std::memset(header.checksum, ' ', sizeof header.checksum);
  std::array<unsigned char, kTarBlock> bytes;
  std::memcpy(bytes.data(), &header, kTarBlock);
  unsigned sum = 0;
  for (unsigned char byte : bytes) sum += byte;
  return sum;
}

template <std::size_t size>
std::optional<std::uint64_t> octal_in(const char (&field)[size]) {
  std::string_view text(field, ::strnlen(field, size));
  while (text.ends_with(' ')) text.remove_suffix(1);
  std::uint64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 8);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::string masked(std::string_view assignment) {
  auto equals = assignment.find('=');
  if (equals == std::string_view::npos) return std::string(assignment);
  std::string out(assignment.substr(0, equals + 1));
  std::string_view value = assignment.substr(equals + 1);
  if (is_secret_name(assignment.substr(0, equals)) && !value.empty()) return out.append(kMask);
  return out + without_secrets(without_passwords(value));
}

void sort_by_use(std::vector<LogFile>& files) {
  std::ranges::sort(files, [](const LogFile& one, const LogFile& other) {
    int kind = kind_of(one.path);
    int other_kind = kind_of(other.path);
    if (kind != other_kind) return kind < other_kind;
    if (one.mtime != other.mtime) return one.mtime > other.mtime;
    return one.path < other.path;
  });
}

bool is_plain_path(std::string_view path) {
  if (printable(path) != path) return false;
  for (;;) {
    auto slash = path.find('/');
    std::string_view part = path.substr(0, slash);
    if (part.empty() || part == "." || part == "..") return false;
    if (slash == std::string_view::npos) return true;
    path.remove_prefix(slash + 1);
  }
}

std::string as_folder_name(std::string_view host) {
  constexpr std::size_t kLongest = 64;
  std::string name(host.substr(0, kLongest));
  for (char& c : name) {
    bool is_plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_';
    bool is_dot_inside = c == '.' && &c != &name.front();
    if (!is_plain && !is_dot_inside) c = '_';
  }
  return name.empty() ? "node" : name;
}

std::optional<std::string> tar_header(std::string_view name, std::size_t size, std::int64_t mtime) {
  Header header{};
  std::string_view last = name;
  std::string_view prefix;
  if (name.size() > sizeof header.name) {
    auto slash = name.find('/', name.size() - sizeof header.name - 1);
    if (slash == std::string_view::npos || slash > sizeof header.prefix) return std::nullopt;
    prefix = name.substr(0, slash);
    last = name.substr(slash + 1);
  }
  if (last.empty()) return std::nullopt;
  std::memcpy(header.name, last.data(), last.size());
  std::memcpy(header.prefix, prefix.data(), prefix.size());
  put_octal(header.mode, sizeof header.mode, 0600);
  put_octal(header.uid, sizeof header.uid, 0);
  put_octal(header.gid, sizeof header.gid, 0);
  put_octal(header.size, sizeof header.size, size);
  put_octal(header.mtime, sizeof header.mtime,
            static_cast<std::uint64_t>(std::max<std::int64_t>(mtime, 0)));
  header.type = '0';
  std::memcpy(header.magic, "ustar", sizeof header.magic);
  std::memcpy(header.version, "00", sizeof header.version);
  put_octal(header.checksum, 7, checksum_of(header));
  header.checksum[7] = ' ';
  std::string text(kTarBlock, '\0');
  std::memcpy(text.data(), &header, kTarBlock);
  return text;
}

std::string tar_padding(std::size_t size) {
  return std::string((kTarBlock - size % kTarBlock) % kTarBlock, '\0');
}

std::optional<TarEntry> read_tar_header(std::string_view block) {
  if (block.size() != kTarBlock) return std::nullopt;
  Header header;
  std::memcpy(&header, block.data(), kTarBlock);
  if (std::ranges::all_of(block, [](char c) { return c == '\0'; })) return TarEntry{};
  auto size = octal_in(header.size);
  auto checksum = octal_in(header.checksum);
  if (!size || checksum != checksum_of(header)) return std::nullopt;
  auto mtime = octal_in(header.mtime);
  TarEntry entry{.name = std::string(header.prefix, ::strnlen(header.prefix, sizeof header.prefix)),
                 .size = *size,
                 .mtime = static_cast<std::int64_t>(mtime.value_or(0))};
  if (!entry.name.empty()) entry.name += '/';
  entry.name.append(header.name, ::strnlen(header.name, sizeof header.name));
  if (entry.name.empty()) return std::nullopt;
  return entry;
}

}  // namespace ddprun::agent
