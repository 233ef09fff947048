# SPDX-License-Identifier: BSD-3-Clause
"""Workers of torch's own Gloo train across changes of the node that hosts the run, and come to what they come to
undisturbed: it is killed and comes back, stands still and goes on, is cut off and heard again."""

import importlib.util
import re
import signal
import sys
import unittest

import hosts
from nodes import NodesCase, kill, wait_until
from processes import children_of, guardians_of, send, status_of, waits_anew

if hosts.why_not():
    print(f"skipped: {hosts.why_not()}")
    sys.exit(77)
if importlib.util.find_spec("torch") is None:
    print(f"skipped: {sys.executable} has no torch")
    sys.exit(77)

# A silence limit of 10 s, since machines that start torch are busy; of 4 s where a test waits for it.
CONF = "last_call_timeout=1,read_timeout=60,join_timeout=80,keep_alive_interval=1,keep_alive_max_attempt=10"
QUICK = "last_call_timeout=1,read_timeout=60,join_timeout=80,keep_alive_interval=0.4,keep_alive_max_attempt=10"

# The gradient of each part of the data is computed by some rank, and all are added in one order: the parameters do not
# depend on the number of ranks.  Saved after each epoch, by rank 0, unless a later generation has saved (as in
# worker/ENVIRONMENT.md).  At epoch `hold.N` of N ranks rank 0 waits until that file goes, while the others wait for it
# in a collective; with the file `hold.save` it waits when it is about to save.  It notes when it is alive, as beats.py
# has it.  STUBBORN: it takes no notice of SIGTERM.
TRAIN = r"""
import json, os, signal, sys, threading, time
env = os.environ
round = "-".join(env[name] for name in ("MASTER_PORT", "DDPRUN_ROUND", "DDPRUN_RUN_UUID")).replace(".", "-")
def beat(begin=time.monotonic()):
    os.makedirs("beats", exist_ok=True)
    with open(f"beats/{env['NODE']}.{env['RANK']}.{env['WORLD_SIZE']}.{round}.{os.getpid()}", "w") as file:
        while True:
            file.seek(0)
            file.write(f"{begin:.4f} {time.monotonic():.4f}")
            file.flush()
            time.sleep(0.01)
threading.Thread(target=beat, daemon=True).start()
if "STUBBORN" in env:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
import hashlib, torch, torch.distributed as dist
PARTS, EPOCHS = 6, 8
dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
def say(name, text):
    with open(name, "ab", buffering=0) as file:
        file.write((text + "\n").encode())
def is_held(name, epoch):
    try:
        return epoch >= int(open(name).read())
    except (FileNotFoundError, ValueError):
        return False
def may_save():
    last = json.load(open("generation.json")) if os.path.exists("generation.json") else {}
    return last.get("run_uuid") != env["DDPRUN_RUN_UUID"] or last["round"] <= int(env["DDPRUN_ROUND"])
def write(name, put):
    put(f"{name}.{os.getpid()}")
    os.replace(f"{name}.{os.getpid()}", name)
def save(epoch):
    if os.path.exists("hold.save"):
        say("held", f"epoch {epoch} of {ranks} ranks, round {env['DDPRUN_ROUND']}")
    while os.path.exists("hold.save"):
        time.sleep(0.02)
    if not may_save():
        say("refused", f"epoch {epoch} of {ranks} ranks, round {env['DDPRUN_ROUND']}")
        os._exit(3)
    generation = {"run_uuid": env["DDPRUN_RUN_UUID"], "round": int(env["DDPRUN_ROUND"])}
    write("generation.json", lambda path: open(path, "w").write(json.dumps(generation)))
    state = {"done": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    write("checkpoint", lambda path: torch.save(state, path))
    say("epochs", f"epoch {epoch} of {ranks} ranks")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(10, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
done = 0
if os.path.exists("checkpoint"):
    saved = torch.load("checkpoint")
    done = saved["done"]
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
say("resumed", f"rank {rank} of {ranks} from epoch {done}")
def gradient(part):
    own = torch.Generator().manual_seed(100 + part)
    x = torch.randn(32, 10, generator=own)
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True).sin()).backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()])
for epoch in range(done + 1, EPOCHS + 1):
    while rank == 0 and is_held(f"hold.{ranks}", epoch):
        time.sleep(0.02)
    mine = torch.stack([gradient(part) if part % ranks == rank else torch.zeros(193) for part in range(PARTS)])
    all_of_them = [torch.zeros_like(mine) for _ in range(ranks)]
    dist.all_gather(all_of_them, mine)
    total = sum(all_of_them[part % ranks][part] for part in range(PARTS)) / PARTS
    at = 0
    for p in model.parameters():
        p.grad = total[at:at + p.numel()].view_as(p).clone()
        at += p.numel()
    optimizer.step()
    if rank == 0:
        save(epoch)
    dist.barrier()
digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()
say("parameters", f"rank {rank} {digest}")
dist.barrier()
dist.destroy_process_group()
os._exit(0)  # at a torch of this age one of Gloo's threads may still hold what Python has taken down
"""


class HostChangeTrainTest(NodesCase):
    undisturbed = None  # what the parameters come to then

    @classmethod
    def setUpClass(cls):
        cls.hosts = hosts.Hosts(3)
        cls.addClassCleanup(cls.hosts.close)

    def setUp(self):
        super().setUp()
        self.base = self.path
        if not HostChangeTrainTest.undisturbed:
            self.run_in("calm")
            HostChangeTrainTest.undisturbed = self.trained([self.agent(k, 3) for k in range(3)])
        self.run_in("disturbed")

    def run_in(self, folder):
        """From here on the agents work in a folder of this name, which is also their run."""
        self.path = self.base / folder
        self.path.mkdir()
        (self.path / "train.py").write_text(TRAIN)
        self.count = 0

    def agent(self, k, least, conf=CONF, **more):
        return self.node("--nproc-per-node=1", f"--nnodes={least}:3", f"--rdzv-id={self.path}", f"--rdzv-conf={conf}",
                         endpoint="node0:29400", within=self.hosts.on(k), command=("train.py",), OMP_NUM_THREADS="1", **more)

    def lines(self, name):
        path = self.path / name
        return path.read_text().splitlines() if path.exists() else []

    def until(self, name, wanted):
        try:
            wait_until(lambda: wanted in self.lines(name), f"{name} has {wanted!r}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.lines(name)}\n{self.logs()}") from None

    def trained(self, agents):
        """What all of them say that the parameters are.  Nothing runs on their hosts any more."""
        for agent in agents:
            self.assertEqual(agent.ends(), 0, self.logs())
        for k in range(self.hosts.count):
            wait_until(lambda k=k: not self.hosts.processes(k), f"nothing runs on node{k}")
        digests = {line.split()[2] for line in self.lines("parameters")}
        self.assertEqual(len(digests), 1, self.lines("parameters"))
        self.assertEqual(len(self.lines("parameters")), 3)
        return digests.pop()

    def assert_trained_as_if_undisturbed(self, agents, resumed_from):
        self.assertEqual(self.trained(agents), self.undisturbed)
        self.assertEqual({line.split()[-1] for line in self.lines("resumed")}, resumed_from)
        # Each epoch once: none was lost, and none was learned twice.
        self.assertEqual([int(re.search(r"\d+", line)[0]) for line in self.lines("epochs")], list(range(1, 9)))

    def until_two_go_on(self, agents, why):
        """Nodes 1 and 2 have trained from epoch 3 to 5, and wait there for a third."""
        self.until("epochs", "epoch 5 of 2 ranks")
        for agent in agents[1:]:
            agent.says(f"hosts the run now; node0, which did, was lost ({why}")

    def all_hold_at_epoch(self, epoch, conf=QUICK, **more):
        """Three agents that train; in this epoch two ranks wait in a collective for the one on the hosting node."""
        (self.path / "hold.3").write_text(str(epoch))
        (self.path / "hold.2").write_text("6")
        agents = [self.agent(k, 2, conf, **(more if k == 0 else {})) for k in range(3)]
        self.until("epochs", f"epoch {epoch - 1} of 3 ranks")
        return agents

    def stop_machine(self, agent):
        """All processes of an agent's node stand still.  The agent, its guardians with how often they have waited, and its
        workers."""
        pid = agent.process.pid
        send(signal.SIGSTOP, [pid])
        children = children_of(pid)  # there will be no other
        send(signal.SIGSTOP, children)
        guardians = {child: status_of(child)[1] for child in guardians_of(pid)}
        self.addCleanup(lambda: agent.process.poll() is None and send(signal.SIGCONT, [pid, *children]))
        return pid, guardians, [child for child in children if child not in guardians]

    def test_training_comes_to_the_same_when_its_host_is_killed_and_comes_back(self):
        agents = self.all_hold_at_epoch(4, CONF)
        kill(agents[0])
        self.until_two_go_on(agents, "its agent, pid ")
        (self.path / "hold.3").unlink()
        agents[0] = self.agent(0, 2)
        self.assert_trained_as_if_undisturbed(agents, {"0", "3", "5"})
        self.assertGreaterEqual(self.assert_rounds_apart(), 3)

    def test_training_comes_to_the_same_when_its_host_stands_still_and_goes_on(self):
        agents = self.all_hold_at_epoch(4)
        agent, guardians, _ = self.stop_machine(agents[0])
        self.until_two_go_on(agents, "nothing was heard of it until its lease was over")
        (self.path / "hold.3").unlink()
        # The guardian first: processes that wake together may run for some milliseconds before it holds the workers.
        send(signal.SIGCONT, guardians)
        for pid, waits in guardians.items():
            wait_until(lambda pid=pid, waits=waits: waits_anew(pid, waits), "the guardian has held the workers")
        send(signal.SIGCONT, [agent])
        self.assert_trained_as_if_undisturbed(agents, {"0", "3", "5"})
        self.assertGreaterEqual(self.assert_rounds_apart(), 3)

    def test_a_worker_that_wakes_before_its_guardian_does_not_save_over_what_the_others_have_saved(self):
        (self.path / "hold.save").touch()
        (self.path / "hold.2").write_text("6")
        agents = [self.agent(k, 2, QUICK) for k in range(3)]
        self.until("held", "epoch 1 of 3 ranks, round 0")
        agent, guardians, workers = self.stop_machine(agents[0])
        (self.path / "hold.save").unlink()
        self.until_two_go_on(agents, "nothing was heard of it until its lease was over")
        send(signal.SIGCONT, workers)
        self.until("refused", "epoch 1 of 3 ranks, round 0")
        send(signal.SIGCONT, [*guardians, agent])
        self.assert_trained_as_if_undisturbed(agents, {"0", "5"})

    def test_training_comes_to_the_same_when_its_host_is_cut_off_and_comes_back(self):
        """Its worker works for as long as it can."""
        agents = self.all_hold_at_epoch(4, STUBBORN="1")
        self.addCleanup(lambda: self.hosts.heal(0))
        self.hosts.isolate(0)
        self.until_two_go_on(agents, "nothing was heard of it until its lease was over")
        (self.path / "hold.3").unlink()
        self.hosts.heal(0)
        agents[0].says("the run has another host, at 10.")
        self.assert_trained_as_if_undisturbed(agents, {"0", "3", "5"})
        self.assertGreaterEqual(self.assert_rounds_apart(), 3)


if __name__ == "__main__":
    unittest.main(verbosity=2)
