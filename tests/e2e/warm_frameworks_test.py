# SPDX-License-Identifier: BSD-3-Clause
"""--warm-start under FSDP2 with distributed checkpoints: killed and resumed, the end weights are those of a cold run.

Two ranks train 8 steps over Gloo and save after the fourth; in the first attempt rank 1 kills itself after the fifth."""

import importlib.util
import os
import re
import sys
import unittest

from warm_restart_test import WarmCase

FSDP2 = """
import hashlib, os, signal, time
import torch, torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
attempt, rank = int(os.environ["TORCHELASTIC_RESTART_COUNT"]), int(os.environ["RANK"])
dist.init_process_group("gloo")
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
step = 0
if attempt:
    weights, state = get_state_dict(model, optimizer)
    dcp.load({"model": weights, "optimizer": state}, checkpoint_id="out")
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=state)
    step = 4
while step < 8:
    model(torch.full((4, 8), rank + step + 1.0)).square().mean().backward()
    optimizer.step(); optimizer.zero_grad()
    step += 1
    if step == 4:
        weights, state = get_state_dict(model, optimizer)
        dcp.save({"model": weights, "optimizer": state}, checkpoint_id="out")
    if attempt == 0 and step == 5:
        while not os.path.exists("go"):
            time.sleep(0.01)
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
digest = hashlib.sha256()
for parameter in model.parameters():
    digest.update(parameter.full_tensor().detach().numpy().tobytes())
os.write(1, f"weights {digest.hexdigest()}\\n".encode())
dist.barrier()
dist.destroy_process_group()
"""


@unittest.skipUnless(importlib.util.find_spec("torch"), "this Python has no torch")
class FrameworkTest(WarmCase):
    limit = 280  # seconds to the next state

    def test_fsdp2_and_distributed_checkpoints(self):
        weights = []
        for is_warm in (False, True):
            if (self.path / "out").exists():
                os.rename(self.path / "out", self.path / "before")
            options = ("--warm-start",) if is_warm else ()
            job = self.run_once(is_warm, *options, "--nproc-per-node=2", "--max-restarts=1", self.script(FSDP2),
                                OMP_NUM_THREADS="1", PYTHON_EXEC=sys.executable)
            self.assertEqual(job.returncode, 0, self.text)
            self.assertEqual(self.text.count("forked 2 workers from the template"), 2 if is_warm else 0, self.text)
            self.assertIn("restart 1 of 1: started 2 workers", self.text)
            weights += re.findall("weights .*", self.text)
        self.assertEqual((len(weights), len(set(weights))), (4, 1), weights)


if __name__ == "__main__":
    unittest.main()
