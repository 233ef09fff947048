// SPDX-License-Identifier: BSD-3-Clause
#include "agent/slice_reader.h"

#include <string_view>
#include <utility>

#include "worker/process/text_file.h"

namespace ddprun::agent {

using worker::TimelineSlice;

std::string slices_path(const std::string& folder) {
  return folder.empty() ? "" : folder + "/timeline.jsonl";
}

std::vector<TimelineSlice> SliceReader::read(const std::string& folder) {
  std::vector<TimelineSlice> slices;
  File& file = files_[folder];
  if (file.slices >= kMostSlices) return slices;
  auto text = process::part_of_regular_file(slices_path(folder), file.offset, kMostBytes);
  if (!text) return slices;
  std::string_view rest = *text;
  for (auto end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
    auto slice = worker::parse_timeline_line(rest.substr(0, end));
    rest.remove_prefix(end + 1);
    if (slice && file.slices < kMostSlices) {
      slices.push_back(std::move(*slice));
      ++file.slices;
    }
  }
  // A line that fills all of it has no end that would be waited for.
  bool is_endless = rest.size() == kMostBytes;
  file.offset += is_endless ? kMostBytes : text->size() - rest.size();
  return slices;
}

}  // namespace ddprun::agent
