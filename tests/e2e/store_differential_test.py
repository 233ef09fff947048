# SPDX-License-Identifier: BSD-3-Clause
"""The same random requests to torch's own server and to ddpd; the replies must be the same.

usage: store_differential_test.py [--seed N] [--programs N] [--steps N]

A program is a sequence of requests of several clients.  After each, every client is asked to echo
a number, so that whatever a server has to say by then has been said: the two transcripts can be
compared step by step.  What torch's server does wrong (store/PROTOCOL.md) is not asked of it: see
Program.
"""

import argparse
import random
import socket
import struct
import sys

from ddpd_process import LIMIT_S, Ddpd

try:
    import torch
    from torch.distributed import TCPStore
except ImportError as error:
    print(f"skipped: {sys.executable} has no torch ({error})")
    sys.exit(77)

CLIENTS = 4
HANDSHAKE = b"\x00\xce\xf7\x85\x3c"
ECHO = b"\xaa\xbb\xcc\xdd"  # not 0, which would look like the end of a wait


def text(data):
    return struct.pack("<Q", len(data)) + data


def number(value):
    return struct.pack("<q", value)


def names(keys):
    return struct.pack("<Q", len(keys)) + b"".join(text(key) for key in keys)


class Peer:
    """One connection to a server."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(HANDSHAKE)
        self.echo()

    def receive(self, count):
        data = b""
        while len(data) < count:
            piece = self.socket.recv(count - len(data))
            if not piece:
                raise ConnectionResetError
            data += piece
        return data

    def receive_number(self):
        return struct.unpack("<q", self.receive(8))[0]

    def receive_text(self):
        return self.receive(self.receive_number())

    def echo(self):
        """Ends of waits that have come, one byte each, as far as the server has got."""
        self.socket.sendall(b"\x0d" + ECHO)
        ends = b""
        while (byte := self.receive(1)) == b"\0":
            ends += byte
        if byte + self.receive(3) != ECHO:
            raise ValueError(f"{byte.hex()} came where an echo was due")
        return ends


def read_reply(peer, kind):
    if kind == "byte":
        return peer.receive(1)
    if kind == "number":
        return peer.receive_number()
    if kind == "text":
        return peer.receive_text()
    if kind == "item":
        length = peer.receive_number()
        return (length, peer.receive_text() if length else None)
    if kind == "list":
        return sorted(peer.receive_text() for _ in range(peer.receive_number()))
    if isinstance(kind, int):
        return [peer.receive_text() for _ in range(kind)]
    return None


class Server:
    """A server and the clients that play a program on it."""

    def __init__(self, port):
        self.port = port
        self.peers = [Peer(port) for _ in range(CLIENTS)]

    def play(self, client, request, kind):
        """One step: what the client is answered, and whose waits have ended."""
        peer = self.peers[client]
        try:
            peer.socket.sendall(request)
            reply = read_reply(peer, kind)
            ends = peer.echo()
        except ConnectionError:
            self.peers[client] = Peer(self.port)
            reply, ends = "closed", b""
        return (reply, ends, [other.echo() for other in self.peers if other is not peer])

    def close(self):
        for peer in self.peers:
            peer.socket.close()


class Program:
    """Makes requests from a seed, and keeps out of the way of what torch's server does wrong.

    So a client has one wait at a time, and no reply of its own ends it; keys and queues have different names; a blocking pop has a
    queue of its own; and where somebody waits for a key, no COMPARE_SET of it fails.
    """

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.waiting = {}  # client -> the keys of its wait
        self.queues = 0
        self.poppers = {}  # client -> the queue that it waits for

    def key(self):
        return b"/k%d" % self.random.randrange(8)

    def keys(self):
        return [self.key() for _ in range(self.random.randrange(5))]

    def value(self):
        return self.random.choice(
            [b"", b"7", b"-3", b" 12", b"+5x", b"text", b"\0\xff", b"9" * 19, b"v" * 5000]
        )

    def queue(self):
        return b"/q%d" % self.random.randrange(3)

    def step(self):
        """The client, the bytes, the form of the reply, and what it is about."""
        pick = self.random
        client = pick.randrange(CLIENTS)
        if client in self.poppers and client not in self.waiting:
            return self.pop_own(client)
        idle = client not in self.waiting
        awaited = {key for keys in self.waiting.values() for key in keys}
        key, value = self.key(), self.value()
        choice = pick.randrange(18 if idle else 14)
        if choice == 0:
            return client, b"\x01" + text(key) + text(value), None
        if choice == 1 and key not in awaited:
            return client, b"\x02" + text(key) + text(self.value()) + text(value), "text"
        if choice == 2:
            return client, b"\x03" + text(key), "text"
        if choice == 3 and key not in self.waiting.get(client, ()):
            delta = pick.choice([0, 1, -1, 1000])
            return client, b"\x04" + text(key) + number(delta), "number"
        if choice == 4:
            return client, b"\x05" + names(self.keys() + [self.queue()]), "byte"
        if choice == 5:
            return client, b"\x07", "number"
        if choice == 6:
            return client, b"\x08" + text(pick.choice([key, self.queue()])), "number"
        if choice == 7:
            return client, b"\x09" + text(key) + text(value), None
        if choice == 8:
            keys = self.keys()
            return client, b"\x0a" + names(keys), len(keys)
        if choice == 9:
            keys = self.keys()
            pairs = b"".join(text(key) + text(self.value()) for key in keys)
            return client, b"\x0b" + struct.pack("<Q", len(keys)) + pairs, None
        if choice == 10:
            return client, b"\x0e" + text(self.queue()) + text(value), None
        if choice == 11:
            return client, b"\x0f" + text(self.queue()), "item"
        if choice == 12:
            return client, b"\x10" + text(pick.choice([key, self.queue()])), "number"
        if choice == 13:
            return client, b"\x11", "list"
        if choice in (14, 15):
            keys = self.keys()
            self.waiting[client] = keys
            return client, b"\x06" + names(keys), None
        if choice == 16:
            self.waiting[client] = [key]
            return client, b"\x12" + text(key) + number(pick.randrange(6)), None
        if choice == 17:
            return self.wait_for_own_queue(client)
        return client, b"\x0d" + ECHO[::-1], "nonce"

    def wait_for_own_queue(self, client):
        self.queues += 1
        queue = b"/own%d" % self.queues
        self.waiting[client] = [queue]
        self.poppers[client] = queue
        return client, b"\x06" + names([queue]), None

    def pop_own(self, client):
        return client, b"\x0f" + text(self.poppers.pop(client)), "item"

    def relief(self):
        """A request that ends somebody's wait for sure, or None."""
        if not self.waiting:
            return None
        client = self.random.choice(sorted(self.waiting))
        if client in self.poppers:
            pusher = (client + 1) % CLIENTS
            return pusher, b"\x0e" + text(self.poppers[client]) + text(b"item"), None
        return client, b"\x0c", "byte"

    def note(self, step, outcome):
        """Learns from the reply whose waits are over."""
        client, request, _ = step
        _, ends, others = outcome
        over = {client} if ends or outcome[0] == "closed" or request[:1] == b"\x0c" else set()
        rest = [other for other in range(CLIENTS) if other != client]
        over |= {other for other, end in zip(rest, others) if end}
        for other in over:
            self.waiting.pop(other, None)
        if outcome[0] == "closed":
            self.poppers.pop(client, None)


def play(seed, steps):
    """Plays one program on two fresh servers; answers how many clients were closed in it."""
    theirs = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, use_libuv=True)
    closed = 0
    with Ddpd() as ddpd:
        # torch's store is a client of its server as well, and may have counted itself in.
        servers = [Server(theirs.port), Server(ddpd.port)]
        program = Program(seed)
        for index in range(steps):
            step = program.relief() if program.random.random() < 0.15 else None
            step = step or program.step()
            if step[2] == "nonce":
                continue
            expected, got = (server.play(*step) for server in servers)
            if expected != got:
                print(f"seed {seed}, step {index}: client {step[0]} sent {step[1].hex(' ')}")
                print(f"torch: {expected}\nours:  {got}")
                sys.exit(1)
            closed += got[0] == "closed"
            program.note(step, got)
        for server in servers:
            server.close()
    return closed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--programs", type=int, default=10)
    parser.add_argument("--steps", type=int, default=500)
    arguments = parser.parse_args()
    print(f"torch {torch.__version__}, --seed {arguments.seed}", flush=True)
    closed = sum(play(arguments.seed + i, arguments.steps) for i in range(arguments.programs))
    print(f"{arguments.programs} programs of {arguments.steps} steps agree; {closed} clients closed")
    if closed == 0:
        sys.exit("no program closed a client, so they are not what they should be")


if __name__ == "__main__":
    main()
