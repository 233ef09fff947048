# SPDX-License-Identifier: BSD-3-Clause
"""A real Slurm cluster of several virtual nodes on this machine: slurmctld, munged and one slurmd a node, each in
a UTS and a mount namespace of its own, so that every node has its own name, /etc/hosts and /etc/slurm.  No
systemd, nothing outside a temporary folder is changed, and all listen on loopback, or in the network namespaces
of tests/e2e/hosts.py.  Needs root, and Debian's slurmctld, slurmd, slurm-client and munge."""

import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from free_port import free_port  # noqa: E402

LIMIT = 240  # seconds of every wait, which are far beyond what anything here takes
TOOLS = ("munged", "munge", "unmunge", "slurmctld", "slurmd", "srun", "scontrol", "unshare", "nsenter", "setpriv")

# Becomes a daemon or a command of one host: enter.sh HOSTNAME COMMAND...
ENTER = """#!/bin/sh
hostname "$1" && mount --bind "{hosts}" /etc/hosts || exit 1
if [ -d /etc/slurm ]; then mount --bind "{etc}" /etc/slurm; fi
shift
SLURM_CONF="{etc}/slurm.conf"; export SLURM_CONF
exec "$@"
"""

CONF = """
ClusterName=test
SlurmctldHost=ctl({control})
SlurmctldPort={ports[0]}
# Another cluster on this machine has other jobs, and so other run ids and ports.
FirstJobId={first_job}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
# How long a requeued job is held back is cred_expire, too.
AuthInfo=socket={folder}/munge.socket,cred_expire=5
# Every daemon listens only where its own host name leads.
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
PlugStackConfig={folder}/etc/plugstack.conf
MailProg=/bin/true
ProctrackType=proctrack/{tracking}
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SwitchType=switch/none
MpiDefault=none
# Believe CPUs= and RealMemory=, whatever the machine has.
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=bf_interval=1,sched_interval=2,sched_min_interval=1,max_rpc_cnt=0
SlurmctldTimeout=10
SlurmdTimeout=30
MessageTimeout=10
KillWait={kill_wait}
CompleteWait=0
MinJobAge=3600
ReturnToService=2
JobRequeue=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
# A victim that asked for --signal gets that signal, not SIGTERM.
SlurmctldParameters=preempt_send_user_signal
"""

PARTITIONS = """
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime=10
PartitionName=prio Nodes=ALL Default=NO MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
"""


def why_not(tracking="linuxproc"):
    """What this machine lacks for it; empty if nothing."""
    if os.getuid() != 0:
        return "a Slurm cluster needs root"
    for tool in TOOLS:
        if not shutil.which(tool):
            return f"there is no {tool} here: apt-get install slurmctld slurmd slurm-client munge"
    probe = subprocess.run(["unshare", "--uts", "--mount", "true"], capture_output=True, text=True)
    if probe.returncode != 0:
        return f"no namespaces can be made here: {probe.stderr.strip()}"
    if tracking == "cgroup" and not os.access("/sys/fs/cgroup/freezer", os.W_OK):
        return "there is no cgroup v1 freezer to write to"
    return ""


def until(is_reached, what, limit=LIMIT, seen=lambda: ""):
    """Waits for a state; returns what is_reached() answered, and the seconds that it took.  `seen` says in the end
    what there was instead."""
    begin = time.monotonic()
    while True:
        reached = is_reached()
        if reached:
            return reached, time.monotonic() - begin
        if time.monotonic() - begin > limit:
            raise AssertionError(f"waited {limit} s in vain until {what}; {seen()}")
        time.sleep(0.02)


def namespace_of(pid):
    try:
        return os.readlink(f"/proc/{pid}/ns/mnt")
    except OSError:
        return None


class Cluster:
    """node0, node1, ... in the partitions main (preemptable, 10 s grace) and prio.  `hosts` are those of
    tests/e2e/hosts.py, and then give the nodes addresses of their own."""

    def __init__(self, count=4, tracking="linuxproc", cpus=8, gpus=4, hosts=None, kill_wait=5):
        self.temp = tempfile.TemporaryDirectory(prefix="ddprun-slurm-", ignore_cleanup_errors=True)
        self.folder = pathlib.Path(self.temp.name)
        self.folder.chmod(0o755)
        self.hosts = hosts
        # The groups of proctrack/cgroup are named after nodes, on the whole machine.
        stem = f"n{os.getpid()}x" if tracking == "cgroup" else "node"
        self.names = [f"{stem}{k}" for k in range(count)]
        self.tracking = tracking
        self.daemons = {}     # by name, as processes
        self.namespaces = {}  # of each node, by name
        self.held = {}        # descriptors of them, by name: the kernel gives the number of one that is gone to the next
        try:
            self.configure(cpus, gpus, kill_wait)
            self.start()
        except BaseException:
            self.stop()
            raise

    def configure(self, cpus, gpus, kill_wait):
        etc = self.folder / "etc"
        for folder in (etc, self.folder / "state", self.folder / "dev"):
            folder.mkdir()
        ports = [free_port() for _ in range(len(self.names) + 1)]
        control = "127.0.0.1"
        if self.hosts:
            control = "10.77.0.254"
            subprocess.run(["ip", "-n", self.hosts.switch, "addr", "add", f"{control}/24", "dev", "br0"], check=True)
        addresses = [self.hosts.address(k) if self.hosts else control for k in range(len(self.names))]
        (etc / "hosts").write_text(f"127.0.0.1 localhost\n{control} ctl\n{control} login\n" + "".join(
            f"{address} {name}\n" for address, name in zip(addresses, self.names)))
        gres = f" Gres=gpu:fake:{gpus}" if gpus else ""
        nodes = "".join(
            f"NodeName={name} NodeAddr={address} Port={port} CPUs={cpus} RealMemory=4000{gres} State=UNKNOWN\n"
            for name, address, port in zip(self.names, addresses, ports[1:]))
        conf = CONF.format(control=control, ports=ports, folder=self.folder, tracking=self.tracking,
                           kill_wait=kill_wait, first_job=random.randrange(1, 60_000_000))
        (etc / "slurm.conf").write_text(conf + ("GresTypes=gpu\n" if gpus else "") + nodes + PARTITIONS)
        (etc / "gres.conf").write_text(self.fake_gpus(gpus))
        (etc / "plugstack.conf").write_text("")
        (etc / "cgroup.conf").write_text("CgroupPlugin=autodetect\nIgnoreSystemd=yes\n")
        self.enter = self.folder / "enter.sh"
        self.enter.write_text(ENTER.format(hosts=etc / "hosts", etc=etc))
        self.enter.chmod(0o755)
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)

    def fake_gpus(self, count):
        """Slurm wants a device for each GPU, and nobody opens it."""
        for k in range(count):
            os.mknod(self.folder / "dev" / f"gpu{k}", 0o600 | 0o020000, os.makedev(1, 3))
        if count == 0:
            return ""
        devices = f"{self.folder}/dev/gpu" + (f"[0-{count - 1}]" if count > 1 else "0")
        return f"NodeName={','.join(self.names)} Name=gpu Type=fake File={devices}\n"

    # Daemons.

    def spawn(self, name, *command):
        with open(self.folder / f"{name}.out", "ab") as out:
            self.daemons[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *map(str, command)], stdin=subprocess.DEVNULL, stdout=out,
                stderr=subprocess.STDOUT, start_new_session=True)
        return self.daemons[name]

    def within(self, name, network):
        net = [f"--net=/run/netns/{network}"] if self.hosts else []
        return (["nsenter", *net] if net else []) + [
            "unshare", "--uts", "--mount", "--propagation", "private", str(self.enter), name]

    def start(self):
        socket_path = self.folder / "munge.socket"
        self.spawn("munged", "munged", "--foreground", "--force", f"--key-file={self.folder}/munge.key",
                   f"--socket={socket_path}", f"--pid-file={self.folder}/munged.pid",
                   f"--log-file={self.folder}/munged.log", f"--seed-file={self.folder}/munge.seed")
        ask = f"munge -S {socket_path} -n | unmunge -S {socket_path}"
        until(lambda: subprocess.run(["sh", "-c", ask], capture_output=True).returncode == 0, "munged answers")
        conf = self.folder / "etc" / "slurm.conf"
        self.spawn("slurmctld", *self.within("ctl", self.hosts and self.hosts.switch), "slurmctld", "-D", "-f", conf)
        until(lambda: "UP" in self.ask("scontrol", "ping"), "slurmctld answers")
        for name in self.names:
            self.start_node(name)
        self.wait_for_nodes("idle")
        self.run("srun", "-Q", f"-N{len(self.names)}", "--ntasks-per-node=1", "true")

    def start_node(self, name):
        """A fresh namespace each time, as a machine that was started again."""
        network = self.hosts and self.hosts.namespace(self.names.index(name))
        slurmd = self.spawn(f"slurmd.{name}", *self.within(name, network), "slurmd", "-D", "-f",
                            self.folder / "etc" / "slurm.conf", "-N", name)
        comm = pathlib.Path(f"/proc/{slurmd.pid}/comm")
        until(lambda: comm.read_text().strip() == "slurmd", f"slurmd of {name} runs")
        self.let_go(name)
        self.held[name] = os.open(f"/proc/{slurmd.pid}/ns/mnt", os.O_RDONLY)
        self.namespaces[name] = namespace_of(slurmd.pid)

    def let_go(self, name):
        if name in self.held:
            os.close(self.held.pop(name))

    def wait_for_nodes(self, *states, names=None):
        names = set(names or self.names)

        def are_there():
            lines = self.ask("sinfo", "-h", "-p", "main", "-N", "-o", "%N %t").split("\n")
            told = dict(line.split() for line in lines if line)
            return all(told.get(name, "").rstrip("*") in states for name in names)
        until(are_there, f"{names} are {states}")

    # What a user does.

    def command(self, *command):
        """The command line that becomes `command` on the login host."""
        return [*self.within("login", self.hosts and self.hosts.switch), *map(str, command)]

    def ask(self, *command):
        return subprocess.run(self.command(*command), capture_output=True, text=True, timeout=LIMIT).stdout

    def run(self, *command, **more):
        done = subprocess.run(self.command(*command), capture_output=True, text=True, timeout=2 * LIMIT, **more)
        if done.returncode != 0:
            raise AssertionError(f"{' '.join(map(str, command))}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def state(self, job):
        return self.ask("squeue", "-h", "-t", "all", "-j", str(job), "-o", "%T").strip()

    def until_state(self, job, *states):
        try:
            until(lambda: self.state(job) in states, f"job {job} is {states}")
        except AssertionError as error:
            details = self.ask("scontrol", "show", "job", str(job)) + self.ask("sinfo", "-N", "-l")
            raise AssertionError(f"{error}\n{details}") from None

    # What happens to nodes.

    def pids(self, name):
        """Everything that runs on a node."""
        namespace = self.namespaces.get(name)  # none if its slurmd could not be started
        return [] if namespace is None else [int(p) for p in os.listdir("/proc") if p.isdigit() and namespace_of(p) == namespace]

    def signal_node(self, name, number):
        for pid in self.pids(name):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def kill(self, name):
        """The node dies: its peers see their connections closed."""
        while self.pids(name):
            self.signal_node(name, signal.SIGKILL)
            self.daemons[f"slurmd.{name}"].poll()
            time.sleep(0.01)
        self.daemons[f"slurmd.{name}"].wait()

    def freeze(self, name):
        """The node goes silent."""
        self.signal_node(name, signal.SIGSTOP)

    def thaw(self, name):
        self.signal_node(name, signal.SIGCONT)

    def stop(self):
        """Ends all that this cluster started."""
        for name in list(self.daemons):
            if name.startswith("slurmd."):
                self.kill(name.partition(".")[2])
                self.let_go(name.partition(".")[2])
        for name in ("slurmctld", "munged"):
            if name in self.daemons:
                self.daemons[name].kill()
                self.daemons[name].wait()
        if self.tracking == "cgroup":
            for name in self.names:
                subprocess.run(["find", "/sys/fs/cgroup/freezer", "-depth", "-type", "d", "-path", f"*/slurm_{name}*",
                                "-exec", "rmdir", "{}", "+"], capture_output=True, check=False)
        self.temp.cleanup()
