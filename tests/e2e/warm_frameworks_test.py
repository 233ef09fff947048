# SPDX-License-Identifier: BSD-3-Clause
"""--warm-start under frameworks: killed and resumed, the end weights are bit for bit those of a cold run.

Two ranks train 8 steps over Gloo and save after the fourth; in the first attempt rank 1 kills itself after the
fifth.  That is done cold, then with --warm-start, so that both attempts are forked from the template.

FRAMEWORKS_PYTHON names a Python that has torch and some of transformers, Lightning, accelerate, DeepSpeed (default:
the one that runs this).  A framework that it lacks is skipped."""

import os
import pathlib
import re
import subprocess
import sys
import unittest

from warm_restart_test import WarmCase

PYTHON = os.environ.get("FRAMEWORKS_PYTHON", sys.executable)
EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples/python"


def has(*modules):
    find = "import importlib.util as u, sys; sys.exit(any(u.find_spec(m) is None for m in sys.argv[1:]))"
    return subprocess.run([PYTHON, "-c", find, *modules], check=False).returncode == 0


def needs(*modules):
    return unittest.skipUnless(has(*modules), f"{PYTHON} lacks one of {', '.join(modules)}; see FRAMEWORKS_PYTHON")


# What the scripts share.  `after` is called with the number of steps that are done.
COMMON = """
import hashlib, os, signal, time
attempt, rank = int(os.environ["TORCHELASTIC_RESTART_COUNT"]), int(os.environ["RANK"])
def after(step):
    if attempt == 0 and step == 5:
        while not os.path.exists("go"):
            time.sleep(0.01)
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
def end(parameters):
    digest = hashlib.sha256()
    for parameter in parameters:
        digest.update(parameter.detach().numpy().tobytes())
    os.write(1, f"weights {digest.hexdigest()}\\n".encode())
"""

FSDP2 = """
import torch, torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
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
    after(step)
end([parameter.full_tensor() for parameter in model.parameters()])
dist.barrier()
dist.destroy_process_group()
"""

# As PyTorch's tutorial on DistributedDataParallel has it, with its checkpoint.
DDP = """
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
dist.init_process_group("gloo")
torch.manual_seed(0)
class ToyModel(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net1, self.relu, self.net2 = torch.nn.Linear(10, 10), torch.nn.ReLU(), torch.nn.Linear(10, 5)
    def forward(self, x):
        return self.net2(self.relu(self.net1(x)))
model = DDP(ToyModel())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
data = TensorDataset(torch.randn(64, 10), torch.randn(64, 5))
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data), num_workers=2)
done = 0
if attempt:
    saved = torch.load("out/model.pt", map_location="cpu")
    model.load_state_dict(saved["model"]); optimizer.load_state_dict(saved["optimizer"])
    done = 4
for step, (x, y) in enumerate(loader, 1):
    if step <= done:
        continue
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
    if step == 4:
        if rank == 0:
            os.makedirs("out")
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "out/model.pt")
        dist.barrier()
    after(step)
end(model.parameters())
dist.barrier()
dist.destroy_process_group()
"""

TRAINER = """
import torch, torch.distributed as dist
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, index):
        ids = torch.randint(0, 50, (16,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": ids, "labels": ids}
class Killer(TrainerCallback):
    def on_step_end(self, args, state, control, **other):
        after(state.global_step)
arguments = TrainingArguments(output_dir="out", max_steps=8, per_device_train_batch_size=4, save_steps=4, seed=1,
                              use_cpu=True, report_to=[], disable_tqdm=True, dataloader_num_workers=1)
torch.manual_seed(1)
model = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=16, n_embd=16, n_layer=2, n_head=2))
Trainer(model=model, args=arguments, train_dataset=Data(), callbacks=[Killer()]).train(
    resume_from_checkpoint="out/checkpoint-4" if attempt else None)
end(model.parameters())
dist.barrier()
dist.destroy_process_group()
"""

LIGHTNING = """
import torch, torch.distributed as dist
import lightning
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(), torch.nn.Linear(16, 4))
    def training_step(self, batch, index):
        return self.layers(batch[0]).square().mean()
    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.1)
class Killer(Callback):
    def on_train_batch_end(self, trainer, *others):
        after(trainer.global_step)
lightning.seed_everything(1)
data = torch.utils.data.TensorDataset(torch.randn(64, 8))
model = Model()
trainer = lightning.Trainer(accelerator="cpu", devices=2, strategy="ddp", max_steps=8, logger=False,
                            enable_progress_bar=False, callbacks=[
                                ModelCheckpoint("out", every_n_train_steps=4, save_top_k=-1), Killer()])
# One batch an epoch, since Lightning goes on at the next epoch.
loader = torch.utils.data.DataLoader(data, batch_size=32)
path = next(("out/" + name for name in sorted(os.listdir("out"))), None) if attempt else None
trainer.fit(model, loader, ckpt_path=path)
assert trainer.global_step == 8
end(model.parameters())
dist.barrier()
dist.destroy_process_group()
"""

ACCELERATE = """
import torch, torch.distributed as dist
from accelerate import Accelerator
from accelerate.utils import set_seed
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
set_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(), torch.nn.Linear(16, 4))
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(64, 8)), batch_size=4, shuffle=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
step = 0
if attempt:
    accelerator.load_state("out/state")
    step = 4
batches = accelerator.skip_first_batches(loader, step) if step else loader
for (batch,) in batches:
    with accelerator.accumulate(model):
        accelerator.backward(model(batch).square().mean())
        optimizer.step(); schedule.step(); optimizer.zero_grad()
    step += 1
    if step == 4:
        accelerator.save_state("out/state")
        accelerator.wait_for_everyone()
    after(step)
assert step == 8
end(accelerator.unwrap_model(model).parameters())
dist.barrier()
dist.destroy_process_group()
"""

DEEPSPEED = """
import torch, torch.distributed as dist, deepspeed
deepspeed.init_distributed("gloo")
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
config = {"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": STAGE},
          "zero_allow_untested_optimizer": True, "steps_per_print": 1000}
engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(model.parameters(), lr=0.1), config=config)
step = 0
if attempt:
    engine.load_checkpoint("out", tag="four")
    step = 4
while step < 8:
    engine.backward(engine(torch.full((4, 8), rank + step + 1.0)).square().mean())
    engine.step()
    step += 1
    if step == 4:
        engine.save_checkpoint("out", tag="four")
    after(step)
weights = list(engine.module.parameters())
with deepspeed.zero.GatheredParameters(weights, enabled=STAGE == 3):
    end(weights)
dist.barrier()
dist.destroy_process_group()
"""


@needs("torch")
class FrameworkTest(WarmCase):
    limit = 280  # seconds to the next state

    def run_both(self, *program, **extra):
        """What the workers of a cold and of a warm run print."""
        texts = []
        for is_warm in (False, True):
            if (self.path / "out").exists():
                os.rename(self.path / "out", self.path / f"before_{len(list(self.path.glob('before_*')))}")
            job = self.run_once(is_warm, *(("--warm-start",) if is_warm else ()), "--nproc-per-node=2", "--max-restarts=1",
                                *program, OMP_NUM_THREADS="1", PYTHON_EXEC=PYTHON, **extra)
            self.assertEqual(job.returncode, 0, self.text)
            self.assertEqual(self.text.count("forked 2 workers from the template"), 2 if is_warm else 0, self.text)
            self.assertIn("restart 1 of 1: started 2 workers", self.text)
            texts.append(self.text)
        return texts

    def ends_with_the_same_weights(self, script, **extra):
        weights = [re.findall("weights .*", text) for text in self.run_both(self.script(COMMON + script), **extra)]
        self.assertEqual([len(each) for each in weights], [2, 2])
        self.assertEqual(len(set(weights[0] + weights[1])), 1, weights)

    def test_ddp(self):
        self.ends_with_the_same_weights(DDP)

    def test_the_tutorials(self):
        for name in ("basic_ddp.py", "elastic_ddp.py"):
            with self.subTest(name):
                # It fails before its first step once, by a module of its own.
                script = self.script("from once import *\n" + (EXAMPLES / name).read_text(), name)
                (self.path / "once.py").write_text(COMMON + "after(5)\n")
                cold, warm = (re.findall("step .*", text) for text in self.run_both(script))
                self.assertEqual(len(cold), 10)
                self.assertEqual(cold, warm)

    def test_fsdp2_and_distributed_checkpoints(self):
        self.ends_with_the_same_weights(FSDP2)

    @needs("transformers", "accelerate")
    def test_transformers_trainer(self):
        self.ends_with_the_same_weights(TRAINER)

    @needs("lightning")
    def test_lightning(self):
        # Three modules note the rank when they are imported, and each worker has its own.
        noted = ("rank_zero_only.rank for rank_zero_only in (__import__('torchmetrics.utilities.prints', fromlist=['x'])"
                 ".rank_zero_only, __import__('lightning.fabric.utilities.rank_zero', fromlist=['x']).rank_zero_only)")
        self.ends_with_the_same_weights(LIGHTNING.replace(
            "lightning.seed_everything(1)", f"assert [{noted}] == [rank, rank]\nlightning.seed_everything(1)", 1))

    @needs("accelerate")
    def test_accelerate(self):
        self.ends_with_the_same_weights(ACCELERATE)

    @needs("deepspeed")
    def test_deepspeed(self):
        for stage in "13":
            with self.subTest(stage=stage):
                self.ends_with_the_same_weights(DEEPSPEED.replace("STAGE", stage), DS_ACCELERATOR="cpu")


if __name__ == "__main__":
    result = unittest.main(exit=False).result
    for test, why in result.skipped:
        print(f"SKIPPED: {test}: {why}", file=sys.stderr)
    if not result.wasSuccessful():
        sys.exit(1)
    sys.exit(77 if len(result.skipped) >= result.testsRun else 0)
