# SPDX-License-Identifier: BSD-3-Clause
"""Workers of torch's own Gloo train across changes of the node that hosts the run, and come to what they come to
undisturbed."""

import importlib.util
import re
import sys
import unittest

import hosts
from nodes import NodesCase, kill, wait_until

if hosts.why_not():
    print(f"skipped: {hosts.why_not()}")
    sys.exit(77)
if importlib.util.find_spec("torch") is None:
    print(f"skipped: {sys.executable} has no torch")
    sys.exit(77)

# Machines that start torch are busy: a silence limit of 10 s.
CONF = "last_call_timeout=1,read_timeout=60,join_timeout=80,keep_alive_interval=1,keep_alive_max_attempt=10"

# The gradient of each part of the data is computed by some rank, and all are added in one order: the parameters do not
# depend on the number of ranks.  Saved after each epoch.  At epoch `hold.N` of N ranks it waits until that file goes.
TRAIN = r"""
import hashlib, os, time, torch, torch.distributed as dist
PARTS, EPOCHS = 6, 8
dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
def say(name, text):
    with open(name, "ab", buffering=0) as file:
        file.write((text + "\n").encode())
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
    while os.path.exists(f"hold.{ranks}") and epoch >= int(open(f"hold.{ranks}").read() or 0):
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
        torch.save({"done": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, "checkpoint.new")
        os.replace("checkpoint.new", "checkpoint")
        say("epochs", f"epoch {epoch} of {ranks} ranks")
    dist.barrier()
digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()
say("parameters", f"rank {rank} {digest}")
dist.barrier()
dist.destroy_process_group()
os._exit(0)  # at a torch of this age one of Gloo's threads may still hold what Python has taken down
"""


class HostChangeTrainTest(NodesCase):
    @classmethod
    def setUpClass(cls):
        cls.hosts = hosts.Hosts(3)
        cls.addClassCleanup(cls.hosts.close)

    def setUp(self):
        super().setUp()
        self.base = self.path
        self.run_in("calm")

    def run_in(self, folder):
        """From here on the agents work in a folder of this name, which is also their run."""
        self.path = self.base / folder
        self.path.mkdir()
        (self.path / "train.py").write_text(TRAIN)
        self.count = 0

    def agent(self, k, least):
        return self.node("--nproc-per-node=1", f"--nnodes={least}:3", f"--rdzv-id={self.path}", f"--rdzv-conf={CONF}",
                         endpoint="node0:29400", within=self.hosts.on(k), command=("train.py",), OMP_NUM_THREADS="1")

    def lines(self, name):
        path = self.path / name
        return path.read_text().splitlines() if path.exists() else []

    def until(self, name, wanted):
        def logs():
            return "\n".join(f"{p.name}:\n{p.read_text(errors='replace')}" for p in sorted(self.path.glob("agent*.log")))
        try:
            wait_until(lambda: wanted in self.lines(name), f"{name} has {wanted!r}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.lines(name)}\n{logs()}") from None

    def trained(self, agents):
        """What all of them say that the parameters are."""
        for agent in agents:
            self.assertEqual(agent.ends(), 0, agent.log)
        digests = {line.split()[2] for line in self.lines("parameters")}
        self.assertEqual(len(digests), 1, self.lines("parameters"))
        self.assertEqual(len(self.lines("parameters")), 3)
        return digests.pop()

    def test_training_comes_to_the_same_when_its_host_is_killed_and_comes_back(self):
        undisturbed = self.trained([self.agent(k, 3) for k in range(3)])
        self.run_in("disturbed")
        (self.path / "hold.3").write_text("4")
        agents = [self.agent(k, 2) for k in range(3)]
        self.until("epochs", "epoch 3 of 3 ranks")
        (self.path / "hold.2").write_text("6")
        kill(agents[0])
        self.until("epochs", "epoch 5 of 2 ranks")
        for agent in agents[1:]:
            agent.says("hosts the run now; node0, which did, was lost (its agent, pid ")
        (self.path / "hold.3").unlink()
        agents[0] = self.agent(0, 2)
        self.assertEqual(self.trained(agents), undisturbed)
        self.assertEqual({line.split()[-1] for line in self.lines("resumed")}, {"0", "3", "5"})
        # Each epoch once: none was lost, and none was learned twice.
        self.assertEqual([int(re.search(r"\d+", line)[0]) for line in self.lines("epochs")], list(range(1, 9)))


if __name__ == "__main__":
    unittest.main(verbosity=2)
