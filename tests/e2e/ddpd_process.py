# SPDX-License-Identifier: BSD-3-Clause
"""A ddpd for a test: started on a free port, ended when the test is done with it."""

import atexit
import functools
import os
import signal
import subprocess
import tempfile

LIMIT_S = 30  # of every wait


def ddpd_path():
    return os.path.join(os.environ["DDPRUN_BIN"], "ddpd")


@functools.cache
def state_folder():
    """Where every ddpd of this test program keeps its run files."""
    folder = tempfile.TemporaryDirectory(prefix="ddprun-state-")
    atexit.register(folder.cleanup)
    return folder.name


class Ddpd:
    """Starts ddpd and waits until it listens.  `log` is its stderr once it has ended."""

    def __init__(self, *options, port=0):
        self.process = subprocess.Popen(
            [ddpd_path(), "--listen", f"127.0.0.1:{port}", "--state-dir", state_folder(), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        line = self.process.stdout.readline()
        if not line.startswith("listening on 127.0.0.1:"):
            raise RuntimeError(f"ddpd said {line!r} and {self.process.communicate()[1]!r}")
        self.port = int(line.rpartition(":")[2])
        self.log = None

    def stop(self, signal_number=signal.SIGTERM):
        """Ends it and answers its exit code."""
        if self.log is None:
            self.process.send_signal(signal_number)
            self.log = self.process.communicate(timeout=LIMIT_S)[1]
        return self.process.returncode

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
