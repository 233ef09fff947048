# SPDX-License-Identifier: BSD-3-Clause
"""What strangers do to ddprun and ddpd: crowds at the port, a host that lies, links and FIFOs in the paths
that are written to.  In each case others are served as before."""

import json
import os
import pathlib
import stat
import struct
import subprocess
import sys
import unittest

from ddpd_process import Ddpd, ddpd_path
from listener import MAGIC, text
from lying_host import LyingHost
from nodes import DDPRUN, LIMIT, NodesCase, environment, wait_until

NO_RENDEZVOUS = 80  # exit code
STRANGER = 54321  # a user


# Holds connections from other addresses, on each of which it has said something, until its stdin ends; says how many
# at a time it got.  argv: PORT COUNT ADDRESSES, and in hexadecimal what it says.
CROWD = """
import resource, socket, sys
port, count, addresses, words = *map(int, sys.argv[1:4]), bytes.fromhex(sys.argv[4])
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
held = []
for i in range(min(count, most - 64)):
    one = socket.socket()
    one.bind((f"127.0.{i % addresses // 250}.{2 + i % addresses % 250}", 0))
    try:
        one.connect(("127.0.0.1", port))
        one.sendall(words)
    except OSError:
        continue
    held.append(one)
print(len(held), flush=True)
sys.stdin.read()
"""


class CrowdTest(NodesCase):
    def crowd(self, count, words, addresses=1):
        """Strangers who have come and stay; how many."""
        process = subprocess.Popen(
            [sys.executable, "-c", CROWD, str(self.port), str(count), str(addresses), words.hex()],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.communicate)
        return int(process.stdout.readline())

    def test_ten_thousand_half_done_handshakes_keep_no_node_out(self):
        secret = {"DDPRUN_SECRET": "correct horse battery staple"}
        host = self.node("--nnodes=2:3", "--rdzv-conf=last_call_timeout=0.1", **secret)
        wait_until(self.is_hosted, "the first agent listens")
        other = self.node("--nnodes=2:3", **secret)
        self.until_round("0/2", "1/2")
        here = self.crowd(10_000, MAGIC + b"\x86" + text(b"x" * 32))
        self.assertGreater(here, 1000)
        late = self.node("--nnodes=2:3", **secret)
        self.until_round("0/3", "1/3", "2/3")
        self.assert_all_succeed(host, other, late)
        self.assertNotIn("lost", host.log)
        # Of the lines about strangers 20 in 10 s.
        self.assertLess(host.log.count("disconnected"), 1000, host.log)

    def strangers_that_pass_for_nodes(self, addresses):
        few = ("prlimit", "--nofile=512:512")
        host = self.node("--nnodes=2", within=few)
        wait_until(self.is_hosted, "the first agent listens")
        entered = MAGIC + b"\x84" + text(b"ddprun")
        self.assertGreater(self.crowd(600, entered + b"\x07", addresses), 400)
        other = self.node("--nnodes=2")
        self.until_round("0/2", "1/2")
        self.assert_all_succeed(host, other)

    def test_strangers_that_pass_for_nodes_leave_room_for_others(self):
        self.strangers_that_pass_for_nodes(addresses=1)

    def test_strangers_from_many_addresses_leave_room_for_others(self):
        # Each has less than the eighth of all that one address may have.
        self.strangers_that_pass_for_nodes(addresses=20)

    def test_strangers_from_all_addresses_of_one_network_leave_room_for_others(self):
        self.strangers_that_pass_for_nodes(addresses=600)


def command(**fields):
    return struct.pack("<q", 1) + text(json.dumps({"v": 1, **fields}).encode())


GARBAGE = bytes(range(256)) * 16
HUGE = struct.pack("<Q", 1 << 62)
LIES = {
    "greeting": [GARBAGE],
    "ping": [GARBAGE],
    "probe": [GARBAGE, b"\0" * 4],
    "authenticate": [GARBAGE, HUGE, text(b""), text(b"y" * 31), text(b"y" * 900)],
    "prove": [GARBAGE, HUGE, text(b""), text(b"z" * 55)],
    "enter": [b"\xff", b"\1", b"\2"],
    "wait": [b"\xff" * 64],
    "record": [HUGE, struct.pack("<q", -1), text(b""), text(b"\xff" * 60_000), text(b"x" * (1 << 20))],
    "will": [b"\xff", GARBAGE],
    "pulse": [HUGE, text(b"\xff" * 60_000)],
    "command": [HUGE + HUGE, struct.pack("<q", -1), struct.pack("<q", 1) + HUGE,
                struct.pack("<q", 1) + text(b"[" * 60_000), command(type="nonsense"),
                command(type="info", text="\x1b[2J\nddprun error") * 1000,
                (struct.pack("<q", 1) + text(b"no command")) * 10_000,
                command(type="end", exit_code=-7, why="", failures=[], restart_count=0, max_restarts=0),
                command(type="moved", to={"host": "\x1b", "port": 0}, why=""),
                command(type="keep_alive", heartbeat_ms=0, max_missed=0, lease_grace_ms=-1, text="")],
}


class LyingHostTest(NodesCase):
    def agent(self, lie, **extra):
        log = open(self.path / f"log{lie.port}", "wb")
        self.addCleanup(log.close)
        process = subprocess.Popen(
            [DDPRUN, "--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{lie.port}",
             "--rdzv-conf=is_host=0,join_timeout=3,read_timeout=3,keep_alive_interval=0.2", "--log-dir=/dev/null",
             "--no-python", "/bin/true"], env=environment(**extra), stdout=log, stderr=log, cwd=self.path)
        self.addCleanup(lambda: process.poll() is None and (process.kill(), process.wait()))
        return process

    def test_whatever_a_host_says_an_agent_ends_with_a_reason(self):
        agents = []
        for step, answers in LIES.items():
            for number, answer in enumerate(answers):
                lie = LyingHost({step: answer})
                self.addCleanup(lie.close)
                is_secret = step in ("authenticate", "prove")
                extra = {"DDPRUN_SECRET": "correct horse battery staple"} if is_secret else {}
                agents.append((f"{step} {number}", lie, self.agent(lie, **extra)))
        for name, lie, process in agents:
            with self.subTest(name):
                _, status, usage = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
                log = (self.path / f"log{lie.port}").read_text(errors="replace")
                self.assertIn(process.returncode, (1, 2, NO_RENDEZVOUS), log)
                self.assertIn("ddprun", log)
                self.assertNotIn("\x1b", log)
                self.assertLess(usage.ru_maxrss, 200_000, log)  # KiB
                self.assertLess(log.count("\n"), 200, log)


class PlantedPathsTest(NodesCase):
    """What somebody has put where a file is to be."""

    def setUp(self):
        super().setUp()
        self.victim = self.path / "victim"
        self.victim.write_text("as it was")

    def plant(self, kind, path):
        path.unlink(missing_ok=True)
        if kind == "link":
            path.symlink_to(self.victim)
        elif kind == "dangling link":
            path.symlink_to(self.path / "nowhere")
        else:
            os.mkfifo(path)

    def assert_untouched(self):
        self.assertEqual(self.victim.read_text(), "as it was")
        self.assertFalse((self.path / "nowhere").exists())

    def test_the_port_file_takes_the_place_of_what_was_planted(self):
        for kind in ("link", "dangling link", "fifo"):
            with self.subTest(kind):
                path = self.path / "port"
                self.plant(kind, path)
                with Ddpd("--port-file", str(path)) as ddpd:
                    self.assertEqual(path.read_text(), f"{ddpd.port}\n")
                self.assertTrue(stat.S_ISREG(path.lstat().st_mode))
                self.assert_untouched()

    def test_a_state_folder_that_is_not_the_user_s_alone_is_not_used(self):
        folder = self.path / "state"
        for kind in ("link", "open", "another's"):
            with self.subTest(kind):
                inside = self.path / "inside"
                inside.mkdir(mode=0o700)
                if kind == "link":
                    folder.symlink_to(inside)
                else:
                    inside = inside.rename(folder)
                    inside.chmod(0o755 if kind == "open" else 0o700)
                if kind == "another's":
                    if os.geteuid() != 0:
                        self.skipTest("only root can give a folder to another user")
                    os.chown(folder, STRANGER, STRANGER)
                process = subprocess.Popen([ddpd_path(), "--listen=127.0.0.1:0", f"--state-dir={folder}"],
                                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                self.addCleanup(process.communicate)
                self.assertIn("listening", process.stdout.readline())
                process.terminate()
                log = process.communicate(timeout=LIMIT)[1]
                self.assertEqual(process.returncode, 0)
                self.assertEqual(log.count(f"no run files are kept ({folder}: "), 1, log)
                self.assertIn("--state-dir", log)
                self.assertEqual(list(inside.iterdir()), [])
                inside.rmdir()
                folder.unlink(missing_ok=True)

    def test_what_is_planted_as_the_folder_of_the_node_files_ends_no_run(self):
        if os.geteuid() != 0:
            self.skipTest("only root has a /dev/shm of its own for a test")
        probe = subprocess.run(["unshare", "--mount", "true"], capture_output=True, text=True)
        if probe.returncode != 0:
            self.skipTest(f"no mount namespace can be made here: {probe.stderr.strip()}")
        folder = f"/dev/shm/ddprun-{os.geteuid()}"
        plants = {"link": f"ln -s {self.path} {folder}", "file": f"touch {folder}", "fifo": f"mkfifo {folder}",
                  "another's": f"mkdir -m 777 {folder} && chown {STRANGER} {folder}"}
        for kind, words in plants.items():
            with self.subTest(kind):
                run = subprocess.run(
                    ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs none /dev/shm && {words} && exec "$@"', "sh",
                     DDPRUN, "--nnodes=1:2", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{self.port}",
                     "--rdzv-conf=last_call_timeout=0.1", "--no-python", "/bin/true"],
                    env=environment(), capture_output=True, text=True, timeout=LIMIT, cwd=self.path)
                self.assertEqual(run.returncode, 0, run.stderr)
                self.assertEqual(run.stderr.count(f"{folder} is no folder of this user's alone"), 1, run.stderr)

    def run_one(self, *options, command=("/bin/true",), **extra):
        run = subprocess.run([DDPRUN, "--nnodes=1", *map(str, options), "--no-python", *command],
                             env=environment(**extra), capture_output=True, text=True, timeout=LIMIT, cwd=self.path)
        self.assert_untouched()
        return run

    def test_latest_is_no_way_into_another_folder(self):
        logs = self.path / "logs"
        logs.mkdir()
        elsewhere = self.path / "elsewhere"
        elsewhere.mkdir()
        latest = logs / "latest"
        latest.symlink_to(elsewhere)
        self.assertEqual(self.run_one(f"--log-dir={logs}", "--redirects=3").returncode, 0)
        self.assertEqual(list(elsewhere.iterdir()), [])
        self.assertEqual(latest.readlink().parent, pathlib.Path("."))
        self.plant("fifo", latest)
        self.assertEqual(self.run_one(f"--log-dir={logs}", "--redirects=3").returncode, 0)
        self.assertTrue(stat.S_ISFIFO(latest.lstat().st_mode))
        for folder in logs.iterdir():
            if folder != latest:
                self.assertEqual(stat.S_IMODE(folder.stat().st_mode), 0o700)
                self.assertEqual(stat.S_IMODE((folder / "attempt_0/0/stdout.log").stat().st_mode), 0o600)

    def test_an_error_file_takes_the_place_of_what_was_planted(self):
        for kind in ("link", "dangling link", "fifo"):
            with self.subTest(kind):
                path = self.path / "error.json"
                self.plant(kind, path)
                run = self.run_one(command=("/bin/false",), TORCHELASTIC_ERROR_FILE=str(path))
                self.assertEqual(run.returncode, 1, run.stderr)
                self.assertTrue(stat.S_ISREG(path.lstat().st_mode))
                self.assertIn("message", json.loads(path.read_text()))

    def test_a_worker_s_error_file_is_read_only_if_it_is_one(self):
        plant = {"link": f'ln -s {self.victim} "$TORCHELASTIC_ERROR_FILE"',
                 "device": 'ln -s /dev/zero "$TORCHELASTIC_ERROR_FILE"',
                 "fifo": 'mkfifo "$TORCHELASTIC_ERROR_FILE"'}
        for kind, words in plant.items():
            with self.subTest(kind):
                run = self.run_one(command=("sh", "-c", words + "; exit 7"))
                self.assertEqual(run.returncode, 7, run.stderr)
                self.assertNotIn("as it was", run.stderr)

    def test_logs_in_a_folder_of_another_user_are_announced(self):
        if os.geteuid() != 0:
            self.skipTest("only root can give a folder to another user")
        logs = self.path / "logs"
        logs.mkdir()
        os.chown(logs, STRANGER, STRANGER)
        run = self.run_one(f"--log-dir={logs}")
        self.assertEqual(run.returncode, 0)
        self.assertEqual(run.stderr.count(f"user {STRANGER} can exchange it: --log-dir DIR names another place"), 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
