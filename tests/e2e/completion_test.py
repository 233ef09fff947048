# SPDX-License-Identifier: BSD-3-Clause
"""The completion scripts, as the shells read them.  Shells that are not installed are left out."""

import os
import shutil
import subprocess
import tempfile
import unittest

DDPRUN = os.path.abspath(os.path.join(os.environ["DDPRUN_BIN"], "ddprun"))
LIMIT = 60  # seconds


def script_for(shell):
    run = subprocess.run([DDPRUN, "--print-completion", shell], capture_output=True, text=True, timeout=LIMIT)
    assert (run.returncode, run.stderr) == (0, ""), run.stderr
    return run.stdout


# Completes the last of its arguments and prints what is offered.
BASH = """
eval "$SCRIPT"
complete -p ddprun >/dev/null || exit 1
COMP_WORDS=(ddprun "$@") COMP_CWORD=$# COMPREPLY=()
_ddprun
echo "${COMPREPLY[*]}"
"""


class CompletionTest(unittest.TestCase):
    def test_bash_completes_options_and_values_up_to_the_script(self):
        script = script_for("bash")
        for words, offered in [
            (["--nproc"], "--nproc-per-node --nproc_per_node"),
            (["--max_"], "--max_restarts"),
            (["--standalone", "--numa-binding", "s"], "socket"),
            (["--numa-binding", "="], "node socket exclusive core-complex"),
            (["--numa_binding", "=", "ex"], "exclusive"),
            (["--tee", "=", "3", "--log-l"], "--log-line-prefix-template"),
            (["-t", ""], "0 1 2 3"),
            (["--role", "--t"], ""),  # a value that looks like an option
            (["--role", "x", "--tee"], "--tee"),
            (["--log-dir", ""], ""),  # left to bash, which offers files
            (["train.py", "--tee"], ""),  # the script's own
            (["--", "--tee"], ""),
        ]:
            with self.subTest(words):
                run = subprocess.run(["bash", "--norc", "-c", BASH, "bash", *words], env={**os.environ, "SCRIPT": script},
                                     capture_output=True, text=True, timeout=LIMIT)
                self.assertEqual((run.stdout, run.stderr, run.returncode), (offered + "\n", "", 0))

    def test_every_shell_that_is_here_reads_its_script(self):
        for shell, check in [("bash", ["-n"]), ("zsh", ["-n"]), ("fish", ["--no-execute"]), ("tcsh", ["-f"])]:
            program = shutil.which(shell)
            if program is None:
                continue
            with self.subTest(shell), tempfile.NamedTemporaryFile("w") as file:
                file.write(script_for(shell))
                file.flush()
                run = subprocess.run([program, *check, file.name], capture_output=True, text=True, timeout=LIMIT)
                self.assertEqual((run.returncode, run.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main(verbosity=2)
