# SPDX-License-Identifier: BSD-3-Clause
"""What torch's own store server does wrong, asked of it and of ddpd.

ddpd must not have the fault; of torch it is only said whether the installed one has it.  The table
"Where this server differs from torch's" in store/PROTOCOL.md is what this prints.
"""

import os
import socket
import struct
import sys
import time
import unittest

from ddpd_process import LIMIT_S, Ddpd

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # else a line for each reply of a closed server
try:
    import torch
    from torch.distributed import TCPStore
except ImportError as error:
    print(f"skipped: {sys.executable} has no torch ({error})")
    sys.exit(77)

HANDSHAKE = b"\x00\xce\xf7\x85\x3c"
PING = b"\x0d\x01\x02\x03\x04"
MOMENT_S = 0.3  # in which something wrong would happen; if it is too short a fault is overlooked
patience_s = LIMIT_S  # for what should come
server_pid = None  # of the server that is asked


def S(text):
    return struct.pack("<Q", len(text)) + text


def set_(key, value):
    return b"\x01" + S(key) + S(value)


def wait(*keys):
    return b"\x06" + struct.pack("<Q", len(keys)) + b"".join(map(S, keys))


def push(queue, item):
    return b"\x0e" + S(queue) + S(item)


class Peer:
    def __init__(self, port, greets=True):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S)
        if greets:
            self.send(HANDSHAKE + PING)
            assert self.receive(4) == PING[1:]

    def send(self, data):
        self.socket.sendall(data)
        return self

    def receive(self, count):
        data = b""
        while len(data) < count:
            chunk = self.socket.recv(count - len(data))
            if not chunk:
                raise ConnectionError
            data += chunk
        return data

    def within(self, limit_s):
        """What comes, b"" for the end of the connection, None for nothing."""
        self.socket.settimeout(limit_s)
        try:
            return self.socket.recv(1)
        except TimeoutError:
            return None
        except ConnectionError:
            return b""
        finally:
            self.socket.settimeout(LIMIT_S)

    def settle(self):
        """Returns once all that was sent before has been carried out."""
        self.send(PING)
        assert self.receive(4) == PING[1:]


def handshake_in_two_segments_closes_the_client(port):
    peer = Peer(port, greets=False).send(HANDSHAKE[:2])
    time.sleep(MOMENT_S)  # so that the segments are two
    try:
        return peer.send(HANDSHAKE[2:] + PING).within(patience_s) != PING[1:2]
    except ConnectionError:
        return True


def a_wrong_magic_leaves_the_connection_open(port):
    return Peer(port, greets=False).send(b"\x00\x01\x02\x03\x04").within(patience_s) != b""


def a_first_byte_of_another_protocol_leaves_the_connection_open(port):
    return Peer(port, greets=False).send(b"\x16\x03\x01").within(patience_s) != b""


def a_compare_set_that_stores_nothing_frees_waiters(port):
    waiter = Peer(port).send(wait(b"/k"))
    waiter_is_there(port)
    Peer(port).send(b"\x02" + S(b"/k") + S(b"x") + S(b"y")).receive(9)
    return waiter.within(MOMENT_S) is not None


def a_wait_for_a_filled_queue_and_a_missing_key_hangs(port):
    setter = Peer(port).send(push(b"/q", b"x"))
    setter.settle()
    waiter = Peer(port).send(wait(b"/q", b"/k"))
    waiter_is_there(port)
    setter.send(set_(b"/k", b"v"))
    return waiter.within(patience_s) != b"\x00"


def a_push_after_an_earlier_pop_ends_the_wrong_wait(port):
    pusher, popper, next_popper = Peer(port), Peer(port), Peer(port)
    popper.send(wait(b"/q"))
    waiter_is_there(port)
    pusher.send(push(b"/q", b"1"))
    popper.receive(1)
    popper.send(b"\x0f" + S(b"/q")).receive(8 + 9)
    popper.send(wait(b"/elsewhere"))
    next_popper.send(wait(b"/q"))
    waiter_is_there(port)
    pusher.send(push(b"/q", b"2"))
    return popper.within(MOMENT_S) is not None or next_popper.within(patience_s) != b"\x00"


def a_blocking_pop_finds_the_queue_empty(port):
    pusher, first, second = Peer(port), Peer(port), Peer(port)
    pusher.send(push(b"/q", b"1")).settle()
    first.send(wait(b"/q")).receive(1)
    second.send(wait(b"/q"))
    return second.within(MOMENT_S) is not None


def a_multi_set_in_pieces_is_applied_twice(port):
    pairs = [(b"/early", b"old")] + [(b"/k%d" % i, b"v" * 1000) for i in range(20)]
    message = b"\x0b" + struct.pack("<q", len(pairs)) + b"".join(S(k) + S(v) for k, v in pairs)
    sender, other = Peer(port), Peer(port)
    sender.send(message[:-10])
    time.sleep(MOMENT_S)
    other.send(set_(b"/early", b"new")).settle()
    sender.send(message[-10:]).settle()
    value = other.send(b"\x03" + S(b"/early")).receive(8 + 3)[8:]
    # Applied once when whole, the sender's is the last word; and nobody saw it before.
    return value == b"old" and not was_whole_at_last(port, pairs)


def was_whole_at_last(port, pairs):
    """Whether a MULTI_SET that is cut shows nothing of itself until it is whole."""
    message = b"\x0b" + struct.pack("<q", len(pairs)) + b"".join(
        S(k + b"2") + S(v) for k, v in pairs
    )
    sender, other = Peer(port), Peer(port)
    sender.send(message[:-10])
    time.sleep(MOMENT_S)
    return other.send(b"\x05" + struct.pack("<Q", 1) + S(b"/early2")).receive(1) == b"\x01"


def a_multi_set_whose_sender_vanishes_is_half_applied(port):
    message = b"\x0b" + struct.pack("<q", 2) + S(b"/a") + S(b"1") + S(b"/b") + S(b"v" * 9000)
    sender = Peer(port).send(message[:-10])
    time.sleep(MOMENT_S)
    sender.socket.close()
    return Peer(port).send(b"\x05" + struct.pack("<Q", 1) + S(b"/a")).receive(1) == b"\x00"


def an_add_that_overflows_wraps_around(port):
    peer = Peer(port)
    peer.send(b"\x04" + S(b"/n") + struct.pack("<q", 2**63 - 1)).receive(8)
    peer.send(b"\x04" + S(b"/n") + struct.pack("<q", 1))
    return peer.within(patience_s) != b""


def a_second_wait_replaces_the_count_of_the_first(port):
    waiter = Peer(port).send(wait(b"/a", b"/b")).send(wait(b"/c"))
    waiter_is_there(port)
    setter = Peer(port).send(set_(b"/a", b"v"))
    if waiter.within(MOMENT_S) is not None:
        return True
    setter.send(set_(b"/b", b"v"))
    return waiter.within(patience_s) != b"\x00"


def a_peer_that_says_nothing_is_kept_for_ever(port):
    return Peer(port, greets=False).within(patience_s) != b""


def resident_bytes():
    with open(f"/proc/{server_pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def a_pop_of_an_unknown_queue_leaves_an_entry_behind(port):
    peer, before = Peer(port), resident_bytes()
    for i in range(200):
        peer.send(b"".join(b"\x0f" + S(b"/%d/%d" % (i, k)) for k in range(200)))
        peer.receive(200 * 8)
    return resident_bytes() - before > 16 << 20  # 40,000 times 907 bytes are twice that


def a_client_that_reads_nothing_makes_the_server_grow(port):
    peer = Peer(port).send(set_(b"/k", bytes(1 << 20)))
    peer.settle()
    before = resident_bytes()
    peer.send((b"\x03" + S(b"/k")) * 200)
    deadline = time.monotonic() + 10 * MOMENT_S
    while time.monotonic() < deadline and resident_bytes() - before < 100 << 20:
        time.sleep(MOMENT_S / 10)
    return resident_bytes() - before > 50 << 20


def the_memory_of_deleted_keys_is_kept(port):
    peer, keys = Peer(port), [b"/%d" % i for i in range(80_000)]
    for first in range(0, len(keys), 100):
        peer.send(b"".join(set_(key, bytes(1024)) for key in keys[first : first + 100]))
    peer.settle()
    full = resident_bytes()
    for first in range(0, len(keys), 100):
        peer.send(b"".join(b"\x08" + S(key) for key in keys[first : first + 100])).receive(100 * 8)
    peer.settle()
    return full - resident_bytes() < 40 << 20


def waiter_is_there(port):
    """A WAIT sent by another connection before has been seen: the server is one thread."""
    time.sleep(MOMENT_S / 3)
    Peer(port).settle()


FAULTS = [
    handshake_in_two_segments_closes_the_client,
    a_wrong_magic_leaves_the_connection_open,
    a_first_byte_of_another_protocol_leaves_the_connection_open,
    a_compare_set_that_stores_nothing_frees_waiters,
    a_wait_for_a_filled_queue_and_a_missing_key_hangs,
    a_push_after_an_earlier_pop_ends_the_wrong_wait,
    a_blocking_pop_finds_the_queue_empty,
    a_multi_set_in_pieces_is_applied_twice,
    a_multi_set_whose_sender_vanishes_is_half_applied,
    an_add_that_overflows_wraps_around,
    a_second_wait_replaces_the_count_of_the_first,
    a_peer_that_says_nothing_is_kept_for_ever,
    a_pop_of_an_unknown_queue_leaves_an_entry_behind,
    a_client_that_reads_nothing_makes_the_server_grow,
    the_memory_of_deleted_keys_is_kept,
]


# A sanitizer keeps memory that is given back.
if os.environ.get("DDPRUN_SANITIZE"):
    print("skipped: the memory of deleted keys, in a build with sanitizers")
    FAULTS.remove(the_memory_of_deleted_keys_is_kept)


def is_seen(fault, port, pid):
    global server_pid
    server_pid = pid
    return fault(port)


class FaultsTest(unittest.TestCase):
    def test_ddpd_has_none_of_them(self):
        for fault in FAULTS:
            with self.subTest(fault=fault.__name__), Ddpd("--handshake-timeout", "5") as ddpd:
                self.assertFalse(is_seen(fault, ddpd.port, ddpd.process.pid))

    def test_whether_torch_has_them(self):
        global patience_s
        patience_s = 1
        self.addCleanup(lambda: globals().update(patience_s=LIMIT_S))
        for fault in FAULTS:
            store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
            has_it = is_seen(fault, store.port, os.getpid())
            print(f"torch {torch.__version__}: {fault.__name__}: {'yes' if has_it else 'no'}")


if __name__ == "__main__":
    unittest.main(warnings="ignore")
