# SPDX-License-Identifier: BSD-3-Clause
"""Workers that note when they work, and which rounds have worked when."""

import sys
import typing

# Notes when it began to work and when it worked last, in beats/<its line in `started`>, until the test lets it go.
# SAVE: how long it works on after SIGTERM, in seconds.  TALK: whether it writes to stdout all the while.  BEAT: seconds from one beat
# to the next.
WORKER = r"""
import os, pathlib, signal, time
env = os.environ
# Two rounds may have one port, on two machines or one after the other.
round = "-".join(env[name] for name in ("MASTER_PORT", "DDPRUN_ROUND", "DDPRUN_RUN_UUID")).replace(".", "-")
line = f"{env['NODE']} {env['RANK']} {env['WORLD_SIZE']} {round} {os.getpid()}"
stop_at = []
def stop(*_):
    if not stop_at:
        stop_at.append(time.monotonic() + float(env.get("SAVE", "0")))
signal.signal(signal.SIGTERM, stop)
begin = time.monotonic()
pathlib.Path("beats").mkdir(exist_ok=True)
file = open("beats/" + line.replace(" ", "."), "w")
started = False
while True:
    file.seek(0)
    file.write(f"{begin:.4f} {time.monotonic():.4f}")
    file.flush()
    if not started:
        with open("started", "a") as out:
            out.write(line + "\n")
        started = True
    if "TALK" in env:
        print("x" * 999, flush=True)
    if stop_at and time.monotonic() >= stop_at[0]:
        raise SystemExit(1)
    if os.path.exists("go"):
        raise SystemExit(0)
    time.sleep(float(env.get("BEAT", "0.005")))
"""
COMMAND = ("--no-python", sys.executable, "-c", WORKER)


class Round(typing.NamedTuple):
    """The first and the last moment at which a worker of a round has worked, on the monotonic clock."""

    begin: float
    last: float
    name: str  # as in the lines of `started`


def rounds_at(path):
    """The rounds whose workers have worked in this folder, in the order in which they began."""
    rounds = {}
    for file in (path / "beats").iterdir():
        words = file.read_text().split()
        if len(words) < 2:  # killed before its first beat was written
            continue
        begin, last = map(float, words)
        name = file.name.split(".")[3]
        known = rounds.get(name, Round(begin, last, name))
        rounds[name] = Round(min(known.begin, begin), max(known.last, last), name)
    return sorted(rounds.values())
