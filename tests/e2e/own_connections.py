# SPDX-License-Identifier: BSD-3-Clause
"""Breaks the connections that a process has to itself: those of a host's coordinator to its store."""

import ctypes
import errno
import os
import socket
import unittest

_PIDFD_GETFD = 438  # on every machine


def cut_own_connections(pid):
    """Of `pid`, one of this program's children.  Skips the test where the system does not let us."""
    libc = ctypes.CDLL(None, use_errno=True)
    process = os.pidfd_open(pid)
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            try:
                if not os.readlink(f"/proc/{pid}/fd/{name}").startswith("socket:"):
                    continue
            except FileNotFoundError:
                continue  # closed meanwhile
            fd = libc.syscall(_PIDFD_GETFD, process, int(name), 0)
            if fd < 0 and ctypes.get_errno() == errno.EBADF:
                continue  # likewise
            if fd < 0:
                raise unittest.SkipTest(f"pidfd_getfd: {os.strerror(ctypes.get_errno())}")
            with socket.socket(fileno=fd) as end:
                is_pair = end.family == socket.AF_UNIX and end.type == socket.SOCK_STREAM and not end.getsockname()
                if is_pair:
                    end.shutdown(socket.SHUT_RDWR)
    finally:
        os.close(process)
