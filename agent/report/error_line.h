// SPDX-License-Identifier: BSD-3-Clause
//
// Which of the last lines of a worker's stderr says why it ended.  Pure.
#pragma once

#include <string>
#include <vector>

namespace ddprun::agent {

// The last line that names an exception: Python's ("ValueError: ..."), also behind torch's
// "[rank1]: ", or the text of C++'s "  what():  ...".  Where NCCL's own words follow it ("Last
// error:"), they stand behind the exception's name.  Where there is none, the last line that is
// neither a remark of torch's logs ("[W1122 ...", "[I...") nor part of a dump of stacks by Python's
// faulthandler or of torch's C++ backtraces ("frame #3: ..."); where all are, the last that is not
// blank; else "".  What a program logs at the levels INFO and DEBUG never counts, nor do Python's
// warnings and tqdm's progress bars.  Of a line that was written over the last state counts.
std::string error_line(const std::vector<std::string>& lines);

// The last `most` that a person wants to read: without blank lines and the frames of torch's C++
// backtraces, which hide what they belong to.  Where nothing else is left, the last ones.
std::vector<std::string> telling_lines(const std::vector<std::string>& lines, std::size_t most);

}  // namespace ddprun::agent
