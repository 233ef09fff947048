# SPDX-License-Identifier: BSD-3-Clause
"""scripts/slurm on a real Slurm: what is submitted, requeued, preempted and joined."""

import functools
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import unittest

from case import DDPRUN, LIMIT, QUICK, ROOT, SlurmCase, cluster, needs_runtime, now, time_of, worlds

import ddpd_process

SCRIPTS = ROOT / "scripts" / "slurm"
PLAIN = ["--nodes=4", "--gpus-per-node=8", "--cpus-per-task=64", "--time=24:00:00", "--", "train.py"]
ELASTIC = ["--nodes=4:8", "--spares=1", "--gpus-per-node=8", "--cpus-per-task=64", "--time=24:00:00", "--requeue",
           "--", "--max-restarts=3", "train.py"]


class TextTest(unittest.TestCase):
    def run_script(self, name, *arguments):
        return subprocess.run([SCRIPTS / name, *arguments], capture_output=True, text=True, timeout=LIMIT)

    def test_the_templates_are_what_ddprun_sbatch_prints(self):
        for name, arguments in (("plain", PLAIN), ("elastic", ELASTIC)):
            text = (SCRIPTS / f"{name}.sbatch").read_text().splitlines()
            del text[1]  # the licence
            self.assertEqual(self.run_script("ddprun-sbatch", "--print", *arguments).stdout.splitlines(), text)

    @unittest.skipUnless(shutil.which("shellcheck"), "there is no shellcheck here")
    def test_shellcheck_has_no_objections(self):
        files = sorted(path for path in SCRIPTS.iterdir() if path.suffix != ".md")
        done = subprocess.run(["shellcheck", *files], capture_output=True, text=True, timeout=LIMIT)
        self.assertEqual(done.stdout, "")

    def test_bad_usage_is_one_line_and_exit_code_2(self):
        for name, arguments, why in (
                ("ddprun-sbatch", ["train.py"], "--nodes must say how many nodes are wanted"),
                ("ddprun-sbatch", ["--nodes=4"], "there is no script to run"),
                ("ddprun-sbatch", ["--nodes=4", "--"], "there is no script to run"),
                ("ddprun-sbatch", ["-N"], "-N needs a value"),
                ("ddprun-sbatch", ["-N2", "--time"], "--time needs a value"),
                ("ddprun-sbatch", ["-N2", "-Ht"], "-t needs a value"),
                ("ddprun-sbatch", ["-N2", "--max-restarts"], "--max-restarts needs a value"),
                ("ddprun-sbatch", ["-N2", "--hold=3", "train.py"], "--hold takes no value, and was given '3'"),
                ("ddprun-sbatch", ["-N2", "--tiem=5", "train.py"], "neither sbatch nor ddprun has an option --tiem"),
                ("ddprun-sbatch", ["-N2", "-Hy", "train.py"], "neither sbatch nor ddprun has an option -y"),
                ("ddprun-sbatch", ["-N2", "--overlap", "train.py"], "neither sbatch nor ddprun has an option --overlap"),
                ("ddprun-sbatch", ["-N2", "--max=3", "train.py"],
                 "--max is ambiguous: it could be --max-requeues, --max-restarts"),
                ("ddprun-sbatch", ["--nodes=4:2", "--", "train.py"], "--nodes=4:2 is no range"),
                ("ddprun-sbatch", ["--nodes=4-2", "train.py"], "--nodes=4-2 is no range"),
                ("ddprun-sbatch", ["--nodes=2-4", "--spares=1", "train.py"], "--spares=1 needs --nodes=2:4"),
                ("ddprun-sbatch", ["--nodes=x", "--", "train.py"], "--nodes=x is not a number"),
                ("ddprun-sbatch", ["--nodes=1", "--ntasks=4", "--", "train.py"], "one task on each node"),
                ("ddprun-sbatch", ["-N1", "-n", "4", "train.py"], "one task on each node"),
                ("ddprun-sbatch", ["-N1", "--comment", "a\nb", "train.py"], "a line break cannot stand in --comment"),
                ("ddprun-srun", ["--nodes=x", "--", "train.py"], "--nodes=x is not a number"),
                ("ddprun-srun", ["--nodes=2-x", "train.py"], "--nodes=2-x is not a number"),
                ("ddprun-srun", ["-n4", "--", "train.py"], "one task on each node"),
                ("ddprun-srun", ["-N2", "--tiem=5", "train.py"], "neither srun nor ddprun has an option --tiem"),
                ("ddprun-srun", ["-N2", "--array=1", "train.py"], "neither srun nor ddprun has an option --array"),
                ("ddprun-srun", ["-N2"], "there is no script to run"),
                ("ddprun-srun", ["--", "train.py"], "outside a job --nodes must say")):
            done = self.run_script(name, *arguments)
            self.assertEqual((done.returncode, done.stdout), (2, ""), (arguments, done.stderr))
            self.assertRegex(done.stderr, rf"\A{name}: .*{re.escape(why)}.*; see --help\n\Z")

    def printed(self, *arguments):
        """The lines of #SBATCH that follow from `arguments`, and what is run."""
        done = self.run_script("ddprun-sbatch", "--print", *arguments)
        self.assertEqual((done.returncode, done.stderr), (0, ""), arguments)
        options = re.findall("(?m)^#SBATCH (.*)$", done.stdout)
        return options[1:], re.search('(?m)^srun .* ddprun (.*)$', done.stdout)[1]

    def test_options_are_spelled_as_for_sbatch_and_for_ddprun(self):
        expected = (["--nodes=2", "--ntasks-per-node=1", "--time=5", "--hold", "--no-requeue"],
                    "--tee 3 --max-restarts=1 train.py -N 3")
        for line in ("--nodes=2 --time=5 --hold -- --tee 3 --max-restarts=1 train.py -N 3",
                     "--nodes 2 --time 5 --hold --tee 3 --max-restarts=1 train.py -N 3",
                     "-N 2 -t 5 -H --tee 3 --max-restarts=1 train.py -N 3",
                     "-N2 -t5 -H --tee 3 --max_restarts=1 train.py -N 3",
                     "--tee 3 -N2 --max-restarts=1 -t5 -H train.py -N 3",
                     "--nodes 2 --time 5 --hol --tee 3 --max-rest=1 -- train.py -N 3"):
            self.assertEqual(self.printed(*line.split()), expected, line)
        options, command = self.printed("-HN2", "-Qt", "5", "--job-name", "-x", "train.py")
        self.assertEqual(options[2:], ["--hold", "--quiet", "--time=5", "--job-name=-x", "--no-requeue"])
        self.assertEqual(command, "train.py")

    def test_what_both_have_is_slurms_before_the_two_dashes_and_ddpruns_after_them(self):
        options, command = self.printed("-N", "2", "-m", "block", "-r", "1", "--", "-m", "-t", "3", "train")
        self.assertEqual(options[2:], ["--distribution=block", "--no-requeue"])
        self.assertEqual(command, "--redirects 1 -m -t 3 train")  # sbatch has no -r

    def test_a_value_that_may_be_missing_is_never_the_next_word(self):
        options, command = self.printed("-N2", "--exclusive", "--exclusive=user", "-k", "train.py")
        self.assertEqual(options[2:], ["--exclusive", "--exclusive=user", "--no-kill", "--no-requeue"])
        self.assertEqual(command, "train.py")

    def test_a_range_of_sbatch_is_left_to_it(self):
        self.assertEqual(self.printed("-N", "2-4", "train.py"),
                         (["--nodes=2-4", "--ntasks-per-node=1", "--no-requeue"], "train.py"))

    def tool(self, name, help_text):
        """A PATH on which the `name` of another site is found."""
        folder = tempfile.TemporaryDirectory(prefix="ddprun-slurm-tool-")
        self.addCleanup(folder.cleanup)
        path = pathlib.Path(folder.name) / name
        path.write_text(f"#!/bin/sh\ncat <<'END'\n{help_text}\nEND\n")
        path.chmod(0o755)
        return f"{folder.name}:{os.environ['PATH']}"

    def test_options_of_a_plugin_are_known_from_the_help_of_slurm(self):
        path = self.tool("sbatch", "Options provided by plugins:\n      --container-image=[USER@]IMAGE|PATH\n"
                         "                              the image\n      --no-container-mount-home\n"
                         "      --fancy[=how]           maybe")
        done = subprocess.run(
            [SCRIPTS / "ddprun-sbatch", "--print", "-N2", "--container-image", "torch", "--no-container-mount-home",
             "--fancy", "--fancy=very", "train.py"], capture_output=True, text=True, timeout=LIMIT,
            env={**os.environ, "PATH": path})
        self.assertEqual(done.stderr, "")
        self.assertEqual(re.findall("(?m)^#SBATCH (.*(?:container|fancy).*)$", done.stdout),
                         ["--container-image=torch", "--no-container-mount-home", "--fancy", "--fancy=very"])
        self.assertIn('ddprun train.py', done.stdout)

    def table(self, name):
        """{name: (letter, kind)} of one table of options.sh."""
        done = subprocess.run(["bash", "-c", f'source "$1"; printf "%s\n" "${{{name}[@]}}"', "-",
                               SCRIPTS / "options.sh"], capture_output=True, text=True, timeout=LIMIT, check=True)
        entries = [re.fullmatch(r"(?:(.)/)?([a-z0-9-]+)(=|\[=\])?", line) for line in done.stdout.splitlines()]
        table = {entry[2]: (entry[1] or "", entry[3] or "") for entry in entries}
        self.assertEqual(len(table), len(entries))
        return table

    # Where --help prints [=value] and a value must follow, and where the value is only in the manual page.
    PRINTED_OTHERWISE = {"container": "=", "export": "=", "wrap": "=", "kill-on-bad-exit": "[=]", "bcast": "[=]",
                         "no-kill": "[=]", "get-user-env": "[=]", "overlap": "[=]", "resv-ports": "[=]"}

    def test_the_tables_are_those_of_the_installed_slurm(self):
        with tempfile.TemporaryDirectory(prefix="ddprun-slurm-conf-") as folder:
            conf = pathlib.Path(folder) / "slurm.conf"
            conf.write_text("ClusterName=test\nSlurmctldHost=localhost\nPlugStackConfig=/dev/null\n")
            for tool in ("sbatch", "srun"):
                table = self.table("common_options") | self.table(f"{tool}_options")
                ask = functools.partial(subprocess.run, capture_output=True, text=True, timeout=LIMIT,
                                        stdin=subprocess.DEVNULL, env={**os.environ, "SLURM_CONF": str(conf)})
                text = ask([tool, "--help"], check=True).stdout
                lines = re.findall(r"(?m)^ {2,6}(?:-(\w),? +)?--([a-z][a-z0-9-]*)(\[?=)?", text)
                self.assertGreater(len(lines), 80)
                for letter, name, kind in lines:
                    kind = self.PRINTED_OTHERWISE.get(name, {"[=": "[=]"}.get(kind, kind))
                    with self.subTest(tool=tool, option=name):
                        self.assertEqual(table.get(name), (letter or table[name][0], kind))
                # What --help leaves out, and whether it is right: asked of the program, which takes the next word as
                # a value or not.
                for name, (letter, kind) in table.items():
                    if name in ("help", "usage", "version"):
                        continue
                    for option in [f"--{name}", *([f"-{letter}"] if letter else [])]:
                        with self.subTest(tool=tool, option=option):
                            needs = "requires an argument" in ask([tool, option]).stderr
                            self.assertEqual(needs, kind == "=")
                    with self.subTest(tool=tool, option=name):
                        complaint = ask([tool, f"--{name}=x-1", "--no-such-option"]).stderr
                        self.assertNotIn(f"unrecognized option '--{name}", complaint)
                        self.assertEqual("doesn't allow an argument" in complaint, kind == "")

    def test_the_table_of_ddpruns_options_is_that_of_its_help(self):
        text = subprocess.run([DDPRUN, "--help"], capture_output=True, text=True, timeout=LIMIT, check=True).stdout
        found = {name: (letter, "=" if value else "")
                 for letter, name, value in re.findall(r"(?m)^  (?:-(\w),)?--([a-z-]+)( \S)?", text)}
        for name in ("help", "version"):  # the scripts' own
            del found[name]
        self.assertEqual(self.table("ddprun_options"), found)


class ScriptsTest(SlurmCase):
    def submit(self, *arguments, **extra):
        """ddprun-sbatch; answers the job."""
        done = subprocess.run(
            self.cluster.command(SCRIPTS / "ddprun-sbatch", "--output=out.%j", *arguments),
            env=self.environment(**extra), cwd=self.path, capture_output=True, text=True, timeout=LIMIT)
        self.assertEqual(done.returncode, 0, done.stderr)
        return re.search(r"Submitted batch job (\d+)", done.stdout)[1]

    def until_done(self, job):
        self.cluster.until_state(job, "COMPLETED")

    def test_a_plain_job(self):
        job = self.submit("--nodes=3", "--gpus-per-node=2", "--cpus-per-task=2", "--time=5", "--", "worker.py")
        lines = self.until_started(6)
        self.assertEqual(worlds(lines), [f"{rank}/6" for rank in range(6)])
        self.go()
        self.until_done(job)

    def test_options_are_written_as_for_sbatch(self):
        job = self.submit("-N", "2", "-t", "5", "-Hc2", "--comment", "it is #1", "--max-restarts", "3", "worker.py")
        details = self.cluster.ask("scontrol", "show", "job", job)
        for line in ("TimeLimit=00:05:00", "NumNodes=2", "CPUs/Task=2", "Comment=it is #1", "Priority=0 "):
            self.assertIn(line, details)
        self.cluster.run("scontrol", "release", job)
        self.assertEqual(worlds(self.until_started(2)), ["0/2", "1/2"])
        self.go()
        self.until_done(job)

    def test_ddprun_srun_makes_an_allocation(self):
        for arguments in (["-N", "2", "-t", "5", "worker.py"],
                          ["--nodes", "2", "--time=5", "--max-restarts", "1", "worker.py"],
                          ["-N2-2", "-lt5", "--", "--max-restarts=1", "worker.py"]):
            with self.subTest(arguments):
                (self.path / "started").unlink(missing_ok=True)
                self.go()
                done = subprocess.run(self.cluster.command(SCRIPTS / "ddprun-srun", *arguments), env=self.environment(),
                                      cwd=self.path, capture_output=True, text=True, timeout=LIMIT)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(worlds(self.started), ["0/2", "1/2"])

    def test_an_elastic_job_with_a_spare_outlives_a_node(self):
        job = self.submit("--nodes=2:3", "--spares=1", "--time=5", "--", QUICK, "worker.py")
        lost = max(line.split()[0] for line in self.until_started(3))
        self.addCleanup(self.revive, lost)
        self.cluster.kill(lost)
        lines = self.until_started(6)[3:]
        self.assertEqual(worlds(lines), ["0/3", "1/3", "2/3"])
        self.go()
        self.until_done(job)

    # Alone in its world it ends, with what `code` says.
    LAST = """
import os, time
open("started", "a").write(f"{os.environ['SLURMD_NODENAME']} {os.getppid()} {os.environ['WORLD_SIZE']}\\n")
while os.environ["WORLD_SIZE"] != "1":
    time.sleep(0.1)
raise SystemExit(int(open("code").read()))
"""

    def agent_is_killed(self, *options, which, code):
        """A job of two nodes, of which the first or the other loses its agent: 0, 1."""
        (self.path / "last.py").write_text(self.LAST)
        (self.path / "code").write_text(str(code))
        (self.path / "started").unlink(missing_ok=True)
        (self.path / "tmp").mkdir(exist_ok=True)
        job = self.submit("--nodes=1:2", "--time=5", *options, "--", QUICK, "last.py", TMPDIR=str(self.path / "tmp"))
        agents = dict(line.split()[:2] for line in self.until_started(2))
        os.kill(int(agents[sorted(agents)[which]]), signal.SIGKILL)
        return job

    def test_a_job_whose_run_has_outlived_an_agent_ends_as_the_run_does(self):
        job = self.agent_is_killed(which=1, code=0)
        self.until_done(job)
        self.assertIn("srun has ended with 137, and the run with 0", self.output(job))
        job = self.agent_is_killed(which=1, code=5)
        self.cluster.until_state(job, "FAILED")
        self.assertIn("ExitCode=5:0", self.cluster.ask("scontrol", "show", "job", job))
        self.assertEqual(list((self.path / "tmp").glob("tmp.*")), [], "the folder is gone")

    def test_a_job_fails_where_the_agent_that_would_say_how_the_run_ends_is_killed(self):
        job = self.agent_is_killed(which=0, code=0)
        self.cluster.until_state(job, "FAILED")
        self.assertIn("ExitCode=137:0", self.cluster.ask("scontrol", "show", "job", job))

    def test_a_run_that_has_outlived_an_agent_is_requeued_by_its_own_exit_code(self):
        job = self.agent_is_killed("--requeue", which=1, code=75)
        cluster.until(lambda: f"requeueing job {job}: exit code 75" in self.output(job), "it is requeued",
                      seen=lambda: self.output(job))
        (self.path / "code").write_text("0")

    def test_a_job_has_the_name_of_its_script(self):
        for arguments, name in ((["train.py"], "train.py"), (["--", "-m", "-t", "3", "package.train"], "package.train"),
                                (["/some/where/a b.py"], "a_b.py"), (["-J", "mine", "train.py"], "mine"),
                                (["--job-name=back\\slash", "train.py"], "back\\slash"),
                                (["--job-name=a'b\"c", "train.py"], "a'b\"c")):
            with self.subTest(arguments):
                job = self.submit("-N1", "-H", *arguments)
                self.assertEqual(self.cluster.ask("squeue", "-h", "-j", job, "-o", "%j").strip(), name)
                self.cluster.run("scancel", job)

    def after_requeue(self, job, count):
        """The workers' lines after the job was requeued, once they are there."""
        cluster.until(lambda: sum(f" run slurm-{job}.0-r1 " in line for line in self.started) >= count,
                      f"job {job} has begun again; it says {self.output(job)}")
        return [line for line in self.started if f"slurm-{job}.0-r1" in line]

    def test_requeued_by_an_exit_code(self):
        job = self.submit("--nodes=2", "--time=5", "--requeue", "--requeue-exit-codes=74,75", "--", "worker.py",
                          EXITS="75")
        self.assertEqual(worlds(self.after_requeue(job, 2)), ["0/2", "1/2"])
        self.assertIn(f"requeueing job {job}: exit code 75", self.output(job))
        self.go()
        self.until_done(job)

    def test_another_exit_code_ends_the_job(self):
        job = self.submit("--nodes=2", "--time=5", "--requeue", "--", "worker.py", EXITS="3")
        self.cluster.until_state(job, "FAILED")
        self.assertEqual(self.cluster.ask("squeue", "-h", "-t", "all", "-j", job, "-o", "%r").strip(), "NonZeroExitCode")

    def test_enough_requeues_are_enough(self):
        job = self.submit("--nodes=1", "--time=5", "--requeue", "--max-requeues=0", "--", "worker.py", EXITS="75")
        self.cluster.until_state(job, "FAILED")
        self.assertIn("it was requeued 0 times already, which is enough", self.output(job))

    def test_saved_and_requeued_before_the_time_limit(self):
        job = self.submit("--nodes=2", "--time=10", "--requeue", "--warning=100", "--", "worker.py", SAVES="1")
        self.until_started(2)
        self.make_warning_due(job)
        lines = self.after_requeue(job, 2)
        saved = [line for line in self.lines("saved") if f"slurm-{job}.0-r0" in line]
        self.assertEqual(len(saved), 2, self.output(job))
        self.assertEqual(worlds(lines), ["0/2", "1/2"])
        self.go()

    def test_preempted_saved_and_resumed(self):
        job = self.submit("--nodes=4", "--cpus-per-task=8", "--time=60", "--requeue", "--", "worker.py", SAVES="1")
        self.until_started(4)
        begin = now()
        other = self.srun("-p", "prio", "-N4", "-c8", "true")
        cluster.until(lambda: len(self.lines("saved")) == 4, f"all have saved; {self.output(job)}")
        self.note(f"preempting job submitted to the last checkpoint written: {time_of(self.lines('saved')[-1]) - begin:.2f} s")
        self.assertEqual(other.ends(), 0, other.log)
        self.assertEqual(worlds(self.after_requeue(job, 4)), [f"{rank}/4" for rank in range(4)])
        self.go()
        self.until_done(job)

    def test_preempted_where_the_site_sends_no_signal_of_the_users(self):
        text = subprocess.run([SCRIPTS / "ddprun-sbatch", "--print", "--nodes=2", "--cpus-per-task=8", "--requeue", "--",
                               "worker.py"], capture_output=True, text=True, timeout=LIMIT).stdout
        job = self.sbatch(re.sub("(?m)^#SBATCH --signal.*$", "", text.partition("\n")[2]), "-w", "node[0-1]")
        self.until_started(2)
        other = self.srun("-p", "prio", "-N2", "-w", "node[0-1]", "-c8", "true")
        self.assertEqual(worlds(self.after_requeue(job, 2)), ["0/2", "1/2"])
        self.assertIn(f"requeueing job {job}: it is preempted", self.output(job))
        self.assertEqual(other.ends(), 0, other.log)
        self.go()
        self.until_done(job)

    @needs_runtime
    def test_a_preempted_training_resumes_by_itself(self):
        job = self.submit("--nodes=2", "--cpus-per-task=8", "--time=60", "--requeue", "--warning=4", "--", "--tee=3",
                          *map(str, self.training()))
        cluster.until(lambda: "epoch 1: loss" in self.output(job), f"it trains: {self.output(job)}")
        other = self.srun("-p", "prio", "-N4", "-c8", "true")
        cluster.until(lambda: re.search(r"with 2 ranks, resumed from epoch \d", self.output(job)),
                      f"it has resumed; {self.output(job)}")
        self.assertRegex(self.output(job), rf"resumed from epoch .*; checkpoints in \S+/slurm-{job}.0-1")
        self.assertEqual(other.ends(), 0, other.log)
        self.until_done(job)
        self.assert_resumed_and_trained(self.output(job), ranks=2)

    def test_a_cancelled_job_is_not_requeued(self):
        job = self.submit("--nodes=2", "--time=5", "--requeue", "--", "worker.py")
        self.until_started(2)
        self.cluster.run("scancel", job)
        self.cluster.until_state(job, "CANCELLED")
        self.assertNotIn("requeueing", self.output(job))

    def test_a_job_cancelled_while_it_saves_is_not_requeued(self):
        job = self.submit("--nodes=2", "--time=10", "--requeue", "--warning=100", "--", "worker.py")
        self.until_started(2)
        self.cluster.run("scancel", "--batch", "--signal=USR1", job)
        cluster.until(lambda: sum(line.startswith("SIGUSR1") for line in self.lines("signals")) == 2, "both are warned")
        self.cluster.run("scancel", job)
        self.cluster.until_state(job, "CANCELLED")
        self.assertNotIn("requeueing", self.output(job))

    def test_every_command_of_the_page_works_as_printed(self):
        text = (SCRIPTS / "README.md").read_text()
        commands = re.findall(r"(?m)^    ((?:srun|sbatch|ddprun-srun|ddprun-sbatch|mkdir) .*)$", text)
        self.assertGreaterEqual(len(commands), 8)
        # It takes a second, as a spare that comes after the end of the run would look for it in vain.
        (self.path / "train.py").write_text("import time\ntime.sleep(1)\n" + (self.path / "worker.py").read_text())
        self.go()
        with ddpd_process.Ddpd() as ddpd:
            for command in commands:
                with self.subTest(command):
                    self.run_as_printed(command, ddpd.port)

    def run_as_printed(self, command, port):
        before = len(self.started)
        if command.startswith("ddprun-srun"):
            self.sbatch(command, "--nodes=2", "--ntasks-per-node=1")
        else:
            line = command.replace(":29500", f":{port}")  # of a ddpd that this test has started
            done = subprocess.run(self.cluster.command("bash", "-c", line), env=self.environment(), cwd=self.path,
                                  capture_output=True, text=True, timeout=LIMIT)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        cluster.until(lambda: not self.cluster.ask("squeue", "-h").strip(), "its jobs are over")
        self.assertEqual(len(self.started) > before,
                         not re.search("--dry-run|--print|mkdir", command))

    def test_ddprun_srun_in_a_batch_script(self):
        job = self.sbatch(f"{SCRIPTS}/ddprun-srun worker.py; {SCRIPTS}/ddprun-srun -N2 -- worker.py",
                          "-N3", "--ntasks-per-node=1", "-c", "2")
        self.assertEqual(worlds(self.until_started(3)), ["0/3", "1/3", "2/3"])
        self.go()
        self.assertEqual(worlds(self.until_started(5)[3:]), ["0/2", "1/2"])
        self.until_done(job)

    def test_ddprun_srun_where_the_job_has_lost_a_node(self):
        job = self.sbatch(f"while [ ! -e lost ]; do sleep 0.1; done; {SCRIPTS}/ddprun-srun -- worker.py",
                          "-N3", "--ntasks-per-node=1", "--no-kill")
        self.cluster.until_state(job, "RUNNING")
        nodes = self.cluster.ask("squeue", "-h", "-j", job, "-o", "%B").strip()
        lost = next(name for name in reversed(self.cluster.names[:3]) if name != nodes)
        self.addCleanup(self.revive, lost)
        self.cluster.kill(lost)
        self.cluster.run("scontrol", "update", f"nodename={lost}", "state=down", "reason=test")
        (self.path / "lost").touch()
        self.assertEqual(worlds(self.until_started(2)), ["0/2", "1/2"])
        self.go()
        self.until_done(job)

    def submit_array(self, *arguments, elements=3, options=(), **extra):
        done = subprocess.run(
            self.cluster.command("sbatch", "--parsable", f"--array=0-{elements - 1}", "-o", "out.%A_%a", *options,
                                 SCRIPTS / "array.sbatch", *arguments),
            env=self.environment(MIN_NODES="2", **extra), cwd=self.path, capture_output=True, text=True, timeout=LIMIT)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def join_by_array(self, elements=3, **extra):
        job = self.submit_array("worker.py", elements=elements, **extra)
        self.until_world(elements)
        self.assertIn(f" run slurm-{job} ", self.started[-1])
        return job

    def until_world(self, size, since=0):
        """Waits for the first round of `size` workers after `since` others; answers how many have started by then."""
        def is_there():
            return sum(f"/{size} " in line for line in self.started[since:]) >= size
        cluster.until(is_there, f"all {size} are in one round", seen=lambda: self.started)
        self.assertEqual(worlds(line for line in self.started[since:] if f"/{size} " in line),
                         [f"{rank}/{size}" for rank in range(size)])
        return len(self.started)

    def test_the_jobs_of_an_array_join_one_run(self):
        self.join_by_array()
        self.go()
        cluster.until(lambda: not self.cluster.ask("squeue", "-h").strip(), "all elements are over")

    def test_another_user_cannot_join_the_run_of_an_array(self):
        job = self.join_by_array()
        endpoint = re.search(r" at (\S+:)", self.started[-1])[1].partition(":")[0] + f":{20000 + int(job) % 9360}"
        run = ["--log-dir=/dev/null", "--nnodes=2:3", "--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}",
               f"--rdzv-id=slurm-{job}", "--rdzv-conf=is_host=0,join_timeout=20"]
        for options in ([], ["--rdzv-auth=munge"]):
            stranger = subprocess.run(
                self.cluster.command("setpriv", "--reuid=54321", "--regid=54321", "--clear-groups", DDPRUN, *run,
                                     *options, "/bin/true"),
                env=self.environment(), cwd="/", capture_output=True, text=True, timeout=LIMIT)
            self.assertEqual(stranger.returncode, 80, stranger.stderr)
        self.assertIn("it is run by another user of the cluster (MUNGE)", stranger.stderr)
        self.assertEqual(len(self.started), 3)
        self.go()
        cluster.until(lambda: not self.cluster.ask("squeue", "-h").strip(), "all elements are over")

    @needs_runtime
    def test_the_jobs_of_an_array_train_together_and_go_on_without_a_lost_one(self):
        job = self.submit_array("--tee=3", *self.training())

        def text():
            return "".join(self.output(f"{job}_{k}") for k in range(3))
        cluster.until(lambda: "epoch 2: loss" in text(), "they train", seen=text)
        self.assertIn("with 3 ranks, from the start", text())
        self.cluster.run("scancel", f"{job}_2")
        cluster.until(lambda: re.search(r"with 2 ranks, resumed from epoch [1-9]", text()), "the others go on",
                      seen=text)
        cluster.until(lambda: not self.cluster.ask("squeue", "-h").strip(), "all elements are over")
        self.assert_resumed_and_trained(text(), ranks=2)

    def test_the_jobs_of_an_array_join_at_a_ddpd_and_a_lost_one_is_replaced(self):
        with ddpd_process.Ddpd() as ddpd:
            job = self.join_by_array(ENDPOINT=f"127.0.0.1:{ddpd.port}")
            before = len(self.started)
            self.cluster.run("scancel", "-s", "KILL", f"{job}_1")
            self.assertEqual(worlds(self.until_started(before + 2)[before:]), ["0/2", "1/2"])
            before = len(self.started)
            self.cluster.run("scontrol", "requeue", f"{job}_1")
            cluster.until(lambda: worlds(self.started[before:]) == ["0/3", "1/3", "2/3"], "the element is back")
            self.go()
            cluster.until(lambda: not self.cluster.ask("squeue", "-h").strip(), "all elements are over")

    def test_the_jobs_of_an_array_go_on_without_the_node_that_hosts_and_take_it_back(self):
        """Where a folder says who hosts, it may be any; Slurm requeues its element, which comes back on the same node."""
        folder = self.path / "host"
        folder.mkdir(0o700)
        job = self.join_by_array(elements=4, options=["--exclusive"], ENDPOINT=f"file:{folder}")
        hosting = [f"{job}_{k}" for k in range(4) if "this node hosts the run at" in self.output(f"{job}_{k}")]
        self.assertEqual(len(hosting), 1, "one element hosts")
        node = self.cluster.ask("squeue", "-h", "-j", hosting[0], "-o", "%N").strip()
        before = len(self.started)
        self.addCleanup(self.revive, node)
        self.cluster.kill(node)
        before = self.until_world(3, since=before)
        self.cluster.run("scontrol", "update", f"nodename={node}", "state=down", "reason=test")
        self.cluster.start_node(node)
        self.cluster.ask("scontrol", "update", f"nodename={node}", "state=resume")
        self.until_world(4, since=before)
        self.assertEqual(sum(line.startswith(f"{node} ") for line in self.started[before:]), 1)
        self.go()
        cluster.until(lambda: not self.cluster.ask("squeue", "-h").strip(), "all elements are over")


if __name__ == "__main__":
    unittest.main(verbosity=2)
