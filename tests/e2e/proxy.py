# SPDX-License-Identifier: BSD-3-Clause
"""A network that a test can break."""

import socket
import struct
import threading


class Proxy:
    """Carries connections to a port of this machine; they can be reset, held up, and cut without a word."""

    def __init__(self, port):
        self.to, self.pairs, self.is_cut = port, [], False
        self.flows = threading.Event()
        self.flows.set()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.connect, args=(near,), daemon=True).start()

    def connect(self, near):
        self.flows.wait()
        try:
            far = socket.create_connection(("127.0.0.1", self.to))
        except OSError:
            near.close()
            return
        self.pairs.append((near, far))
        for one, other in ((near, far), (far, near)):
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
        try:
            self.listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.listener.close()
        self.flows.set()
        self.reset()
