# SPDX-License-Identifier: BSD-3-Clause
"""Runs on hosts of their own that may be lost, the hosting one included."""

import re

import hosts
from beats import COMMAND, rounds_at
from nodes import NodesCase, wait_until

# A silence limit of 2 s.
SILENCE_S = 2.0
QUICK = "last_call_timeout=0.3,read_timeout=60,join_timeout=60,keep_alive_interval=0.4,keep_alive_max_attempt=5"


class HostCase(NodesCase):
    @classmethod
    def setUpClass(cls):
        cls.hosts = hosts.Hosts(4)
        cls.addClassCleanup(cls.hosts.close)

    def agent(self, k, *options, conf=QUICK, endpoint="node0:29400", **more):
        """Starts an agent on host k, of a run of this test: a host that was killed leaves a run file."""
        return self.node("--nproc-per-node=1", f"--rdzv-id={self.path.name}", *options, f"--rdzv-conf={conf}", endpoint=endpoint,
                         within=self.hosts.on(k), command=COMMAND, **more)

    def all_of(self, count, *options, **more):
        agents = [self.agent(k, *options, **more) for k in range(count)]
        self.until_world(range(count))
        return agents

    def until_world(self, nodes, since=0):
        """The MASTER_PORT of the first round of just these nodes that started after `since` others."""
        wanted = sorted(map(str, nodes))
        found = []

        def is_there():
            rounds = {}
            for line in self.started[since:]:
                rounds.setdefault(line.split()[3], []).append(line)
            found[:] = [port for port, lines in rounds.items()
                        if sorted(line.split()[0] for line in lines) == wanted
                        and all(line.split()[2] == str(len(wanted)) for line in lines)]
            return bool(found)
        try:
            wait_until(is_there, f"a round of nodes {wanted}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.started[since:]}\n{self.logs()}") from None
        return found[0]

    def logs(self):
        return "\n".join(f"{p.name}:\n{p.read_text(errors='replace')}" for p in sorted(self.path.glob("agent*.log")))

    def round_at(self, port):
        return next(each for each in rounds_at(self.path) if each.master_port == port)

    def assert_rounds_apart(self):
        """No worker of a round has worked beside one of another."""
        rounds = rounds_at(self.path)
        for before, after in zip(rounds, rounds[1:]):
            self.assertLess(before.last, after.begin, f"two rounds at once: {rounds}\n{self.logs()}")

    def workers_of(self, name):
        return [int(line.split()[4]) for line in self.started if line.split()[0] == str(name)]

    def pause_after_the_end(self, agent, rounds):
        """Of the last of so many rounds after the first: milliseconds between the end of the workers before and the start of the next, as the agent says."""
        def last():
            return re.findall(r"started 1 worker.* ([\d.]+) ms after the last of the workers before", agent.log)
        wait_until(lambda: len(last()) == rounds, f"an agent says how long round {rounds} took")
        return float(last()[-1])
