// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/etcd/decide/messages.h"

#include <sodium.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "store/base/number.h"
#include "store/base/text.h"

namespace ddprun::rendezvous::etcd {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kShownBytes = 200;

// gRPC's codes, as etcd uses them.
constexpr std::int64_t kNotFound = 5;
constexpr std::int64_t kUnauthenticated = 16;
constexpr std::int64_t kNoCode = -1;

constexpr unsigned kFirstServerStatus = 500;
constexpr unsigned kTooManyRequests = 429;  // also where etcd is full

std::string to_base64(std::string_view bytes) {
  constexpr int kVariant = sodium_base64_VARIANT_ORIGINAL;
  std::string text(sodium_base64_encoded_len(bytes.size(), kVariant), '\0');
  ::sodium_bin2base64(text.data(), text.size(),
                      reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), kVariant);
  text.pop_back();  // the end that C wants
  return text;
}

std::optional<std::string> from_base64(std::string_view text) {
  std::string bytes(text.size(), '\0');
  std::size_t size = 0;
  const char* end = nullptr;
  int status =
      ::sodium_base642bin(reinterpret_cast<unsigned char*>(bytes.data()), bytes.size(), text.data(),
                          text.size(), nullptr, &size, &end, sodium_base64_VARIANT_ORIGINAL);
  if (status != 0 || end != text.data() + text.size()) return std::nullopt;
  bytes.resize(size);
  return bytes;
}

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json read_of(const std::string& key) {
  return Json{{"request_range", {{"key", to_base64(key)}}}};
}

Json condition_of(const Txn::Condition& condition) {
  return Json{{"key", to_base64(condition.key)},
              {"target", "MOD"},
              {"result", "EQUAL"},
              {"mod_revision", std::to_string(condition.revision)}};
}

Error wrong(const std::string& what, std::string_view text) {
  return {Errc::Protocol, "it is no etcd of version 3.4 or newer: " + what + " in '" +
                              printable(beginning_of(text, kShownBytes)) + "'"};
}

// The gateway writes 64-bit numbers as texts, and leaves out what is zero.
std::optional<std::int64_t> number_of(const Json& json, const char* name) {
  auto field = json.find(name);
  if (field == json.end()) return 0;
  if (field->is_number_integer()) return field->get<std::int64_t>();
  if (!field->is_string()) return std::nullopt;
  return number_in<std::int64_t>(field->get_ref<const std::string&>());
}

std::optional<std::string> bytes_of(const Json& json, const char* name) {
  auto field = json.find(name);
  if (field == json.end()) return "";
  if (!field->is_string()) return std::nullopt;
  return from_base64(field->get_ref<const std::string&>());
}

std::optional<KeyValue> key_value_of(const Json& json) {
  if (!json.is_object()) return std::nullopt;
  auto key = bytes_of(json, "key");
  auto value = bytes_of(json, "value");
  auto lease = number_of(json, "lease");
  auto revision = number_of(json, "mod_revision");
  if (!key || key->empty() || !value || !lease || !revision) return std::nullopt;
  return KeyValue{
      .key = std::move(*key), .value = std::move(*value), .lease = *lease, .revision = *revision};
}

// The list of that name; empty where there is none.
const Json& list_of(const Json& json, const char* name) {
  static const Json kNone = Json::array();
  auto field = json.is_object() ? json.find(name) : json.end();
  return json.is_object() && field != json.end() && field->is_array() ? *field : kNone;
}

// What a stream wraps, or else the object itself.
const Json& unwrapped(const Json& json, const char* name) {
  auto field = json.find(name);
  return field != json.end() && field->is_object() ? *field : json;
}

std::int64_t code_of(const Json& json) {
  for (const char* name : {"code", "grpc_code"}) {
    if (json.contains(name)) return number_of(json, name).value_or(kNoCode);
  }
  return kNoCode;
}

std::string text_of(const Json& json) {
  for (const char* name : {"message", "error"}) {
    auto field = json.find(name);
    if (field != json.end() && field->is_string()) return field->get<std::string>();
  }
  return "";
}

Refusal kind_of(unsigned http_status, std::int64_t code, const std::string& text) {
  auto says = [&](std::string_view words) { return text.find(words) != std::string::npos; };
  if (code == kUnauthenticated || says("invalid auth token") || says("auth revision"))
    return Refusal::LogInAgain;
  if (says("authentication is not enabled")) return Refusal::NoAuth;
  if (code == kNotFound && says("lease not found")) return Refusal::LeaseIsOver;
  // A full one is made smaller while agents wait.
  bool is_full = http_status == kTooManyRequests;
  bool is_transient = is_full || http_status >= kFirstServerStatus || says("no leader") ||
                      says("leader changed") || says("timed out") || says("not capable") ||
                      says("too many requests");
  return is_transient ? Refusal::TryNext : Refusal::Final;
}

}  // namespace

// As a transaction that has no conditions it needs no other form for several keys.
std::string encode_read(const std::vector<std::string>& keys) {
  Json reads = Json::array();
  for (const std::string& key : keys) reads.push_back(read_of(key));
  return dump(Json{{"success", std::move(reads)}});
}

std::string encode_txn(const Txn& txn) {
  Json compare = Json::array();
  for (const Txn::Condition& condition : txn.conditions) compare.push_back(condition_of(condition));
  Json success = Json::array();
  for (const KeyValue& put : txn.puts) {
    Json request = {{"key", to_base64(put.key)}, {"value", to_base64(put.value)}};
    if (put.lease != 0) request["lease"] = std::to_string(put.lease);
    success.push_back(Json{{"request_put", std::move(request)}});
  }
  for (const std::string& key : txn.removals)
    success.push_back(Json{{"request_delete_range", {{"key", to_base64(key)}}}});
  return dump(Json{{"compare", std::move(compare)}, {"success", std::move(success)}});
}

std::string encode_grant(Duration ttl) {
  auto seconds = std::max<std::int64_t>(std::chrono::ceil<std::chrono::seconds>(ttl).count(), 1);
  return dump(Json{{"TTL", std::to_string(seconds)}});
}

std::string encode_lease(std::int64_t id) {
  return dump(Json{{"ID", std::to_string(id)}});
}

std::string encode_login(const std::string& user, const std::string& password) {
  return dump(Json{{"name", user}, {"password", password}});
}

Result<TxnReply> decode_txn(std::string_view text) {
  Json json = Json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("header")) return wrong("no header", text);
  TxnReply reply;
  auto succeeded = json.find("succeeded");
  if (succeeded != json.end() && !succeeded->is_boolean()) return wrong("'succeeded'", text);
  reply.has_happened = succeeded != json.end() && succeeded->get<bool>();
  for (const Json& response : list_of(json, "responses")) {
    auto range = response.is_object() ? response.find("response_range") : response.end();
    if (!response.is_object() || range == response.end()) continue;
    for (const Json& found : list_of(*range, "kvs")) {
      auto pair = key_value_of(found);
      if (!pair) return wrong("a key and a value", text);
      reply.read.push_back(std::move(*pair));
    }
  }
  return reply;
}

Result<Lease> decode_lease(std::string_view text) {
  Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return wrong("no lease", text);
  const Json& lease = unwrapped(json, "result");
  auto id = number_of(lease, "ID");
  auto seconds = number_of(lease, "TTL");
  constexpr std::int64_t kMostSeconds = 1'000'000'000;
  bool is_whole = id && *id != 0 && seconds && *seconds <= kMostSeconds;
  if (!is_whole) return wrong("no lease", text);
  return Lease{.id = *id, .ttl = std::chrono::seconds(std::max<std::int64_t>(*seconds, 0))};
}

Result<std::string> decode_token(std::string_view text) {
  Json json = Json::parse(text, nullptr, false);
  auto token = json.is_object() ? json.find("token") : json.end();
  if (!json.is_object() || token == json.end() || !token->is_string())
    return Error{Errc::Protocol, "it is no etcd of version 3.4 or newer: no token"};
  std::string value = token->get<std::string>();
  // It becomes a line of a request.
  if (value.empty() || printable(value) != value)
    return Error{Errc::Protocol, "a token that is no line of text"};
  return value;
}

RefusalText read_refusal(unsigned http_status, std::string_view body) {
  Json json = Json::parse(body, nullptr, false);
  RefusalText refusal;
  if (json.is_object()) {
    const Json& wrapped = unwrapped(json, "error");  // of a stream
    std::string text = text_of(wrapped);
    refusal.kind = kind_of(http_status, code_of(wrapped), text);
    refusal.said = printable(beginning_of(text, kShownBytes));
  } else {
    refusal.kind = http_status >= kFirstServerStatus ? Refusal::TryNext : Refusal::Final;
    std::string_view line = body.substr(0, body.find_first_of("\r\n"));
    refusal.said = printable(beginning_of(line, kShownBytes));
  }
  std::string status = "HTTP status " + std::to_string(http_status);
  refusal.said = refusal.said.empty() ? status : refusal.said + " (" + status + ")";
  return refusal;
}

}  // namespace ddprun::rendezvous::etcd
