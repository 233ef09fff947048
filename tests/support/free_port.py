# SPDX-License-Identifier: BSD-3-Clause
"""Ports of loopback for tests that must know one before anything listens there."""

import random
import socket

# Below what the kernel gives to connections that go out, and below those that ddprun itself chooses under Slurm.
PORTS = range(10000, 20000)

claims = []  # sockets, which hold the names until this program ends


def free_port():
    """Free now, and given to no other test on this machine while this program lives."""
    while True:
        port = random.choice(PORTS)
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0ddprun-test-port-{port}")  # an abstract name: it goes with the socket
            with socket.socket() as probe:
                probe.bind(("0.0.0.0", port))
        except OSError:
            claim.close()
            continue
        claims.append(claim)
        return port
