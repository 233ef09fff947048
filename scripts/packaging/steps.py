# SPDX-License-Identifier: BSD-3-Clause
"""Steps of making a package: a command with its output in a log, a folder that is made whole."""

import os
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager


class Failed(Exception):
    """A step did not work; the text is one line for the user."""


class NotFetched(Failed):
    """What is needed from a package registry could not be had."""


def say(text):
    print(f"package: {text}", file=sys.stderr, flush=True)


def run(command, log, *, cwd=None, env=None, shows=False):
    """Runs `command` with its output at the end of the file `log`; raises Failed where it fails.

    `shows`: the output goes to the terminal instead, where stderr is one, so that it is seen how far a long step is."""
    command = [str(word) for word in command]
    log.parent.mkdir(parents=True, exist_ok=True)
    shows = shows and sys.stderr.isatty()
    with log.open("a", encoding="utf-8") as output:
        print("+", *command, "(its output went to the terminal)" if shows else "", file=output, flush=True)
        stream = sys.stderr if shows else output
        try:
            ended = subprocess.run(command, cwd=cwd, env=env, stdin=subprocess.DEVNULL,
                                   stdout=stream, stderr=stream, check=False)
        except OSError as error:
            raise Failed(f"could not run {command[0]}: {error.strerror}") from None
    if ended.returncode != 0:
        details = "details above" if shows else f"details: {log}"
        raise Failed(f"{' '.join(command[:3])} ... failed with status {ended.returncode} ({details})")


def output_of(command, *, cwd=None):
    """What `command` prints; raises Failed where it fails."""
    command = [str(word) for word in command]
    try:
        ended = subprocess.run(command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    except OSError as error:
        raise Failed(f"could not run {command[0]}: {error.strerror}") from None
    if ended.returncode != 0:
        last = (ended.stderr.strip().splitlines() or ["nothing on stderr"])[-1]
        raise Failed(f"{' '.join(command)} failed: {last}")
    return ended.stdout


@contextmanager
def made_whole(folder):
    """Gives a new folder to fill; it becomes `folder` at the end of the block, and goes where that fails."""
    scratch = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    try:
        yield scratch
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)
    scratch.rename(folder)


def project_version(root):
    """"0.1.0", as the top CMakeLists.txt has it."""
    text = (root / "CMakeLists.txt").read_text(encoding="utf-8")
    found = re.search(r"^project\(ddprun VERSION ([0-9.]+)", text, re.MULTILINE)
    if found is None:
        raise Failed("CMakeLists.txt names no version")
    return found[1]


def source_time(root):
    """The time of all that a package holds, in seconds since 1970: $SOURCE_DATE_EPOCH, else that of
    the commit, so that a second build gives the same bytes."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given:
        if not given.isdigit():
            raise Failed(f"SOURCE_DATE_EPOCH={given} is not a number of seconds")
        return int(given)
    if not (root / ".git").exists():
        raise Failed("there is no commit here whose time the files could have: set SOURCE_DATE_EPOCH, in seconds")
    return int(output_of(["git", "log", "-1", "--format=%ct"], cwd=root))
