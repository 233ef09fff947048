// SPDX-License-Identifier: BSD-3-Clause
#include "cli/config/etcd_options.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "cli/config/config_builder.h"
#include "cli/config/endpoint_list.h"
#include "cli/options/parse.h"
#include "store/base/text.h"

namespace ddprun::cli {
namespace {

constexpr std::uint16_t kPort = 2379;  // etcd's
constexpr std::size_t kMaxNameBytes = 256;

Result<void> check_readable(const Machine& machine, const OptionValue& file) {
  if (machine.file_text(file.text)) return {};
  return invalid(file.origin + "=" + file.text + ": this file cannot be read");
}

Result<void> check_name(const OptionValue& value, const std::string& what) {
  if (value.text.size() <= kMaxNameBytes && printable(value.text) == value.text) return {};
  return invalid_value(value, what + " of at most " + std::to_string(kMaxNameBytes) + " bytes");
}

}  // namespace

bool EtcdOptions::take(const std::string& key, const OptionValue& value) {
  struct Row {
    std::string_view name;
    std::optional<OptionValue> EtcdOptions::*place;
  };
  static constexpr std::array kRows = {
      Row{"protocol", &EtcdOptions::protocol_},
      Row{"cacert", &EtcdOptions::ca_},
      Row{"ca_cert", &EtcdOptions::ca_},
      Row{"cert", &EtcdOptions::certificate_},
      Row{"ssl_cert", &EtcdOptions::certificate_},
      Row{"key", &EtcdOptions::key_},
      Row{"ssl_cert_key", &EtcdOptions::key_},
      Row{"user", &EtcdOptions::user_},
      Row{"password", &EtcdOptions::password_},
      Row{"password_file", &EtcdOptions::password_file_},
      Row{"etcd_prefix", &EtcdOptions::prefix_},
  };
  const auto* row = std::ranges::find(kRows, key, &Row::name);
  if (row == kRows.end()) return false;
  this->*row->place = value;
  return true;
}

Result<rendezvous::EtcdUse> EtcdOptions::build(const OptionValue* endpoint, const Machine& machine,
                                               std::vector<std::string>& notes) const {
  rendezvous::EtcdUse etcd;
  Result<void> done = add_members(etcd, endpoint);
  if (done) done = add_tls(etcd, machine, notes);
  if (done) done = add_user(etcd, machine);
  if (done) done = add_prefix(etcd);
  if (!done) return done.error();
  return etcd;
}

Result<void> EtcdOptions::add_members(rendezvous::EtcdUse& etcd,
                                      const OptionValue* endpoint) const {
  if (endpoint == nullptr) {
    etcd.members.push_back({.host = "localhost", .port = kPort});
    return {};
  }
  Result<std::vector<Endpoint>> members = parse_endpoints(*endpoint, kPort, 1);
  if (!members) return members.error();
  etcd.members = std::move(*members);
  return {};
}

Result<void> EtcdOptions::add_tls(rendezvous::EtcdUse& etcd, const Machine& machine,
                                  std::vector<std::string>& notes) const {
  if (protocol_) {
    std::string text = protocol_->text;
    for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    if (text != "http" && text != "https") return invalid_value(*protocol_, "http or https");
    etcd.uses_tls = text == "https";
  }
  if (key_ && !certificate_)
    return invalid(key_->origin + " needs the certificate that it is the key of (cert=PATH)");
  struct File {
    const std::optional<OptionValue>& given;
    std::string& path;
  };
  for (const File& file :
       {File{ca_, etcd.ca}, File{certificate_, etcd.certificate}, File{key_, etcd.key}}) {
    if (!file.given) continue;
    if (!etcd.uses_tls) {
      notes.push_back(file.given->origin + " has no effect without protocol=https");
      continue;
    }
    Result<void> checked = check_readable(machine, *file.given);
    if (!checked) return checked;
    file.path = file.given->text;
  }
  return {};
}

Result<void> EtcdOptions::add_user(rendezvous::EtcdUse& etcd, const Machine& machine) const {
  if (password_) {
    return invalid(password_->origin +
                   ": every user of this machine can read a command line; password_file=PATH names "
                   "a file that has the password");
  }
  if (!user_ && !password_file_) return {};
  if (!password_file_) return invalid(user_->origin + " needs password_file=PATH");
  if (!user_) return invalid(password_file_->origin + " needs user=NAME");
  Result<void> checked = check_name(*user_, "a printable name");
  if (!checked) return checked;
  auto password = machine.password_file(password_file_->text, password_file_->origin);
  if (!password) return password.error();
  etcd.user = user_->text;
  etcd.password = std::move(*password);
  return {};
}

Result<void> EtcdOptions::add_prefix(rendezvous::EtcdUse& etcd) const {
  if (!prefix_) return {};
  Result<void> checked = check_name(*prefix_, "a printable path");
  if (!checked) return checked;
  etcd.prefix = prefix_->text;
  while (etcd.prefix.ends_with('/')) etcd.prefix.pop_back();
  if (!etcd.prefix.starts_with('/'))
    return invalid_value(*prefix_, "a path that begins with / and has a name in it");
  return {};
}

std::string to_string(const rendezvous::EtcdUse& etcd) {
  std::string text = "etcd at ";
  for (const Endpoint& member : etcd.members)
    text += (text.ends_with(' ') ? "" : ",") + ddprun::to_string(member);
  return text;
}

}  // namespace ddprun::cli
