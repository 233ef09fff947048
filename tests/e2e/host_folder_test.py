# SPDX-License-Identifier: BSD-3-Clause
"""A shared folder says who hosts a run, so that there is no fixed node: it begins, outlives its host and begins anew, and
never becomes two."""

import json
import re
import signal
import subprocess
import sys
import unittest

import hosts
from host_case import PATIENT, QUICK, HostCase
from nodes import DDPRUN, environment, kill, wait_until

if hosts.why_not():
    print(f"skipped: {hosts.why_not()}")
    sys.exit(77)

HOSTS_HERE = "written down in file:"


class HostFolderTest(HostCase):
    def setUp(self):
        super().setUp()
        self.folder = self.path / "shared"
        self.folder.mkdir(mode=0o700)

    def agent(self, k, *options, **more):
        return super().agent(k, *options, **{"endpoint": f"file:{self.folder}", **more})

    def entries(self, folder=None):
        """What is written down, the newest last."""
        names = [path for path in (folder or self.folder).iterdir() if not path.name.endswith(".partial")]
        return [json.loads(path.read_text()) for path in sorted(names, key=lambda path: int(path.suffix[1:]))]

    def host_of(self, agents):
        """Which of these agents stands in the newest entry: by the port that it has said."""
        at = self.entries()[-1]
        place = f"{at['host']}:{at['port']}"
        return next(index for index, agent in enumerate(agents) if f"hosts the run at {place}" in agent.log)

    def until_entry(self, is_it, what):
        try:
            wait_until(lambda: self.entries() and is_it(self.entries()[-1]), what)
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.entries()}\n{self.logs()}") from None

    def test_nodes_that_start_in_any_order_meet_and_leave_no_host_behind(self):
        agents = [self.agent(k, "--nnodes=3") for k in (2, 0, 1)]
        self.until_world(range(3))
        self.assertEqual([HOSTS_HERE in agent.log for agent in agents].count(True), 1, self.logs())
        entry = self.entries()[-1]
        self.assertEqual(len(entry["file"]["nodes"]), 3)
        self.assertIn(entry["host"], [self.hosts.address(k) for k in range(3)])
        self.assert_all_succeed(*agents)
        self.assertTrue(self.entries()[-1]["is_over"])
        self.assertIsNone(self.entries()[-1]["file"])
        again = [self.agent(k, "--nnodes=1:3", conf=QUICK) for k in (1, 2)]  # the same folder and id
        self.assert_all_succeed(*again)

    def test_store_type_file_with_a_path_is_the_same(self):
        agents = [self.agent(k, "--nnodes=2", endpoint=str(self.folder), conf=f"{QUICK},store_type=file") for k in range(2)]
        self.until_world(range(2))
        self.assert_all_succeed(*agents)

    def test_two_agents_that_start_at_one_moment_are_one_run(self):
        self.go()
        for time_ in range(20):
            run = f"--rdzv-id={self.path.name}.{time_}"
            before = len(self.started)
            agents = [self.agent(k, run, "--nnodes=2") for k in range(2)]
            for agent in agents:
                self.assertEqual(agent.ends(), 0, agent.log)
            worlds = [line.split()[2] for line in self.started[before:]]
            self.assertEqual(worlds, ["2", "2"], self.logs())
            self.assertEqual([HOSTS_HERE in agent.log for agent in agents].count(True), 1, self.logs())

    def test_the_others_go_on_when_the_host_is_killed_and_new_nodes_find_the_run(self):
        agents = self.all_of(3, "--nnodes=2:3", conf=PATIENT)
        lost = self.host_of(agents)
        first = self.entries()[-1]["generation"]
        left = [k for k in range(3) if k != lost]
        before = len(self.started)
        kill(agents[lost])
        self.until_world(left, since=before)
        for k in left:  # the folder is there
            self.assertIn(f"(node{lost}), which hosts the run", agents[k].log)
            self.assertNotIn("lost the connection to file:", agents[k].log)
        self.until_entry(lambda entry: entry["generation"] > first and len(entry["file"]["nodes"]) == 2,
                         "the new host stands there")
        before = len(self.started)
        back = self.agent(lost, "--nnodes=2:3", conf=PATIENT)
        self.until_world((*left, 3), since=before)
        self.assertNotIn(HOSTS_HERE, back.log)
        self.assert_all_succeed(back, *(agents[k] for k in left))
        self.assert_rounds_apart()
        self.assertTrue(self.entries()[-1]["is_over"])

    def test_a_run_that_was_killed_as_a_whole_begins_anew(self):
        agents = self.all_of(3, "--nnodes=3")
        for agent in agents:
            agent.signal(signal.SIGKILL)
        for agent in agents:
            agent.process.wait()
        self.assertFalse(self.entries()[-1]["is_over"])
        before = len(self.started)
        again = [self.agent(k, "--nnodes=3") for k in range(3)]
        self.until_world((3, 4, 5), since=before)
        self.assert_all_succeed(*again)
        self.assert_rounds_apart()

    def test_a_silent_host_is_followed_and_comes_back_as_a_node(self):
        agents = self.all_of(4, "--nnodes=2:4")
        lost = self.host_of(agents)
        self.addCleanup(lambda: self.hosts.heal(lost))
        before = len(self.started)
        self.hosts.isolate(lost)
        left = [k for k in range(4) if k != lost]
        self.until_world(left, since=before)
        agents[lost].says("stopping 1 worker")
        before = len(self.started)
        self.hosts.heal(lost)
        self.until_world(range(4), since=before)
        self.assert_all_succeed(*agents)
        self.assert_rounds_apart()

    def test_a_new_node_that_cannot_reach_the_host_begins_no_second_run(self):
        agents = self.all_of(3, "--nnodes=1:4")
        host = self.host_of(agents)
        self.addCleanup(lambda: self.hosts.heal(3))
        self.hosts.isolate(3)
        before = len(self.started)
        late = self.agent(3, "--nnodes=1:4")
        late.says(HOSTS_HERE)  # a lease after it has tried in vain
        # Nodes that look for the run find it again: its host takes the next generation.
        claimed = max(entry["generation"] for entry in self.entries() if entry["host"] == self.hosts.address(3))
        self.until_entry(lambda entry: entry["generation"] > claimed, "the run's host has written itself down again")
        self.assertEqual(self.host_of(agents), host)
        self.hosts.heal(3)
        self.until_world(range(4), since=before)
        self.assert_all_succeed(late, *agents)
        self.assert_rounds_apart()
        self.assertEqual({line.split()[2] for line in self.started[before:]}, {"4"}, "it has begun a run of its own")

    def test_of_two_hosts_that_could_begin_the_run_only_the_newer_one_does(self):
        conf = QUICK.replace("last_call_timeout=0.3", "last_call_timeout=8")
        first = [self.agent(0, "--nnodes=2:4", conf=conf), self.agent(0, "--nnodes=2:4", conf=conf)]
        wait_until(lambda: any("waiting for nodes: 2 of 2..4" in agent.log for agent in first), "both nodes have joined")
        self.addCleanup(lambda: self.hosts.heal(0))
        self.hosts.isolate(0)
        other = self.agent(1, "--nnodes=2:4", conf=conf)
        other.says(HOSTS_HERE)  # a lease after it has tried in vain
        # Its last call is over, and in the folder it is not the host any more.
        host = next(agent for agent in first if HOSTS_HERE in agent.log)
        host.says("another node hosts the run by file:")
        self.assertEqual(self.started, [])
        self.hosts.heal(0)
        late = self.agent(2, "--nnodes=2:4", conf=conf)
        self.until_world(range(4))
        self.assertEqual(len(self.started), 4, "there has been a round before")
        self.assert_all_succeed(*first, other, late)

    def test_a_folder_that_is_gone_stops_nothing(self):
        agents = self.all_of(3, "--nnodes=2:3")
        lost = self.host_of(agents)
        left = [k for k in range(3) if k != lost]
        away = self.path / "away"
        self.folder.rename(away)
        started = len(self.started)
        late = self.agent(3, "--nnodes=2:3")
        late.says(f"the folder {self.folder} does not exist; the host is looked for there for at most 60.0 s")
        late.says(f"the folder {self.folder} does not exist; trying for")
        kill(agents[lost])
        self.until_world(left, since=started)
        self.assertTrue(any("it cannot be written down that this node hosts the run" in agents[k].log for k in left), self.logs())
        away.rename(self.folder)
        generation = self.entries()[-1]["generation"]
        self.until_entry(lambda entry: entry["generation"] > generation, "the host has written itself down")
        self.until_world((*left, 3), since=started)
        self.assert_all_succeed(late, *(agents[k] for k in left))
        self.assert_rounds_apart()

    def test_a_node_that_may_not_host_does_not(self):
        client = self.agent(0, "--nnodes=2:3", conf=f"{QUICK},is_host=0")
        client.says("no host has come yet")
        self.assertEqual(self.entries(), [])
        agents = [client, self.agent(1, "--nnodes=2:3"), self.agent(2, "--nnodes=2:3")]
        self.until_world(range(3))
        host = self.host_of(agents)
        before = len(self.started)
        kill(agents[host])
        self.until_world([k for k in range(3) if k != host], since=before)
        self.until_entry(lambda entry: entry["generation"] > 1, "the new host stands there")
        self.assertNotIn("this node hosts the run", client.log)
        self.assert_all_succeed(*(agents[k] for k in range(3) if k != host))
        self.assert_rounds_apart()


class BadFolderTest(HostCase):
    @classmethod
    def setUpClass(cls):
        pass

    def refused(self, endpoint, *options):
        done = subprocess.run([DDPRUN, "--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}", *options, "--no-python", "true"],
                              env=environment(), cwd=self.path, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)
        return done.stderr

    def test_what_is_no_folder_of_this_user_alone_is_refused_in_one_line(self):
        self.assertIn(f"the folder {self.path}/none/run does not exist, and neither does {self.path}/none",
                      self.refused(f"file:{self.path}/none/run"))
        (self.path / "plain").touch()
        self.assertIn("is no folder", self.refused(f"file:{self.path}/plain"))
        self.assertIn("is no folder", self.refused(f"{self.path}/plain", "--rdzv-conf=store_type=file"))
        shared = self.path / "open"
        shared.mkdir()
        for mode, why in ((0o770, "can be changed by other users"), (0o707, "can be changed by other users"),
                          (0o1777, "is shared with other users")):
            shared.chmod(mode)
            self.assertIn(why, self.refused(f"file:{shared}"))
        self.assertIn("begins with /", self.refused("file:shared/run"))
        self.assertIn("begins with /", self.refused("localhost:29400", "--rdzv-conf=store_type=file"))
        self.assertIn("needs a folder", self.refused("", "--rdzv-conf=store_type=file"))

    def waited_for(self, folder, *within):
        """What an agent says that is given a folder which does not come back in time."""
        done = subprocess.run([*within, DDPRUN, "--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=file:{folder}",
                               "--rdzv-conf=read_timeout=3,join_timeout=60", "--no-python", "true"],
                              env=environment(), cwd=self.path, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 80, done.stderr)
        return done.stderr

    def test_a_folder_that_does_not_come_is_named_at_the_end(self):
        said = self.waited_for(f"{self.path}/none")
        why = f"the folder {self.path}/none does not exist"
        self.assertIn(f"{why}; the host is looked for there for at most 3.0 s", said)
        self.assertRegex(said, re.compile(rf"FAILED: .*{re.escape(why)}; tried for "))
        self.assertIn("next: make that folder", said)

    def test_a_read_only_file_system_is_called_so(self):
        shared = self.path / "shared"
        shared.mkdir(mode=0o700)
        read_only = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
        said = self.waited_for(shared, "unshare", "--mount", "sh", "-c", read_only, shared)
        self.assertRegex(said, re.compile(rf"FAILED: .*the folder {re.escape(str(shared))} is on a read-only file system; tried for "))
        self.assertIn("next: see why the file system of that folder is read-only", said)

    def test_the_dry_run_says_where_the_run_is_found(self):
        shared = self.path / "shared"
        shared.mkdir(mode=0o700)
        done = subprocess.run([DDPRUN, "--dry-run", "--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=file:{shared}", "--local-addr=10.9.8.7",
                               "--no-python", "true"], env=environment(), capture_output=True, text=True, timeout=60, check=True)
        self.assertRegex(done.stdout, re.compile(rf"^endpoint +file:{re.escape(str(shared))} ", re.M))
        self.assertRegex(done.stdout, re.compile(r"^hosted +by the first agent that writes itself down there; 10\.9\.8\.7 if", re.M))
        self.assertEqual(list(shared.iterdir()), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
