# SPDX-License-Identifier: BSD-3-Clause
"""Thousands of clients that do nothing, or die: ddpd serves the others and gives its memory back."""

import json
import os
import pathlib
import resource
import socket
import struct
import subprocess
import tempfile
import time
import unittest

from ddpd_process import LIMIT_S, Ddpd, ddpd_path
from ddpd_test import HANDSHAKE, PING

CROWD = 10_000
WAITERS = 4_000


def resident_bytes(pid):
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def string(text):
    return struct.pack("<Q", len(text)) + text


def status(port):
    with socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S) as peer:
        peer.sendall(b"GET /status HTTP/1.1\r\n\r\n")
        answer = b""
        while chunk := peer.recv(65536):
            answer += chunk
    return json.loads(answer.partition(b"\r\n\r\n")[2])


class Crowd(unittest.TestCase):
    options = ()

    def setUp(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard < CROWD + 200:
            self.skipTest(f"RLIMIT_NOFILE allows {hard} descriptors, and {CROWD + 200} are needed")
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        self.ddpd = Ddpd("--handshake-timeout", "3600", *self.options)
        self.addCleanup(self.ddpd.stop)
        self.good = self.connect()
        self.addCleanup(self.good.close)
        self.good.sendall(HANDSHAKE)
        self.assert_served()
        self.before = resident_bytes(self.ddpd.process.pid)

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.ddpd.port), timeout=LIMIT_S)

    def assert_served(self):
        self.good.sendall(PING)
        self.assertEqual(self.good.recv(4), PING[1:])

    def eventually(self, claim):
        deadline = time.monotonic() + 2 * LIMIT_S
        while not claim():
            self.assertLess(time.monotonic(), deadline)
            self.assert_served()

    def assert_all_is_given_back(self):
        # The page itself is one connection more.
        self.eventually(lambda: status(self.ddpd.port)["connections"] == 2)
        left = status(self.ddpd.port)
        # What is left is the coordinator's: its record, its pulse and its wait for messages.
        self.assertEqual(left["waits"], 0)
        self.assertLessEqual(left["keys"], 2)
        self.assertLess(left["bytes"], 2048)
        if os.environ.get("DDPRUN_SANITIZE"):
            return  # a sanitizer keeps what is freed
        allowed = self.before + (8 << 20)  # malloc itself keeps 4 MiB
        self.eventually(lambda: resident_bytes(self.ddpd.process.pid) < allowed)


class CrowdTest(Crowd):
    def test_ten_thousand_idle_and_half_open_connections(self):
        crowd = []
        for i in range(CROWD):
            crowd.append(self.connect())
            if i % 2 == 0:
                crowd[-1].sendall(HANDSHAKE[: 1 + i % 5])
            if i % 500 == 0:
                self.assert_served()
        self.eventually(lambda: status(self.ddpd.port)["connections"] == CROWD + 2)
        for each in crowd:
            each.close()
        self.assert_all_is_given_back()

    def test_clients_that_die_while_they_wait_by_the_thousand(self):
        for _ in range(2):
            wait = HANDSHAKE + b"\x06" + struct.pack("<Q", 2) + string(b"/a" * 100) + string(b"/b")
            doomed = []
            for i in range(WAITERS):
                doomed.append(self.connect())
                doomed[-1].sendall(wait)
                if i % 500 == 0:
                    self.assert_served()
            self.eventually(lambda: status(self.ddpd.port)["waits"] >= WAITERS)
            for i, each in enumerate(doomed):
                if i % 2 == 0:  # a reset, as of a process that was killed with unread bytes
                    each.setsockopt(
                        socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                    )
                each.close()
            self.assert_all_is_given_back()


class HalfDoneHandshakes(Crowd):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="ddprun-e2e-")
        cls.addClassCleanup(folder.cleanup)
        cls.secret = pathlib.Path(folder.name) / "secret"
        cls.secret.touch(mode=0o600)
        cls.secret.write_text("what the nodes of a run share")
        cls.options = ("--secret-file", str(cls.secret))

    def test_ten_thousand_of_them_keep_no_node_out(self):
        crowd = []
        for i in range(CROWD):
            crowd.append(self.connect())
            crowd[-1].sendall(HANDSHAKE + b"\x86" + string(os.urandom(32)))
            if i % 500 == 0:
                self.assert_served()
        self.eventually(lambda: status(self.ddpd.port)["connections"] == CROWD + 2)
        run = subprocess.run(
            [ddpd_path().replace("ddpd", "ddprun"), "--rdzv-backend=c10d", "--rdzv-id=job", "--nnodes=1",
             f"--rdzv-endpoint=localhost:{self.ddpd.port}", f"--rdzv-secret-file={self.secret}", "--no-python",
             "/bin/true"], capture_output=True, text=True, timeout=LIMIT_S)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assert_served()
        for each in crowd:
            each.close()


if __name__ == "__main__":
    unittest.main()
