// SPDX-License-Identifier: BSD-3-Clause
#include "cli/config/node_keys.h"

#include <string>

#include "cli/options/parse.h"
#include "cli/slurm/munge.h"

namespace ddprun::cli {
namespace {

Error contradiction(const OptionValue& value, const OptionValue& auth) {
  return invalid(value.origin + " does not go with " + auth.origin + "=" + auth.text);
}

}  // namespace

Result<NodeKeys> read_node_keys(ConfigBuilder& builder) {
  NodeKeys keys;
  constexpr const char* kVariable = "DDPRUN_SECRET";
  const bool has_variable = builder.workers().environment.contains(kVariable);
  const std::string text = builder.inherited(kVariable);
  builder.workers().environment.erase(kVariable);
  const OptionValue* auth = builder.given("rdzv-auth");
  const OptionValue* path = builder.given("rdzv-secret-file");
  const OptionValue* encrypts = builder.given("rdzv-encrypt");
  const std::string how = auth != nullptr ? auth->text : "auto";
  if (how != "auto" && how != "secret" && how != "munge" && how != "none")
    return invalid_value(*auth, "auto, secret, munge or none");
  if (how == "none" && encrypts != nullptr) return contradiction(*encrypts, *auth);
  if ((how == "none" || how == "munge") && path != nullptr) return contradiction(*path, *auth);
  if (how == "none") return keys;
  // Elsewhere another agent or a ddpd may host, without MUNGE.
  bool is_slurms = builder.slurm.rendezvous.has_value();
  if (how == "munge" || (how == "auto" && is_slurms)) {
    keys.munge = {.socket = munge_socket(builder.slurm_conf().text),
                  .is_required = how == "munge" || encrypts != nullptr};
  }
  if (how == "munge") return keys;
  if (path != nullptr) {
    Result<store::Secret> read = builder.machine.secret_file(path->text, path->origin);
    if (!read) return read.error();
    keys.secret = *read;
  } else if (has_variable) {
    Result<store::Secret> read = store::Secret::from_text(text);
    if (!read) return invalid(std::string(kVariable) + ": " + to_string(read.error()));
    keys.secret = *read;
  }
  bool needs_secret = how == "secret" || (encrypts != nullptr && !keys.munge);
  if (keys.secret || !needs_secret) return keys;
  return invalid((how == "secret" ? auth->origin + "=secret" : encrypts->origin) +
                 " needs a secret: --rdzv-secret-file=PATH or DDPRUN_SECRET (ddprun --new-secret "
                 "makes one)");
}

}  // namespace ddprun::cli
