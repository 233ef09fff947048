# SPDX-License-Identifier: BSD-3-Clause
"""Runs whose host is written down in a real etcd of three members, which lose members, their leader and all of them."""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

import etcd_cluster  # noqa: E402
from nodes import DDPRUN, NodesCase, environment, kill, wait_until  # noqa: E402

if etcd_cluster.why_not():
    print(f"skipped: {etcd_cluster.why_not()}")
    sys.exit(77)

# A silence limit of 2 s.
QUICK = "last_call_timeout=0.3,read_timeout=60,join_timeout=60,keep_alive_interval=0.4,keep_alive_max_attempt=5"
PASSWORD = "not in a command line"


class EtcdCase(NodesCase):
    def setUp(self):
        super().setUp()
        self.cluster = self.start_etcd()

    def start_etcd(self, **more):
        folder = tempfile.TemporaryDirectory(prefix="ddprun-etcd-", ignore_cleanup_errors=True)
        self.addCleanup(folder.cleanup)
        cluster = etcd_cluster.EtcdCluster(folder.name, **more)
        self.addCleanup(cluster.close)
        return cluster

    def agent(self, *options, conf=QUICK, backend="etcd", **more):
        return self.node("--nproc-per-node=1", "--local-addr=127.0.0.1", f"--rdzv-id={self.path.name}", *options,
                         f"--rdzv-conf={conf}", backend=backend, endpoint=self.cluster.endpoints, **more)

    def agents(self, count, *options, **more):
        agents = [self.agent(*options, **more) for _ in range(count)]
        self.until_world(range(count))
        return agents

    def until_world(self, nodes, since=0):
        """Waits for a round of just these nodes."""
        wanted = sorted(map(str, nodes))

        def is_there():
            rounds = {}
            for line in self.started[since:]:
                rounds.setdefault(line.rpartition(" at ")[2], []).append(line.split())
            return any(sorted(words[0] for words in lines) == wanted
                       and all(words[1].endswith(f"/{len(wanted)}") for words in lines)
                       for lines in rounds.values())
        try:
            wait_until(is_there, f"a round of nodes {wanted}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.started[since:]}\n{self.logs()}") from None

    def logs(self):
        return "\n".join(f"{p.name}:\n{p.read_text(errors='replace')}" for p in sorted(self.path.glob("agent*.log")))

    def host_of(self, agents):
        """The number of the agent that is written down."""
        found = []

        def is_known():
            found[:] = [k for k, agent in enumerate(agents)
                        if agent.process.poll() is None and "this node hosts the run" in agent.log]
            return bool(found)
        wait_until(is_known, "an agent hosts")
        return found[0]


class EtcdDryRunTest(unittest.TestCase):
    def test_it_says_where_the_run_is_found_and_asks_nobody(self):
        done = subprocess.run(
            [DDPRUN, "--dry-run", "--nnodes=2", "--rdzv-backend=etcd", "--rdzv-endpoint=h1,h2:1234", "--rdzv-id=a",
             "--local-addr=127.0.0.1", "--rdzv-conf=protocol=https,etcd_prefix=/x", "/bin/true"],
            env=environment(), capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"(?m)^endpoint +etcd at h1:2379,h2:1234  \(--rdzv-endpoint\)$")
        self.assertRegex(done.stdout, r"(?m)^hosted +by the first agent that writes itself down there; 127.0.0.1 if")
        self.assertRegex(done.stdout, r"(?m)^etcd +https, keys /x/\{host,file,alive\}/a  \(--rdzv-conf\)$")


class EtcdTest(EtcdCase):
    def test_the_nodes_find_each_other_and_succeed(self):
        for backend in ("etcd", "etcd-v2"):
            agents = [self.agent("--nnodes=3", f"--rdzv-id={backend}", backend=backend) for _ in range(3)]
            self.until_world(range(self.count - 3, self.count))
            self.assert_all_succeed(*agents)
            self.assertEqual(sum("this node hosts the run" in agent.log for agent in agents), 1, self.logs())
            (self.path / "go").unlink()

    def test_a_member_and_a_leader_that_are_lost_do_not_matter(self):
        agents = self.agents(2, "--nnodes=2:4")
        leader = self.cluster.leader()
        follower = (leader + 1) % 3
        before = len(self.started)
        self.cluster.kill(follower)
        agents.append(self.agent("--nnodes=2:4"))
        self.until_world(range(3), since=before)
        self.cluster.start(follower)
        self.cluster.until_healthy()
        before = len(self.started)
        self.cluster.kill(self.cluster.leader())
        agents.append(self.agent("--nnodes=2:4"))
        self.until_world(range(4), since=before)
        self.assert_all_succeed(*agents)

    def test_a_member_that_stands_still_costs_only_the_next_try(self):
        self.cluster.freeze(0)  # the first that each agent asks
        agents = self.agents(2, "--nnodes=2")
        self.cluster.thaw(0)
        self.assert_all_succeed(*agents)

    def test_a_newcomer_finds_the_run_after_a_change_of_hosts(self):
        agents = self.agents(3, "--nnodes=2:3")
        host = self.host_of(agents)
        before = len(self.started)
        kill(agents.pop(host))
        left = [k for k in range(3) if k != host]
        self.until_world(left, since=before)
        before = len(self.started)
        agents.append(self.agent("--nnodes=2:3"))
        self.until_world([*left, 3], since=before)
        self.assert_all_succeed(*agents)

    def test_without_etcd_training_goes_on_and_the_host_can_change(self):
        agents = self.agents(3, "--nnodes=2:3")
        host = self.host_of(agents)
        started = len(self.started)
        for member in range(3):
            self.cluster.kill(member)
        agents[host].says("etcd cannot be told that this node hosts the run, which goes on")
        self.assertEqual(len(self.started), started, "no worker is started because etcd is gone")
        kill(agents.pop(host))
        left = [k for k in range(3) if k != host]
        self.until_world(left, since=started)
        newcomer = self.agent("--nnodes=2:3")
        newcomer.says("no member of etcd can be used")
        before = len(self.started)
        for member in range(3):
            self.cluster.start(member)
        self.until_world([*left, 3], since=before)
        self.assert_all_succeed(newcomer, *agents)

    def test_a_run_that_was_killed_as_a_whole_begins_anew(self):
        agents = self.agents(2, "--nnodes=2")
        for agent in agents:
            kill(agent)
        before = len(self.started)
        again = [self.agent("--nnodes=2") for _ in range(2)]
        self.until_world((2, 3), since=before)
        self.assert_all_succeed(*again)

    def test_agents_that_start_at_one_time_are_one_run(self):
        for number in range(5):
            pair = [self.agent("--nnodes=2", f"--rdzv-id=pair{number}") for _ in range(2)]
            self.until_world((self.count - 2, self.count - 1))
            self.assert_all_succeed(*pair)
            (self.path / "go").unlink()


@unittest.skipUnless(shutil.which("openssl"), "openssl, which makes certificates, is not installed")
class EtcdAccessTest(EtcdCase):
    def start_etcd(self):
        self.certificates = etcd_cluster.Certificates(self.path)
        cluster = super().start_etcd(count=1, certificates=self.certificates)
        cluster.require_users(PASSWORD)
        return cluster

    def password_file(self, text):
        path = self.path / "password"
        path.write_text(text + "\n")
        path.chmod(0o600)
        return path

    def conf(self, password, **changes):
        certificate, key = self.certificates.client
        settings = {"protocol": "https", "cacert": self.certificates.ca, "cert": certificate, "key": key,
                    "user": "root", "password_file": self.password_file(password), **changes}
        return ",".join([QUICK, *(f"{name}={value}" for name, value in settings.items() if value)])

    def test_certificates_and_a_user(self):
        agents = self.agents(2, "--nnodes=2", conf=self.conf(PASSWORD))
        self.assert_all_succeed(*agents)

    def test_torchs_other_names_of_the_certificates(self):
        conf = self.conf(PASSWORD).replace("cacert=", "ca_cert=").replace(",cert=", ",ssl_cert=").replace(
            ",key=", ",ssl_cert_key=")
        agents = self.agents(2, "--nnodes=2", conf=conf, backend="etcd-v2")
        self.assert_all_succeed(*agents)

    def refused(self, text, conf):
        agent = self.agent("--nnodes=2", conf=conf)
        self.assertEqual(agent.ends(), 80, agent.log)
        self.assertIn(text, agent.log)

    def test_what_etcd_refuses_ends_the_agent_at_once(self):
        self.refused("etcdserver: authentication failed, invalid user ID or password (HTTP status 400), for user 'root'",
                     self.conf("another one"))
        self.refused("etcdserver: user name is empty", self.conf(PASSWORD, user=None, password_file=None))

    def test_a_server_or_a_client_without_the_right_certificate(self):
        soon = "read_timeout=3,join_timeout=3"
        self.refused("its certificate is not accepted: ",
                     self.conf(PASSWORD, cacert=None).replace("read_timeout=60,join_timeout=60", soon))
        self.refused("no member of etcd can be used",
                     self.conf(PASSWORD, cert=None, key=None).replace("read_timeout=60,join_timeout=60", soon))
        self.refused("has closed the connection without an answer, as an etcd that wants https does",
                     QUICK.replace("read_timeout=60,join_timeout=60", soon))


if __name__ == "__main__":
    unittest.main(verbosity=2)
