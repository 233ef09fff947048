// SPDX-License-Identifier: BSD-3-Clause
//
// Which of the last lines of a worker's stderr says why it ended.  Pure.
#pragma once

#include <string>
#include <vector>

namespace ddprun::agent {

// The last line that names an exception: Python's ("ValueError: ..."; whatever ends a traceback),
// also behind torch's "[rank1]: ", or the text of C++'s "  what():  ...".  One that has ended a
// thread only, or an asyncio task, counts where there is no other, and one that Python has ignored
// ("Exception ignored in: ...") where there is nothing else at all.  Behind an exception group's
// name stands the first exception in it; where NCCL's own words follow ("Last error:"), they do.
// Where there is none, the last line that is neither a remark of torch's logs ("[W1122 ...",
// "[I...") nor part of a dump of stacks by Python's faulthandler or of torch's C++ backtraces
// ("frame #3: ..."); where all are, the last that is not blank; else "".  What a program logs at
// the level WARNING counts as such a remark, at INFO and DEBUG never, nor do Python's warnings and
// progress bars.  Of a line that was written over the last state counts.  Colours are left out.
std::string error_line(const std::vector<std::string>& lines);

// The exception that an error file's `message` tells of: where that holds the traceback of another
// process, as those of DataLoader's workers and of torch.multiprocessing.spawn do, the one that
// ends it; of an exception group, with the first member, by `traceback`.  Else `message`, without a
// colon that nothing follows.
std::string reported_error(const std::string& message, const std::string& traceback);

// The last `most` that a person wants to read: without colours, blank lines and the frames of
// torch's C++ backtraces, which hide what they belong to.  Where nothing else is left, the last
// ones.
std::vector<std::string> telling_lines(const std::vector<std::string>& lines, std::size_t most);

}  // namespace ddprun::agent
