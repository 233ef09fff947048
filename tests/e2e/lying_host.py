# SPDX-License-Identifier: BSD-3-Clause
"""A host that lies to the agents that come to it."""

import struct

from listener import Listener, text


class LyingHost(Listener):
    """A host that speaks like ours, and at some steps says something else: `lies`."""

    RECORD = b"generation host 1 daemon"

    def __init__(self, lies):
        self.lies = lies
        super().__init__()

    def say(self, peer, step, honest):
        peer.sendall(self.lies.get(step, honest))

    def connect(self, peer):
        with peer:
            try:
                self.answer_all(peer, peer.makefile("rb"))
            except (OSError, struct.error):
                pass

    def answer_all(self, peer, read):
        def number(form="<q"):
            return struct.unpack(form, read.read(struct.calcsize(form)))[0]

        def string():
            return read.read(number())

        while operation := read.read(1):
            if operation == b"\0":  # VALIDATE
                number("<I")
                self.say(peer, "greeting", b"")
            elif operation == b"\x0d":  # PING
                self.say(peer, "ping", struct.pack("<I", number("<I")))
            elif operation == b"\x80":
                self.say(peer, "probe", struct.pack("<I", 31))
            elif operation == b"\x86":
                string()
                self.say(peer, "authenticate", text(b"y" * 32))
            elif operation == b"\x87":
                string()
                self.say(peer, "prove", text(b"z" * 56))
            elif operation == b"\x84":
                string()
                self.say(peer, "enter", b"\0")
            elif operation in (b"\x05", b"\x06"):  # CHECK, WAIT
                for _ in range(number()):
                    key = string()
                # No node is given up.
                self.say(peer, "wait", b"\1" if operation == b"\x05" and b"given_up" in key else b"\0")
            elif operation == b"\x03":
                key = string()
                is_pulse = b"pulse" in key
                self.say(peer, "pulse" if is_pulse else "record", text(b"1" if is_pulse else self.RECORD))
            elif operation == b"\x81":
                string(), string()
                self.say(peer, "will", b"\0")
            elif operation == b"\x0e":
                string(), string()
            elif operation == b"\x83":
                string()
                number()
                self.say(peer, "command", b"")
            else:
                return
