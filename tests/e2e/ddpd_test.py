# SPDX-License-Identifier: BSD-3-Clause
"""What ddpd promises whoever starts it: its words, its files, its exit codes."""

import contextlib
import os
import select
import signal
import socket
import struct
import subprocess
import tempfile
import time
import unittest

from ddpd_process import LIMIT_S, Ddpd, ddpd_path, state_folder
from own_connections import cut_own_connections

HANDSHAKE = b"\x00\xce\xf7\x85\x3c"
PING = b"\x0d\x01\x02\x03\x04"
GET_NUM_KEYS = b"\x07"


def run(*options):
    return subprocess.run([ddpd_path(), *options], capture_output=True, text=True, timeout=LIMIT_S)


def answers(port):
    with socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S) as peer:
        peer.sendall(HANDSHAKE + PING)
        return peer.recv(4) == PING[1:]


def is_closed(peer):
    try:
        return peer.recv(1) == b""
    except ConnectionResetError:
        return True


def page(port, path):
    with socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S) as peer:
        peer.sendall(b"GET /%s HTTP/1.0\r\n\r\n" % path)
        return b"".join(iter(lambda: peer.recv(65536), b""))


def wait_until_alone(port):
    """Until nobody is connected any more."""
    deadline = time.monotonic() + LIMIT_S
    while b'"connections": 1,' not in page(port, b"status"):  # which is this one's
        if time.monotonic() > deadline:
            raise TimeoutError("somebody is connected still")


class DdpdTest(unittest.TestCase):
    def test_it_serves_and_ends_cleanly_on_both_signals(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            with Ddpd() as ddpd:
                self.assertTrue(answers(ddpd.port))
                self.assertEqual(ddpd.stop(number), 0)
                self.assertEqual(ddpd.log, "")

    def test_a_coordinator_that_fails_is_one_line_and_exit_code_1(self):
        with Ddpd() as ddpd, socket.create_connection(("127.0.0.1", ddpd.port)) as client:
            cut_own_connections(ddpd.process.pid)
            client.settimeout(LIMIT_S)
            self.assertTrue(is_closed(client))
            ddpd.process.wait(LIMIT_S)
            self.assertEqual(ddpd.stop(), 1)
            self.assertRegex(ddpd.log, r"^ddpd: the coordinator cannot [^\n]*\n$")

    def test_too_few_descriptors_are_a_sentence_and_exit_code_1(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        secrets = [os.path.join(folder.name, f"secret{number}") for number in range(6)]
        for number, path in enumerate(secrets):
            with open(path, "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
                file.write(f"a secret of its own, number {number}\n")
        begun = refused = 0
        for most in range(10, 64):
            with self.subTest(descriptors=most), subprocess.Popen(
                    ["prlimit", f"--nofile={most}:{most}", ddpd_path(), "--listen=127.0.0.1:0",
                     "--state-dir", state_folder(), "--secret-file", ",".join(secrets)],
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
                has_begun = process.stdout.readline().startswith("listening on ")
                if has_begun:
                    process.terminate()
                log = process.communicate(timeout=LIMIT_S)[1]
                if "error while loading shared libraries" in log:
                    continue
                begun += has_begun
                refused += not has_begun
                self.assertEqual(process.returncode, 0 if has_begun else 1, log)
                if not has_begun:
                    self.assertRegex(log.splitlines()[-1], "^ddpd: .*Too many open files")
        self.assertTrue(begun and refused, (begun, refused))

    def test_a_reader_of_its_log_that_stands_still_or_goes_stops_nothing(self):
        for is_gone in (False, True):
            with self.subTest(is_gone=is_gone):
                reader, writer = os.pipe()
                os.set_blocking(writer, False)
                with contextlib.suppress(BlockingIOError):
                    while True:
                        os.write(writer, b"x" * 4096)
                os.set_blocking(writer, True)
                if is_gone:
                    os.close(reader)
                # It has something to say: nobody is kept from taking part.
                command = [ddpd_path(), "--listen", "0.0.0.0:0", "--state-dir", state_folder()]
                with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=writer, text=True) as ddpd:
                    os.close(writer)
                    try:
                        self.assertTrue(select.select([ddpd.stdout], [], [], LIMIT_S)[0], "it never began to listen")
                        port = int(ddpd.stdout.readline().rpartition(":")[2])
                        self.assertTrue(answers(port))
                        ddpd.terminate()
                        self.assertEqual(ddpd.wait(LIMIT_S), 0)
                    finally:
                        ddpd.kill()
                if not is_gone:
                    os.close(reader)

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

    def test_closed_standard_streams_are_not_taken_by_others(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "port")
            command = [ddpd_path(), "--listen=127.0.0.1:0", "--state-dir", state_folder(), "--port-file", path]
            with subprocess.Popen(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command]) as ddpd:
                try:
                    deadline = time.monotonic() + LIMIT_S
                    while not os.path.exists(path) and time.monotonic() < deadline:
                        time.sleep(0.01)
                    for number in range(3):
                        self.assertEqual(os.readlink(f"/proc/{ddpd.pid}/fd/{number}"), "/dev/null")
                finally:
                    ddpd.terminate()
                    self.assertEqual(ddpd.wait(LIMIT_S), 0)

    def test_nobody_can_keep_the_port_file_from_being_written_by_a_name_beside_it(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "port")
            os.makedirs(path + ".partial/in_the_way")
            with Ddpd("--port-file", path) as ddpd:
                with open(path) as file:
                    self.assertEqual(file.read(), f"{ddpd.port}\n")
                self.assertEqual(sorted(os.listdir(folder)), ["port", "port.partial"])

    def test_a_fresh_one_has_nobody_who_waits(self):
        with Ddpd() as ddpd:
            self.assertIn(b"\nddprun_store_waits 0\n", page(ddpd.port, b"metrics"))
            self.assertIn(b'"waits": 0,', page(ddpd.port, b"status"))
            self.assertNotIn(b"waiting_ms", page(ddpd.port, b"status"))

    def test_a_client_that_is_disconnected_is_told_of_in_one_line(self):
        with Ddpd() as ddpd:
            with socket.create_connection(("127.0.0.1", ddpd.port), timeout=LIMIT_S) as peer:
                peer.sendall(b"\x16\x03\x01")
                name = "127.0.0.1:%d" % peer.getsockname()[1]
                self.assertTrue(is_closed(peer))
            ddpd.stop()
            self.assertEqual(
                ddpd.log, f"ddpd: disconnected {name}: the first byte is not a handshake's\n"
            )

    def test_each_limit_closes_who_passes_it(self):
        def S(text):
            return struct.pack("<Q", len(text)) + text

        def SET(key, value):
            return b"\x01" + S(key) + S(value)

        def many(operation, *keys):
            return operation + struct.pack("<Q", len(keys)) + b"".join(map(S, keys))

        push = b"\x0e" + S(b"q") + S(b"x")
        get = b"\x03" + S(b"k")
        for options, request, why in (
            (["--max-memory", "4K"], SET(b"k", bytes(5000)), "no room for SET of 'k'"),
            (["--max-keys", "1"], SET(b"k", b"") + SET(b"l", b""), "no room for SET of 'l'"),
            (["--max-keys", "1"], SET(b"k", b"") + SET(b"\x1b[2J\nddprun error\xff", b""),
             r"no room for SET of '\\x1b\[2J\\x0addprun error\\xff'"),
            (["--max-key-bytes", "4"], SET(b"long", b"") + SET(b"longer", b""), "a key of 6 bytes"),
            (["--max-value-bytes", "1K"], SET(b"k", bytes(1025)), "a value of 1025 bytes"),
            (["--max-queue-items", "2"], push * 3, "a push to a queue of 2 items"),
            (["--max-request-keys", "2"], many(b"\x05", b"a", b"b", b"c"), "a request of 3 keys"),
            (["--max-request-bytes", "64"], many(b"\x0a", bytes(99)), "a request of more than 64"),
            (["--max-held-bytes", "1K"], SET(b"k", bytes(4000))[:-1], "holds 4017 bytes of an inc"),
            (["--max-awaited-keys", "1"], many(b"\x06", b"a", b"b"), "waits for 2 keys at once"),
            (["--max-waits", "2"], many(b"\x06", b"a") * 3, "waits 3 times at once"),
            (["--unread-timeout", "0.05"], SET(b"k", bytes(1 << 20)) + get * 50, "leaves "),
            (["--unread-timeout", "0.05", "--max-unread-bytes", "4M"],
             SET(b"k", bytes(1 << 20)) + get * 50, "leaves "),
            (["--handshake-timeout", "0.05"], None, "no handshake in time"),
        ):
            with self.subTest(options=options), Ddpd(*options) as ddpd:
                with socket.create_connection(("127.0.0.1", ddpd.port), timeout=LIMIT_S) as peer:
                    if request:
                        peer.sendall(HANDSHAKE + request)
                    if why == "leaves ":
                        wait_until_alone(ddpd.port)  # to read would keep it open
                    else:
                        self.assertTrue(is_closed(peer))
                ddpd.stop()
                self.assertRegex(
                    ddpd.log, rf"\Addpd: disconnected 127.0.0.1:\d+: {why}[^\n]*\n\Z"
                )

    def test_more_connections_than_allowed_are_closed(self):
        with Ddpd("--max-connections", "1") as ddpd:
            with socket.create_connection(("127.0.0.1", ddpd.port), timeout=LIMIT_S) as first:
                first.sendall(HANDSHAKE + PING + GET_NUM_KEYS)
                self.assertEqual(first.recv(4), PING[1:])
                self.assertEqual(len(first.recv(8)), 8)
                with socket.create_connection(("127.0.0.1", ddpd.port), timeout=LIMIT_S) as second:
                    second.sendall(HANDSHAKE + GET_NUM_KEYS)
                    self.assertTrue(is_closed(second))

    def test_an_address_that_is_not_allowed_is_closed_and_told_of_once(self):
        with Ddpd("--allow", "127.0.0.2,10.0.0.0/8") as ddpd:
            for _ in range(2):
                with socket.create_connection(("127.0.0.1", ddpd.port), timeout=LIMIT_S) as peer:
                    self.assertTrue(is_closed(peer))
            with socket.create_connection(
                ("127.0.0.1", ddpd.port), timeout=LIMIT_S, source_address=("127.0.0.2", 0)
            ) as peer:
                peer.sendall(HANDSHAKE + PING)
                self.assertEqual(peer.recv(4), PING[1:])
            ddpd.stop()
            self.assertEqual(ddpd.log, "ddpd: refused 127.0.0.1: its address is not allowed\n")

    def test_bad_usage_is_one_line_and_exit_code_2(self):
        for options in (
            ["--listen", "127.0.0.1:http"],
            ["--listen", ""],
            ["--listen", "node0:0"],
            ["--listen"],
            ["--unknown"],
            ["--allow", ""],
            ["--allow", "10.0.0.7/8"],
            ["--max-memory", "1x"],
            ["--max-memory", "0"],
            ["--max-value-bytes", "-1"],
            ["--max-keys", "0"],
            ["--max-connections", "many"],
            ["--max-queue-items", "1.5"],
            ["--handshake-timeout", "0"],
            ["--unread-timeout", "never"],
            ["--max-namespaces", "0"],
            ["--max-request-bytes", "1 G"],
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

    def test_an_address_of_another_machine_is_one_line_and_exit_code_2(self):
        outcome = run("--listen", "203.0.113.9:0")
        self.assertEqual(outcome.returncode, 2)
        self.assertRegex(outcome.stderr, r"\Addpd: --listen=203\.0\.113\.9:0: no interface of this machine [^\n]+\n\Z")

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
