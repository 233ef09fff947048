# SPDX-License-Identifier: BSD-3-Clause
"""A run whose nodes share a secret: who takes part, what others see, and what a wrong one costs."""

import io
import os
import signal
import socket
import struct
import subprocess
import sys
import time
import unittest

from ddpd_process import Ddpd, ddpd_path
from listener import MAGIC, text
from lying_host import LyingHost
from munged import Munged, munged_why_not
from nodes import DDPRUN, LIMIT, NodesCase, environment, wait_until
from proxy import Proxy

SECRET = "correct horse battery staple"
STRANGER = 54321  # a user
NO_RENDEZVOUS = 80  # exit code
PROOF = 32 + 24  # bytes of an HMAC, and of the header of a stream


class Recorder(Proxy):
    """Keeps what passes."""

    def __init__(self, port):
        self.seen = b""
        super().__init__(port)

    def passes(self, one, data):
        self.seen += data
        return data


class Tape(Proxy):
    """Keeps what each end of each connection has said."""

    def __init__(self, port):
        self.said = {}
        super().__init__(port)

    def passes(self, one, data):
        self.said[one] = self.said.get(one, b"") + data
        return data

    def handshake(self):
        """What the ends of one connection have said until they knew each other: the client's bytes, and the server's
        answers to AUTHENTICATE and PROVE."""
        for near, far in self.pairs:
            of_client, of_server = (io.BytesIO(self.said.get(end, b"")) for end in (near, far))
            of_server.read(4 + 4)  # the answers to PING and PROBE
            answers = [text(of_server.read(*struct.unpack("<Q", of_server.read(8)))) for _ in range(2)]
            if len(answers[1]) == 8 + PROOF:
                return of_client.read(len(MAGIC) + 5 + 1 + 1 + 8 + 32 + 1 + 8 + PROOF), answers
        raise AssertionError("no handshake has passed")


class Spoiler(Proxy):
    """Changes what the server of each connection says, as somebody between the two could."""

    def __init__(self, port):
        self.passed = {}  # bytes of each connection's server
        super().__init__(port)

    def passes(self, one, data):
        if one.getpeername()[1] != self.to:
            return data
        before = self.passed.get(one, 0)
        self.passed[one] = before + len(data)
        return self.spoiled(before, data)

    def spoiled(self, before, data):
        """To be supplied: what is handed on of `data`, before which the server has said so many bytes."""
        raise NotImplementedError


class Appender(Spoiler):
    """Adds bytes of its own to the server's answer to PROVE."""

    SHAKEN = 4 + 4 + (8 + 32) + (8 + PROOF)  # the server's bytes so far: PING, PROBE, AUTHENTICATE, PROVE

    def spoiled(self, before, data):
        is_answer = before < self.SHAKEN <= before + len(data)
        return data + b"\0\0" + text(b"gen evil 1") + b"\0" if is_answer else data


class Downgrader(Spoiler):
    """Takes from the server's answer to PROBE that it knows AUTHENTICATE."""

    def spoiled(self, before, data):
        return bytes(byte & ~16 if before + i == 4 else byte for i, byte in enumerate(data))  # behind that to PING


class SecretTest(NodesCase):
    def secret_file(self, content=SECRET, mode=0o600, name="secret"):
        path = self.path / name
        path.write_text(content + "\n")
        path.chmod(mode)
        return path

    def until_started(self, *lines):
        started = self.path / "started"
        wait_until(lambda: started.exists() and all(line in started.read_text() for line in lines), lines)
        return started.read_text()

    def let_go(self, *nodes):
        (self.path / "go").touch()
        for node in nodes:
            self.assertEqual(node.ends(), 0, node.log)

    def refused(self, *options, backend="c10d", **extra):
        """What ddprun says of a command line; it must end by itself, with 2."""
        run = subprocess.run([DDPRUN, "--rdzv-backend", backend, "--nnodes=2", *map(str, options), "/bin/true"],
                             env=environment(**extra), capture_output=True, text=True, timeout=LIMIT, cwd=self.path)
        self.assertEqual(run.returncode, 2, run.stderr)
        self.assertEqual(run.stderr.count("\n"), 1, run.stderr)
        return run.stderr

    def test_nodes_with_the_secret_meet_and_others_do_not(self):
        secret = self.secret_file()
        by_file = f"--rdzv-secret-file={secret}"
        host = self.node("--nnodes=2", by_file)
        for more, why in (({}, "asks for the secret of the run"),
                          ({"DDPRUN_SECRET": "another long enough secret"}, "has another secret than this node")):
            stranger = self.node("--nnodes=2", **more)
            self.assertEqual(stranger.ends(), NO_RENDEZVOUS, stranger.log)
            self.assertIn(why, stranger.log)
            self.assertIn("next: give all nodes of the run, and its ddpd, the same secret", stranger.log)
        host.says("refused 127.0.0.1: it does not know the secret")
        friend = self.node("--nnodes=2", DDPRUN_SECRET=SECRET)
        self.until_started("0/2", "1/2")
        self.let_go(host, friend)
        self.assertNotIn("any program", host.log)

    def test_workers_do_not_inherit_it(self):
        command = ("--no-python", "sh", "-c", 'echo "secret=${DDPRUN_SECRET-none}" >> said')
        nodes = [self.node("--nnodes=2", "--rdzv-encrypt", command=command, DDPRUN_SECRET=SECRET) for _ in range(2)]
        nodes.append(self.node("--nnodes=1", command=command, endpoint="localhost", DDPRUN_SECRET=SECRET))
        for node in nodes:
            self.assertEqual(node.ends(), 0, node.log)
        self.assertEqual((self.path / "said").read_text(), "secret=none\n" * 3)

    def test_nothing_of_what_nodes_say_crosses_the_network_unread(self):
        host = self.node("--nnodes=2", "--rdzv-id=a-name-to-look-for", DDPRUN_SECRET=SECRET)
        wait_until(self.is_hosted, "the first agent listens")
        recorder = Recorder(self.port)
        other = self.node("--nnodes=2", "--rdzv-id=a-name-to-look-for", endpoint=f"localhost:{recorder.port}",
                          DDPRUN_SECRET=SECRET)
        self.until_started("0/2", "1/2")
        self.let_go(host, other)
        self.assertGreater(len(recorder.seen), 1000)
        for word in (b"a-name-to-look-for", b"heartbeat", b"coordinator", b"run_uuid", SECRET.encode()):
            self.assertNotIn(word, recorder.seen)

    def test_who_stands_between_two_nodes_cannot_speak_for_either(self):
        secret = f"--rdzv-secret-file={self.secret_file()}"
        host = self.node("--nnodes=2", secret)
        wait_until(self.is_hosted, "the first agent listens")
        proxy = Appender(self.port)
        self.addCleanup(proxy.close)
        victim = self.node("--nnodes=2", secret, "--rdzv-conf=is_host=0", endpoint=f"localhost:{proxy.port}")
        self.assertEqual(victim.ends(), NO_RENDEZVOUS, victim.log)
        self.assertIn("bytes came that its own end has not sealed", victim.log)
        self.assertNotIn("started", victim.log)
        other = self.node("--nnodes=2", secret)
        self.until_started("0/2", "1/2")
        self.let_go(host, other)

    def test_who_stands_between_cannot_talk_a_node_out_of_its_secret(self):
        host = self.node("--nnodes=2", DDPRUN_SECRET=SECRET)
        wait_until(self.is_hosted, "the first agent listens")
        proxy = Downgrader(self.port)
        self.addCleanup(proxy.close)
        victim = self.node("--nnodes=2", "--rdzv-conf=is_host=0", endpoint=f"localhost:{proxy.port}",
                           DDPRUN_SECRET=SECRET)
        self.assertEqual(victim.ends(), NO_RENDEZVOUS, victim.log)
        self.assertIn("asks for no secret, and this node has one", victim.log)
        self.assertNotIn("started", victim.log)
        other = self.node("--nnodes=2", DDPRUN_SECRET=SECRET)
        self.until_started("0/2", "1/2")
        self.let_go(host, other)

    def test_a_killed_agent_s_guardian_still_says_so(self):
        host = self.node("--nnodes=2", DDPRUN_SECRET=SECRET)
        other = self.node("--nnodes=2", DDPRUN_SECRET=SECRET)
        self.until_started("0/2", "1/2")
        since = time.monotonic()
        other.signal(signal.SIGKILL)
        host.says("was killed")
        self.assertLess(time.monotonic() - since, 4)  # the silence limit is 5 s
        host.signal(signal.SIGTERM)
        host.ends()

    def test_an_agent_refuses_a_host_that_asks_for_no_secret(self):
        with Ddpd() as hostile:
            node = self.node("--nnodes=2", endpoint=f"localhost:{hostile.port}", DDPRUN_SECRET=SECRET)
            self.assertEqual(node.ends(), NO_RENDEZVOUS, node.log)
            self.assertIn("asks for no secret, and this node has one", node.log)

    def test_a_stranger_reads_and_writes_nothing_of_the_rendezvous(self):
        host = self.node("--nnodes=2", DDPRUN_SECRET=SECRET)
        wait_until(self.is_hosted, "the first agent listens")
        with socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT) as stranger:
            stranger.sendall(MAGIC + b"\x84" + text(b"ddprun"))
            self.assertEqual(stranger.recv(1), b"\2")
            stranger.sendall(b"\x05" + struct.pack("<Q", 1) + text(b"/ddprun/coordinator"))
            self.assertEqual(stranger.recv(1), b"")
        host.signal(signal.SIGTERM)
        host.ends()

    def test_a_stranger_cannot_make_a_host_hold_what_he_sends(self):
        host = self.node("--nnodes=1:2", "--rdzv-conf=last_call_timeout=0", f"--rdzv-secret-file={self.secret_file()}",
                         "--no-python",
                         command=("sh", "-c", "while [ ! -e go ]; do sleep 0.05; done"))
        wait_until(self.is_hosted, "the agent listens")
        for request in (b"\x01" + text(b"key") + struct.pack("<Q", 1 << 20),  # SET of 1 MiB
                        b"\x0b" + struct.pack("<Q", 1) + text(b"key") + struct.pack("<Q", 1 << 20)):  # MULTI_SET
            with socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT) as stranger:
                stranger.sendall(MAGIC + request)
                self.assertEqual(stranger.recv(1), b"")
        self.let_go(host)

    def test_a_daemon_has_a_secret_too(self):
        secret = self.secret_file()
        with Ddpd("--secret-file", str(secret)) as ddpd:
            where = f"localhost:{ddpd.port}"
            nodes = [self.node("--nnodes=2", f"--rdzv-secret-file={secret}", endpoint=where) for _ in range(2)]
            self.until_started("0/2", "1/2")
            stranger = self.node("--nnodes=2", endpoint=where)
            self.assertEqual(stranger.ends(), NO_RENDEZVOUS, stranger.log)
            if os.geteuid() == 0:
                self.assertEqual(self.page(ddpd.port, "/status", user=STRANGER), "401")
                self.assertEqual(self.page(ddpd.port, "/metrics", user=STRANGER), "401")
                self.assertEqual(self.page(ddpd.port, "/healthz", user=STRANGER), "200")
                token = subprocess.run([ddpd_path().replace("ddpd", "ddpctl"), "page-token", str(secret)],
                                       capture_output=True, text=True, check=True).stdout.strip()
                self.assertEqual(self.page(ddpd.port, "/status", user=STRANGER, token=token), "200")
                self.assertEqual(self.page(ddpd.port, "/status", user=STRANGER, token="x" + token[1:]), "401")
            self.assertEqual(self.page(ddpd.port, "/status"), "200")
            self.let_go(*nodes)

    def test_a_daemon_keeps_runs_of_different_secrets_apart(self):
        ours = self.secret_file()
        theirs = self.secret_file("the secret of another group", name="theirs")
        with Ddpd("--secret-file", f"{ours},{theirs}") as ddpd:
            where = f"localhost:{ddpd.port}"
            ours_first = self.node("--nnodes=2", f"--rdzv-secret-file={ours}", endpoint=where)
            # Under the same name, and they do not complete each other's run.
            theirs_alone = self.node("--nnodes=1", f"--rdzv-secret-file={theirs}", endpoint=where)
            self.until_started("0/1")
            ours_second = self.node("--nnodes=2", f"--rdzv-secret-file={ours}", endpoint=where)
            self.until_started("0/2", "1/2")
            self.let_go(ours_first, ours_second, theirs_alone)
        run = subprocess.run([ddpd_path(), "--secret-file", f"{ours},{ours}"], capture_output=True, text=True,
                             timeout=LIMIT)
        self.assertEqual((run.returncode, run.stderr), (
            2, f"ddpd: --secret-file={ours}: another file has this secret\n"))

    def page(self, port, path, user=None, token=""):
        script = ("import os, sys, socket, encodings.idna\n"
                  "if len(sys.argv) > 3: os.setgroups([]), os.setresuid(*[int(sys.argv[3])] * 3)\n"
                  "client = socket.create_connection(('127.0.0.1', int(sys.argv[1])), timeout=60)\n"
                  "client.sendall(f'GET {sys.argv[2]} HTTP/1.1\\r\\n{os.environ[\"HEADER\"]}\\r\\n'.encode())\n"
                  "print(client.recv(4096).split()[1].decode())\n")
        header = f"Authorization: bearer {token}\r\n" if token else ""
        who = [] if user is None else [str(user)]
        return subprocess.run([sys.executable, "-c", script, str(port), path, *who], env={**os.environ, "HEADER": header}, capture_output=True, text=True,
                              timeout=LIMIT, check=True).stdout.strip()

    def test_command_lines_that_promise_what_is_not_so_are_refused(self):
        self.assertIn("other users may use it; run: chmod 600", self.refused(
            f"--rdzv-secret-file={self.secret_file(mode=0o644)}"))
        self.assertIn("a secret of 5 bytes", self.refused(f"--rdzv-secret-file={self.secret_file('short')}"))
        self.assertIn("No such file", self.refused("--rdzv-secret-file=/nowhere"))
        os.mkfifo(self.path / "fifo", 0o600)
        self.assertIn("it is no regular file", self.refused(f"--rdzv-secret-file={self.path / 'fifo'}"))
        self.assertIn("DDPRUN_SECRET: a secret of 3 bytes", self.refused(DDPRUN_SECRET="abc"))
        self.assertIn("DDPRUN_SECRET: a secret of 0 bytes", self.refused(DDPRUN_SECRET=""))
        self.assertIn("--rdzv-auth=secret needs a secret", self.refused("--rdzv-auth=secret"))
        self.assertIn("--rdzv-encrypt needs a secret", self.refused("--rdzv-encrypt"))
        self.assertIn("--rdzv-encrypt does not go with --rdzv-auth=none",
                      self.refused("--rdzv-encrypt", "--rdzv-auth=none", DDPRUN_SECRET=SECRET))
        self.assertIn("auto, secret, munge or none", self.refused("--rdzv-auth=magic"))
        run = subprocess.run([ddpd_path(), "--secret-file", str(self.secret_file(mode=0o660))], capture_output=True,
                             text=True, timeout=LIMIT)
        self.assertEqual(run.returncode, 2)
        self.assertIn("other users may use it", run.stderr)

    def test_new_secrets_differ_and_serve(self):
        made = [subprocess.run([DDPRUN, "--new-secret"], capture_output=True, text=True, check=True).stdout
                for _ in range(2)]
        self.assertNotEqual(*made)
        for one in made:
            self.assertRegex(one, r"\A[0-9a-f]{64}\n\Z")
        nodes = [self.node("--nnodes=2", DDPRUN_SECRET=made[0]) for _ in range(2)]
        self.until_started("0/2", "1/2")
        self.let_go(*nodes)


@unittest.skipIf(munged_why_not(), munged_why_not())
class MungeTest(NodesCase):
    """Nodes of a cluster that has a munged."""

    def setUp(self):
        super().setUp()
        self.munged = Munged(self)

    def member(self, *options, **more):
        return self.node("--nnodes=2", *options, SLURM_CONF=self.munged.slurm_conf, **more)

    def test_nodes_of_one_user_meet_and_another_user_does_not(self):
        host = self.member("--rdzv-auth=munge")
        wait_until(self.is_hosted, "the first agent listens")
        stranger = self.member("--rdzv-auth=munge", "--log-dir=/dev/null",
                               within=("setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups"))
        self.assertEqual(stranger.ends(), NO_RENDEZVOUS, stranger.log)
        self.assertIn("it is run by another user of the cluster (MUNGE)", stranger.log)
        without = self.member()
        self.assertEqual(without.ends(), NO_RENDEZVOUS, without.log)
        self.assertIn("asks for the secret of the run", without.log)
        friend = self.member("--rdzv-auth=munge")
        wait_until((self.path / "started").exists, "the workers start")
        (self.path / "go").touch()
        for node in (host, friend):
            self.assertEqual(node.ends(), 0, node.log)

    def test_a_credential_that_was_seen_serves_nobody_else(self):
        host = self.member("--rdzv-auth=munge")
        wait_until(self.is_hosted, "the first agent listens")
        tape = Tape(self.port)
        self.addCleanup(tape.close)
        friend = self.member("--rdzv-auth=munge", "--rdzv-conf=is_host=0", endpoint=f"localhost:{tape.port}")
        self.until_started(2)
        of_client, (credential, proof) = tape.handshake()
        self.assertIn(b"MUNGE:", credential)
        # Other programs that hand it on: with the proof that has come behind it, or with a refusal.
        for answer in (proof, text(b"")):
            lie = LyingHost({"authenticate": credential, "prove": answer})
            self.addCleanup(lie.close)
            victim = self.member("--rdzv-auth=munge", "--rdzv-conf=is_host=0", endpoint=f"localhost:{lie.port}")
            self.assertEqual(victim.ends(), NO_RENDEZVOUS, victim.log)
            self.assertIn("has sent a MUNGE credential that is not its own", victim.log)
            self.assertIn("no other program answers there", victim.log)
        # And one that says again what the friend has said.
        with socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT) as stranger:
            stranger.sendall(of_client)
            heard = stranger.makefile("rb").read()
        self.assertTrue(heard.endswith(text(b"")), heard)
        host.says("refused 127.0.0.1: it does not know the secret")
        self.assertEqual(len(self.started), 2, self.started)
        (self.path / "go").touch()
        for node in (host, friend):
            self.assertEqual(node.ends(), 0, node.log)

    def test_a_killed_agent_s_guardian_still_says_so(self):
        host = self.member("--rdzv-auth=munge")
        other = self.member("--rdzv-auth=munge")
        wait_until((self.path / "started").exists, "the workers start")
        other.signal(signal.SIGKILL)
        host.says("was killed")
        host.signal(signal.SIGTERM)
        host.ends()

    def test_a_host_that_does_not_use_it_is_refused(self):
        host = self.member("--rdzv-auth=none")
        other = self.member("--rdzv-auth=munge")
        self.assertEqual(other.ends(), NO_RENDEZVOUS, other.log)
        self.assertIn("does not use MUNGE, and this node does", other.log)
        host.signal(signal.SIGTERM)
        host.ends()

    def test_where_no_munged_answers_it_says_so(self):
        (self.path / "slurm.conf").write_text(f"AuthInfo=socket={self.path}/nowhere\n")
        node = self.member("--rdzv-auth=munge")
        self.assertEqual(node.ends(), NO_RENDEZVOUS, node.log)
        self.assertIn("MUNGE: there is no munged", node.log)

    def test_the_guardian_of_a_host_that_was_killed_says_so_to_the_next(self):
        host = self.member("--rdzv-auth=munge", "--nnodes=1:2", "--max-restarts=0")
        other = self.member("--rdzv-auth=munge", "--nnodes=1:2", "--max-restarts=0")
        self.until_started(2)
        since = time.monotonic()
        host.signal(signal.SIGKILL)
        wait_until(lambda: "0/1" in (self.path / "started").read_text(), "the other goes on alone")
        self.assertLess(time.monotonic() - since, 4)  # the lease is 5 s
        (self.path / "go").touch()
        self.assertEqual(other.ends(), 0, other.log)

    def test_a_munged_that_stands_still_ends_nothing_that_runs(self):
        host = self.member("--rdzv-auth=munge")
        wait_until(self.is_hosted, "the first agent listens")
        proxy = Proxy(self.port)
        self.addCleanup(proxy.close)
        other = self.member("--rdzv-auth=munge", "--rdzv-conf=is_host=0", endpoint=f"localhost:{proxy.port}")
        self.until_started(2)
        self.munged.process.send_signal(signal.SIGSTOP)
        self.addCleanup(lambda: self.munged.process.send_signal(signal.SIGCONT))
        proxy.reset()
        other.says("again")
        self.assertEqual(len(self.started), 2, self.started)
        (self.path / "go").touch()
        for node in (host, other):
            self.assertEqual(node.ends(), 0, node.log)


if __name__ == "__main__":
    unittest.main()
