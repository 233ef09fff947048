# SPDX-License-Identifier: BSD-3-Clause
"""What PyTorch's own tests ask of a TCPStore, restated against ddpd, with torch's own client.

Read: test/distributed/test_store.py as of late 2025 (with queues; the tests of list_keys and barrier
came later, and are restated from what torch 2.15 does) and test/cpp/c10d/TCPStoreTest.cpp.  "torch"
is store_torch_test.py, "here" this file.

  upstream                                          here
  StoreTestBase.test_set_get_check                  here, plain and with a prefix
  StoreTestBase.test_compare_set                    here, plain and with a prefix
  StoreTestBase.test_simple_wait                    here, plain and with a prefix
  StoreTestBase.test_append, multi_set, multi_get   here, plain and with a prefix
  StoreTestBase.test_queues, _nonblocking           here, plain and with a prefix
  StoreTestBase.test_queues_bidirectional           here
  StoreTestBase.test_queues_timeout                 here, plain and with a prefix
  StoreTestBase.test_clone                          here, plain and with a prefix
  TCPStoreTest.test_address_already_in_use          ddpd_test, a port that is taken
  TCPStoreTest.test_multitenancy                    a second server of one process: not ours to have;
                                                    PG and RPC on one port: torch, fsdp_checkpoint_and_rpc
  TCPStoreTest.test_init_pg_and_rpc_with_same_socket  torch, fsdp_checkpoint_and_rpc
  TCPStoreTest.test_repr                            here
  TCPStoreTest.test_take_over_listen_socket         ddpd_systemd_test, a passed socket
  TCPStoreTest.test_numkeys_delkeys                 here
  TCPStoreTest.test_multi_worker_with_*_world_size  here
  TCPStoreTest.test_store_timeout_on_missing_clients  only who serves waits: here, that nobody does
  TCPStoreTest.test_world_size_0_raises             torch's client alone; no server hears of it
  TCPStoreTest.test_agent_store                     here
  PrefixTCPStoreTest.test_underlying_non_prefix_store  torch's client alone
  RendezvousEnvTest, RendezvousTCPTest.test_nominal here
  RendezvousTCPTest.test_tcp_store_timeout_*        here
  RendezvousTCPTest.test_tcp_store_url_with_libuv   here
  Rendezvous*.test_common_errors, test_dns_timeout  torch's client alone
  TestMultiThreadedWait.test_wait_tcp_store(_uv)    here
  TimeoutTest.test_interrupt_doesnt_break_wait      here
  InitPgWithNonUvStore                              here, a client that expects the older server
  TestClientProtocol.test_client_connect            here, the client's bytes
  FileStore*, HashStore*, PrefixFile*, *PythonStore*, RendezvousFile*  other stores
  C++ testHelper, testHelperPrefix                  here, threads that hammer one store
  C++ testCleanShutdown                             torch, a server that ends frees a blocked client
  C++ testMultiTenantStores                         as test_multitenancy
  C++ testLibUVPartialRead                          server_hostile_test, byte by byte; a multi_set in pieces
  C++ testWatchKey*, testKey*                       the operation is gone since torch 2.1
  list_keys, barrier (2.10, 2.12)                   here, and torch, barrier
"""

import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import unittest
from datetime import timedelta

from store_torch_test import LIMIT_S, SHORT, StoreCase

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore

LENGTH = struct.Struct("<Q")


def S(text):
    return LENGTH.pack(len(text)) + text


class UpstreamCase(StoreCase):
    def stores(self):
        """A client of a new store, plain; and one with a prefix."""
        for wrap in (lambda store: store, lambda store: PrefixStore("test_prefix", store)):
            self.ddpd.stop()
            self.setUp()
            store = wrap(self.client(world_size=1))
            with self.subTest(type(store).__name__):
                yield store


class BaseTest(UpstreamCase):
    def test_set_get_check(self):
        for store in self.stores():
            for number in (1, 2, 3):
                store.add("key", number)
            for number in range(3):
                store.set(f"key{number}", f"value{number}")
            for number in range(1, 7):
                store.add("key3", number)
            self.assertEqual(store.num_keys(), 6)
            self.assertEqual(store.get("key"), b"6")
            self.assertEqual([store.get(f"key{i}") for i in range(3)], [b"value0", b"value1", b"value2"])
            self.assertEqual(store.get("key3"), b"21")
            self.assertTrue(store.check(["key3"]))
            self.assertFalse(store.check(["another"]))
            store.set("-key3", "7")
            self.assertEqual(store.get("-key3"), b"7")
            self.assertTrue(store.delete_key("-key3"))
            self.assertEqual(store.num_keys(), 6)

    def test_compare_set(self):
        for store in self.stores():
            self.assertEqual(store.compare_set("k", "wrong", "new"), b"wrong")
            store.set("k", "old")
            self.assertEqual(store.compare_set("k", "wrong", "new"), b"old")
            self.assertEqual(store.get("k"), b"old")
            self.assertEqual(store.compare_set("k", "old", "new"), b"new")
            self.assertEqual(store.get("k"), b"new")
            self.assertEqual(store.compare_set("other", "", "new"), b"new")
            self.assertEqual(store.get("other"), b"new")

    def test_simple_wait(self):
        for store in self.stores():
            with self.assertRaisesRegex(RuntimeError, "timeout"):
                store.wait(["bad"], SHORT)
            store.add("good", 1)
            store.wait(["good"])

    def test_append_and_multi(self):
        for store in self.stores():
            store.set("foo", "po")
            store.append("foo", "tato")
            store.append("bar", "po")
            store.append("bar", "tato")
            self.assertEqual(store.multi_get(["foo", "bar"]), [b"potato", b"potato"])
            store.multi_set(["foo", "bar"], ["po", "tato"])
            self.assertEqual(store.get("foo"), b"po")
            self.assertEqual(store.get("bar"), b"tato")

    def test_queues(self):
        for store in self.stores():
            self.assertFalse(store.check(["foo"]))
            self.assertEqual(store.queue_len("foo"), 0)
            with self.assertRaisesRegex(dist.QueueEmptyError, "empty"):
                store.queue_pop("foo", block=False)
            store.queue_push("foo", "1")
            store.queue_push("foo", "2")
            self.assertTrue(store.check(["foo"]))
            self.assertEqual(store.queue_len("foo"), 2)
            store.wait(["foo"])
            self.assertEqual(store.queue_pop("foo"), b"1")
            self.assertEqual(store.queue_pop("foo", block=False), b"2")
            self.assertFalse(store.check(["foo"]))
            self.assertEqual(store.queue_len("foo"), 0)
            store.set_timeout(SHORT)
            with self.assertRaisesRegex(dist.DistStoreError, "timeout"):
                store.queue_pop("foo")

    def test_queues_both_ways(self):
        for store in self.stores():

            def first(own):
                own.queue_push("a", "a1")
                return own.queue_pop("b")

            def second(own):
                item = own.queue_pop("a")
                own.queue_push("b", "b1")
                return item

            threads = [self.in_thread(work, store.clone()) for work in (first, second)]
            self.assertEqual([self.outcome(thread) for thread in threads], [b"b1", b"a1"])

    def test_clone(self):
        for store in self.stores():
            copy = store.clone()
            self.assertIsInstance(copy, dist.Store)
            store.set("foo", "bar")
            self.assertEqual(copy.get("foo"), b"bar")

    def test_list_keys(self):
        for store in self.stores():
            self.assertEqual(store.list_keys(), [])
            store.set("a", "1")
            store.add("b", 1)
            store.queue_push("q", "no key")
            self.assertEqual(sorted(key.rpartition("/")[2] for key in store.list_keys()), ["a", "b"])
            store.delete_key("a")
            self.assertEqual(len(store.list_keys()), 1)

    def test_barrier(self):
        for store in self.stores():
            others = [store.clone() for _ in range(3)]
            for name in ("first", "second"):
                threads = [self.in_thread(other.barrier, name, 4) for other in others]
                store.barrier(name, 4)
                for thread in threads:
                    self.outcome(thread)
            with self.assertRaisesRegex(dist.DistStoreError, "timeout"):
                store.barrier("third", 2, SHORT)
            store.set("k", "v")
            self.assertEqual(store.get("k"), b"v")

    def test_a_wait_in_another_thread(self):
        for store in self.stores():
            waiting = self.in_thread(lambda peer: (peer.wait(["key"]), peer.get("key"))[1], store.clone())
            store.set("key", "value")
            self.assertEqual(self.outcome(waiting), b"value")


class TcpTest(UpstreamCase):
    def test_num_keys_and_delete_key(self):
        store = self.client(world_size=1)
        self.assertEqual(store.num_keys(), 1)
        for key in ("key", "key", "key3"):
            store.add(key, 1)
        store.set("key0", "value0")
        store.set("key1", "value1")
        self.assertEqual(store.num_keys(), 5)
        store.delete_key("key")
        self.assertEqual(store.num_keys(), 4)
        store.set_timeout(SHORT)
        with self.assertRaises(RuntimeError):
            store.get("key")
        store.delete_key("key0")
        store.delete_key("key3")
        self.assertEqual(store.num_keys(), 2)
        store.set("key4", "value2")
        self.assertEqual(store.num_keys(), 3)
        self.assertEqual([store.get("key1"), store.get("key4")], [b"value1", b"value2"])

    def test_workers_with_and_without_a_world_size(self):
        self.client().set("key", "value")
        for world_size in (5, None):
            for index in range(world_size or 1):
                store = self.client(world_size=world_size)
                self.assertEqual(store.get("key"), b"value")
                store.set(f"new{index}", "value")
                self.assertEqual(store.compare_set(f"new{index}", "value", "next"), b"next")
        self.assertEqual(self.client().add("x", 0), 0)
        self.assertEqual(self.init_count(), 5)

    def init_count(self):
        """How many clients have counted themselves in; the key has no slash, so torch cannot ask."""
        with socket.create_connection(("127.0.0.1", self.ddpd.port), LIMIT_S) as peer:
            peer.sendall(b"\x00\xce\xf7\x85\x3c" + b"\x03" + S(b"init/"))
            return int(peer.recv(99)[8:])

    def test_a_client_of_a_larger_world_does_not_wait_for_the_others(self):
        self.client(world_size=2).set("k", "v")

    def test_repr(self):
        pattern = r"TCPStore\(client=TCPClient\(SocketImpl\(fd=\d+, .*\)\), server=<nullptr>\)"
        self.assertRegex(repr(self.client()), pattern)

    def test_the_agent_s_store_is_used_and_not_another(self):
        with self.assertRaisesRegex(dist.DistNetworkError, "failed to listen"):
            self.client(is_master=True, world_size=1)
        os.environ.update(TORCHELASTIC_USE_AGENT_STORE="1", MASTER_PORT=str(self.ddpd.port))
        try:
            store = self.client(is_master=True, world_size=1)
        finally:
            del os.environ["TORCHELASTIC_USE_AGENT_STORE"], os.environ["MASTER_PORT"]
        self.assertEqual(store.port, self.ddpd.port)
        store.set("k", "v")
        self.assertEqual(self.client().get("k"), b"v")

    def test_a_client_that_expects_the_older_server(self):
        store = self.client(use_libuv=False)
        self.assertFalse(store.libuvBackend)
        store.set("k", "v")
        self.assertEqual(store.get("k"), b"v")
        with self.assertRaises(NotImplementedError):
            store.queue_push("q", "item")

    def test_rendezvous(self):
        url = f"tcp://127.0.0.1:{self.ddpd.port}?world_size=2&rank=1"
        store, rank, size = next(dist.rendezvous(url, timeout=timedelta(seconds=LIMIT_S)))
        self.assertEqual((rank, size), (1, 2))
        store.set("key0", "value0")
        self.assertEqual(store.get("key0"), b"value0")
        store.set_timeout(timedelta(milliseconds=100))
        for key in ("nonexistent key", "the_key"):
            with self.assertRaisesRegex(dist.DistStoreError, f"wait timeout after 100ms, keys: /{key}"):
                store.get(key)
        store.set("the_key", "x")
        self.assertEqual(store.get("the_key"), b"x")
        store, _, _ = next(dist.rendezvous(url + "&use_libuv=1"))
        self.assertTrue(store.libuvBackend)

    def test_rendezvous_by_the_environment(self):
        names = {"WORLD_SIZE": "2", "RANK": "1", "MASTER_ADDR": "127.0.0.1"}
        os.environ.update(names, MASTER_PORT=str(self.ddpd.port))
        try:
            store, rank, size = next(dist.rendezvous("env://"))
        finally:
            for name in (*names, "MASTER_PORT"):
                del os.environ[name]
        self.assertEqual((rank, size), (1, 2))
        store.set("key0", "value0")
        self.assertEqual(self.client().get("key0"), b"value0")

    def test_a_signal_does_not_end_a_wait(self):
        before = signal.signal(signal.SIGUSR1, lambda *_: None)
        self.addCleanup(signal.signal, signal.SIGUSR1, before)
        store = self.client()
        others = self.waiter_count()  # ddpd's own
        waiting = self.in_thread(store.wait, ["foo"])
        self.eventually(lambda: self.waiter_count() == others + 1)
        signal.pthread_kill(waiting.ident, signal.SIGUSR1)
        other = self.client()
        self.assertFalse(other.check(["foo"]))
        self.assertTrue(waiting.is_alive())
        other.set("foo", "bar")
        self.outcome(waiting)

    def waiter_count(self):
        with socket.create_connection(("127.0.0.1", self.ddpd.port), LIMIT_S) as peer:
            peer.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            page = b"".join(iter(lambda: peer.recv(65536), b""))
        return int(re.search(rb"ddprun_store_waits (\d+)", page)[1])

    def test_threads_hammer_one_store(self):
        for store in self.stores():
            count, times = 8, 200

            def hammer(index):
                own = clones[index]
                for step in range(times):
                    own.add("counter", 1)
                    own.set(f"thread{index}", str(step))
                    if own.get(f"thread{index}") != str(step).encode():
                        return "another value"
                return "done"

            clones = [store.clone() for _ in range(count)]
            threads = [self.in_thread(hammer, index) for index in range(count)]
            self.assertEqual([self.outcome(thread) for thread in threads], ["done"] * count)
            clones.clear()
            self.assertEqual(store.get("counter"), str(count * times).encode())
            for index in range(count):
                self.assertEqual(store.get(f"thread{index}"), str(times - 1).encode())


# A process of its own, because some calls of torch's keep Python from running anything else.
DOOR = """
import os, socket, sys, threading
listener = socket.create_server(("127.0.0.1", 0))
os.write(1, b"%d\\n" % listener.getsockname()[1])
client, _ = listener.accept()
server = socket.create_connection(("127.0.0.1", int(sys.argv[1])))

def answer():
    while data := server.recv(65536):
        client.sendall(data)

threading.Thread(target=answer, daemon=True).start()
while data := client.recv(65536):
    os.write(1, data)
    server.sendall(data)
"""


class BytesTest(StoreCase):
    """What torch's client sends is what store/PROTOCOL.md says, and what it makes of our replies."""

    def record(self):
        """A door to ddpd: its port, and the bytes that its client sends."""
        door = subprocess.Popen(
            [sys.executable, "-c", DOOR, str(self.ddpd.port)], stdout=subprocess.PIPE
        )
        self.addCleanup(door.communicate)
        self.addCleanup(door.kill)
        port = int(door.stdout.readline())
        sent = bytearray()

        def read():
            while data := os.read(door.stdout.fileno(), 65536):
                sent.extend(data)

        threading.Thread(target=read, daemon=True).start()
        return port, sent

    def test_every_request(self):
        port, sent = self.record()
        store = dist.TCPStore("127.0.0.1", port, world_size=4, is_master=False, use_libuv=True)
        hello = b"\x00\xce\xf7\x85\x3c" + b"\x0d" + struct.pack("<I", os.getpid())
        hello += b"\x04" + S(b"init/") + struct.pack("<q", 1)
        self.eventually(lambda: len(sent) >= len(hello))
        self.assertEqual(bytes(sent), hello)
        one = LENGTH.pack(1) + S(b"/k")
        pairs = LENGTH.pack(2) + S(b"/a") + S(b"1") + S(b"/b") + S(b"2")
        for call, frame in (
            (lambda: store.compare_set("k", "", "v"), b"\x02" + S(b"/k") + S(b"") + S(b"v")),
            (lambda: store.set("k", "v"), b"\x01" + S(b"/k") + S(b"v")),
            (lambda: store.get("k"), b"\x06" + one + b"\x03" + S(b"/k")),
            (lambda: store.add("n", -2), b"\x04" + S(b"/n") + struct.pack("<q", -2)),
            (lambda: store.check(["k"]), b"\x05" + one),
            (lambda: store.wait(["k"]), b"\x06" + one),
            (lambda: store.num_keys(), b"\x07"),
            (lambda: store.append("k", "w"), b"\x09" + S(b"/k") + S(b"w")),
            (lambda: store.multi_get(["k"]), b"\x06" + one + b"\x0a" + one),
            (lambda: store.multi_set(["a", "b"], ["1", "2"]), b"\x0b" + pairs),
            (lambda: store.queue_push("q", "x"), b"\x0e" + S(b"/q") + S(b"x")),
            (lambda: store.queue_len("q"), b"\x10" + S(b"/q")),
            (lambda: store.queue_pop("q", False), b"\x0f" + S(b"/q")),
            (lambda: store.list_keys(), b"\x11"),
            (lambda: store.barrier("b", 1), b"\x12" + S(b"/b") + struct.pack("<q", 1)),
            (lambda: store.delete_key("k"), b"\x08" + S(b"/k")),
        ):
            before = len(sent)
            call()
            self.eventually(lambda: len(sent) >= before + len(frame))
            self.assertEqual(bytes(sent[before:]), frame)
        before = len(sent)
        with self.assertRaises(dist.DistStoreError):
            store.wait(["never"], SHORT)
        frame = b"\x06" + LENGTH.pack(1) + S(b"/never") + b"\x0c"
        self.eventually(lambda: len(sent) >= before + len(frame))
        self.assertEqual(bytes(sent[before:]), frame)


if __name__ == "__main__":
    print(f"torch {torch.__version__}")
    unittest.main()
