// SPDX-License-Identifier: BSD-3-Clause
//
// Which of the last lines of a worker's stderr says why it ended.  Pure.
#pragma once

#include <string>
#include <vector>

namespace ddprun::agent {

// The last line that names an exception: Python's ("ValueError: ..."), also behind torch's
// "[rank1]: ", or the text of C++'s "  what():  ...".  Where there is none, the last line that is
// neither a remark of torch's logs ("[W1122 ...", "[I...") nor part of a dump of stacks by Python's
// faulthandler; where all are, the last that is not blank; else "".  What a program logs at the
// levels INFO and DEBUG never counts.  Of a line that was written
// over, as progress bars are, the last state counts.
std::string error_line(const std::vector<std::string>& lines);

}  // namespace ddprun::agent
