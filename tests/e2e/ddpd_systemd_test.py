# SPDX-License-Identifier: BSD-3-Clause
"""ddpd under systemd, whose part this test plays: it passes a listening socket and takes notices."""

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

from ddpd_process import LIMIT_S, ddpd_path
from ddpd_test import HANDSHAKE, PING, answers

UNITS = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "systemd"

# Puts descriptor argv[1] where systemd puts it, says so in the environment, and becomes the rest.
LAUNCHER = """
import os, sys
number, count, pid = sys.argv[1:4]
os.dup2(int(number), 3)
os.environ.update(LISTEN_FDS=count, LISTEN_PID=pid or str(os.getpid()), LISTEN_FDNAMES="ddpd.socket")
os.execv(sys.argv[4], sys.argv[4:])
"""


def listening_socket(kind=socket.SOCK_STREAM):
    listener = socket.socket(socket.AF_INET, kind)
    listener.bind(("127.0.0.1", 0))
    if kind == socket.SOCK_STREAM:
        listener.listen()
    return listener


def start(listener, *options, count="1", pid="", **variables):
    command = [sys.executable, "-c", LAUNCHER, str(listener.fileno()), count, pid]
    return subprocess.Popen(
        [*command, ddpd_path(), *options],
        pass_fds=[listener.fileno()],
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


class SystemdTest(unittest.TestCase):
    def test_a_passed_socket_is_served_and_its_early_clients_too(self):
        with listening_socket() as listener:
            port = listener.getsockname()[1]
            with socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S) as early:
                early.sendall(HANDSHAKE + PING)
                with start(listener) as ddpd:
                    self.assertEqual(early.recv(4), PING[1:])
                    self.assertEqual(ddpd.stdout.readline(), f"listening on 127.0.0.1:{port}\n")
                    self.assertTrue(answers(port))
                    ddpd.send_signal(signal.SIGTERM)
                    self.assertEqual(ddpd.communicate(timeout=LIMIT_S), ("", ""))
                    self.assertEqual(ddpd.returncode, 0)

    def test_the_next_process_serves_who_came_in_between(self):
        with listening_socket() as listener:
            port = listener.getsockname()[1]
            for _ in range(2):
                with socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S) as client:
                    client.sendall(HANDSHAKE + PING)
                    with start(listener) as ddpd:
                        self.assertEqual(client.recv(4), PING[1:])
                        ddpd.terminate()
                        ddpd.communicate(timeout=LIMIT_S)

    def test_variables_for_another_process_are_not_ours(self):
        with listening_socket() as listener:
            with start(listener, "--listen", "127.0.0.1:0", pid="1") as ddpd:
                said = ddpd.stdout.readline()
                self.assertRegex(said, r"\Alistening on 127\.0\.0\.1:\d+\n\Z")
                self.assertNotIn(str(listener.getsockname()[1]), said)
                ddpd.terminate()
                ddpd.communicate(timeout=LIMIT_S)

    def test_what_cannot_be_served_is_one_line_and_exit_code_2(self):
        with listening_socket() as stream, listening_socket(socket.SOCK_DGRAM) as datagram:
            for listener, options, count, why in (
                (stream, [], "2", "LISTEN_FDS='2': one socket is expected"),
                (stream, [], "x", "LISTEN_FDS='x': one socket is expected"),
                (datagram, [], "1", "descriptor 3 is not a listening TCP socket"),
                (
                    stream,
                    ["--listen", "127.0.0.1:0"],
                    "1",
                    "--listen: systemd has passed a socket that listens already",
                ),
            ):
                with self.subTest(why=why), start(listener, *options, count=count) as ddpd:
                    self.assertEqual(ddpd.communicate(timeout=LIMIT_S), ("", f"ddpd: {why}\n"))
                    self.assertEqual(ddpd.returncode, 2)

    def test_it_tells_when_it_is_ready_and_when_it_stops(self):
        with tempfile.TemporaryDirectory() as folder:
            for address in (f"{folder}/notify", f"\0ddpd-test-{os.getpid()}"):
                with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as inbox:
                    inbox.bind(address)
                    inbox.settimeout(LIMIT_S)
                    variable = address.replace("\0", "@")
                    with listening_socket() as listener:
                        port = listener.getsockname()[1]
                        with start(listener, NOTIFY_SOCKET=variable) as ddpd:
                            self.assertEqual(
                                inbox.recv(1000).decode(),
                                f"READY=1\nSTATUS=listening on 127.0.0.1:{port}",
                            )
                            self.assertTrue(answers(port))
                            ddpd.terminate()
                            self.assertEqual(inbox.recv(1000), b"STOPPING=1")
                            ddpd.communicate(timeout=LIMIT_S)
                            self.assertEqual(ddpd.returncode, 0)

    def test_a_notice_that_nobody_takes_is_no_failure(self):
        with listening_socket() as listener:
            for path in ("/nowhere/notify", "x" * 200):
                with start(listener, NOTIFY_SOCKET=path) as ddpd:
                    self.assertTrue(ddpd.stdout.readline().startswith("listening on "))
                    ddpd.terminate()
                    self.assertEqual(ddpd.communicate(timeout=LIMIT_S)[1], "")
                    self.assertEqual(ddpd.returncode, 0)

    @unittest.skipUnless(shutil.which("systemd-analyze"), "systemd-analyze is not installed")
    def test_systemd_understands_the_units(self):
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for unit in UNITS.iterdir():
                paths.append(pathlib.Path(folder) / unit.name)
                paths[-1].write_text(unit.read_text().replace("/usr/local/bin/ddpd", ddpd_path()))
            self.assertEqual(len(paths), 2)
            outcome = subprocess.run(
                ["systemd-analyze", "verify", *paths], capture_output=True, text=True, timeout=60
            )
            said = [line for line in outcome.stderr.splitlines() if "ddpd" in line]
            self.assertEqual((outcome.returncode, said), (0, []))

    def test_the_unit_s_command_line_is_ddpd_s(self):
        service = (UNITS / "ddpd.service").read_text()
        command = next(line for line in service.splitlines() if line.startswith("ExecStart="))
        with (
            tempfile.TemporaryDirectory() as run,  # what systemd puts for %t
            listening_socket() as listener,
            start(listener, *command.replace("%t", run).split()[1:]) as ddpd,
        ):
            self.assertTrue(ddpd.stdout.readline().startswith("listening on "))
            ddpd.terminate()
            ddpd.communicate(timeout=LIMIT_S)


if __name__ == "__main__":
    unittest.main()
