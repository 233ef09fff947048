# SPDX-License-Identifier: BSD-3-Clause
"""A network that a test can break."""

import socket
import struct
import threading

from listener import Listener


class Proxy(Listener):
    """Carries connections to a port of this machine; they can be reset, held up, and cut without a word."""

    def __init__(self, port):
        self.to, self.pairs, self.is_cut = port, [], False
        self.flows = threading.Event()
        self.flows.set()
        super().__init__()

    def connect(self, peer):
        self.flows.wait()
        try:
            far = socket.create_connection(("127.0.0.1", self.to))
        except OSError:
            peer.close()
            return
        self.pairs.append((peer, far))
        for one, other in ((peer, far), (far, peer)):
            threading.Thread(target=self.carry, args=(one, other), daemon=True).start()

    def carry(self, one, other):
        try:
            while data := one.recv(65536):
                self.flows.wait()
                if not self.is_cut:
                    other.sendall(self.passes(one, data))
        except OSError:
            pass
        if self.is_cut or (one, other) not in self.pairs and (other, one) not in self.pairs:
            return
        for end in (one, other):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def passes(self, one, data):
        """What is handed on of `data`, which has come from `one`."""
        return data

    def hold(self):
        """Nothing passes, and nothing is lost, until `release`."""
        self.flows.clear()

    def release(self):
        self.flows.set()

    def reset(self):
        pairs, self.pairs = self.pairs, []
        for pair in pairs:
            for end in pair:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                try:
                    end.shutdown(socket.SHUT_RD)  # the thread that reads from it ends
                except OSError:
                    pass
                end.close()

    def close(self):
        super().close()
        self.flows.set()
        self.reset()
