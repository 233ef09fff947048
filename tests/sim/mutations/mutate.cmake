# SPDX-License-Identifier: BSD-3-Clause
# cmake -DROOT=... -DMUTATION=x.mutation -DOUT=... -P mutate.cmake: writes the source file that the
# mutation names, with its change made.  A mutation: the file, a sentence, then between the lines
# --- and +++ a text that the file has once, and after +++ what takes its place.
file(READ "${MUTATION}" text)
string(FIND "${text}" "\n" end)
string(SUBSTRING "${text}" 0 ${end} name)
string(FIND "${text}" "\n---\n" begin)
string(FIND "${text}" "\n+++\n" middle)
math(EXPR begin "${begin} + 5")
math(EXPR length "${middle} - ${begin}")
string(SUBSTRING "${text}" ${begin} ${length} before)
math(EXPR middle "${middle} + 5")
string(SUBSTRING "${text}" ${middle} -1 after)
string(REGEX REPLACE "\n$" "" after "${after}")

file(READ "${ROOT}/${name}" source)
string(FIND "${source}" "${before}" first)
string(FIND "${source}" "${before}" last REVERSE)
if(first EQUAL -1 OR NOT first EQUAL last)
  message(FATAL_ERROR "${MUTATION}: ${name} has its text not exactly once: ${before}")
endif()
string(REPLACE "${before}" "${after}" source "${source}")
file(WRITE "${OUT}" "${source}")
