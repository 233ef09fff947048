# SPDX-License-Identifier: BSD-3-Clause
"""Our own client in a process of its own: against ddpd, and against torch's TCPStore server."""

import os
import re
import subprocess
import sys
import unittest
from datetime import timedelta

from ddpd_process import LIMIT_S, Ddpd

try:
    from torch.distributed import TCPStore
except ImportError:
    TCPStore = None

CALLS = re.compile(r"\A\d+ calls as they should be, (with|without) extensions\n\Z")


def start(program, *arguments):
    return subprocess.Popen(
        [os.path.join(os.environ["DDPRUN_BIN"], program), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


class ClientTest(unittest.TestCase):
    def assert_conforms(self, port, *options, extensions):
        client = start("store_client_conformance", f"127.0.0.1:{port}", *options)
        out, err = client.communicate(timeout=2 * LIMIT_S)
        self.assertEqual((client.returncode, err), (0, ""))
        self.assertEqual(CALLS.match(out)[1], extensions)

    def test_every_call_on_ddpd(self):
        with Ddpd() as ddpd:
            self.assert_conforms(ddpd.port, extensions="with")

    @unittest.skipUnless(TCPStore, f"{sys.executable} has no torch")
    def test_every_call_on_torch_s_server(self):
        store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self.assertTrue(store.libuvBackend)
        self.assert_conforms(store.port, extensions="without")

    @unittest.skipUnless(TCPStore, f"{sys.executable} has no torch")
    def test_every_call_on_torch_s_older_server_which_has_no_queues(self):
        store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, use_libuv=False)
        self.assertFalse(store.libuvBackend)
        self.assert_conforms(store.port, "no-queues", extensions="without")

    def assert_meet(self, port):
        clients = [start("store_client", f"127.0.0.1:{port}", str(rank), "3") for rank in range(3)]
        said = [client.communicate(timeout=2 * LIMIT_S) for client in clients]
        here = ", ".join(f"process {client.pid}" for client in clients)
        numbers = []
        for rank, (out, err) in enumerate(said):
            self.assertEqual(err, "")
            match = re.fullmatch(rf"rank {rank} of 3: number (\d) at the door; here are (.*)\n", out)
            self.assertEqual(match[2], here)
            numbers.append(match[1])
        self.assertEqual(sorted(numbers), ["1", "2", "3"])

    def test_the_example_on_ddpd(self):
        with Ddpd() as ddpd:
            self.assert_meet(ddpd.port)

    @unittest.skipUnless(TCPStore, f"{sys.executable} has no torch")
    def test_the_example_on_torch_s_server(self):
        store = TCPStore(
            "127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=60)
        )
        self.assert_meet(store.port)

    def test_the_example_says_how_it_is_used(self):
        for arguments in ([], ["127.0.0.1:x", "0", "1"], ["127.0.0.1:1", "0"]):
            client = start("store_client", *arguments)
            self.assertTrue(client.communicate(timeout=LIMIT_S)[1].startswith("usage: "))
            self.assertEqual(client.returncode, 2)


if __name__ == "__main__":
    unittest.main()
