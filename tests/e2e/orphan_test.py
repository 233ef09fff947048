# SPDX-License-Identifier: BSD-3-Clause
"""Hostile descendants of workers, and every way in which a run can end: nothing may live on."""

import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys
import unittest

from launch_test import DDPRUN, LIMIT, LaunchCase, environment, processes_with, wait_until

# Each leaves processes behind whose command line holds {mark}.  The number is how many stay.
HOSTILE = {
    "deaf": ("sh -c 'trap \"\" TERM INT HUP QUIT; /bin/sleep {mark} & /bin/sleep {mark} & wait; wait' &", 3),
    "session": ("setsid /bin/sleep {mark} &", 1),
    "double fork": ("(setsid sh -c '(/bin/sleep {mark} &) &' &);", 1),
    "stopped": ("setsid sh -c 'kill -STOP $$$$; exec /bin/sleep {mark}' &", 1),
    "no environment": ("env -i setsid /bin/sh -c '(/bin/sleep {mark} &) & exec /bin/sleep {mark}' &", 2),
    "bomb": ("setsid python3 -c 'import os\n"
             "for i in range(200):\n"
             "    if os.fork() == 0: os.setsid(); os.execv(\"/bin/sleep\", [\"sleep\", \"{mark}\"])\n"
             "os.execv(\"/bin/sleep\", [\"sleep\", \"{mark}\"])' &", 201),
}


USER_WITH_LIMIT = 54322
MARK = f"88000.{os.getpid():07}"  # how many seconds they sleep begins with it, and no other test's does


# Forbids pidfd_open and pidfd_send_signal, as old seccomp profiles of containers do, and becomes its arguments.
WITHOUT_PIDFD = """
import ctypes, os, struct, sys
RETURN, LOAD, JUMP_IF_EQUAL = 0x06, 0x20, 0x15
code = [(LOAD, 0, 0, 0), (JUMP_IF_EQUAL, 1, 0, 434), (JUMP_IF_EQUAL, 0, 1, 424), (RETURN, 0, 0, 0x00050000 | 1),
        (RETURN, 0, 0, 0x7fff0000)]
text = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in code))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(code), ctypes.addressof(text)))
prctl = ctypes.CDLL(None, use_errno=True).prctl
if prctl(38, 1, 0, 0, 0) or prctl(22, 2, ctypes.c_void_p(ctypes.addressof(program)), 0, 0):
    sys.exit(77)
os.execv(sys.argv[1], sys.argv[1:])
"""


class OrphanTest(LaunchCase):
    def hostile(self, name, then):
        """A worker's command that leaves `name` behind, waits for `go`, and goes on with `then`."""
        self.mark = f"{MARK}{abs(hash((name, then))) % 10**6}"
        text, self.count = HOSTILE[name]
        return ["--no-python", "sh", "-c",
                text.format(mark=self.mark) + " touch ready; while ! test -e go; do sleep 0.02; done; " + then]

    def begin(self, name, then, *options):
        for left in ("ready", "go", "seen"):
            (self.path / left).unlink(missing_ok=True)
        command = self.hostile(name, then)
        run = self.start("--shutdown-timeout=1", *options, *command)
        wait_until(lambda: (self.path / "ready").exists(), "the worker has left them behind")
        wait_until(lambda: len(self.left_behind()) >= self.count, f"{self.count} of them live")
        return run

    def left_behind(self):
        """All but the worker, ddprun and its guardian, whose command lines hold the whole script."""
        found = []
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                line = (folder / "cmdline").read_text()
                state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if self.mark in line and "touch ready" not in line and state != "Z":
                found.append(int(folder.name))
        return found

    def check_gone(self, run, code):
        _, stderr = run.communicate(timeout=LIMIT)
        self.assertEqual(run.returncode, code, stderr)
        left = self.left_behind()
        table = subprocess.run(["ps", "-eo", "pid,ppid,pgid,stat,args"], capture_output=True, text=True).stdout
        shown = [line for line in table.splitlines() if self.mark in line]
        self.assertEqual(left, [], "\n".join([stderr, *shown]))
        return stderr

    def test_after_a_failure(self):
        for name in HOSTILE:
            with self.subTest(name):
                run = self.begin(name, "exit 3")
                (self.path / "go").touch()
                self.check_gone(run, 3)

    def test_before_a_restart(self):
        for name in HOSTILE:
            with self.subTest(name):
                count = "[ $TORCHELASTIC_RESTART_COUNT = 0 ] && exit 3; exit 0"
                run = self.begin(name, count, "--max-restarts=1")
                (self.path / "go").touch()
                stderr = self.check_gone(run, 0)
                self.assertIn("ended what the workers had left behind", stderr)

    def test_after_a_success(self):
        for name in HOSTILE:
            with self.subTest(name):
                run = self.begin(name, "exit 0")
                (self.path / "go").touch()
                self.check_gone(run, 0)

    def test_after_a_signal(self):
        for name in HOSTILE:
            with self.subTest(name):
                run = self.begin(name, "exit 0")
                run.send_signal(signal.SIGTERM)
                self.check_gone(run, 143)

    # As torch's manager of shared memory: it ends, and removes it, when its clients have long ended.
    MANAGER = ("setsid python3 -c 'import os, time; open(\"/proc/self/comm\", \"w\").write(\"torch_shm_manager\"); "
               "os.rename(\"memory.new\", \"memory\"); time.sleep(1); os.unlink(\"memory\")' & "
               "while ! test -e memory; do sleep 0.02; done; ")

    def begin_with_manager(self, then, *options):
        (self.path / "memory.new").touch()
        return self.start(*options, "--no-python", "sh", "-c",
                          f"[ $TORCHELASTIC_RESTART_COUNT = 0 ] || exit 0; {self.MANAGER} {then}")

    def test_what_removes_torchs_shared_memory_is_left_to_end_by_itself(self):
        for then, code, *options in [("exit 0", 0), ("exit 3", 3), ("exit 3", 0, "--max-restarts=1")]:
            with self.subTest(then, options=options):
                run = self.begin_with_manager(then, *options)
                _, stderr = run.communicate(timeout=LIMIT)
                self.assertEqual(run.returncode, code, stderr)
                self.assertFalse((self.path / "memory").exists(), stderr)
                self.assertRegex(stderr, r"waiting about 2 s until torch has removed .*: torch_shm_manag \(\d+\)\n")
                self.assertNotIn("left behind", stderr)

    def test_what_removes_torchs_shared_memory_survives_a_kill_of_the_agent(self):
        run = self.begin_with_manager("exec sleep 1000")
        wait_until((self.path / "memory").exists, "the manager runs")
        run.kill()
        wait_until(lambda: not (self.path / "memory").exists(), "it has removed the memory")
        run.communicate(timeout=LIMIT)

    def test_pythons_own_helpers_are_not_left_behind(self):
        (self.path / "spawns.py").write_text(
            "import multiprocessing as mp\n"
            "if __name__ == '__main__':\n"
            "    for method in ('spawn', 'forkserver'):\n"
            "        with mp.get_context(method).Pool(1) as pool: assert pool.map(abs, [-1]) == [1]\n")
        run = self.start("spawns.py")
        _, stderr = run.communicate(timeout=LIMIT)
        self.assertEqual(run.returncode, 0, stderr)
        self.assertNotIn("left behind", stderr)

    def test_what_a_fork_server_has_started_is_left_behind(self):
        (self.path / "forks.py").write_text(
            "import multiprocessing as mp, os, time\n"
            "def wait(): open('ready', 'w'); time.sleep(1000)\n"
            "if __name__ == '__main__':\n"
            "    mp.get_context('forkserver').Process(target=wait).start()\n"
            "    while not os.path.exists('ready'): time.sleep(0.02)\n"
            "    os._exit(3)\n")
        run = self.start("forks.py")
        _, stderr = run.communicate(timeout=LIMIT)
        self.assertEqual(run.returncode, 3, stderr)
        self.assertRegex(stderr, r"ended what the workers had left behind: \w[^,\n]* \(\d+\)\n")

    def test_what_a_handler_starts_may_end(self):
        """An upload at SIGTERM, by a process that a worker has left behind."""
        run = self.start("--no-python", "sh", "-c",
                         "setsid sh -c 'trap \"(sleep 0.5; touch uploaded); exit\" TERM; touch ready; "
                         "while :; do sleep 0.05; done' & while ! test -e ready; do sleep 0.02; done")
        _, stderr = run.communicate(timeout=LIMIT)
        self.assertEqual(run.returncode, 0, stderr)
        self.assertTrue((self.path / "uploaded").exists(), stderr)

    def test_what_is_waited_for_is_named(self):
        run = self.start("--shutdown-timeout=3", "--no-python", "sh", "-c",
                         "(trap '' TERM; touch ready; exec sleep 1000) & while ! test -e ready; do sleep 0.02; done")
        _, stderr = run.communicate(timeout=LIMIT)
        self.assertEqual(run.returncode, 0, stderr)
        self.assertRegex(stderr, r"the workers have ended; waiting at most [12]\S* s for what they have left behind: sleep \(\d+\)\n")

    def test_the_proc_of_another_namespace_names_nobody(self):
        """Process 1 of a namespace whose /proc is still the outer one: number 1 there is not us."""
        unshare = ["unshare", "--pid", "--fork"]
        if subprocess.run([*unshare, "true"], capture_output=True).returncode != 0:
            self.skipTest("no namespace of process ids can be made here")
        run = subprocess.run([*unshare, DDPRUN, "--no-python", "true"], env=environment(),
                             capture_output=True, text=True, timeout=LIMIT)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertNotIn("left behind", run.stderr)
        self.assertNotIn("do not end", run.stderr)
        self.assertRegex(run.stderr, "what workers leave behind is not found, and not ended, nor .* stands still: /proc is not that of this")

    def test_what_was_there_before_the_workers_lives_on(self):
        """A monitor that the shell started before `exec ddprun`, and what it starts meanwhile."""
        mark = f"88{os.getpid()}.5"
        shell = (f"sh -c 'while :; do /bin/sleep {mark} & wait; done' 2> /dev/null & "
                 f"setsid sh -c '/bin/sleep {mark} & wait' 2> /dev/null & exec \"$@\"")
        run = subprocess.Popen(["sh", "-c", shell, "sh", DDPRUN, "--log-dir", str(self.logs), "--max-restarts=1",
                                "--no-python", "sh", "-c", "while ! test -e go; do sleep 0.02; done; setsid sleep 1000 & exit 3"],
                               env=environment(), cwd=self.path, stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True)
        monitors = f"/bin/sleep\0{mark}"
        self.addCleanup(lambda: [os.kill(pid, signal.SIGKILL) for pid in processes_with(mark)])
        wait_until(lambda: len(processes_with(monitors)) == 2, "the monitors run")
        (self.path / "go").touch()
        _, stderr = run.communicate(timeout=LIMIT)
        self.assertEqual(run.returncode, 82, stderr)
        self.assertRegex(stderr, r"left behind: (sh|sleep|setsid) \(\d+\)\n")
        self.assertEqual(len(processes_with(monitors)), 2, stderr)

    def test_as_process_1_it_ends_only_what_stems_from_a_worker(self):
        """A `docker exec` whose shell goes leaves its children to process 1 of the container."""
        unshare = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
        if subprocess.run([*unshare, "true"], capture_output=True).returncode != 0:
            self.skipTest("no namespace of process ids can be made here")
        run = subprocess.Popen([*unshare, DDPRUN, "--log-dir", str(self.logs), "--max-restarts=1", "--no-python",
                                "sh", "-c", "touch began.$TORCHELASTIC_RESTART_COUNT; while ! test -e "
                                "go.$TORCHELASTIC_RESTART_COUNT; do sleep 0.02; done; exit 3"],
                               env=environment(), cwd=self.path, stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True)
        self.addCleanup(lambda: run.poll() is None and run.kill())
        wait_until(lambda: (self.path / "began.0").exists(), "the worker runs")
        (inside,) = [pid for pid in processes_with(str(self.logs)) if os.path.samefile(f"/proc/{pid}/exe", DDPRUN)
                     and pathlib.Path(f"/proc/{pid}/comm").read_text().strip() != "ddp-guardian"]
        mark = f"87{os.getpid()}.5"
        subprocess.run(["nsenter", "-t", str(inside), "-p", "-m", "sh", "-c", f"setsid /bin/sleep {mark} &"], check=True)
        foreign = f"/bin/sleep\0{mark}"
        wait_until(lambda: processes_with(foreign), "a process that is no worker's is there")
        (self.path / "go.0").touch()
        wait_until(lambda: (self.path / "began.1").exists(), "the worker has been restarted")
        self.assertTrue(processes_with(foreign))
        (self.path / "go.1").touch()
        _, stderr = run.communicate(timeout=LIMIT)
        self.assertNotIn("left behind", stderr)

    def guardian_of(self, run):
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                if (folder / "comm").read_text().strip() == "ddp-guardian" and int(fields[1]) == run.pid \
                        and fields[0] != "Z":
                    return int(folder.name)
            except OSError:
                pass
        return None

    def test_the_guardians_death_is_told_and_mended(self):
        run = self.begin("session", "exit 0")
        wait_until(lambda: self.guardian_of(run), "the guardian runs")
        first = self.guardian_of(run)
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: self.guardian_of(run) not in (None, first), "there is a new one")
        run.kill()
        wait_until(lambda: not self.left_behind(), "all of them have gone")
        _, stderr = run.communicate(timeout=LIMIT)
        self.assertRegex(stderr, rf"the guardian \(pid {first}\).* has ended \(.*SIGKILL.*\); a new one has been started")

    def test_a_guardian_that_cannot_be_replaced_now_is_replaced_later(self):
        if os.geteuid() != 0:
            self.skipTest("needs root, to be a user whose number of processes has a limit")
        self.path.chmod(0o777)
        ddprun = shutil.copy(DDPRUN, self.path)
        stderr = open(self.path / "stderr", "w")
        self.addCleanup(stderr.close)
        run = subprocess.Popen([ddprun, "--log-dir=/dev/null", "--no-python", "sh", "-c", "touch ready; exec sleep 1000"],
                               env=environment(), cwd=self.path, stderr=stderr, user=USER_WITH_LIMIT, extra_groups=[])
        self.addCleanup(lambda: run.poll() is None and (run.kill(), run.wait()))
        wait_until((self.path / "ready").exists, "the worker runs")
        first = self.guardian_of(run)
        soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
        def limit(count):
            subprocess.run(["prlimit", f"--pid={run.pid}", f"--nproc={count}:"], check=True, user=USER_WITH_LIMIT)
        limit(1)
        os.kill(first, signal.SIGKILL)
        said = (self.path / "stderr").read_text
        wait_until(lambda: "no other can be started: fork the guardian: " in said(), "it is said")
        self.assertIsNone(self.guardian_of(run))
        limit(soft)
        wait_until(lambda: self.guardian_of(run), "there is a new one")
        wait_until(lambda: "there was no guardian for a while; a new one has been started" in said(), "it is said")
        run.send_signal(signal.SIGTERM)
        self.assertEqual(run.wait(LIMIT), 143, said())

    def test_after_a_kill_of_the_agent(self):
        for name in HOSTILE:
            with self.subTest(name):
                run = self.begin(name, "exit 0")
                run.kill()
                wait_until(lambda: not self.left_behind(), "all of them have gone")
                run.communicate(timeout=LIMIT)

    def begin_without_pidfd(self):
        prefix = [sys.executable, "-c", WITHOUT_PIDFD]
        if subprocess.run([*prefix, "/bin/true"]).returncode != 0:
            self.skipTest("no filter of system calls can be set here")
        command = self.hostile("double fork", "exit 3")
        stderr = open(self.path / "stderr", "w")
        self.addCleanup(stderr.close)
        run = subprocess.Popen([*prefix, DDPRUN, "--log-dir", str(self.logs), "--shutdown-timeout=1", *command],
                               env=environment(), cwd=self.path, stderr=stderr)
        self.addCleanup(lambda: run.poll() is None and (run.kill(), run.wait()))
        self.addCleanup(lambda: [os.kill(pid, signal.SIGKILL) for pid in self.left_behind()])
        wait_until(lambda: (self.path / "ready").exists(), "the worker has left them behind")
        wait_until(lambda: len(self.left_behind()) >= self.count, f"{self.count} of them live")
        return run

    def test_a_sweep_where_pidfd_is_forbidden(self):
        run = self.begin_without_pidfd()
        (self.path / "go").touch()
        run.wait(timeout=LIMIT)
        said = (self.path / "stderr").read_text()
        self.assertEqual(self.left_behind(), [], said)
        self.assertRegex(said, r"should the guardian \(pid \d+\) end, nobody will notice: open its pidfd: Operation not permitted")

    def test_a_kill_of_the_agent_where_pidfd_is_forbidden(self):
        run = self.begin_without_pidfd()
        run.kill()
        run.wait()
        wait_until(lambda: not self.left_behind(), "all of them have gone")

    def test_a_nested_launcher_goes_with_the_outer_one(self):
        self.mark = f"99000.{os.getpid()}"
        ddprun = os.path.join(os.path.abspath(os.environ["DDPRUN_BIN"]), "ddprun")
        run = self.start("--no-python", ddprun, "--log-dir", "inner", "--no-python", "sh", "-c",
                         f"setsid /bin/sleep {self.mark} & env -i setsid /bin/sleep {self.mark} & wait")
        inner = f"/bin/sleep\0{self.mark}"
        wait_until(lambda: len(processes_with(inner)) == 2, "the inner worker runs")
        run.kill()
        wait_until(lambda: not processes_with(inner), "all of it has gone")
        run.communicate(timeout=LIMIT)


def tearDownModule():
    table = subprocess.run(["ps", "-eo", "pid,ppid,stat,args"], capture_output=True, text=True).stdout
    left = [line for line in table.splitlines() if f"sleep {MARK}" in line]
    if left:
        raise AssertionError("left behind:\n" + "\n".join(left))


class CgroupTest(LaunchCase):
    """Where a part of the cgroup tree has been delegated, each worker has a cgroup of its own."""

    def setUp(self):
        super().setUp()
        mount = next((m for m in map(pathlib.Path, ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"))
                      if (m / "cgroup.procs").exists() and (m / "cgroup.controllers").exists()), None)
        if mount is None:
            self.skipTest("no cgroup tree of version 2 is mounted here")
        self.group = mount / f"ddprun-test-{os.getpid()}"
        try:
            self.group.mkdir()
        except OSError as error:
            self.skipTest(f"no cgroup can be made here: {error}")
        self.addCleanup(wait_until, self.is_removed, "the cgroup is empty")

    def is_removed(self):
        try:
            self.group.rmdir()
        except OSError:
            return False
        return True

    def delegate(self):
        try:
            os.setxattr(self.group, "trusted.delegate", b"1")
        except OSError as error:
            self.skipTest(f"the mark of a delegation cannot be set here: {error}")

    def inside(self, *arguments):
        return subprocess.run(
            ["sh", "-c", f'echo $$ > {self.group}/cgroup.procs && exec "$@"', "sh", DDPRUN, "--log-dir",
             str(self.logs), *arguments],
            env=environment(), cwd=self.path, capture_output=True, text=True, timeout=LIMIT)

    def cgroups(self):
        return [p.read_text().partition("0::")[2].strip() for p in sorted(self.path.glob("cgroup.*"))]

    SHOW = "cat /proc/self/cgroup > cgroup.$RANK.$TORCHELASTIC_RESTART_COUNT; "

    def test_a_worker_is_in_a_leaf_that_is_gone_afterwards(self):
        self.delegate()
        run = self.inside("--nproc-per-node=2", "--max-restarts=1", "--no-python", "sh", "-c",
                          self.SHOW + "(setsid sleep 1000 &); while ! [ -s cgroup.0.0 ]; do sleep 0.02; done; "
                          "[ $RANK.$TORCHELASTIC_RESTART_COUNT != 1.0 ]")
        self.assertEqual(run.returncode, 0, run.stderr)
        groups = self.cgroups()
        self.assertEqual(len(set(groups)), 4, groups)
        for group in groups:
            self.assertRegex(group, rf"^/{self.group.name}/ddprun-\d+-\d+$")
        self.assertEqual([p for p in self.group.iterdir() if p.is_dir()], [])

    def test_what_ignores_everything_ends_with_the_leaf(self):
        self.delegate()
        run = self.inside("--shutdown-timeout=1", "--no-python", "sh", "-c",
                          "setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' & " + self.SHOW + "exit 3")
        self.assertEqual(run.returncode, 3, run.stderr)
        # The guardian goes by itself, just after the agent.
        wait_until(lambda: (self.group / "cgroup.procs").read_text() == "", "nobody is left")
        self.assertEqual([p for p in self.group.iterdir() if p.is_dir()], [])

    def test_what_a_killed_agent_has_left_is_removed_by_the_next(self):
        self.delegate()
        dead = subprocess.Popen(["true"])
        dead.wait()
        stale = self.group / f"ddprun-{dead.pid}-0"
        stale.mkdir()
        self.inside("--no-python", "true")
        self.assertFalse(stale.exists())

    def test_without_a_delegation_nothing_changes(self):
        run = self.inside("--no-python", "sh", "-c", self.SHOW)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(self.cgroups(), [f"/{self.group.name}"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
