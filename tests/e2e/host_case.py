# SPDX-License-Identifier: BSD-3-Clause
"""Runs on hosts of their own that may be lost, the hosting one included."""

import hosts
from beats import COMMAND, rounds_at
from nodes import LIMIT, NodesCase, wait_until

BASIC = "last_call_timeout=0.3,read_timeout=60,join_timeout=60,keep_alive_interval=0.4"
QUICK = f"{BASIC},keep_alive_max_attempt=5"  # a silence limit of 2 s
# A lease longer than a test waits for anything: what begins does not wait for the end of one.
PATIENT = f"{BASIC},keep_alive_max_attempt={3 * LIMIT}"


class HostCase(NodesCase):
    @classmethod
    def setUpClass(cls):
        cls.hosts = hosts.Hosts(4)
        cls.addClassCleanup(cls.hosts.close)

    def agent(self, k, *options, conf=QUICK, endpoint="node0:29400", called=None, **more):
        """Starts an agent on host k, of a run of this test: a host that was killed leaves a run file."""
        rename = ["sh", "-c", 'hostname "$0"; exec "$@"', called] if called else []
        return self.node("--nproc-per-node=1", f"--rdzv-id={self.path.name}", *options, f"--rdzv-conf={conf}", endpoint=endpoint,
                         within=self.hosts.on(k, *rename), command=COMMAND, **more)

    def all_of(self, count, *options, **more):
        agents = [self.agent(k, *options, **more) for k in range(count)]
        self.until_world(range(count))
        return agents

    def until_world(self, nodes, since=0):
        """The name of the first round of just these nodes that started after `since` others."""
        wanted = sorted(map(str, nodes))
        found = []

        def is_there():
            rounds = {}
            for line in self.started[since:]:
                rounds.setdefault(line.split()[3], []).append(line)
            found[:] = [name for name, lines in rounds.items()
                        if sorted(line.split()[0] for line in lines) == wanted
                        and all(line.split()[2] == str(len(wanted)) for line in lines)]
            return bool(found)
        try:
            wait_until(is_there, f"a round of nodes {wanted}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.started[since:]}\n{self.logs()}") from None
        return found[0]

    def round_at(self, name):
        return next(each for each in rounds_at(self.path) if each.name == name)

    def workers_of(self, name):
        return [int(line.split()[4]) for line in self.started if line.split()[0] == str(name)]
