// SPDX-License-Identifier: BSD-3-Clause
#include "cli/explain_commands.h"

#include <nlohmann/json.hpp>
#include <ostream>

#include "cli/explain_text.h"
#include "cli/status_text.h"

namespace ddprun::cli {

Result<void> show_explanation(const StatusQuestion& question, std::ostream& out) {
  Result<Json> page = page_with_run(question);
  if (!page) return page.error();
  std::vector<Json> runs = explained_runs(*page, question.run);
  if (question.as_json) {
    Json all = Json::array();
    for (const Json& run : runs) all.push_back(explain_json(run));
    out << dump(all, 2) << '\n';
    return {};
  }
  Lines elsewhere = elsewhere_lines(*page, question.run);
  if (runs.empty() && elsewhere.empty()) out << "no run meets at " << question.endpoint << '\n';
  out << text_of(elsewhere);
  for (const Json& run : runs) out << text_of(explain_lines(run));
  return {};
}

}  // namespace ddprun::cli
