# SPDX-License-Identifier: BSD-3-Clause
"""Strangers at the ports of a store, as a program: connections that say nothing, garbage, half a handshake, requests
that are too large, one byte at a time.

argv: HOST PORT,... SOURCE USER IDLE, the last being how many connections it holds that say nothing.  Says "ready" once
each kind has come to each port several times, and "over" with what it did when its stdin ends."""

import os
import random
import resource
import socket
import struct
import sys
import threading

from listener import MAGIC, text

ENOUGH = 3  # times each kind, before it says "ready"
HUGE = 1 << 40


def number(value):
    return struct.pack("<q", value)


class Storm:
    def __init__(self, host, ports, source, idle):
        self.host, self.ports, self.source, self.idle = host, ports, source, idle
        self.draw = random.Random(1)
        self.held, self.slow = [], []
        self.done = {}
        self.is_over = threading.Event()

    def connect(self, port):
        """A connection, or None where it was refused at once."""
        peer = socket.socket()
        peer.settimeout(10)
        try:
            if self.source:
                peer.bind((self.source, 0))
            peer.connect((self.host, port))
            return peer
        except OSError:
            peer.close()
            return None

    def say(self, port, words):
        """Says it on a connection of its own, and leaves without an answer."""
        peer = self.connect(port)
        if peer is None:
            return
        with peer:
            try:
                peer.sendall(words)
            except OSError:
                pass

    def hold(self, port, words):
        peer = self.connect(port)
        if peer is None:
            return
        try:
            peer.sendall(words)
        except OSError:
            pass
        self.held.append(peer)

    def garbage(self, port):
        self.say(port, self.draw.randbytes(4096))
        self.say(port, MAGIC + self.draw.randbytes(4096))

    def half_a_handshake(self, port):
        self.hold(port, MAGIC[:3])
        self.hold(port, MAGIC + b"\x86" + text(self.draw.randbytes(32)))
        self.hold(port, MAGIC + b"\x86" + text(self.draw.randbytes(32)) + b"\x87" + text(self.draw.randbytes(20))[:12])

    def wrong_proof(self, port):
        self.say(port, MAGIC + b"\x86" + text(self.draw.randbytes(32)) + b"\x87" + text(self.draw.randbytes(56)))

    def oversize(self, port):
        for words in (b"\x01" + number(HUGE), b"\x01" + text(b"k") + number(HUGE), b"\x05" + number(HUGE),
                      b"\x0b" + number(HUGE), b"\x06" + number(-1), b"\x84" + number(HUGE), b"\x86" + number(HUGE)):
            self.say(port, MAGIC + words + self.draw.randbytes(2048))
        self.say(port, b"GET /" + b"x" * (1 << 20))

    def one_byte_at_a_time(self, port):
        for words in (MAGIC + b"\x01" + text(b"k" * 4000), b"GET /status HTTP/1.1\r\n" + b"X: y\r\n" * 1000):
            peer = self.connect(port)
            if peer is not None:
                self.slow.append([peer, words])
        for each in self.slow:
            try:
                each[0].sendall(each[1][:1])
            except OSError:
                pass
            each[1] = each[1][1:]

    def rage(self):
        kinds = (self.garbage, self.half_a_handshake, self.wrong_proof, self.oversize, self.one_byte_at_a_time)
        for i in range(self.idle):
            self.hold(self.ports[i % len(self.ports)], b"")
        times = 0
        while not self.is_over.is_set():
            for port in self.ports:
                for kind in kinds:
                    kind(port)
            times += 1
            if times == ENOUGH:
                print("ready", flush=True)
        print(f"over: {times} times, {len(self.held)} held", flush=True)


def main():
    host, ports, source, user, idle = sys.argv[1:]
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if int(user) != os.geteuid():
        os.setgroups([])
        os.setresuid(int(user), int(user), int(user))
    storm = Storm(host, [int(port) for port in ports.split(",")], source, int(idle))
    raging = threading.Thread(target=storm.rage)
    raging.start()
    sys.stdin.read()
    storm.is_over.set()
    raging.join()


if __name__ == "__main__":
    main()
