# SPDX-License-Identifier: BSD-3-Clause
"""A port of this machine that a test answers, and what is said to a store by hand."""

import socket
import struct
import threading

MAGIC = b"\0" + struct.pack("<I", 0x3C85F7CE)  # VALIDATE, the first request of a client


def text(data):
    """A string of the protocol."""
    return struct.pack("<Q", len(data)) + data


class Listener:
    """Accepts connections until it is closed, each in a thread of its own that calls `connect`."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                peer, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.connect, args=(peer,), daemon=True).start()

    def connect(self, peer):
        """To be supplied: what is done with a connection."""
        raise NotImplementedError

    def close(self):
        try:
            self.listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.listener.close()
