# SPDX-License-Identifier: BSD-3-Clause
"""Makes one port of a bridge slow.

usage: link_delay.py whole-frames INTERFACE           at the other end of the port, before
       link_delay.py PORT BRIDGE MILLISECONDS

Takes PORT out of BRIDGE, puts a tap device in its place, and carries frames between the two, each so
many milliseconds late.  For kernels without the netem queueing discipline, and for control traffic
only.  Says "ready" once it does so; the bridge is as before when it has ended by SIGTERM."""

import collections
import ctypes
import fcntl
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
SOL_PACKET, PACKET_ADD_MEMBERSHIP, PACKET_MR_PROMISC, PACKET_IGNORE_OUTGOING = 263, 1, 1, 23
SIOCETHTOOL = 0x8946
ETHTOOL_OFFLOADS = (0x17, 0x19, 0x1F, 0x22, 0x24, 0x2C, 0x15)  # S{TX,SG,TSO,UFO,GSO,GRO,RX}
ETH_P_ALL = 3
MAX_FRAME = 65536


def ip_link(*words):
    subprocess.run(["ip", "link", "set", *words], check=True)


def turn_offload_off(interface):
    """Else its frames arrive here without checksums, and larger than they may be sent on."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for offload in ETHTOOL_OFFLOADS:
            value = ctypes.create_string_buffer(struct.pack("II", offload, 0))
            try:
                fcntl.ioctl(probe, SIOCETHTOOL, struct.pack("16sP", interface.encode(), ctypes.addressof(value)))
            except OSError:
                pass  # not every kernel knows every one


def open_tap(name):
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    return tap


def open_port(name):
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    port.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    port.bind((name, 0))
    port.setsockopt(SOL_PACKET, PACKET_ADD_MEMBERSHIP,
                    struct.pack("IHH8s", socket.if_nametoindex(name), PACKET_MR_PROMISC, 0, b""))
    port.setblocking(False)
    return port


class Direction:
    """Frames on their way: what has been taken in, and when each is due."""

    def __init__(self, take, give, delay):
        self.take, self.give, self.delay = take, give, delay
        self.frames = collections.deque()

    def take_all(self):
        while True:
            try:
                self.frames.append((time.monotonic() + self.delay, self.take()))
            except OSError:
                return

    def give_due(self):
        while self.frames and self.frames[0][0] <= time.monotonic():
            frame = self.frames.popleft()[1]
            try:
                self.give(frame)
            except OSError:
                pass  # full or down: a lost frame

    def wait(self):
        return max(0.0, self.frames[0][0] - time.monotonic()) if self.frames else None


def main(name, bridge, milliseconds):
    tap_name = f"{name}t"
    turn_offload_off(name)
    tap, port = open_tap(tap_name), open_port(name)
    ip_link(name, "nomaster")
    ip_link(tap_name, "master", bridge)
    ip_link(tap_name, "up")

    def end(*_):
        ip_link(name, "master", bridge)
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    delay = float(milliseconds) / 1000
    directions = [Direction(lambda: port.recv(MAX_FRAME), lambda frame: os.write(tap, frame), delay),
                  Direction(lambda: os.read(tap, MAX_FRAME), port.send, delay)]
    poll = select.epoll()
    poll.register(port.fileno(), select.EPOLLIN)
    poll.register(tap, select.EPOLLIN)
    print("ready", flush=True)
    while True:
        waits = [wait for wait in (direction.wait() for direction in directions) if wait is not None]
        poll.poll(min(waits) + 0.001 if waits else None)
        for direction in directions:
            direction.take_all()
            direction.give_due()


if __name__ == "__main__":
    if sys.argv[1] == "whole-frames":
        turn_offload_off(sys.argv[2])
    else:
        main(*sys.argv[1:])
