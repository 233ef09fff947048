// SPDX-License-Identifier: BSD-3-Clause
//
// What is asked of a ddprun or a ddpd about its runs, and how that is fetched.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "store/base/endpoint.h"
#include "store/base/error.h"

namespace ddprun::cli {

using Json = nlohmann::ordered_json;

struct StatusQuestion {
  std::string endpoint;     // where the nodes meet: "node0:29400"
  std::string run{};        // one run's id; empty: all
  std::string secret_file;  // of the run or the ddpd; empty: DDPRUN_SECRET, or none
  bool as_json = false;
  std::optional<int> rank{};  // of stacks: one; nullopt: all
};

// What a page is asked with.
struct PageAccess {
  Endpoint at;
  std::string token;  // empty: there is no secret
};
// What shows that the secret is known; empty: there is none.  Fails where it cannot be read.
Result<std::string> token_for(const StatusQuestion& question);
// Fails with Errc::InvalidInput for an address or a secret that is none.
Result<PageAccess> access_of(const StatusQuestion& question);

// The text of a page.
Result<std::string> text_of_page(const PageAccess& access, const std::string& path,
                                 const std::string& method = "GET");
// A page that is a JSON object.
Result<Json> fetch(const PageAccess& access, const std::string& path,
                   const std::string& method = "GET");
// The page /status of a place where runs meet.
Result<Json> page_of(const StatusQuestion& question);

// The same of a place that knows the run of --run, if one is named: there, or over.  Else fails as
// run_of() does.
Result<Json> page_with_run(const StatusQuestion& question);

// The id of the one run that is meant.  Fails with Errc::InvalidInput, and names those that there
// are, where there is not one.
Result<std::string> run_of(const Json& page, const StatusQuestion& question);

// `json` as text: of one line where `indent` is -1.  What is no UTF-8 becomes U+FFFD.
std::string dump(const Json& json, int indent);

}  // namespace ddprun::cli
