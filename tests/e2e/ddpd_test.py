# SPDX-License-Identifier: BSD-3-Clause
"""What ddpd promises whoever starts it: its words, its files, its exit codes."""

import os
import signal
import socket
import subprocess
import tempfile
import unittest

from ddpd_process import LIMIT_S, Ddpd, ddpd_path

HANDSHAKE = b"\x00\xce\xf7\x85\x3c"
PING = b"\x0d\x01\x02\x03\x04"


def run(*options):
    return subprocess.run([ddpd_path(), *options], capture_output=True, text=True, timeout=LIMIT_S)


def answers(port):
    with socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S) as peer:
        peer.sendall(HANDSHAKE + PING)
        return peer.recv(4) == PING[1:]


class DdpdTest(unittest.TestCase):
    def test_it_serves_and_ends_cleanly_on_both_signals(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            with Ddpd() as ddpd:
                self.assertTrue(answers(ddpd.port))
                self.assertEqual(ddpd.stop(number), 0)
                self.assertEqual(ddpd.log, "")

    def test_a_hang_up_does_not_end_it(self):
        with Ddpd() as ddpd:
            ddpd.process.send_signal(signal.SIGHUP)
            self.assertTrue(answers(ddpd.port))
            self.assertIsNone(ddpd.process.poll())

    def test_the_port_file_holds_the_port_when_it_listens(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "port")
            with Ddpd("--port-file", path) as ddpd:
                with open(path) as file:
                    self.assertEqual(file.read(), f"{ddpd.port}\n")
                self.assertEqual(os.listdir(folder), ["port"])

    def test_a_client_that_is_disconnected_is_told_of_in_one_line(self):
        with Ddpd() as ddpd:
            with socket.create_connection(("127.0.0.1", ddpd.port), timeout=LIMIT_S) as peer:
                peer.sendall(b"\x16\x03\x01")
                name = "127.0.0.1:%d" % peer.getsockname()[1]
                try:
                    self.assertEqual(peer.recv(1), b"")
                except ConnectionResetError:
                    pass
            ddpd.stop()
            self.assertEqual(
                ddpd.log, f"ddpd: disconnected {name}: the first byte is not a handshake's\n"
            )

    def test_bad_usage_is_one_line_and_exit_code_2(self):
        for options in (
            ["--listen", "127.0.0.1:http"],
            ["--listen", ""],
            ["--listen", "node0:0"],
            ["--listen"],
            ["--unknown"],
            ["surplus"],
        ):
            with self.subTest(options=options):
                outcome = run(*options)
                self.assertEqual(outcome.returncode, 2)
                self.assertRegex(outcome.stderr, r"\Addpd: [^\n]+\n\Z")
                self.assertEqual(outcome.stdout, "")

    def test_a_port_that_is_taken_is_one_line_and_exit_code_1(self):
        with Ddpd() as ddpd:
            outcome = run("--listen", f"127.0.0.1:{ddpd.port}")
        self.assertEqual(outcome.returncode, 1)
        self.assertEqual(
            outcome.stderr, f"ddpd: bind 127.0.0.1:{ddpd.port}: Address already in use\n"
        )

    def test_a_port_file_that_cannot_be_written_is_one_line_and_exit_code_1(self):
        outcome = run("--listen", "127.0.0.1:0", "--port-file", "/nowhere/port")
        self.assertEqual(outcome.returncode, 1)
        self.assertEqual(outcome.stderr, "ddpd: cannot write the port to /nowhere/port\n")

    def test_help_and_version(self):
        self.assertEqual(run("--help").returncode, 0)
        self.assertIn("--listen", run("--help").stdout)
        self.assertRegex(run("--version").stdout, r"\A\d+\.\d+\.\d+\n\Z")


if __name__ == "__main__":
    unittest.main()
