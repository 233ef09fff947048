# SPDX-License-Identifier: BSD-3-Clause
"""Processes of this machine, by pid: what /proc says of them, and signals to several."""

import contextlib
import os
import pathlib
import re


def children_of(pid):
    try:
        return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def name_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def guardians_of(pid):
    """Those of an agent."""
    return [child for child in children_of(pid) if name_of(child) == "ddp-guardian"]


def status_of(pid):
    """What a process does ("S": it waits), and how often it has begun to wait."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    state = re.search(r"^State:\s*(\w)", status, re.MULTILINE)[1]
    return state, int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)", status, re.MULTILINE)[1])


def is_stopped(pid):
    try:
        return status_of(pid)[0] == "T"
    except OSError:
        return False  # it has ended


def waits_anew(pid, waits):
    try:
        state, count = status_of(pid)
        return state == "S" and count > waits
    except OSError:
        return True  # it has ended


def send(number, pids):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
