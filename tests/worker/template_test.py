# SPDX-License-Identifier: BSD-3-Clause
"""worker/process/template.py by itself, with a Python in the agent's place.

What a program sees is compared with a cold start of the same command line."""

import array
import ctypes
import importlib.util
import io
import mmap
import os
import pathlib
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
import venv
import zipfile

SOURCE = pathlib.Path(__file__).resolve().parents[2] / "worker/process/template.py"
CONTROL, ARCHIVE = 4, 5
LIMIT = 60  # seconds; far beyond what anything here takes
PYTHON = os.environ.get("TEMPLATE_PYTHON", sys.executable)
PR_SET_CHILD_SUBREAPER = 36
VARIABLES = ("RANK", "LOCAL_RANK", "MASTER_PORT")


def load(source=SOURCE):
    spec = importlib.util.spec_from_file_location(source.stem, source)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def archive():
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_STORED) as out:
        out.writestr("sitecustomize.py", SOURCE.read_text())
        for name in ("memory", "pages", "program", "random"):
            out.writestr(f"ddprun_{name}.py", SOURCE.with_name(f"template_{name}.py").read_text())
    file = os.memfd_create("archive", 0)
    os.write(file, data.getvalue())
    return file


class Output:
    """A file, or a pipe that holds what a small program writes."""

    def __init__(self, is_pipe):
        self.source, self.file = os.pipe() if is_pipe else (None, os.memfd_create("out", 0))

    def take(self):
        if self.source is None:
            text = os.pread(self.file, 1 << 20, 0)
            os.close(self.file)
            return text
        os.close(self.file)
        with open(self.source, "rb") as source:
            return source.read()


class Warm:
    """A template, as the agent has one."""

    def __init__(self, case, arguments, folder, imports=(), env=None, python=PYTHON, manner=("0",)):
        self.folder = folder
        self.env = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"),
                    "PYTHONDONTWRITEBYTECODE": "1", **(env or {})}
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        case.addCleanup(self.control.close)
        zipped, self.text = archive(), os.memfd_create("text", 0)
        case.addCleanup(os.close, self.text)
        case.addCleanup(os.close, zipped)
        path = self.env.get("PYTHONPATH", "")
        begun = {**self.env, "PYTHONPATH": "/proc/self/fd/5" + (":" + path if path else "")}
        self.arguments = [python, "-u", *arguments]
        fields = [str(len(self.arguments)), *self.arguments, str(len(imports)), *imports, str(len(VARIABLES)), *VARIABLES, *manner]
        self.control.send("\0".join(fields).encode())

        def place():
            high = [os.dup2(fd, 1030 + i, inheritable=False) for i, fd in enumerate((theirs.fileno(), zipped, self.text))]
            for fd, number in zip(high, (CONTROL, ARCHIVE, 1)):
                os.dup2(fd, number)
            os.dup2(1, 2)
            os.closerange(6, 1024)
            os.close(3)
            os.setsid()

        self.process = subprocess.Popen([python, "-u", "-c", "pass"], env=begun, cwd=folder, stdin=subprocess.DEVNULL,
                                        close_fds=False, preexec_fn=place)
        case.addCleanup(self.process.wait)
        case.addCleanup(self.process.kill)
        theirs.close()

    def hear(self):
        if not select.select([self.control], [], [], LIMIT)[0]:
            raise AssertionError("the template says nothing")
        try:
            return self.control.recv(65536).decode()
        except ConnectionResetError:  # it has not read what it was sent
            return ""

    def said(self):
        return os.pread(self.text, 65536, 0).decode()

    def ready(self):
        heard = self.hear()
        if not heard.startswith("R"):
            raise AssertionError(heard + self.said())
        return heard

    def fork(self, count):
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(count)]
        theirs = array.array("i", [pair[1].fileno() for pair in pairs])
        self.control.sendmsg([b"F"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, theirs)])
        heard = self.hear()
        for pair in pairs:
            pair[1].close()
        if not heard.startswith("F"):
            return heard, []
        return [int(pid) for pid in heard[1:].split()], [pair[0] for pair in pairs]

    def run(self, count=1, variables=None, is_pipe=False):
        """Exit status, stdout and stderr of each worker."""
        return self.begin(*self.fork(count), variables, is_pipe)

    def begin(self, pids, sockets, variables=None, is_pipe=False):
        """The same of those that have been forked."""
        results = []
        for rank, (pid, own) in enumerate(zip(pids, sockets)):
            outs = [Output(is_pipe), Output(is_pipe)]
            files = [outs[0].file, outs[1].file, os.memfd_create("variables", 0)]
            given = {**self.env, "RANK": str(rank), **(variables or {})}
            os.write(files[2], b"\0".join(f"{k}={v}".encode() for k, v in given.items()) + b"\0")
            own.sendmsg([b"G"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))])
            _, status = os.waitpid(pid, 0)
            if own.recv(4) != bytes(4) or own.recv(4):
                raise AssertionError("a worker has failed to begin")
            own.close()
            os.close(files[2])
            results.append((status, outs[0].take(), outs[1].take()))
        return results

    def cold(self, variables=None, is_pipe=False):
        out, err = Output(is_pipe), Output(is_pipe)
        given = {**self.env, "RANK": "0", **(variables or {})}
        process = subprocess.Popen(self.arguments, env=given, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=out.file,
                                   stderr=err.file, start_new_session=True)
        code = process.wait(LIMIT)
        return (code << 8 if code >= 0 else -code, out.take(), err.take())


class TemplateCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="ddprun-template-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def file(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return str(path)

    def warm(self, text, arguments=(), **extra):
        self.file("train.py", text)
        return Warm(self, ["train.py", *arguments], str(self.folder), **extra)

    maxDiff = None

    def is_the_same(self, text, arguments=(), **extra):
        warm = self.warm(text, arguments, **extra)
        warm.ready()
        for is_pipe in (True, False):
            (seen,) = warm.run(is_pipe=is_pipe)
            cold = warm.cold(is_pipe=is_pipe)
            self.is_equal(seen, cold)
        return seen

    def is_equal(self, seen, cold):
        self.assertEqual([str(part).split('\\n') for part in seen], [str(part).split('\\n') for part in cold])


class SameTest(TemplateCase):
    def test_what_a_program_finds(self):
        status, out, err = self.is_the_same(
            """
            import gc, io, json, locale, os, resource, signal, subprocess, sys, threading
            print(__name__, __file__, __doc__, __package__, __spec__, type(__loader__), sorted(globals()))
            print(sys.argv, sys.path, sys.flags, sys.orig_argv if hasattr(sys, 'orig_argv') else 0, sys.executable)
            print(sys.warnoptions, sys.getrecursionlimit(), sys.getswitchinterval(), locale.setlocale(locale.LC_ALL))
            print(list(os.environ.items()))
            print(subprocess.run(['sh', '-c', 'env | grep -v ^_='], stdout=subprocess.PIPE, text=True).stdout)
            print(sorted(os.listdir('/proc/self/fd')), os.listdir('/proc/self/task') == [str(os.getpid())])
            print(os.getpid() == os.getsid(0) == os.getpgrp(), os.getcwd(), os.umask(0o22))
            print(open('/proc/self/comm').read(), open('/proc/self/cmdline').read())
            status = open('/proc/self/status').read().splitlines()
            print([l for l in status if l.startswith(('Sig', 'Shd', 'NoNewPrivs', 'Cpus', 'Name', 'Umask'))
                   and not l.startswith('SigQ')])  # of all processes of this user
            print([(s, signal.getsignal(s)) for s in range(1, 32) if s not in (9, 19)])
            print([resource.getrlimit(n) for n in range(16)], os.getpriority(os.PRIO_PROCESS, 0))
            for stream in (sys.stdin, sys.stdout, sys.stderr):
                raw = getattr(stream.buffer, 'raw', stream.buffer)
                print(stream, stream.fileno(), stream.line_buffering, stream.write_through, stream.mode, stream.errors,
                      stream.seekable(), stream.isatty(), raw, type(stream.buffer), stream is getattr(sys, '__' + stream.name[1:-1] + '__'))
            print(threading.main_thread().native_id == os.getpid(), threading.active_count())
            import atexit, faulthandler, time, warnings
            print(warnings.filters, atexit._ncallbacks(), faulthandler.is_enabled(), gc.isenabled(), gc.get_threshold(), gc.get_freeze_count())
            print(sys.gettrace(), sys.getprofile(), sys.excepthook, sys.unraisablehook, sys.displayhook, threading.excepthook)
            print(sys.get_asyncgen_hooks(), sys.getdlopenflags(), sys.dont_write_bytecode, sys.pycache_prefix, sys._xoptions)
            print([type(finder).__name__ if not isinstance(finder, type) else finder for finder in sys.meta_path], len(sys.path_hooks))
            print([signal.getitimer(n) for n in range(3)], os.sched_getscheduler(0), os.times().children_user, time.tzname)
            print('sitecustomize' in sys.modules, sys.modules.get('site') is not None, sys.path_importer_cache.keys() >= set())
            depth, frame = 0, sys._getframe()
            while frame: depth, frame = depth + 1, frame.f_back
            print('frames', depth)
            """.replace("\n            import gc", "\n            import asyncio, gc"), ["--lr", "0.1"])
        self.assertIn(b"frames 1\n", out)
        self.assertEqual((status, err), (0, b""))

    def test_how_a_program_ends(self):
        for end in ("pass", "raise SystemExit(3)", "raise SystemExit('a text')", "raise ValueError('no data')",
                    "import os; os._exit(7)", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
                    "import os; os.abort()", "import atexit; atexit.register(print, 'bye'); 1 / 0",
                    "raise KeyboardInterrupt", "import traceback; traceback.print_stack()", "x ==",
                    "import no_such_module", "import faulthandler; faulthandler.dump_traceback()",
                    "def f(): f()\nf()"):
            with self.subTest(end):
                warm = self.warm(end)
                warm.ready()
                (seen,), cold = warm.run(), warm.cold()
                plain = [re.sub(rb"thread 0x[0-9a-f]+", b"thread", text) for text in seen[1:]]
                core = seen[0] & 0x80  # which Popen does not tell
                self.assertEqual((seen[0] - core, *plain), (cold[0], *(re.sub(rb"thread 0x[0-9a-f]+", b"thread", t) for t in cold[1:])))

    def test_a_module_and_its_package(self):
        self.file("pkg/__init__.py", "import json")
        self.file("pkg/__main__.py", "import sys; from . import other; print(__name__, __package__, __spec__.name, sys.argv, sys.path)")
        self.file("pkg/other.py", "import decimal, os; print('RANK' in os.environ)")
        for arguments in (["-m", "pkg"], ["-m", "pkg.__main__", "x"], ["pkg"]):
            with self.subTest(arguments):
                warm = Warm(self, arguments, str(self.folder))
                warm.ready()
                (seen,) = warm.run()
                self.assertEqual(seen, warm.cold())
                warm.process.kill()

    def test_a_module_of_a_library(self):
        self.file("lib/site-packages/pkg/__init__.py", "import decimal")
        self.file("lib/site-packages/pkg/__main__.py", "import sys; from . import part; print(__name__, __package__, __spec__.name, sys.argv)")
        self.file("lib/site-packages/pkg/train.py",
                  "import os, sys\nseen = [n in sys.modules for n in ('colorsys', 'pkg.part', 'pkg.train')]\nfrom . import part\nimport colorsys\n"
                  "print(__name__, __package__, __spec__.name, sys.argv, sys.path)\nif 'SEEN' in os.environ: print(seen)\n")
        self.file("lib/site-packages/pkg/part.py", "import wave")
        env = {"PYTHONPATH": str(self.folder / "lib/site-packages")}
        for module in ("pkg.train", "pkg"):
            with self.subTest(module):
                warm = Warm(self, ["-m", module, "x"], str(self.folder), env=env)
                warm.ready()
                (seen,) = warm.run()
                self.assertEqual(seen, warm.cold())
                if module == "pkg.train":
                    self.assertTrue(warm.run(variables={"SEEN": "1"})[0][1].endswith(b"[True, True, False]\n"))
                warm.process.kill()

    def test_a_module_of_a_library_that_the_library_imports(self):
        self.file("lib/site-packages/pkg/__init__.py", "")
        self.file("lib/site-packages/pkg/train.py", "from . import part; open('ran', 'w')")
        self.file("lib/site-packages/pkg/part.py", "import pkg.train")
        warm = Warm(self, ["-m", "pkg.train"], str(self.folder), env={"PYTHONPATH": str(self.folder / "lib/site-packages")})
        self.assertEqual(warm.hear(), "Na library imports pkg.train, the program itself")

    def test_imports_of_the_program_and_its_files(self):
        self.file("model.py", "import decimal\nfrom colorsys import *\ndef f():\n    import wave\n")
        warm = self.warm(
            """
            import sys
            from email import message
            before = {n for n in ('decimal', 'colorsys', 'email.message', 'wave', 'model', 'chunk') if n in sys.modules}
            import model
            try:
                import no_such_module
            except ImportError:
                pass
            print(sorted(before))
            """, imports=("mailbox",))
        warm.ready()
        self.assertEqual(warm.run()[0][1], b"['colorsys', 'decimal', 'email.message']\n")

    def test_options_of_python(self):
        self.is_the_same(
            "import sys, warnings; print(sys.flags, sys.warnoptions, warnings.filters, sys.stdout.encoding, sys.getrecursionlimit());"
            "warnings.warn('one'); warnings.warn('old', DeprecationWarning)",
            env={"PYTHONWARNINGS": "error::UserWarning,ignore::DeprecationWarning", "PYTHONOPTIMIZE": "1",
                 "PYTHONIOENCODING": "latin-1", "PYTHONFAULTHANDLER": "1"})

    def test_a_module_that_sets_what_all_share(self):
        self.file("lib/shared.py", "import sys, warnings\nsys.setrecursionlimit(3000)\nwarnings.simplefilter('error')\n")
        self.is_the_same("import shared, sys, warnings; print(sys.getrecursionlimit(), warnings.filters)", imports=("shared",),
                         env={"PYTHONPATH": str(self.folder / "lib")})

    def test_what_is_imported_comes_to_no_less(self):
        warm = self.warm("import os, sys; before = sorted(sys.modules); import json; os.write(1, str(before).encode())")
        warm.ready()
        (seen,), cold = warm.run(), warm.cold()
        missing = set(eval(cold[1])) - set(eval(seen[1]))
        self.assertEqual(missing, set())

    def test_a_crash_with_a_fault_handler(self):
        _, _, err = self.is_the_same_but_for_addresses(
            "import ctypes, faulthandler, sys\nfaulthandler.enable()\ndef crash():\n    ctypes.string_at(0)\ncrash()\n")
        self.assertIn(b"Segmentation fault", err)
        self.assertIn(b"in crash", err)

    def is_the_same_but_for_addresses(self, text):
        warm = self.warm(text)
        warm.ready()
        (seen,), cold = warm.run(), warm.cold()
        plain = [(run[0] & ~0x80, run[1], re.sub(rb"hread 0x[0-9a-f]+|Extension modules:.*\n", b"", run[2])) for run in (seen, cold)]
        self.assertEqual(plain[0], plain[1])
        return seen

    def test_a_worker_leaves_nothing_to_the_next(self):
        script = """
            import atexit, json, os, resource, sys, threading, time, warnings
            print(os.getcwd(), resource.getrlimit(resource.RLIMIT_NOFILE), resource.getrlimit(resource.RLIMIT_CORE), os.umask(0o27))
            print(threading.active_count(), json.dumps([1]), len(json.__dict__), os.nice(0), warnings.filters, sys.getrecursionlimit())
            print(sorted(os.listdir('/proc/self/fd')), os.environ.get('LEFT'), sys.path, signal_of())
            """.replace("signal_of()", "__import__('signal').getsignal(10)") + """
            __import__('signal').signal(10, lambda *_: None)
            os.chdir('/'); os.umask(0); os.environ['LEFT'] = '1'; sys.path.insert(0, '/left'); sys.setrecursionlimit(77_000)
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)); resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); os.nice(3)
            json.dumps = json.loads = None; json.left = 1; warnings.simplefilter('ignore'); kept = open('/dev/null')
            threading.Thread(target=time.sleep, args=(0.01,)).start()
            def fork():
                if os.fork() == 0:
                    print('forked at the end')
                    os._exit(0)
                os.wait()
            atexit.register(fork)
            """
        warm = self.warm(script)
        warm.ready()
        first, second, cold = warm.run(is_pipe=True), warm.run(is_pipe=True), warm.cold(is_pipe=True)
        self.is_equal(first[0], cold)
        self.is_equal(second[0], cold)
        self.assertIn(b"forked at the end", cold[1])

    def test_a_module_that_cannot_be_imported_twice(self):
        self.file("lib/once.py", "import builtins\nif hasattr(builtins, 'once'):\n    raise RuntimeError('again')\nbuiltins.once = 1\n")
        warm = self.warm("import once, sys; print(once.__name__); del sys.modules['once']; import once", imports=("once",),
                         env={"PYTHONPATH": str(self.folder / "lib")})
        warm.ready()
        for _ in range(2):
            self.is_equal(warm.run()[0], warm.cold())

    def test_packages_of_another_environment(self):
        self.file("base/site-packages/library.py", "")
        warm = self.warm("import sys; found = 'library' in sys.modules; import library; print(found)",
                         env={"PYTHONPATH": str(self.folder / "base/site-packages")})
        warm.ready()
        self.assertEqual(warm.run()[0][1], b"True\n")

    def test_environment_that_imports_change(self):
        self.file("lib/setter.py", "import os\nos.environ.setdefault('FROM_IMPORT', '1')\nos.environ.pop('GIVEN', 0)\n"
                  "os.environb[b'BYTES'] = b'\\xff'\n")
        self.is_the_same("import setter, os; print(dict(os.environ))", imports=("setter",),
                         env={"PYTHONPATH": str(self.folder / "lib"), "GIVEN": "x"})

    def test_randomness(self):
        warm = self.warm("import random, multiprocessing.process as p\n"
                         "print(random.random(), bytes(p.current_process().authkey).hex(), hash('x'))\n")
        warm.ready()
        first, second = (run[1].split() for run in warm.run(2))
        self.assertNotEqual(first[0], second[0])
        self.assertNotEqual(first[1], second[1])
        self.assertEqual(first[2], second[2], "the hash seed is the template's: README says so")
        fixed = self.is_the_same("import random; random.seed(5); print(random.random(), hash('x'))",
                                 env={"PYTHONHASHSEED": "3"})
        self.assertEqual(fixed[0], 0)

    def test_random_numbers_that_an_import_has_fixed(self):
        """They are fixed in a worker, too; draws alone fix nothing."""
        script = "import library, random; print(random.random(), random.gauss(0, 1))"
        for text in ("random.seed(5)", "random.seed(5); [random.random() for _ in range(2000)]", "random.setstate(random.Random(5).getstate())"):
            with self.subTest(text):
                self.file("lib/library.py", "import random; " + text)
                self.is_the_same(script, imports=("library",), env={"PYTHONPATH": str(self.folder / "lib")})
        self.file("lib/library.py", "import random; [random.random() for _ in range(2000)]")
        warm = self.warm(script, imports=("library",), env={"PYTHONPATH": str(self.folder / "lib")})
        warm.ready()
        self.assertEqual(len({run[1] for run in warm.run(2) + warm.run(2)}), 4)

    def test_random_numbers_that_an_import_has_not_fixed(self):
        """All workers have others, whatever it does."""
        for text in ("random.seed(); random.random()", "random.seed(None)", "random.seed(5); random.seed(); random.random()",
                     "state = random.getstate(); random.seed(5); random.setstate(state)", "random.Random(5)"):
            with self.subTest(text):
                self.file("lib/library.py", "import random; " + text)
                warm = self.warm("import library, random; print(random.random(), type(random._inst), random.Random.__subclasses__())",
                                 imports=("library",), env={"PYTHONPATH": str(self.folder / "lib")})
                warm.ready()
                first, second = (run[1].split(b" ", 1) for run in warm.run(2))
                self.assertNotEqual(first[0], second[0])
                self.assertEqual(first[1], warm.cold()[1].split(b" ", 1)[1])

    @unittest.skipUnless(importlib.util.find_spec("numpy"), "this Python has no numpy")
    def test_numbers_of_numpy_that_an_import_has_fixed(self):
        script = ("import library, numpy; m = numpy.random.mtrand\n"
                  "print(numpy.random.rand(), type(m._rand._bit_generator), type(m.__loader__), type(m.__spec__.loader))\n")
        for text, number in (("numpy.random.seed(5)", 1), ("numpy.random.seed(5); numpy.random.rand()", 1), ("numpy.random.seed()", 2),
                             ("numpy.random.rand()", 2), ("numpy.random.seed([1, 2, 3])", 1), ("numpy.random.seed(); numpy.random.rand(700)", 2),
                             ("s = numpy.random.get_state(); numpy.random.seed(5); numpy.random.set_state(s)", 2),
                             ("numpy.random.set_state(numpy.random.RandomState(5).get_state())", 1)):
            with self.subTest(text):
                self.file("lib/library.py", "import numpy; " + text)
                warm = self.warm(script, imports=("library",), env={"PYTHONPATH": str(self.folder / "lib"), "OMP_NUM_THREADS": "1"})
                warm.ready()
                drawn = {run[1] for run in warm.run(2)}
                self.assertEqual(len(drawn), number)
                if number == 1:
                    self.assertEqual(drawn, {warm.cold()[1]})

    @unittest.skipUnless(importlib.util.find_spec("torch"), "this Python has no torch")
    def test_numbers_of_torch_that_an_import_has_fixed(self):
        script = "import library, torch; print(torch.initial_seed(), torch.rand(1).item())"
        env = {"PYTHONPATH": str(self.folder / "lib"), "OMP_NUM_THREADS": "1"}
        for text, number in (("torch.manual_seed(5); torch.rand(1)", 1), ("torch.rand(1)", 2)):
            with self.subTest(text):
                self.file("lib/library.py", "import torch; " + text)
                warm = self.warm(script, imports=("library",), env=env, manner=("1", "urgent"))
                warm.ready()
                drawn = {run[1] for run in warm.run(2)}
                self.assertEqual(len(drawn), number)
                if number == 1:
                    self.assertEqual(drawn, {warm.cold()[1]})
        self.file("lib/library.py", "import torch; torch.manual_seed(2**40)")
        self.assertEqual(self.warm(script, imports=("library",), env=env, manner=("1", "urgent")).hear(),
                         "Ntorch's random generator has a seed of 64 bits from an import")

    def test_a_variable_that_torch_sets_again_where_it_needs_it(self):
        self.file("lib/setter.py", "import os\nos.environ['TORCHINDUCTOR_CACHE_DIR'] = '/tmp/x'\n")
        warm = self.warm("import setter, os; print(os.environ.setdefault('TORCHINDUCTOR_CACHE_DIR', 'of the script'))", imports=("setter",),
                         env={"PYTHONPATH": str(self.folder / "lib")})
        warm.ready()
        self.assertEqual(warm.run()[0], (0, b"of the script\n", b""))

    def test_processes_of_its_own(self):
        self.is_the_same(
            """
            import multiprocessing
            def work(x): return x * x
            if __name__ == '__main__':
                for method in ('fork', 'spawn', 'forkserver'):
                    with multiprocessing.get_context(method).Pool(2) as pool:
                        print(method, pool.map(work, range(4)))
            """)

    def test_a_real_sitecustomize(self):
        self.file("lib/sitecustomize.py", "import os; os.environ['SITE'] = '1'; found = 1")
        self.is_the_same("import os, sys; print(os.environ['SITE'], sys.modules['sitecustomize'].found, sys.path)",
                         env={"PYTHONPATH": str(self.folder / "lib")})

    def test_many_forks(self):
        warm = self.warm("import os; os._exit(len(os.listdir('/proc/self/fd')))")
        warm.ready()

        def held():
            status = (pathlib.Path("/proc") / str(warm.process.pid) / "status").read_text()
            return len(os.listdir(f"/proc/{warm.process.pid}/fd")), int(re.search(r"VmData:\s+(\d+)", status)[1])

        self.assertEqual([run[0] >> 8 for run in warm.run(2)], [4, 4])
        files, kib = held()
        for _ in range(200):
            self.assertEqual([run[0] >> 8 for run in warm.run()], [4])
        self.assertEqual(held()[0], files)
        self.assertLess(held()[1] - kib, 512)  # 200 times the file list alone would be more

    def test_forks_that_wait(self):
        warm = self.warm("import os; os.write(1, os.environ['RANK'].encode())")
        warm.ready()
        waiting = warm.fork(2)
        warm.control.send(b"K")
        self.assertEqual(warm.hear(), "K")
        self.assertEqual([os.getsid(pid) for pid in waiting[0]], [warm.process.pid] * 2)
        self.assertEqual([run[1] for run in warm.begin(*waiting)], [b"0", b"1"])

    def test_it_ends_with_the_agent(self):
        warm = self.warm("pass")
        warm.ready()
        warm.control.close()
        self.assertEqual(warm.process.wait(LIMIT), 0)

    def test_a_worker_that_is_not_wanted_ends(self):
        warm = self.warm("open('ran', 'w')")
        warm.ready()
        pids, sockets = warm.fork(2)
        for own in sockets:
            own.close()
        self.assertEqual([os.waitpid(pid, 0)[1] >> 8 for pid in pids], [127, 127])
        self.assertFalse((self.folder / "ran").exists())


def joins_pages():
    """Whether this kernel does at all."""
    pages = load(SOURCE.with_name("template_pages.py"))
    libc = ctypes.CDLL(None)
    libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    with mmap.mmap(-1, 2 * pages.LARGE, flags=mmap.MAP_PRIVATE) as area:
        area.write(b"1" * len(area))
        first = ctypes.c_char.from_buffer(area)
        at = -(-ctypes.addressof(first) // pages.LARGE) * pages.LARGE
        del first
        return pages.is_enabled() and libc.madvise(at, pages.LARGE, pages.MADV_COLLAPSE) == 0


class PagesTest(TemplateCase):
    SCRIPT = """
        import hashlib, big
        big.data[100] += b"own"
        print(hashlib.sha256(b"".join(big.data)).hexdigest())
        """

    def large_kib(self, pid):
        rollup = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
        return int(re.search(r"AnonHugePages: +(\d+)", rollup)[1])

    @unittest.skipUnless(joins_pages(), "this kernel does not join pages")
    def test_memory_in_large_pages(self):
        self.file("lib/big.py", "data = [bytes([i % 251]) * 1000 for i in range(24_000)]")
        warm = self.warm(self.SCRIPT, imports=("big",), env={"PYTHONPATH": str(self.folder / "lib")})
        warm.ready()
        self.assertGreater(self.large_kib(warm.process.pid), 12_000)
        waiting = warm.fork(1)
        self.assertGreater(self.large_kib(waiting[0][0]), 12_000)
        (seen,) = warm.begin(*waiting)
        self.is_equal(seen, warm.cold())
        self.is_equal(warm.run()[0], seen)  # the one before has changed only its own

    @unittest.skipUnless(joins_pages(), "this kernel does not join pages")
    def test_little_memory_comes_to_no_more(self):
        """One page is used of each large one."""
        self.file("lib/sparse.py", """
            import ctypes
            libc = ctypes.CDLL(None)
            libc.mmap.restype = ctypes.c_void_p
            libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
            at = libc.mmap(None, 1 << 30, 3, 0x22 | 0x4000, -1, 0)  # private, anonymous, no reserve
            for page in range(at, at + (1 << 30), 2 << 20):
                ctypes.memset(page, 1, 1)
            """)
        warm = self.warm("pass", imports=("sparse",), env={"PYTHONPATH": str(self.folder / "lib")})
        warm.ready()
        self.assertLess(self.large_kib(warm.process.pid), 100_000)

    def test_what_lies_next_to_each_other(self):
        pages = load(SOURCE.with_name("template_pages.py"))
        step = pages.LARGE
        self.assertEqual(list(pages.joined([])), [])
        self.assertEqual(list(pages.joined([0])), [(0, step)])
        self.assertEqual(list(pages.joined([step, 2 * step, 5 * step])), [(step, 2 * step), (5 * step, step)])

    def test_where_the_machine_has_none(self):
        pages = load(SOURCE.with_name("template_pages.py"))
        pages.ENABLED = self.file("enabled", "always madvise [never]")
        self.assertFalse(pages.is_enabled())
        pages.join_pages(None)  # asks for nothing
        pages.ENABLED = str(self.folder / "missing")
        self.assertFalse(pages.is_enabled())

    def test_where_the_kernel_says_nothing_of_pages(self):
        pages = load(SOURCE.with_name("template_pages.py"))
        pages.ENABLED = self.file("enabled", "[always] madvise never")
        pages.PAGEMAP = str(self.folder / "missing")
        pages.join_pages(ctypes.CDLL(None))  # asks for nothing, and does not fail


class LearningTest(TemplateCase):
    """The next template imports what the workers have imported."""

    # No source names the modules.
    IMPORTS = "import importlib, sys, time\nfor name in open('names').read().split(): importlib.import_module(name)\n"

    def worker(self, env=None):
        """One that has imported all, and goes on."""
        self.file("worker.py", self.IMPORTS + "print(flush=True)\ntime.sleep(600)\n")
        process = subprocess.Popen([PYTHON, "-u", "worker.py"], cwd=self.folder, stdout=subprocess.PIPE, env={**os.environ, **(env or {})})
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        process.stdout.readline()
        return process.pid

    def next_of(self, warm, pids):
        """What the next template says of itself; it is in the place of the other one then."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.addCleanup(ours.close)
        files = [os.open(f"/proc/{pid}/{name}", os.O_RDONLY) for pid in pids for name in ("mem", "maps")]
        message = array.array("i", [theirs.fileno(), *files])
        warm.control.sendmsg([b"L"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, message)])
        theirs.close()
        for file in files:
            os.close(file)
        heard = warm.hear()
        self.assertRegex(heard, r"^L \d+$")
        warm.first, warm.control, self.next_pid = warm.control, ours, int(heard[1:])
        ours.send(b"L")
        return warm.hear()

    def learns(self, names, text="", **extra):
        self.file("names", names)
        warm = self.warm(self.IMPORTS + text, **extra)
        warm.ready()
        return warm, self.next_of(warm, [self.worker(extra.get("env"))])

    def test_modules_that_no_source_names(self):
        before = "import sys; print([n in sys.modules for n in ('wave', 'colorsys')])\n"
        self.file("names", "wave colorsys")
        warm = self.warm(before + self.IMPORTS)
        warm.ready()
        self.assertEqual(warm.run()[0], (0, b"[False, False]\n", b""))
        self.assertRegex(self.next_of(warm, [self.worker()]), r"^R\d+ modules? \(.*wave.*\) in .* MB$")
        self.assertEqual(os.getsid(self.next_pid), warm.process.pid)
        warm.process.kill()  # the next one does not need it
        warm.process.wait()
        self.assertEqual([run for run in warm.run(2)], [(0, b"[True, True]\n", b"")] * 2)
        warm.control.close()
        self.assertEqual(os.waitpid(self.next_pid, 0)[1], 0)

    def test_a_worker_is_as_a_cold_one(self):
        warm, heard = self.learns("wave decimal", "import os; print(sorted(os.listdir('/proc/self/fd')), os.nice(0), os.getsid(0) == os.getpid(),"
                                  " open('/proc/self/comm').read(), sys.path, sys.path_importer_cache.keys() >= set())")
        self.assertRegex(heard, "^R")
        self.is_equal(warm.run()[0], warm.cold())

    def test_nothing_new(self):
        self.assertEqual(self.learns("ctypes")[1], "N")  # the template has it itself

    def test_modules_of_the_program_are_not_run(self):
        self.file("mine.py", "open('ran %s' % __name__, 'a').write('x')")
        self.file("mpi4py/__init__.py", "")
        self.assertEqual(self.learns("mine mpi4py")[1], "N")
        self.assertEqual((self.folder / "ran mine").read_text(), "x")  # by the worker

    def test_what_a_fork_must_not_inherit(self):
        self.file("lib/site-packages/busy.py", "import os, socket\nkept = socket.socket()\n")
        env = {"PYTHONPATH": str(self.folder / "lib/site-packages")}
        warm, heard = self.learns("busy", env=env)
        self.assertRegex(heard, "^Na module has left open descriptor .*socket")
        self.assertEqual(os.waitpid(self.next_pid, 0)[1], 0)
        warm.control = warm.first
        self.assertEqual(warm.run(2), [(0, b"", b"")] * 2)  # as before

    def test_what_the_program_sets_before_it_imports_in_functions(self):
        self.file("lib/site-packages/reads.py", "import os, wave\nkept = os.environ.get('MINE')\n")
        env = {"PYTHONPATH": str(self.folder / "lib/site-packages")}
        heard = self.learns("reads", "import os\ndef main(): os.environ['MINE'] = '1'\n", env=env)[1]
        self.assertRegex(heard, "^N.*train.py:[0-9]+ may set MINE, which reads reads when it is imported")
        # In a module of its own, which no source names.
        self.file("sets.py", "import os\nos.environ['MINE'] = '1'\n")
        heard = self.learns("sets reads", env=env)[1]
        self.assertRegex(heard, "^N.*sets.py:2 may set MINE, which reads reads when it is imported")

    def test_numbers_that_a_module_draws(self):
        self.file("lib/site-packages/draws.py", "import random\nkept = random.random()\n")
        env = {"PYTHONPATH": str(self.folder / "lib/site-packages")}
        heard = self.learns("draws", "import random\ndef main(): random.seed(3)\n", env=env)[1]
        self.assertRegex(heard, "^N.*train.py:[0-9]+ may seed a random generator, which draws uses when it is imported")
        self.assertRegex(self.learns("draws", "import torch_random\ndef main(): torch_random.manual_seed(3)\n", env=env)[1], "^R")

    def test_a_worker_that_has_ended(self):
        self.file("names", "")
        warm = self.warm(self.IMPORTS)
        warm.ready()
        child = subprocess.Popen(["sleep", "600"])
        files = [os.open(f"/proc/{child.pid}/{name}", os.O_RDONLY) for name in ("mem", "maps")]
        child.kill()
        child.wait()
        # The descriptors of one that has ended, and those of one that is no Python.
        for given in (files, [os.dup(file) for file in files]):
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            warm.control.sendmsg([b"L"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [theirs.fileno(), *given]))])
            theirs.close()
            self.assertRegex(warm.hear(), "^L")
            ours.send(b"L")
            self.assertEqual(ours.recv(100), b"N")
            ours.close()
            for file in given:
                os.close(file)


class RefusedTest(TemplateCase):
    def refused(self, why, text, **extra):
        warm = self.warm(text, **extra)
        heard = warm.hear()
        self.assertRegex(heard, "^N.*" + why)
        warm.process.wait(LIMIT)
        self.assertFalse((self.folder / "ran").exists())

    def library(self, text, script="import library; open('ran', 'w')"):
        self.file("lib/library.py", text)
        return {"text": script, "imports": ("library",), "env": {"PYTHONPATH": str(self.folder / "lib")}}

    def test_what_a_fork_must_not_inherit(self):
        for why, text in (
                ("has 1 threads|have 1 threads", "import threading, time; threading.Thread(target=time.sleep, args=(600,), daemon=True).start()"),
                ("left open descriptor .*socket", "import socket; kept = socket.socket()"),
                ("stdout or stderr", "print('hello')"),
                ("library reads RANK when it is imported", "import os; rank = os.environ.get('RANK', 0)"),
                ("library reads all variables when it is imported, and keeps ", "import os; kept = dict(os.environ)"),
                ("library reads all variables", "import os; kept = os.environ.copy()"),
                ("library reads all variables", "import os; kept = dict(os.environb)"),
                ("library reads all variables", "import os; kept = list(os.environ.values())"),
                ("library reads all variables", "import os; kept = [k for k in os.environ if k.startswith('MASTER_')]"),
                ("library reads RANK", "import os; kept = [k for k in os.environ if os.environ.get('RANK')]"),
                ("sets RANK", "import os; os.environ['RANK'] = '0'"),
                ("changed the folder", "import os; os.chdir('/')"),
                ("before those in sys.path", "import sys; sys.path.insert(0, '/mine')"),
                ("has set a timer", "import signal; signal.alarm(600)"),
                ("has set a timer", "import signal; signal.setitimer(signal.ITIMER_VIRTUAL, 600)"),
                ("has made a timer", "import ctypes; kept = ctypes.c_void_p(); ctypes.CDLL('librt.so.1').timer_create(1, None, ctypes.byref(kept))"),
                ("has locked memory", "import ctypes; ctypes.CDLL(None).mlock(ctypes.create_string_buffer(9), 9)"),
                ("library cannot be imported beforehand: ValueError: x", "raise ValueError('x')"),
                ("library cannot be imported beforehand: SystemExit", "raise SystemExit('x')"),
                ("library cannot be imported .*: No module named 'no_such_module'", "import no_such_module"),
                ("library cannot be imported beforehand: MemoryError", "raise MemoryError"),
                ("library replaces sys.stdout when", "import sys; sys.stdout = open(1, 'w', closefd=False)"),
                ("library replaces sys.stdout when", "import sys; sys.stdout = None"),
                ("library replaces sys.stdout when", "import sys; sys.stdout.detach()"),
                ("library replaces sys.stderr when", "import codecs, sys; sys.stderr = codecs.getwriter('utf-8')(sys.stderr.buffer)"),
                ("library makes a lock or semaphore when it is imported .*, which all workers would share",
                 "import multiprocessing; kept = multiprocessing.Lock()"),
                ("library makes memory when it is imported ", "import mmap; kept = mmap.mmap(-1, 4096)"),
                ("library makes /.*/library-.* when it is imported, which all workers would share",
                 "import atexit, shutil, tempfile\nkept = tempfile.mkdtemp(prefix='library-')\natexit.register(shutil.rmtree, kept)"),
                ("library makes /", "from tempfile import mkstemp\nimport os\nnumber, kept = mkstemp(dir='.'); os.close(number)"),
                ("train.py names LIBRARY_SETS, which a module sets", "import os; os.environ['LIBRARY_SETS'] = '1'"),
                ("have started process", "import os; os.spawnv(os.P_NOWAIT, '/bin/sh', ['sh', '-c', "
                 "'while kill -0 $PPID; do sleep 0.1; done 2>/dev/null'])")):
            with self.subTest(text):
                self.refused(why, **self.library(text, "import library; open('ran', 'w'); 'LIBRARY_SETS'"))
                for path in self.folder.glob("tmp*"):
                    path.unlink()

    def test_what_a_module_makes_and_removes(self):
        text = ("import mmap, multiprocessing, sys, tempfile\n"
                "sys.stdout.reconfigure(errors='replace')\n"
                "with tempfile.TemporaryDirectory() as folder, tempfile.NamedTemporaryFile() as file: pass\n"
                "mmap.mmap(-1, 4096).close()\n"
                "multiprocessing.Lock()\n")
        warm = self.warm(**self.library(text, "import library, sys, tempfile; print(tempfile._sys is sys)"))
        warm.ready()
        self.assertEqual(warm.run(2), [(0, b"True\n", b"")] * 2)

    def test_what_runs_before_it_and_reads_the_rank(self):
        given = self.library("", "open('ran', 'w')")
        self.file("lib/sitecustomize.py", "import os; rank = os.environ.get('LOCAL_RANK')")
        self.refused("sitecustomize reads LOCAL_RANK when it is imported", **given)
        venv.create(self.folder / "env", symlinks=True, with_pip=False)
        (packages,) = (self.folder / "env").glob("lib/python3*/site-packages")
        python = str(self.folder / "env/bin/python3")
        for lines in ("import os; os.environ['MINE'] = os.environ.get('LOCAL_RANK', '')", "import ranked"):
            (packages / "mine.pth").write_text(lines + "\n")
            (packages / "ranked.py").write_text("import os\nrank = os.getenv('LOCAL_RANK')\n")
            self.refused("(mine.pth|ranked.py), which Python runs at its start, names LOCAL_RANK", "open('ran', 'w')", python=python)
        (packages / "mine.pth").write_text("import os; os.environ['MINE'] = 'LOCAL_RANK of none'\n")
        self.assertRegex(self.warm("", python=python).hear(), "^R")

    def test_what_the_program_sets_before_it_imports(self):
        """A text is there while the modules that follow it are imported, and not in a fork; another value must not be read."""
        self.file("lib/early.py", "import os\nkept = os.environ.get('MINE'), os.environ.get('OTHER'), os.environ.get('LAST')\n")
        self.file("lib/late.py", "import os\nkept = os.environ.get('MINE'), os.environ.get('OTHER'), os.environ.get('LAST')\n")
        packages, env = str(self.folder / "lib"), {"PYTHONPATH": str(self.folder / "lib"), "OTHER": "given", "GONE": "x"}
        # Libraries are what lies in such a folder.
        os.rename(packages, self.folder / "site-packages")
        env["PYTHONPATH"] = str(self.folder / "site-packages")
        warm = self.warm(
            """
            import os
            before = dict(os.environ)
            import early
            os.environ["MINE"] = "1"
            os.environ.setdefault("OTHER", "2")
            if __name__ == "__main__":
                os.environ.update(LAST="3")
            import late
            print(early.kept, late.kept, before.get("MINE"), before.get("LAST"), before.get("OTHER"))
            """, env=env)
        warm.ready()
        (seen,) = warm.run()
        self.is_equal(seen, warm.cold())
        self.assertEqual(seen[1], b"(None, 'given', None) ('1', 'given', '3') None None given\n")
        for change in ("os.environ['MINE'] = str(1)", "if os.getpid() > 0: os.environ['MINE'] = '1'", "os.environ.pop('MINE', None)",
                       "os.environ.setdefault('MINE', '/' + os.environ['RANK'])", "os.environ.update({'MINE': str(1)})"):
            self.refused("train.py:[23] may set MINE, which late reads when it is imported", f"import os\n{change}\nimport late\nopen('ran', 'w')", env=env)
        self.assertRegex(self.warm("import os\nos.environ['UNREAD'] = str(1)\nimport late\n", env=env).hear(), "^R")

    # In all of these MINE may be there when library.py is imported.
    SETTINGS = (
        "os.environ |= {'MINE': '1'}",
        "from os import environ as env\nenv['MINE'] = '1'",
        "import os as o\no.environ['MINE'] = '1'",
        "os.environ['MINE']: str = '1'",
        "os.environ.update([('MINE', '1')])",
        "os.environ.update(dict(MINE='1'))",
        "changes = {'MINE': '1'}\nos.environ.update(changes)",
        "os.environb[b'MINE'] = b'1'",
        "key = 'MINE'\nos.environ[key] = '1'",
        "os.environ['MINE'], x = '1', 2",
        "v = os.environ.setdefault('MINE', '1')",
        "del os.environ['MINE']",
        "try:\n    1 / 0\nexcept ZeroDivisionError:\n    os.environ['MINE'] = '1'",
        "try: pass\nfinally: os.environ['MINE'] = str(1)",
        "class C: os.environ['MINE'] = '1'",
        "for key in ('MINE',): os.environ[key] = '1'",
        "while True:\n    os.environ['MINE'] = '1'\n    break",
        "if os.environ.setdefault('MINE', '1'): pass",
        "def f():\n    os.environ['MINE'] = '1'\nf()",
        "f = lambda: os.environ.update(MINE='1')\nf()",
        "class C:\n    def f(self): os.environ['MINE'] = '1'\nC().f()",
        "class C:\n    def f(self): os.environ['MINE'] = '1'\nc = C()\nc.f()",
        "from unittest import mock\nwith mock.patch.dict(os.environ, {'MINE': '1'}):\n    import library",
        "import helper\nhelper.f()",
        "from helper import *\nf()",
        "def f():\n    import of_f\nf()",
        "os.environ['MINE'] = 'certain'\nos.environ.update(dict(MINE='1'))",
        "if sys.version_info >= (3, 10): exec('pass')\nfor _ in [0]:\n    if 1: os.environ['MINE'] = '1'",
    )

    def program(self, text):
        self.file("lib/library.py", "import os\nkept = os.environ.get('MINE')\n")
        os.rename(self.folder / "lib", self.folder / "site-packages")
        self.file("helper.py", "import os\ndef f():\n    os.environ['MINE'] = '1'\n")
        self.file("of_f.py", "import os\nos.environ['MINE'] = '1'\n")
        return {"text": text, "env": {"PYTHONPATH": str(self.folder / "site-packages"), "MINE": "0"}}

    def test_ways_to_set_a_variable(self):
        given = self.program("")
        for change in self.SETTINGS:
            with self.subTest(change):
                self.refused("may set MINE, which library reads when it is imported",
                             f"import os, sys\n{change}\nimport library\nopen('ran', 'w')", env=given["env"])

    def test_what_does_not_set_a_variable_before_the_imports(self):
        given = self.program("")
        for text in ("import os\nimport library\nos.environ['MINE'] = str(1)",
                     "import os\ndef f():\n    os.environ['MINE'] = '1'\nimport library\nf()",
                     "import os\nx = os.environ.get('MINE') or os.environ['MINE'] or os.getenv('MINE', '0') if 'MINE' in os.environ else 1\nimport library",
                     "import os\nprint('MINE', os.environ.get('MINE'))\nimport library",
                     "import helper\nimport library\nhelper.f()",
                     "import os\nfor name in ('OTHER', 'HOME'): os.environ[name] = '1'\nimport library",
                     "import os\nif os.environ.get('MINE') == 'MINE': pass\nimport library",
                     "'MINE'\nimport library"):
            with self.subTest(text):
                warm = self.warm(text + "\nprint(library.kept)", env=given["env"])
                warm.ready()
                self.is_equal(warm.run()[0], warm.cold())
                warm.process.kill()

    def test_a_variable_that_is_read_in_c(self):
        """OMP_NUM_THREADS in a function: it matters if the function may be called before torch is imported."""
        self.file("site-packages/torch/__init__.py", "")
        env = {"PYTHONPATH": str(self.folder / "site-packages")}
        change = "import os\ndef f(n): os.environ['OMP_NUM_THREADS'] = str(n)\n"
        self.refused("train.py:2 may set OMP_NUM_THREADS, which a library may read when it is imported",
                     change + "f(2)\nimport torch\nopen('ran', 'w')", env=env)
        self.assertRegex(self.warm("import torch\n" + change + "f(2)", env=env).hear(), "^R")

    def test_seeds_before_imports(self):
        """An import that draws after the program's seed: what the program draws then is shifted."""
        self.file("site-packages/draws.py", "import random\nkept = random.random()\n")
        self.file("site-packages/seeds.py", "import random\nrandom.seed(42)\n")
        self.file("site-packages/quiet.py", "import random\nkept = random.Random(3).random()\n")
        env = {"PYTHONPATH": str(self.folder / "site-packages")}
        for seed in ("random.seed(0)", "from random import seed; seed(0)", "def set_all(): random.seed(0)\nset_all()"):
            for module in ("draws", "seeds"):
                with self.subTest(seed + module):
                    self.refused(f"train.py:[12] may seed a random generator, which {module} uses when it is imported",
                                 f"import random; {seed}\nimport {module}\nopen('ran', 'w')".replace("; def", "\ndef"), env=env)
        for text in ("import random; random.seed(0)\nimport quiet; print(random.random())",
                     "import draws, random; random.seed(0)\nprint(random.random())",
                     "import random, seeds; print(random.random())"):
            with self.subTest(text):
                warm = self.warm(text, env=env)
                warm.ready()
                self.is_equal(warm.run()[0], warm.cold())

    def test_hooks_before_imports(self):
        self.file("site-packages/library.py", "")
        self.file("site-packages/beartype/__init__.py", "")
        self.file("site-packages/beartype/claw.py", "def beartype_this_package(): pass\n")
        env = {"PYTHONPATH": str(self.folder / "site-packages")}
        for hook in ("import sys; sys.meta_path.insert(0, 1)", "import sys; sys.meta_path.append(1)",
                     "from beartype.claw import beartype_this_package; beartype_this_package()",
                     "import typeguard; typeguard.install_import_hook('mine')",
                     "from jaxtyping import install_import_hook\nwith install_import_hook('mine', 'x'): import library"):
            with self.subTest(hook):
                self.refused("train.py:[12] may change how modules are imported", f"{hook}\nimport library\nopen('ran', 'w')", env=env)
        self.assertRegex(self.warm("import library, sys\nsys.meta_path.append(sys.meta_path[-1])", env=env).hear(), "^R")

    def test_a_module_that_looks_for_one_of_the_program(self):
        self.file("site-packages/library.py", "try: import plugin as kept\nexcept ImportError: kept = None\n")
        self.file("site-packages/finds.py", "import importlib.util\nkept = importlib.util.find_spec('plugin') is not None\n")
        env = {"PYTHONPATH": str(self.folder / "site-packages")}
        for name in ("plugin.py", "plugin/__init__.py", "sub/plugin.py"):
            path = pathlib.Path(self.file(name, ""))
            head = "import os, sys; sys.path.append(os.path.join(os.path.dirname(__file__), 'sub'))\n" if name[0] == "s" else ""
            with self.subTest(name):
                self.refused("a library imports plugin from /.*, a part of the program", head + "import library; open('ran', 'w')", env=env)
                warm = self.warm(head + "import finds; print(finds.kept)", env=env)
                warm.ready()
                self.is_equal(warm.run()[0], warm.cold())
                warm.process.kill()
            path.unlink()
        (self.folder / "plugin").rmdir()
        warm = self.warm("import finds; print(finds.kept)", env=env)
        warm.ready()
        self.assertEqual(warm.run()[0][1], b"False\n")
        self.file("plugin.py", "")
        self.assertRegex(warm.fork(1)[0], "^C.*/plugin.py has the name of a library's module")

    def test_a_module_that_keeps_where_another_is(self):
        """The guard is gone from what it keeps."""
        self.file("site-packages/jax.py", "import os\nkept = os.getpid()\n")
        self.file("site-packages/library.py", "import importlib.util\nspec = importlib.util.find_spec('jax')\nloader = spec.loader\n")
        warm = self.warm(
            """
            import importlib.util, library, os
            module = importlib.util.module_from_spec(library.spec)
            library.loader.exec_module(module)
            print(type(library.spec.loader), module.kept == os.getpid(), importlib.util.module_from_spec(library.spec).__loader__)
            """, env={"PYTHONPATH": str(self.folder / "site-packages")})
        warm.ready()
        seen, cold = warm.run()[0], warm.cold()
        plain = [(run[0], re.sub(rb"0x[0-9a-f]+", b"", run[1]), run[2]) for run in (seen, cold)]
        self.assertEqual(plain[0], plain[1])

    def test_a_folder_that_the_program_puts_first(self):
        self.file("third_party/vendored.py", "")
        self.file("site-packages/vendored.py", "")
        self.file("site-packages/user.py", "import vendored\n")
        env = {"PYTHONPATH": str(self.folder / "site-packages")}
        for folder in ("os.path.join(os.path.dirname(os.path.abspath(__file__)), 'third_party')",
                       "str(pathlib.Path(__file__).resolve().parent / 'third_party')"):
            head = f"import os, pathlib, sys\nsys.path.insert(0, {folder})\n"
            warm = self.warm(head + "import vendored; print(vendored.__file__)", env=env)
            warm.ready()
            self.is_equal(warm.run()[0], warm.cold())
            self.refused("third_party/vendored.py has the name of a library's module", head + "import user; open('ran', 'w')", env=env)

    def test_a_python_in_another_process(self):
        wrapper = self.file("python", f'#!/bin/sh\n{PYTHON} "$@"\nexit $?\n')
        os.chmod(wrapper, 0o755)
        self.refused("starts another process as Python", "open('ran', 'w')", python=wrapper)

    def test_a_module_that_looks_for_some_variables(self):
        """It goes through all of them, and keeps none of those that are different in each worker."""
        given = self.library("import os\n"
                             "kept = {k: v for k, v in os.environ.items() if k.startswith('LIBRARY_')}\n"
                             "for name in os.environ: pass\n"
                             "for name, value in os.environb.items(): pass\n",
                             "import library; print(library.kept)")
        given["env"]["LIBRARY_X"] = "7"
        self.assertRegex(self.warm(**given).hear(), "^R")

    def test_a_rank_that_a_module_notes(self):
        """Of a module that is known for it a fork has its own; what reads the rank by that module is refused."""
        self.file("site-packages/lightning_fabric/utilities/rank_zero.py",
                  "import os\n"
                  "def rank():\n"
                  "    return next((int(os.environ[n]) for n in ('RANK', 'LOCAL_RANK') if n in os.environ), 0)\n"
                  "def rank_zero_only(): pass\n"
                  "rank_zero_only.rank = rank()\n")
        module, env = "lightning_fabric.utilities.rank_zero", {"PYTHONPATH": str(self.folder / "site-packages")}
        warm = self.warm(f"import {module} as m; print(m.rank_zero_only.rank)", imports=(module,), env=env)
        warm.ready()
        self.assertEqual([out for _, out, _ in warm.run(2)], [b"0\n", b"1\n"])
        given = self.library(f"from {module} import rank; kept = rank()")
        given["env"]["PYTHONPATH"] += ":" + env["PYTHONPATH"]
        self.refused(module + " reads RANK", **given)

    def test_a_thread_of_jemalloc(self):
        text = ("import threading\n"
                "def rename():\n"
                "    open(f'/proc/self/task/{threading.get_native_id()}/comm', 'w').write('jemalloc_bg_thd')\n"
                "    named.set()\n"
                "    threading.Event().wait()\n"
                "named = threading.Event()\n"
                "threading.Thread(target=rename, daemon=True).start()\n"
                "named.wait()\n")
        self.assertRegex(self.warm(**self.library(text)).hear(), "^R")

    def test_cuda(self):
        self.file("lib/torch/__init__.py", "from . import cuda\n")
        self.file("lib/torch/cuda.py", "def is_initialized(): return True\n")
        self.refused("CUDA is initialised by an import", "import torch; open('ran', 'w')", imports=("torch",),
                     env={"PYTHONPATH": str(self.folder / "lib")})

    def test_a_driver_of_cuda(self):
        """By a library other than torch: refused if it is initialised, and not if it is only loaded."""
        if "FAKE_LIBCUDA" not in os.environ:
            self.skipTest("FAKE_LIBCUDA names no folder with a libcuda.so.1")
        loads = "import ctypes\nkept = ctypes.CDLL('libcuda.so.1')\n"
        for text, heard in ((loads, "^R"), (loads + "kept.cuInit(0)\n", "^NCUDA is initialised by an import$")):
            given = self.library(text)
            given["env"]["LD_LIBRARY_PATH"] = os.environ["FAKE_LIBCUDA"]
            self.assertRegex(self.warm(**given).hear(), heard)

    def test_no_memory_for_a_fork(self):
        self.file("lib/full.py", "import errno, os\nreal, when = os.fork, [0]\ndef fork():\n    if os.path.exists('full'):\n"
                  "        when[0] += 1\n        if when[0] == int(open('full').read()): raise OSError(errno.ENOMEM, 'no memory')\n"
                  "    return real()\nos.fork = fork\n")
        for number, forked in (("1", 0), ("2", 0), ("3", 1)):  # by the template, and by its child
            with self.subTest(number):
                (self.folder / "full").unlink(missing_ok=True)
                warm = self.warm("open('ran', 'w')", imports=("full",), env={"PYTHONPATH": str(self.folder / "lib")})
                warm.ready()
                self.file("full", number)
                answer, sockets = warm.fork(2)
                for own in sockets:
                    own.close()
                if number == "1":
                    self.assertEqual(answer, "Cthe template cannot fork: [Errno 12] no memory")
                else:
                    self.assertEqual([os.waitpid(pid, 0)[1] >> 8 for pid in answer], [127] * forked)
        self.assertFalse((self.folder / "ran").exists())

    def test_a_file_with_the_name_of_a_library(self):
        self.file("json.py", "raise AssertionError")
        self.refused("/json.py has the name", "import email.message, logging.config; open('ran', 'w')", imports=("json",))

    def test_a_module_of_the_program_is_not_run(self):
        # mailbox imports email, of which the program has one of its own in its path.
        self.file("lib/calendar.py", "open('ran', 'w')")
        self.refused("a library imports calendar from .*, a part of the program", "import mailbox",
                     env={"PYTHONPATH": str(self.folder / "lib")})

    def test_a_namespace_package_of_the_program_is_not_run(self):
        self.file("src/model.py", "import os\npid = os.getpid()\n")
        warm = self.warm("import os\nfrom src import model\nprint(model.pid == os.getpid())", env={"PYTHONPATH": "."})
        warm.ready()
        self.assertEqual(warm.run()[0], (0, b"True\n", b""))

    def test_stdin_is_no_script(self):
        warm = Warm(self, ["-"], str(self.folder))
        self.assertEqual(warm.hear(), "Nthe script is no file")

    def test_a_file_that_changes(self):
        self.file("lib/library.py", "value = 1")
        old = time.time() - 100
        os.utime(self.folder / "lib/library.py", (old, old))
        warm = self.warm("import library; print(library.value)", imports=("library",),
                         env={"PYTHONPATH": str(self.folder / "lib")})
        warm.ready()
        self.assertEqual(warm.run()[0][1], b"1\n")
        self.file("lib/library.py", "value = 2")
        heard, _ = warm.fork(1)
        self.assertRegex(heard, "^C.*library.py has been changed")
        self.assertEqual(warm.process.wait(LIMIT), 0)

    def test_the_script_may_change(self):
        warm = self.warm("print(1)")
        warm.ready()
        self.file("train.py", "print(2)")
        self.assertEqual(warm.run()[0][1], b"2\n")

    def test_a_script_that_sets_something_else_now(self):
        """What the template has taken from it is not what a fresh start would find."""
        base = "import os, helper\nimport library\nprint(library.kept, flush=True)\n"
        env = {"PYTHONPATH": str(self.folder / "site-packages")}
        self.file("site-packages/library.py", "import os, random\nkept = os.environ.get('MINE')\n")
        script = "import os\nos.environ['MINE'] = '1'\n" + base
        changes = (("train.py", base, script), ("train.py", script, script.replace("'1'", "'2'")), ("train.py", script, base),
                   ("train.py", script, base + "os.environ['MINE'] = '1'\n"),
                   ("train.py", base, "import os\nos.environ.update(dict(MINE='1'))\n" + base),
                   ("train.py", base, "import sys; sys.path.insert(0, 'mine')\n" + base),
                   ("train.py", base, "import sys; sys.meta_path.append(sys.meta_path[-1])\n" + base),
                   ("helper.py", "", "import os\nos.environ['MINE'] = '1'\n"))
        for name, before, after in changes:
            with self.subTest(name + after):
                self.file("helper.py", "")
                text = base if name == "helper.py" else before
                warm = self.warm(text, env=env)
                warm.ready()
                self.file(name, after)
                heard, sockets = warm.fork(1)
                for own in sockets:
                    own.close()
                self.assertRegex(str(heard), f"^C.*/?{name} has been changed, and what the program does before its imports")
        warm = self.warm(script, env=env)
        warm.ready()
        self.file("train.py", "import os, wave\nos.environ['UNREAD'] = 'x'\n" + script.replace("import os\n", "", 1) + "value = 'new'\n")
        self.is_equal(warm.run()[0], warm.cold())

    def test_a_python_that_looks_for_nothing(self):
        wrapper = self.file("python", f'#!/bin/sh\nexec {PYTHON} -I "$@"\n')
        os.chmod(wrapper, 0o755)
        warm = self.warm("open('ran', 'w')", python=wrapper)
        self.assertEqual(warm.process.wait(LIMIT), 0)
        self.assertEqual(warm.hear(), "")
        self.assertFalse((self.folder / "ran").exists())


class SourcesTest(TemplateCase):
    def test_imports_are_read_from_the_sources(self):
        template, sources = load(), load(SOURCE.with_name("template_program.py"))
        self.file("model.py", "import a.b\nfrom . import x\n")
        self.file("pkg/__init__.py", "from .inner import y\n")
        self.file("pkg/inner.py", "import c\nfrom ..pkg.deep import z\n")
        self.file("pkg/deep.py", "import d\n")
        self.file("space/part.py", "import e\n")
        script = self.file("train.py", """
            from typing import TYPE_CHECKING
            import model, pkg, space.part
            if TYPE_CHECKING:
                import never
            else:
                import f
            try:
                from g import h as i
            except ImportError:
                pass
            def later():
                import j
            """)
        libraries = template.folders_of_libraries()
        program = sources.Program([PYTHON, "-u", script], [], lambda file: template.is_in(file, libraries))
        self.assertEqual([module for module, _ in program.look()], ["typing", "a.b", "c", "d", "e", "f", "g"])


if __name__ == "__main__":
    signal.alarm(20 * LIMIT)
    unittest.main()
