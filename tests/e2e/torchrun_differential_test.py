# SPDX-License-Identifier: BSD-3-Clause
"""The same command lines under torchrun and under ddprun, compared as a worker and a user see them.

Compared are the exit status, whether workers ran, each worker's environment, arguments, folder, stdin,
umask, signals and process group, what the console shows of it, and the log folder: names and contents.
Every difference must be in INTENDED, with its reason, and everything there must be seen.  Each command
line is a test of its own.
"""

import dataclasses
import json
import os
import pathlib
import re
import select
import shlex
import signal
import subprocess
import sys
import tempfile
import traceback
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from free_port import free_port  # noqa: E402

try:
    import torch.distributed.run  # noqa: F401
except ImportError as error:
    print(f"skipped: no torch in {sys.executable}: {error}")
    sys.exit(77)

DDPRUN = os.path.abspath(os.path.join(os.environ["DDPRUN_BIN"], "ddprun"))
ONLY = os.environ.get("DDPRUN_TEST_ONLY", "")  # a regular expression for command lines
LIMIT = 150  # seconds for one run, far beyond what one takes
# torchrun is begun as a command where the environment, a shell or a child of multiprocessing counts, and in the first case.
FRESH = re.compile(r"--run-path|--start-method|--flag")
LAUNCHERS = {"torchrun": [sys.executable, "-m", "torch.distributed.run"], "ddprun": [DDPRUN]}

# Notes what it finds, says a line on each stream, and ends as it is told.
PROBE = r"""
import json, os, signal, sys
env = dict(os.environ)
name = f"facts.{env['TORCHELASTIC_RESTART_COUNT']}.{env['RANK']}"
mask = os.umask(0)
os.umask(mask)
status = dict(line.rstrip("\n").split(":\t", 1) for line in open("/proc/self/status") if line.startswith("Sig"))
facts = {
    "env": env, "argv": sys.argv, "words": sys.orig_argv, "name": __name__, "folder": os.getcwd(), "umask": mask,
    "blocked": status["SigBlk"], "ignored": status["SigIgn"], "leads session": os.getsid(0) == os.getpid(),
    "descriptors": sorted(int(fd) for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")),
    "stdin": sys.stdin.read() if "stdin" in sys.argv else os.readlink("/proc/self/fd/0").split(":")[0],
}
with open(f"{os.environ['FACTS']}/{name}", "w") as file:
    json.dump(facts, file)
rank = env["RANK"]
os.write(1, f"probe: rank {rank} to stdout\nprobe: apple\n".encode())
os.write(2, f"probe: rank {rank} to stderr\n".encode())
if "progress" in sys.argv:
    os.write(1, b"probe: 50 %\rprobe: 100 %\nprobe: dos\r\n\xff probe: no end")
if "fail" in sys.argv or ("once" in sys.argv and env["TORCHELASTIC_RESTART_COUNT"] == "0"):
    sys.exit(7)
if "raise" in sys.argv:
    raise ValueError("probe: boom")
if "kill" in sys.argv:
    os.kill(os.getpid(), signal.SIGKILL)
"""


@dataclasses.dataclass(frozen=True)
class Case:
    line: str  # "{log}" is a log folder, "{port}" a port that is free
    env: dict = dataclasses.field(default_factory=dict)
    stdin: str = ""
    around: str = ""  # what a shell does first
    environment: bool = True  # whether variables are compared


TWO = "--nproc-per-node=2"
CASES = [
    # How options are written.
    Case("probe.py a 'b c' --flag"),
    Case(f"{TWO} probe.py"),
    Case("--nproc_per_node 2 probe.py"),
    Case("--stand --nproc-p=2 --max-r=1 probe.py"),
    Case("--standalone -- probe.py -- --nnodes=7 ${local_rank} $local_rank $$ ${other} $other"),
    Case("probe.py -- --lr 1 -- 2"),
    Case("--no-python /bin/echo -- z"),
    Case("-m probe -- z"),
    Case("probe.py", {"PET_NPROC_PER_NODE": "2", "PET_ROLE": "trainer", "PET_STANDALONE": "1", "PET_MAX_RESTARTS": "2"}),
    Case(f"{TWO} --role=mine probe.py", {"PET_NPROC_PER_NODE": "3", "PET_ROLE": "trainer", "PET_NO_PYTHON": "0"}),
    Case("--signals-to SIGTERM,SIGINT probe.py"),
    Case("--log-dir={log} -mr3 probe"),
    Case("--max-restarts 5 --max_restarts=1 probe.py"),
    Case("--h", environment=False),
    Case("--version", environment=False),
    Case("--help", environment=False),
    # Nodes and workers.
    Case("--nnodes=1 --nproc-per-node=cpu probe.py"),
    Case("--nnodes=1:1 --nproc-per-node=auto probe.py"),
    Case("--node-rank=0 --master-addr=127.0.0.1 --master-port={port} probe.py"),
    Case("--master-addr=[::1] --master-port={port} probe.py"),
    Case("--rdzv-backend=static --rdzv-endpoint=127.0.0.1:{port} --rdzv-id=7 probe.py"),
    Case("--rdzv-backend=c10d --rdzv-endpoint=localhost:0 --rdzv-id=job --rdzv-conf=join_timeout=60 probe.py"),
    Case("--rdzv-backend=c10d --rdzv-endpoint=localhost:0 --local-addr=127.0.0.1 probe.py"),
    Case(f"{TWO} --virtual-local-rank probe.py ${{local_rank}}"),
    Case(f"{TWO} --virtual-local-rank probe.py", {"CUDA_VISIBLE_DEVICES": "5, 3"}),
    Case(f"{TWO} --virtual-local-rank probe.py", {"HIP_VISIBLE_DEVICES": "7,6", "CUDA_VISIBLE_DEVICES": "1"}),
    Case("probe.py", {"CUDA_VISIBLE_DEVICES": "1", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}),
    Case(f"{TWO} probe.py", {"OMP_NUM_THREADS": "3"}),
    # What is run.
    Case("-m probe word"),
    Case("--module package.probe"),
    Case("--no-python ./probe.sh word"),
    Case("--run-path probe.py word"),
    Case("--start-method=fork --monitor-interval=0.5 --event-log-handler=null probe.py"),
    Case("probe.py stdin", stdin="some\ninput\n"),
    Case("probe.py", around="umask 077"),
    Case("probe.py", around="trap '' HUP USR1 PIPE"),
    # Failures and signals.
    Case("--max-restarts=2 --log-dir={log} --redirects=3 probe.py once"),
    Case("--max-restarts=1 --log-dir={log} --redirects=3 probe.py fail"),
    Case("--log-dir={log} probe.py kill"),
    Case("--log-dir={log} probe.py raise"),
    Case("--signals-to-handle=SIGTERM,SIGUSR1 --shutdown-timeout=3 probe.py", {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "9"}),
    # Logs.
    Case(f"{TWO} --log-dir={{log}} --rdzv-backend=c10d --rdzv-endpoint=localhost:0 --rdzv-id=job -r 3 probe.py"),
    Case(f"{TWO} --log-dir={{log}} --redirects=0:1,1:2 probe.py"),
    Case(f"{TWO} --log-dir={{log}} --tee=3 probe.py"),
    Case(f"{TWO} --log-dir={{log}} -t 0:1,1:2 -r 1 --role=r probe.py"),
    Case(f"{TWO} --log-dir={{log}} --tee=1 --local-ranks-filter=1 probe.py"),
    Case(f"{TWO} --local-ranks-filter=0 probe.py"),
    Case("--local-ranks-filter=5 probe.py"),
    Case("--log-dir={log} --tee=3 --log-line-prefix-template='<${role_name}/${rank}/${local_rank}/${other}> ' probe.py"),
    Case("--log-dir={log} --tee=3 probe.py", {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "${rank}| "}),
    Case("--log-dir={log} --tee=3 probe.py", {"PET_LOG_LINE_PREFIX_TEMPLATE": "P${rank}| "}),
    Case("--log-dir={log} --tee=1 --log-line-prefix-template=${node}${group_rank}${restart_count}: probe.py"),
    Case(f"{TWO} --log-dir={{log}} --tee=3 --duplicate-stdout-filters=apple,x,,y --duplicate-stderr-filters=none probe.py"),
    Case("--log-dir={log} --tee=1 probe.py progress"),
    Case("--log-dir=/dev/null probe.py"),
    Case("--log-dir=/dev/null --redirects=1 --tee=2 probe.py"),
    # What is refused.
    Case("--nnodes=0 probe.py"),
    Case("--nnodes=2:1 probe.py"),
    Case("--nproc-per-node=many probe.py"),
    Case("--nproc-per-node=gpu probe.py"),
    Case("--max-restarts=-1 probe.py"),
    Case("--max-restarts=x probe.py"),
    Case("--monitor-interval=soon probe.py"),
    Case("--start-method=thread probe.py"),
    Case("--tee=4 probe.py"),
    Case("--redirects=0:3,1 probe.py"),
    Case("--local-ranks-filter=a probe.py"),
    Case("--rdzv-conf=timeout probe.py"),
    Case("--rdzv-backend=zookeeper probe.py"),
    Case("--shutdown-timeout=-1 probe.py"),
    Case("--shutdown-timeout= probe.py"),
    Case("-r --no-python probe.py"),
    Case("-h3"),
    Case("--help=1"),
    Case("--signals-to-handle=SIGNONE probe.py"),
    Case(f"{TWO} --virtual-local-rank probe.py", {"CUDA_VISIBLE_DEVICES": "0"}),
    Case("--numa-binding=near probe.py"),
    Case("--numa-binding=node probe.py"),
    Case("--logs-specs=none probe.py"),
    Case("--logs-specs=default probe.py"),
    Case("--print-completion=ksh"),
    Case("--module --no-python probe"),
    Case("--no-such-option probe.py"),
    Case("--rdzv=1 probe.py"),
    Case(""),
    Case("missing.py"),
    Case("-m missing"),
    Case("--no-python missing"),
    Case("--run-path missing.py"),
    Case("probe.py", {"PET_STANDALONE": "true"}),
    Case("probe.py", {"PET_MAX_RESTARTS": "x"}),
    Case("--log-dir=probe.py/logs probe.py"),
]


# Where ours differs on purpose.
@dataclasses.dataclass(frozen=True)
class Intended:
    line: str  # of the command lines with this in them (a regular expression)
    what: str  # what differs (a regular expression from its beginning)
    why: str
    seen: str = "probe.py a 'b c' --flag"  # the command line where it must be seen


CHECKED_LATE = (
    r"--(nnodes|nproc-per-node|max-restarts=-|tee|redirects|local-ranks-filter|rdzv-conf|rdzv-backend|shutdown-timeout"
    r"|signals-to-handle|numa-binding=node|logs-specs=none|module --no-python|no-python missing|run-path missing|log-dir=probe"
    r")|CUDA_VISIBLE_DEVICES=0|^missing.py|PET_STANDALONE=true")
INTENDED = [
    Intended("", r"env MASTER_ADDR ", "one node meets on loopback; torchrun gives the host's name"),
    Intended("", r"env DDPRUN_(ROUND|RUN_UUID) ", "rounds that are no failure restarts show here"),
    Intended("", r"env DDPRUN_AGENT ", "the mark by which what workers leave behind is found"),
    Intended(r"^(?!.*--log-dir)", r"env TORCHELASTIC_ERROR_FILE ",
             "a folder that nobody has named gets a worker's own when that leaves something"),
    Intended("", r"env DDPRUN_(JOB_ID|REQUEUE_COUNT) ", "what a job that Slurm begins again keeps"),
    Intended("", r"env DDPRUN_STOP_REASON_FILE ", "workers can read why they are to stop"),
    Intended("", r"env DDPRUN_HEARTBEAT_FILE ", "where logs are kept, workers can say at which step they are",
             seen="--log-dir={log} probe.py kill"),
    Intended("", r"env DDPRUN_TIMELINE_FILE ", "workers can say what they have done",
             seen="--log-dir={log} probe.py kill"),
    Intended("", r"log HERE/logs/latest$", "the link to the newest run",
             seen="--log-dir={log} probe.py kill"),
    Intended(CHECKED_LATE, r"exit status$", "bad input is 2 with one line; torchrun: 1 with a traceback, except from argparse",
             seen="--nnodes=0 probe.py"),
    Intended(r"probe.py (fail|kill)", r"exit status$", "the failed worker's own code, 128 + n for a signal; torchrun's is 1",
             seen="--log-dir={log} probe.py kill"),
    Intended(r"--version", r"exit status$", "torchrun does not know --version",
             seen="--version"),
    Intended("", r"log HERE/logs/[^/]+/timeline.json$", "what happened to the run, for ui.perfetto.dev",
             seen="--log-dir={log} probe.py kill"),
    Intended("", r"log HERE/logs/[^/]+/report.json$", "the report of a failed run, for programs",
             seen="--log-dir={log} probe.py kill"),
    Intended(r"probe.py (fail|kill|raise)", r"stderr$", "the failed worker's last lines are repeated where its stderr went to a file",
             seen="--max-restarts=1 --log-dir={log} --redirects=3 probe.py fail"),
    Intended(r"trap '' HUP", r"ignored ", "nohup protects: a SIGHUP that is ignored stays so",
             seen="trap '' HUP USR1 PIPE; probe.py"),
    Intended(r"--run-path", r"(descriptors|leads session|words|stdin) ",
             "an interpreter of its own instead of a multiprocessing child, which leaks descriptors, shares the agent's "
             "process group and has no stdin",
             seen="--run-path probe.py word"),
    Intended(r"\$\{node\}", r"stdout$", "${node}, ${group_rank} and ${restart_count} are ours",
             seen="--log-dir={log} --tee=1 --log-line-prefix-template=${node}${group_rank}${restart_count}: probe.py"),
    Intended(r"progress", r"stdout$", "bytes pass as they are; torchrun decodes, and replaces what is not UTF-8",
             seen="--log-dir={log} --tee=1 probe.py progress"),
    Intended(r"--log-dir=/dev/null --redirects=1 --tee=2", r"stderr$", "--tee has its prefix without files too",
             seen="--log-dir=/dev/null --redirects=1 --tee=2 probe.py"),
    Intended(r"SIGNONE", r"", "an unknown signal is refused; torchrun only warns",
             seen="--signals-to-handle=SIGNONE probe.py"),
]


def quoted_case(case):
    parts = [f"{name}={value}" for name, value in case.env.items()]
    return " ".join([*parts, *([case.around + ";"] if case.around else []), case.line]) or "(nothing)"


def base_environment():
    foreign = ("PET_", "DDPRUN", "OMP_", "TORCH", "CUDA_VISIBLE", "HIP_VISIBLE", "VIRTUAL_ENV", "LOGLEVEL", "PYTHON")
    env = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    env["PYTHON_EXEC"] = sys.executable
    return env


def prepare(folder):
    (folder / "probe.py").write_text(PROBE)
    (folder / "package").mkdir()
    (folder / "package/probe.py").write_text(PROBE)
    (folder / "probe.sh").write_text(f'#!/bin/sh\nexec "{sys.executable}" probe.py "$@"\n')
    (folder / "probe.sh").chmod(0o755)
    (folder / "facts").mkdir()


def run(launcher, case):
    """What was to be seen: {what: value}."""
    with tempfile.TemporaryDirectory(prefix="ddprun-diff-") as name:
        folder = pathlib.Path(name)
        prepare(folder)
        port = str(free_port())
        line = case.line.replace("{log}", f"{folder}/logs").replace("{port}", port)
        env = {**base_environment(), "FACTS": f"{folder}/facts", "TMPDIR": name, **case.env}
        if launcher == "torchrun" and not (case.env or case.around or FRESH.search(line)):
            return Seen(folder, port, run_forked(shlex.split(line), folder, env, case.stdin), case).facts
        # In exec'd words, not in the shell's own text: "$rank" is for the launcher.
        words = [*LAUNCHERS[launcher], *shlex.split(line)]
        done = subprocess.run(
            ["sh", "-c", f'{case.around or ":"}; exec "$@"', "sh", *words], cwd=folder, env=env, input=case.stdin,
            capture_output=True, text=True, errors="surrogateescape", timeout=LIMIT)
        return Seen(folder, port, done, case).facts


def run_forked(words, folder, env, stdin):
    """torchrun in a child of this process, which has imported torch already: that is most of what a run costs."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        theirs, ours = os.pipe()
        pid = os.fork()
        if pid == 0:
            become_torchrun(words, folder, env, (theirs, out.fileno(), err.fileno()))
        os.close(theirs)
        with open(ours, "w") as pipe:
            pipe.write(stdin)
        with open(os.pidfd_open(pid)) as ended:
            if not select.select([ended], [], [], LIMIT)[0]:
                os.kill(pid, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="surrogateescape"))
        return subprocess.CompletedProcess(words, status, *texts)


def become_torchrun(words, folder, env, descriptors):
    """What "python -m torch.distributed.run" does with `words`; does not return."""
    status = 1
    try:
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(env, PWD=str(folder))  # as a shell does
        sys.argv = [torch.distributed.run.__file__, *words]
        torch.distributed.run.main()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)  # without the ends of what the parent has begun


class Seen:
    """One run, with what is chance in it replaced by words."""

    def __init__(self, folder, port, done, case):
        self.replacements = [(re.escape(str(folder)), "HERE"), (rf"\b{port}\b", "PORT")]
        self.facts = {"exit status": done.returncode}
        for name, text in (("stdout", done.stdout), ("stderr", done.stderr)):
            self.facts[name] = self.plain(sorted(line for line in re.split("(?<=\n)", text)
                                                 if "probe: " in line and not line.startswith("ddprun ")))
        self.facts["worker"] = sorted(path.name for path in (folder / "facts").iterdir())
        for path in sorted((folder / "facts").iterdir()):
            self.add_worker(path.name, json.loads(path.read_text()), case)
        self.facts["logs"] = self.tree(folder / "logs")

    def plain(self, value):
        text = json.dumps(value)
        for pattern, word in self.replacements:
            text = re.sub(pattern, word, text)
        # Random parts: the id of a standalone run, a temporary folder, a run's folder.
        text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID", text)
        text = re.sub(r"HERE/(torchelastic|ddprun_\w+)_\w+", "TEMPORARY", text)
        text = re.sub(r"(TEMPORARY|logs)/(UUID|none|job|7)_\w+", r"\1/\2_RANDOM", text)
        return json.loads(text)

    def add_worker(self, name, facts, case):
        for what, value in facts.items():
            if what != "env":
                self.facts[f"{what} of {name}"] = self.plain(value)
        for variable, value in facts["env"].items():
            value = self.plain(value)
            if variable == "MASTER_PORT" and value != "PORT" and 0 < int(value) < 65536:
                value = "FREE"
            self.facts[f"env {variable} of {name}"] = value

    def tree(self, folder):
        """Each file and folder below `folder`; links are not followed."""
        found = {}
        for top, folders, files in os.walk(folder):
            for name in [*folders, *files]:
                path = pathlib.Path(top) / name
                relative = self.plain(str(path))
                if path.is_symlink():
                    found[relative] = "link"
                elif path.is_dir():
                    found[relative] = "folder"
                elif name == "error.json":
                    found[relative] = "error"
                else:
                    text = path.read_text(errors="surrogateescape")
                    lines = re.split("(?<=\n)", text)
                    found[relative] = self.plain("".join(sorted(lines) if "filtered" in name else lines))
        return found


def differences(theirs, ours):
    """(what, under torchrun, under ddprun) for each difference."""
    found = []
    for what in sorted({*theirs, *ours}):
        left, right = theirs.get(what, "(nothing)"), ours.get(what, "(nothing)")
        if what == "logs":
            found += [(f"log {a}", b, c) for a, b, c in differences(theirs["logs"], ours["logs"])] \
                if isinstance(left, dict) and isinstance(right, dict) else []
        elif left != right:
            found.append((what, left, right))
    return found


class DifferentialTest(unittest.TestCase):
    def compare(self, case):
        theirs, ours = run("torchrun", case), run("ddprun", case)
        used, unexpected = set(), []
        for what, left, right in differences(theirs, ours):
            reasons = [intended for intended in INTENDED
                       if re.search(intended.line, quoted_case(case)) and re.match(intended.what, what)]
            used.update(reasons)
            if not reasons:
                unexpected.append(f"{what}:\n    torchrun {left!r}\n    ddprun   {right!r}")
        self.assertFalse(unexpected, "\n" + "\n".join(unexpected))
        gone = [intended for intended in INTENDED if intended.seen == quoted_case(case) and intended not in used]
        self.assertEqual(gone, [], "differences that are no more")

    def test_every_intended_difference_has_a_command_line_that_shows_it(self):
        lines = [quoted_case(case) for case in CASES]
        self.assertEqual([intended for intended in INTENDED if lines.count(intended.seen) != 1], [])


def add_test(number, case):
    def test(self):
        self.compare(case)

    test.__doc__ = quoted_case(case)
    setattr(DifferentialTest, f"test_command_line_{number:03}", test)


for number, case in enumerate(CASES):
    if re.search(ONLY, quoted_case(case)):
        add_test(number, case)


if __name__ == "__main__":
    unittest.main(verbosity=2)
