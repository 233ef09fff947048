# SPDX-License-Identifier: BSD-3-Clause
"""Random histories of three agents at one ddpd: whatever happens, two rounds never work at once, every agent ends,
and no process is left.

usage: histories_test.py [--seeds FIRST:END] [--save SECONDS] [--faults N] [--at-once N]

Each seed draws a history: how long workers take to end, and faults (connections reset, held up, cut; agents, nodes
or everything stopped for a while; agents, guardians, workers and ddpd killed; nodes told to stop).  After the last
fault the network is whole again, the workers may end, and every agent that is there must end with 0.
A history says in one line what it drew and what it saw; one that fails shows what the agents said."""

import argparse
import concurrent.futures
import contextlib
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

from beats import COMMAND, rounds_at
from ddpd_process import Ddpd
from nodes import DDPRUN, Node, environment
from processes import children_of, guardians_of, is_stopped, name_of, send, status_of, waits_anew
from proxy import Proxy

AGENTS = 3
LEASE_S = 2.0  # the silence limit below
SETTINGS = ("last_call_timeout=0.3,read_timeout=60,join_timeout=60,keep_alive_interval=0.4,keep_alive_max_attempt=5,"
            "flap_limit=0")
END_LIMIT_S = 90  # from the last fault to the end of the last agent, beside what workers take to end
GOES_ON = "the run goes on with this node"  # what an agent says that has stood still
HOLD_LIMIT_S = 20  # from the end of a pause to the guardians' look
ORPHAN_LIMIT_S = 15  # from the end of the last agent to the end of the last guardian
SANITIZED = re.compile(r"ERROR: \w+Sanitizer|WARNING: ThreadSanitizer|runtime error:")
BUG = re.compile(r"check failed|terminate called|Assertion")

FAULTS = ("reset", "hold", "cut", "stop_agent", "stop_node", "stop_all", "kill_agent", "kill_guardian", "kill_worker",
          "kill_ddpd", "terminate")


def command_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


class Place:
    """A node with a network of its own to ddpd, and the agent that runs there now."""

    def __init__(self, proxy, node):
        self.proxy, self.node = proxy, node

    @property
    def pid(self):
        return self.node.process.pid

    @property
    def guardians(self):
        return guardians_of(self.pid)

    @property
    def workers(self):
        return [pid for pid in children_of(self.pid) if command_of(pid).startswith(os.fsencode(sys.executable))]


class History:
    def __init__(self, seed, path, save, faults):
        self.draw = random.Random(seed)
        self.path = path
        drawn = self.draw.choice((0, 0, 0.5, 20))
        self.save = drawn if save is None else save
        self.fault_count = faults or self.draw.randint(2, 6)
        self.agents = []  # every one that was ever started
        self.ended_by_us = set()  # of those, who were killed or told to stop
        self.happened = []

    def start_agent(self, proxy):
        name = str(len(self.agents))
        log = self.path / f"agent{name}.log"
        with open(log, "wb") as out:
            process = subprocess.Popen(
                [DDPRUN, "--log-dir", str(self.path / "logs"), "--rdzv-backend", "c10d", "--rdzv-endpoint",
                 f"127.0.0.1:{proxy.port}", "--rdzv-conf", SETTINGS, "--nnodes", f"1:{AGENTS}", "--nproc-per-node=1",
                 "--max-restarts=100", *COMMAND],
                env=environment(NODE=name, SAVE=str(self.save)), cwd=self.path, stdin=subprocess.DEVNULL, stdout=out,
                stderr=subprocess.STDOUT)
        self.agents.append(Node(process, log))
        return self.agents[-1]

    def pause(self, longest):
        time.sleep(self.draw.uniform(0.1, longest))

    def replace_agent(self, place):
        self.ended_by_us.add(place.node)
        self.pause(3)
        place.node = self.start_agent(place.proxy)

    def happen(self, fault):
        place = self.draw.choice(self.places)
        self.happened.append(fault)
        if fault == "reset":
            place.proxy.reset()
        elif fault == "hold":
            place.proxy.hold()
            self.pause(LEASE_S * 0.6)
            place.proxy.release()
        elif fault == "cut":
            place.proxy.is_cut = True
            self.pause(3 * LEASE_S)
            place.proxy.is_cut = False
            place.proxy.reset()
        elif fault == "stop_agent":
            send(signal.SIGSTOP, [place.pid])
            self.pause(3 * LEASE_S)
            send(signal.SIGCONT, [place.pid])
        elif fault == "stop_node":
            self.stop_for_a_while([place])
        elif fault == "stop_all":
            self.stop_for_a_while(self.places, [self.ddpd.process.pid])
        elif fault == "kill_agent":
            send(signal.SIGKILL, [place.pid])
            self.replace_agent(place)
        elif fault == "kill_guardian":
            send(signal.SIGKILL, place.guardians)
        elif fault == "kill_worker":
            send(signal.SIGKILL, place.workers)
        elif fault == "kill_ddpd":
            port = self.ddpd.port
            self.ddpd.stop(signal.SIGKILL)
            self.pause(LEASE_S * 0.6)
            self.ddpd = Ddpd(port=port)
        elif fault == "terminate":
            send(signal.SIGTERM, [place.pid])
            self.replace_agent(place)

    def stop_for_a_while(self, places, others=()):
        """After more than the lease the guardians wake first and hold the workers, which the agents then let go on or
        not: processes that wake together would run for some milliseconds before the one can hold the other."""
        is_long = self.draw.random() < 0.5
        said = {place.node: place.node.log.count(GOES_ON) for place in places}
        agents = [place.pid for place in places]
        send(signal.SIGSTOP, [*others, *agents])
        children = [pid for agent in agents for pid in children_of(agent)]  # there will be no other
        send(signal.SIGSTOP, children)
        time.sleep(self.draw.uniform(1.5, 3) * LEASE_S if is_long else self.draw.uniform(0.1, 0.4) * LEASE_S)
        if not is_long:
            return send(signal.SIGCONT, [*others, *agents, *children])
        guardians = {pid: status_of(pid)[1] for pid in children if name_of(pid) == "ddp-guardian"}
        send(signal.SIGCONT, guardians)
        end = time.monotonic() + HOLD_LIMIT_S
        while not all(waits_anew(pid, waits) for pid, waits in guardians.items()):
            assert time.monotonic() < end, "a guardian does not hold its workers"
            time.sleep(0.005)
        send(signal.SIGCONT, [*others, *agents])
        # Where the lease was not over (after some lost rounds it is longer) no guardian has held them.
        workers = [pid for pid in children if pid not in guardians]
        end = time.monotonic() + HOLD_LIMIT_S
        while any(is_stopped(pid) for pid in workers) and time.monotonic() < end:
            if all(node.log.count(GOES_ON) > count for node, count in said.items()):
                break
            time.sleep(0.005)
        return send(signal.SIGCONT, filter(is_stopped, workers))

    def play(self):
        """What was wrong, a line each."""
        with contextlib.ExitStack() as stack:
            self.ddpd = Ddpd()
            stack.callback(lambda: self.ddpd.stop(signal.SIGKILL))
            stack.callback(lambda: [(agent.process.kill(), agent.process.wait()) for agent in self.agents])
            self.places = []
            for _ in range(AGENTS):
                proxy = Proxy(self.ddpd.port)
                stack.callback(proxy.close)
                self.places.append(Place(proxy, self.start_agent(proxy)))
            for _ in range(self.fault_count):
                self.pause(4 + self.draw.choice((0, self.save)))
                self.happen(self.draw.choice(FAULTS))
            self.pause(2)
            (self.path / "go").touch()
            self.healed = time.monotonic()
            wrong = self.ends()
        return wrong + self.overlaps() + self.orphans() + self.reports()

    def ends(self):
        wrong = []
        until = self.healed + END_LIMIT_S + self.save
        for number, agent in enumerate(self.agents):
            try:
                code = agent.process.wait(timeout=max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                wrong.append(f"agent {number} has not ended")
                continue
            is_by_us = code in (-signal.SIGKILL, -signal.SIGTERM, 128 + signal.SIGTERM)  # some had just begun
            if code != 0 and not (agent in self.ended_by_us and is_by_us):
                wrong.append(f"agent {number} ended with {code}")
        self.end_s = time.monotonic() - self.healed
        return wrong

    def overlaps(self):
        rounds = rounds_at(self.path)
        self.round_count = len(rounds)
        wrong = []
        last, of = 0.0, None
        for one in rounds:
            if one.begin <= last:
                wrong.append(f"rounds {of} and {one.name} worked at once for {last - one.begin:.3f} s")
            if one.last > last:
                last, of = one.last, one.name
        return wrong

    def orphans(self):
        until = time.monotonic() + ORPHAN_LIMIT_S
        while left := self.processes_here():
            if time.monotonic() > until:
                commands = [command_of(pid).replace(b"\0", b" ")[:60] for pid in left]
                send(signal.SIGKILL, left)
                return [f"left behind: {left} {commands}"]
            time.sleep(0.05)
        return []

    def processes_here(self):
        def is_here(pid):
            try:
                return os.readlink(f"/proc/{pid}/cwd") == str(self.path)
            except OSError:
                return False
        return [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and is_here(pid)]

    def reports(self):
        texts = [agent.log for agent in self.agents] + [self.ddpd.log or ""]
        return [line for text in texts for line in text.splitlines() if SANITIZED.search(line) or BUG.search(line)]


def play(seed, save, faults):
    with tempfile.TemporaryDirectory(prefix="ddprun-history-", ignore_cleanup_errors=True) as folder:
        path = pathlib.Path(folder).resolve()
        history = History(seed, path, save, faults)
        began = time.monotonic()
        wrong = history.play()
        starts = len((path / "started").read_text().splitlines()) if (path / "started").exists() else 0
        line = (f"seed {seed}: workers take {history.save} s to end; {', '.join(history.happened)}: {starts} worker "
                f"starts, {history.round_count} rounds, ended {history.end_s:.1f} s after the last fault, "
                f"{time.monotonic() - began:.0f} s in all")
        if not wrong:
            return 0, len(history.happened), line + ": well"
        logs = "\n".join(f"--- agent {number}\n{agent.log}" for number, agent in enumerate(history.agents))
        return len(wrong), len(history.happened), "\n  ".join([line, *wrong]) + f"\n{logs}"


def main():
    is_long = bool(os.environ.get("DDPRUN_TEST_LONG"))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", default="0:50" if is_long else "0:4")
    parser.add_argument("--save", type=float, help="how long workers take to end, in place of what the seed draws")
    parser.add_argument("--faults", type=int, help="how many, in place of what the seed draws")
    parser.add_argument("--at-once", type=int, default=4, help="histories that are played at the same time")
    options = parser.parse_args()
    first, _, end = options.seeds.partition(":")
    failed = faults = 0
    with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
        played = [pool.submit(play, seed, options.save, options.faults) for seed in range(int(first), int(end))]
        for one in concurrent.futures.as_completed(played):
            wrong, count, text = one.result()
            failed += wrong > 0
            faults += count
            print(text, flush=True)
    print(f"{len(played)} histories with {faults} faults: {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
