# SPDX-License-Identifier: BSD-3-Clause
"""torch's own store client, and what torch builds on a store, against ddpd.

The client tests restate, in our words, what PyTorch's test_store.py asks of a TCPStore; the process
group tests are what a job does with one.
"""

import os
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from datetime import timedelta

from ddpd_process import LIMIT_S, Ddpd

try:
    import torch
    import torch.distributed as dist
    from torch.distributed import PrefixStore, TCPStore
except ImportError as error:
    print(f"skipped: {sys.executable} has no torch ({error})")
    sys.exit(77)

SHORT = timedelta(milliseconds=50)
LONG = timedelta(seconds=LIMIT_S)


class StoreCase(unittest.TestCase):
    def setUp(self):
        self.ddpd = Ddpd()
        self.addCleanup(self.ddpd.stop)

    def client(self, **options):
        options = {"is_master": False, "timeout": LONG, "use_libuv": True, **options}
        return TCPStore("127.0.0.1", self.ddpd.port, **options)

    def eventually(self, claim):
        """Waits until `claim` is true."""
        deadline = time.monotonic() + LIMIT_S
        while not claim():
            self.assertLess(time.monotonic(), deadline, "waited in vain")

    def in_thread(self, call, *arguments):
        """Starts a call; the thread's `outcome` is its result or exception."""

        def work():
            try:
                thread.outcome = call(*arguments)
            except Exception as error:  # the test looks at it
                thread.outcome = error

        thread = threading.Thread(target=work, daemon=True)
        thread.outcome = None
        thread.start()
        return thread

    def outcome(self, thread):
        thread.join(LIMIT_S)
        self.assertFalse(thread.is_alive(), "a call did not end")
        if isinstance(thread.outcome, Exception):
            raise thread.outcome
        return thread.outcome


class ClientTest(StoreCase):
    def test_set_get_add_check(self):
        store = self.client()
        self.assertFalse(store.check(["key0"]))
        store.add("counter", 1)
        store.set("key0", "value0")
        store.add("counter", 2)
        store.set("key1", "value1")
        store.set("key2", "")
        self.assertTrue(store.check(["key0", "key1", "key2", "counter"]))
        self.assertEqual(store.get("key0"), b"value0")
        self.assertEqual(store.get("key2"), b"")
        self.assertEqual(store.get("counter"), b"3")
        self.assertEqual(store.add("counter", -5), -2)
        self.assertTrue(store.check([]))

    def test_num_keys_and_delete_key(self):
        # world_size = 1 makes the client count itself in, at the one key without a slash.
        store = self.client(world_size=1)
        self.assertEqual(store.num_keys(), 1)
        store.set("a", "1")
        store.set("b", "2")
        self.assertEqual(store.num_keys(), 3)
        self.assertTrue(store.delete_key("a"))
        self.assertFalse(store.delete_key("a"))
        self.assertEqual(store.num_keys(), 2)
        self.assertEqual(store.list_keys(), ["b"])
        with self.assertRaises(dist.DistStoreError):
            store.wait(["a"], SHORT)

    def test_compare_set(self):
        store = self.client()
        self.assertEqual(store.compare_set("k", "expected", "new"), b"expected")
        self.assertFalse(store.check(["k"]))
        self.assertEqual(store.compare_set("k", "", "new"), b"new")
        self.assertEqual(store.get("k"), b"new")
        self.assertEqual(store.compare_set("k", "wrong", "newer"), b"new")
        self.assertEqual(store.compare_set("k", "new", "newer"), b"newer")
        self.assertEqual(store.get("k"), b"newer")

    def test_append_and_multi(self):
        store = self.client()
        self.assertTrue(store.has_extended_api())
        store.append("k", "po")
        store.append("k", "tato")
        self.assertEqual(store.get("k"), b"potato")
        store.multi_set(["foo", "bar"], ["po", "tato"])
        self.assertEqual(store.multi_get(["bar", "foo"]), [b"tato", b"po"])
        large = [f"key{i}" for i in range(2000)]
        store.multi_set(large, [name * 50 for name in large])
        self.assertEqual(store.multi_get(large), [(name * 50).encode() for name in large])
        self.assertEqual(store.num_keys(), 2003)

    def test_values_and_keys_are_bytes_of_any_size(self):
        store = self.client()
        value = bytes(range(256)) * (8 * 1024 * 4)  # 8 MiB
        store.set("large", value)
        self.assertEqual(self.client().get("large"), value)
        store.set("k" * 8191, "v")
        self.assertEqual(store.get("k" * 8191), b"v")
        store.set("", "empty")
        self.assertEqual(store.get(""), b"empty")
        store.set("schlüssel/α", "v")
        self.assertIn("schlüssel/α", store.list_keys())

    def test_a_wait_that_times_out_leaves_the_client_usable(self):
        store = self.client()
        with self.assertRaisesRegex(dist.DistStoreError, "wait timeout after 50ms, keys: /a, /b"):
            store.wait(["a", "b"], SHORT)
        store.set_timeout(SHORT)
        with self.assertRaises(dist.DistStoreError):
            store.get("a")
        with self.assertRaises(dist.DistStoreError):
            store.multi_get(["a", "b"])
        with self.assertRaises(dist.DistStoreError):
            store.barrier("barrier", 2, SHORT)
        with self.assertRaises(dist.DistStoreError):
            store.queue_pop("queue")
        store.set("a", "1")
        self.assertEqual(store.get("a"), b"1")

    def test_a_wait_ends_when_the_keys_come(self):
        store, setter = self.client(), self.client()
        waiting = self.in_thread(store.wait, ["a", "b"])
        setter.set("a", "1")
        self.assertTrue(setter.check(["a"]))
        self.assertTrue(waiting.is_alive())
        setter.add("b", 0)
        self.outcome(waiting)

    def test_many_threads_wait_for_each_other(self):
        count = 16

        def exchange(rank):
            store = self.client()
            for step in range(20):
                store.set(f"{step}/{rank}", str(rank))
                values = store.multi_get([f"{step}/{peer}" for peer in range(count)])
                if values != [str(peer).encode() for peer in range(count)]:
                    return values
            return "done"

        threads = [self.in_thread(exchange, rank) for rank in range(count)]
        self.assertEqual([self.outcome(thread) for thread in threads], ["done"] * count)

    def test_queues(self):
        store, other = self.client(), self.client()
        self.assertEqual(store.queue_len("q"), 0)
        store.queue_push("q", "a")
        store.queue_push("q", "b")
        self.assertEqual(store.queue_len("q"), 2)  # there is no answer to a push
        self.assertEqual(other.queue_len("q"), 2)
        self.assertTrue(other.check(["q"]))
        self.assertEqual(store.num_keys(), 0)
        self.assertEqual(other.queue_pop("q"), b"a")
        self.assertEqual(store.queue_pop("q", False), b"b")
        with self.assertRaises(dist.QueueEmptyError):
            store.queue_pop("q", False)
        popping = self.in_thread(store.queue_pop, "q")
        other.queue_push("q", "c")
        self.assertEqual(self.outcome(popping), b"c")

    def test_no_blocking_pop_finds_the_queue_empty(self):
        """With torch's server, an eighth of these raise QueueEmptyError."""
        poppers, each = 8, 50

        def pop_all():
            store = self.client()
            return [store.queue_pop("q") for _ in range(each)]

        threads = [self.in_thread(pop_all) for _ in range(poppers)]
        pusher = self.client()
        for i in range(poppers * each):
            pusher.queue_push("q", str(i))
        items = [int(item) for thread in threads for item in self.outcome(thread)]
        self.assertEqual(sorted(items), list(range(poppers * each)))

    def test_a_push_after_an_earlier_pop_wakes_the_one_that_waits(self):
        """With torch's server, the push ends the other wait, and the popper hangs."""
        first, second, pusher = self.client(), self.client(), self.client()
        popping = self.in_thread(first.queue_pop, "q")
        pusher.queue_push("q", "a")
        self.assertEqual(self.outcome(popping), b"a")
        waiting = self.in_thread(first.get, "key")
        popping = self.in_thread(second.queue_pop, "q")
        pusher.queue_push("q", "b")
        self.assertEqual(self.outcome(popping), b"b")
        self.assertTrue(waiting.is_alive())
        pusher.set("key", "v")
        self.assertEqual(self.outcome(waiting), b"v")

    def test_a_wait_for_a_filled_queue_and_a_missing_key_ends_with_the_key(self):
        """With torch's server, it hangs."""
        store, setter = self.client(), self.client()
        setter.queue_push("q", "a")
        waiting = self.in_thread(store.wait, ["q", "key"])
        setter.set("key", "v")
        self.outcome(waiting)

    def test_a_failed_compare_set_frees_nobody(self):
        """With torch's server, the waiter is freed, and reads nothing."""
        store, other = self.client(), self.client()
        waiting = self.in_thread(store.get, "key")
        other.compare_set("key", "wrong", "v")
        other.set("unrelated", "v")
        self.assertTrue(other.check(["unrelated"]))
        self.assertTrue(waiting.is_alive())
        other.set("key", "right")
        self.assertEqual(self.outcome(waiting), b"right")

    def test_barrier(self):
        stores = [self.client() for _ in range(4)]
        threads = [self.in_thread(store.barrier, "b", 4) for store in stores[:3]]
        self.eventually(lambda: stores[3].add("probe", 1) > 0)
        self.assertTrue(all(thread.is_alive() for thread in threads))
        stores[3].barrier("b", 4, LONG)
        for thread in threads:
            self.outcome(thread)

    def test_prefix_stores_stack(self):
        store = self.client()
        inner = PrefixStore("inner", PrefixStore("outer", store))
        inner.set("k", "v")
        self.assertEqual(store.get("outer/inner/k"), b"v")
        self.assertEqual(inner.get("k"), b"v")
        self.assertEqual(inner.add("n", 1), 1)
        inner.queue_push("q", "item")
        self.assertEqual(store.queue_pop("outer/inner/q"), b"item")
        self.assertEqual(inner.num_keys(), 2)
        self.assertTrue(inner.delete_key("k"))
        peer = PrefixStore("inner", PrefixStore("outer", self.client()))
        waiting = self.in_thread(peer.barrier, "b", 2)
        inner.barrier("b", 2, LONG)
        self.outcome(waiting)

    def test_clones_share_the_store(self):
        store = self.client()
        copy = store.clone()
        copy.set("k", "v")
        self.assertEqual(store.get("k"), b"v")
        self.assertEqual((copy.host, copy.port), (store.host, store.port))

    def test_what_a_client_may_not_do_closes_it_and_nobody_else(self):
        good = self.client()
        for misuse in (
            lambda store: (store.set("text", "no number"), store.add("text", 1)),
            lambda store: (store.set("k" * 8192, "v"), store.get("text")),
            lambda store: (store.set("k", b"x" * (8 * 1024 * 1024 + 1)), store.get("text")),
        ):
            with self.assertRaises(dist.DistNetworkError):
                misuse(self.client())
        good.set("k", "v")
        self.assertEqual(good.get("k"), b"v")
        self.ddpd.stop()
        self.assertEqual(self.ddpd.log.count("ddpd: disconnected 127.0.0.1:"), 3, self.ddpd.log)

    def test_a_server_that_ends_frees_a_blocked_client_at_once(self):
        store = self.client()
        blocked = self.in_thread(store.get, "never")
        self.ddpd.stop()
        with self.assertRaises(dist.DistNetworkError):
            self.outcome(blocked)

    def test_data_outlives_the_clients_that_wrote_it(self):
        self.client().set("k", "v")
        self.eventually(lambda: self.client().check(["k"]))
        self.assertEqual(self.client().get("k"), b"v")


WORKER = """
import os
from datetime import timedelta
import torch
import torch.distributed as dist

limit = timedelta(seconds=200)
dist.init_process_group("gloo", timeout=limit)
rank, world = dist.get_rank(), dist.get_world_size()
for _ in range(3):
    dist.barrier()
dist.monitored_barrier(timeout=limit)
total = torch.tensor([rank + 1])
dist.all_reduce(total)
assert total.item() == world * (world + 1) // 2, total
objects = [None] * world
dist.all_gather_object(objects, {"rank": rank})
assert [o["rank"] for o in objects] == list(range(world)), objects
evens = dist.new_group([r for r in range(world) if r % 2 == 0])
if rank % 2 == 0:
    total = torch.ones(1)
    dist.all_reduce(total, group=evens)
    assert total.item() == (world + 1) // 2, total
subgroup, _ = dist.new_subgroups(group_size=2)
dist.barrier(group=subgroup)
store = dist.PrefixStore("own", dist.distributed_c10d._get_default_store())
store.set(f"rank{rank}", str(rank))
assert store.get(f"rank{(rank + 1) % world}") == str((rank + 1) % world).encode()
dist.barrier()
dist.destroy_process_group()
print(f"rank {rank} done\\n", end="")  # one write: lines of two ranks must not mix
"""


# What else of torch meets in the store.
USERS = """
import tempfile
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch.distributed import rpc
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

mesh = init_device_mesh("cpu", (world,))
model = fully_shard(torch.nn.Linear(8, 8), mesh=mesh)
model(torch.ones(2, 8)).sum().backward()

folder = [tempfile.mkdtemp() if rank == 0 else None]
dist.broadcast_object_list(folder)
checkpoint.save({"model": model.state_dict()}, checkpoint_id=folder[0])
checkpoint.load({"model": model.state_dict()}, checkpoint_id=folder[0])

rpc.init_rpc(f"worker{rank}", rank=rank, world_size=world)
total = rpc.rpc_sync(f"worker{(rank + 1) % world}", torch.add, args=(torch.ones(1), rank))
assert total.item() == rank + 1, total
rpc.shutdown()
dist.destroy_process_group()
print(f"rank {rank} done\\n", end="")  # one write: lines of two ranks must not mix
"""


class ProcessGroupTest(StoreCase):
    def torchrun(self, *options, **environment):
        with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
            script.write(WORKER)
            script.flush()
            outcome = subprocess.run(
                [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", *options]
                + [script.name],
                env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
                capture_output=True,
                text=True,
                timeout=200,
            )
        self.assertEqual(outcome.returncode, 0, outcome.stderr)
        self.assertIn("rank 0 done", outcome.stdout)
        self.assertIn("rank 1 done", outcome.stdout)

    def test_torchrun_meets_in_ddpd(self):
        self.torchrun(
            "--nnodes=1",
            "--rdzv-backend=c10d",
            f"--rdzv-endpoint=127.0.0.1:{self.ddpd.port}",
            "--rdzv-conf=is_host=0",
        )
        self.assertTrue(any("torch.rendezvous" in key for key in self.client().list_keys()))

    def test_torchrun_and_its_workers_meet_in_ddpd(self):
        self.torchrun(
            "--rdzv-backend=static",
            "--master-addr=127.0.0.1",
            f"--master-port={self.ddpd.port}",
            TORCHELASTIC_USE_AGENT_STORE="True",
            MASTER_PORT=str(self.ddpd.port),
        )
        self.assertTrue(any("default_pg" in key for key in self.client().list_keys()))

    def test_fsdp_checkpoint_and_rpc(self):
        self.run_ranks(2, USERS)

    def run_ranks(self, world_size, script=WORKER):
        environment = {
            **os.environ,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self.ddpd.port),
            "WORLD_SIZE": str(world_size),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "OMP_NUM_THREADS": "1",
        }
        ranks = [
            subprocess.Popen(
                [sys.executable, "-c", script],
                env={**environment, "RANK": str(rank)},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for rank in range(world_size)
        ]
        try:
            for rank, process in enumerate(ranks):
                output = process.communicate(timeout=400)[0]
                self.assertEqual(process.returncode, 0, output)
                self.assertIn(f"rank {rank} done", output)
        finally:
            for process in ranks:
                process.kill()

    def test_gloo_with_two_ranks(self):
        self.run_ranks(2)
        self.ddpd.stop()
        self.assertEqual(self.ddpd.log, "")

    def test_gloo_with_eight_ranks(self):
        self.run_ranks(8)


if __name__ == "__main__":
    print(f"torch {torch.__version__}")
    unittest.main()
