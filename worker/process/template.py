# SPDX-License-Identifier: BSD-3-Clause
"""The template of warm restarts: an interpreter that has imported what the workers import.

worker/process/template.cc starts it with a worker's own command line, and has Python import this
file as `sitecustomize`, the last thing before the script would be run.  Here the interpreter stops:
it imports modules, and waits.  For each worker it forks, and only in the fork does this file return,
so that Python itself runs the script, as in any other start: with the same arguments, `__main__`,
frames, and ways to end.

The template never runs the script and opens nothing: no thread, no descriptor, no CUDA.  If a module
does, or does what is different in each worker, the template says so and ends; the workers are then
started as usual.

With the agent it talks over the descriptor CONTROL, one message at a time:

    agent     0-separated, each with how many there are before it: arguments, modules, the names of
              variables that are different in each worker, and "urgent" if workers wait for it
    template  W and a text, for each module that is not there.  R and a text: it is ready.  N and a
              text: it cannot do it, and has ended
    agent     F, with a socket for each worker to be forked.  They wait for their G
    template  F and their pids, now children of the agent.  C and a text: not any more
    agent     K: are those that wait still of use?
    template  K: they are.  C and a text: not any more, since files have changed
    agent     L, with a socket, and /proc/PID/mem and /proc/PID/maps of each worker: what have they
              imported since?
    template  L and the pid of the next template, a fork of this one.  The socket is its CONTROL, over
              which the agent says L when it may begin

The next template imports what the workers have imported and this one has not.  It says R, or N; no
text after the N: there is nothing to import.  This one serves until the agent ends it.

and with each worker over that worker's socket:

    agent     G, with three descriptors: stdout, stderr, and a file with the environment
    worker    a 0 when all is as it should be, else the errno of what failed, and closes it
"""

import os
import sys

CONTROL = 4
ARCHIVE = "/proc/self/fd/5"  # in PYTHONPATH, with the files of the template in it
COMM = "/proc/self/comm"

# What training programs come to import only in their first steps.
LATER = {
    "torch": (
        "torch._dynamo",  # the first optimizer or DistributedDataParallel
        "torch.distributed",
        "torch.nn.parallel",
        "torch.optim",
        "torch.utils.data",
        "torch.utils.serialization",
        "multiprocessing.popen_fork",  # a DataLoader's processes
        "multiprocessing.queues",
        "multiprocessing.synchronize",
    ),
}

# To import them is to take part in something, as a process of its own.
NEVER = {"cupy", "horovod", "jax", "mpi4py", "pycuda", "ray", "tensorflow"}

# Modules that note a worker's rank when they are imported, at their top level, as an attribute of a function of theirs:
# the function, the attribute, and the variables of which they take the first that is set.  A fork notes its own.
NOTED_RANKS = {
    "lightning.fabric.utilities.rank_zero": ("rank_zero_only", "rank", (b"RANK", b"LOCAL_RANK")),
    "lightning_fabric.utilities.rank_zero": ("rank_zero_only", "rank", (b"RANK", b"LOCAL_RANK")),
    "torchmetrics.utilities.prints": ("rank_zero_only", "rank", (b"LOCAL_RANK",)),
}

# Variables that torch sets when it is imported, and again where it needs them: a fork begins without them, so that a
# script may set them as in a fresh process.
SET_AGAIN = {b"TORCHINDUCTOR_CACHE_DIR"}

# Such variables are read by libraries in C when they are loaded, which nobody sees.
READ_IN_C = ("GOMP_", "KMP_", "MKL_", "OMP_", "OPENBLAS_", "PYTORCH_")
READERS_IN_C = {"numpy", "scipy", "torch"}


class Refused(Exception):
    """Why there can be no warm start."""


def folders_of_libraries():
    """Where modules lie that are no part of the program itself."""
    import site

    found = {os.path.dirname(os.path.realpath(os.__file__))}
    # A .pth file of one environment may lead to the packages of another.
    others = [entry for entry in sys.path if os.path.basename(entry) in ("site-packages", "dist-packages")]
    for folder in (*site.getsitepackages(), site.getusersitepackages(), *others):
        found.add(os.path.realpath(folder))
    return tuple(folder + os.sep for folder in sorted(found))


def is_in(path, folders):
    return os.path.realpath(path).startswith(folders)


class Guard:
    """In sys.meta_path while modules are imported: keeps out what a template must not run."""

    def __init__(self, libraries, allowed, folders, generators=None):
        self.libraries = libraries
        self.allowed = allowed  # top-level modules that the user has named
        self.folders = folders  # of the program, which will be in sys.path
        self.generators = generators
        self.why = ""
        self.missed = set()  # top-level modules that have been looked for, and are not there
        self.changed = []  # specs, with the loaders that they had

    def find_spec(self, name, path=None, target=None):
        if self.generators is not None:
            self.generators.torch.begin()
            if name == self.generators.numpy.MODULE:
                spec = self.spec_of(name, path, target)
                return spec and self.generators.numpy.watched(spec)
        if path is not None or name in self.allowed:
            return None
        spec = self.spec_of(name)
        if spec is None:
            self.missed.add(name)
        elif self.is_kept_out(name, spec):
            self.changed.append((spec, spec.loader))
            spec.loader = KeptOut(self, spec.loader)  # to look for it does no harm
        return spec

    def spec_of(self, name, path=None, target=None):
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None:
                return spec
        if path is not None:
            return None
        finder = sys.modules["_frozen_importlib_external"].PathFinder  # without an import
        return finder.find_spec(name, self.folders)

    def is_kept_out(self, name, spec):
        # A namespace package has folders and no file.
        places = [spec.origin] if spec.has_location else list(spec.submodule_search_locations or ())
        return name in NEVER or not all(is_in(place, self.libraries) for place in places)

    def refuse(self, spec):
        if spec.name in NEVER:
            why = f"{spec.name} cannot be imported beforehand"
        else:
            place = spec.origin or list(spec.submodule_search_locations)[0]
            why = f"a library imports {spec.name} from {place}, a part of the program"
        self.why = self.why or why
        raise ImportError(why)

    def end(self):
        """The imports are done: a module may have kept the specs."""
        for spec, loader in self.changed:
            spec.loader = loader


class KeptOut:
    """The loader of what a Guard keeps out."""

    def __init__(self, guard, loader):
        self.guard, self.loader = guard, loader

    def __getattr__(self, name):
        return getattr(self.loader, name)

    def create_module(self, spec):
        if self.guard in sys.meta_path:
            self.guard.refuse(spec)
        return self.loader.create_module(spec)

    def exec_module(self, module):
        self.loader.exec_module(module)


def shared_mappings():
    """The memory that this process and its forks write in common: what it is a mapping of, by its addresses."""
    found = {}
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        for line in maps:
            fields = line.rstrip("\n").split(None, 5)
            if fields[1][1] == "w" and fields[1][3] == "s":
                found[fields[0]] = fields[5] if len(fields) == 6 else "no file"
    return found


class Effects:
    """What imports do beside to define something, where a fork would have it in common with the others."""

    def __init__(self):
        self.streams = {"stdout": sys.stdout, "stderr": sys.stderr}
        self.mappings = shared_mappings()
        self.importers = {}  # of the mappings that are new, by their addresses
        self.replaced = ""
        self.made = []  # temporary files and folders, with the modules that made them

    def begin(self):
        import tempfile

        self.tempfile = tempfile
        tempfile._sys = self  # a name of its own, which no other module has

    def end(self):
        self.tempfile._sys = sys

    def __getattr__(self, name):  # for tempfile
        return getattr(sys, name)

    def audit(self, event, *arguments):  # for tempfile
        sys.audit(event, *arguments)
        if event in ("tempfile.mkdtemp", "tempfile.mkstemp"):
            frame = sys._getframe(1)
            while frame is not None and frame.f_globals.get("__name__") == "tempfile":
                frame = frame.f_back
            self.made.append((arguments[0], Watched.name_of(frame)))

    def imported(self, module):
        """It has just been."""
        for name, stream in self.streams.items():
            if not self.replaced and (getattr(sys, name) is not stream or not self.is_open(stream)):
                self.replaced = f"{module} replaces sys.{name} when it is imported"
        for addresses in shared_mappings():
            self.importers.setdefault(addresses, module)

    @staticmethod
    def is_open(stream):
        try:
            return stream.fileno() in (1, 2)
        except (OSError, ValueError):
            return False

    def refuse(self):
        """Raises Refused for what is left of it."""
        if self.replaced:
            raise Refused(self.replaced)
        for path, module in self.made:
            if os.path.lexists(path):
                raise Refused(f"{module} makes {os.fsdecode(path)} when it is imported, which all workers would share")
        for addresses, path in shared_mappings().items():
            if addresses not in self.mappings:
                is_lock = os.path.basename(path).startswith("sem.")
                what = "a lock or semaphore" if is_lock else "memory"
                module = self.importers.get(addresses, "a module")
                raise Refused(f"{module} makes {what} when it is imported ({path}), which all workers would share")


class Planted(bytes):
    """A name or a value in os.environ, as one object, bytes or text: who keeps it can be seen."""

    def __init__(self, _):
        self.text = bytes.decode(self, "utf-8", "surrogateescape")

    def decode(self, *_):  # for os.environ
        return self.text

    def __bytes__(self):  # for os.environb
        return self

    def references(self):
        return sys.getrefcount(self), sys.getrefcount(self.text)


class Watched(dict):
    """The data of os.environ, while modules are imported: notes who reads what.

    Who goes through all variables, perhaps for those that begin in some way, finds those that are
    different in each worker, too, with a value that is none.  It must not keep them."""

    def __init__(self, data, names):
        super().__init__(data)
        self.names = names
        self.uncertain = {}  # variables that the program may have set by now: where
        self.read_before = ""  # what has been read of them
        self.asked = set()  # all that are read
        self.planted = {name: (Planted(name), Planted(b"(of each worker)")) for name in names}
        self.references = self.count_references()
        self.read = self.reader_of_all = ""

    def count_references(self):
        return {key: [one.references() for one in pair] for key, pair in self.planted.items()}

    def kept(self):
        """What has been kept of what is different in each worker; "" for nothing."""
        if not self.reader_of_all:
            return ""
        import gc

        gc.collect()
        for key, references in self.count_references().items():
            if references != self.references[key]:
                return f"{self.reader_of_all} reads all variables when it is imported, and keeps {os.fsdecode(key)}"
        return ""

    def note(self, what):
        frame = self.reading_frame()
        module = self.name_of(frame)
        gives_all_to_a_tool = module == "ctypes.util"
        if not (self.read or gives_all_to_a_tool or self.is_rank_noted(frame, what)):
            self.read = f"{module} reads {what} when it is imported"

    def is_rank_noted(self, frame, what):
        """Whether a module of NOTED_RANKS reads it while it is imported, and not for somebody else."""
        module = self.name_of(frame)
        while self.name_of(frame) == module and frame.f_code.co_name != "<module>":
            frame = frame.f_back
        if module not in NOTED_RANKS or self.name_of(frame) != module:
            return False
        _, _, variables = NOTED_RANKS[module]
        return os.fsencode(what) in variables

    def reader(self):
        return self.name_of(self.reading_frame())

    @staticmethod
    def reading_frame():
        frame, passed = sys._getframe(1), ("os", "collections.abc", "_collections_abc")
        # By its name the machine's own sitecustomize is this file.
        while frame is not None and (frame.f_globals is globals() or frame.f_globals.get("__name__") in passed):
            frame = frame.f_back
        return frame

    @staticmethod
    def name_of(frame):
        return frame.f_globals.get("__name__") if frame is not None else "?"

    def is_found(self, key):
        """Whether it is asked for by a name that this has given out."""
        name = self.planted[key][0]
        given = sys._getframe(2).f_locals.get("key")  # of os.environ's __getitem__
        return given is name or given is name.text

    def note_uncertain(self, key):
        self.asked.add(key)
        if key in self.uncertain and not self.read_before:
            name = os.fsdecode(key)
            self.read_before = f"{self.uncertain[key]} may set {name}, which {self.reader()} reads when it is imported"

    def __getitem__(self, key):
        self.note_uncertain(key)
        if key in self.names:
            if self.is_found(key):
                return self.planted[key][1]
            self.note(os.fsdecode(key))
        return super().__getitem__(key)

    def __contains__(self, key):
        self.note_uncertain(key)
        if key in self.names:
            self.note(os.fsdecode(key))
        return super().__contains__(key)

    def __iter__(self):
        self.reader_of_all = self.reader_of_all or self.reader()
        # First, so that none of them is left in a loop's variable.
        yield from [name for name, _ in self.planted.values()]
        yield from super().__iter__()


def import_module(module, names, guard):
    """Imports it, if it is there and no part of the program.  Returns why it is not there."""
    top = module.partition(".")[0]
    if top not in sys.modules and top not in guard.allowed:
        spec = guard.spec_of(top)
        if spec is None or guard.is_kept_out(top, spec):
            return ""  # the worker itself may
    try:
        __import__(module, {}, {}, list(names), 0)
    except ModuleNotFoundError as error:
        if error.name is None or not (module + ".").startswith(error.name + "."):
            raise  # one that is there, and lacks another
        return str(error)
    return ""


def run_watched(variables, run):
    """Calls `run` with a Watched.

    Returns what it gave, and what it has read that is different in a worker; "" for nothing."""
    plain = os.environ._data
    watched = Watched(plain, {os.fsencode(name) for name in variables})
    os.environ._data = os.environb._data = watched
    try:
        given = run(watched)
    finally:
        os.environ._data = os.environb._data = plain
        plain.clear()
        plain.update(dict.items(watched))  # which is not noted
    return given, watched.read or watched.kept() or watched.read_before


class Preload:
    """Imports modules as the program will, without a worker seeing the difference."""

    def __init__(self, program, libraries, named, variables, effects, generators):
        self.program, self.libraries = program, libraries
        self.named, self.variables = named, variables
        self.effects, self.generators = effects, generators
        self.asked = set()  # variables that imports read
        self.missed = set()  # modules that they look for, and that are not there
        self.missing = []  # a text for each of `named` that is not there

    def is_read(self, name):
        """Whether imports may read this variable."""
        is_read_in_c = name.startswith(READ_IN_C) and sys.modules.keys() & READERS_IN_C
        return os.fsencode(name) in self.asked or bool(is_read_in_c)

    def run(self, modules):
        """Raises Refused where a worker would see the difference."""
        program, named, effects, generators = self.program, self.named, self.effects, self.generators
        tops = {module.partition(".")[0] for module in named}
        guard = Guard(self.libraries, tops, program.folders(), generators)
        folder, path = os.getcwd(), list(sys.path)
        is_first = modules == list(program.found)  # else they are what the workers have, which have done all
        end = len(program.found)
        settings = [setting for setting in program.settings if setting[1] not in self.variables]
        given = {name: os.environ.get(name) for _, name, _, _ in settings}
        mentions = [(count, name, where) for name, (count, where) in program.mentions.items() if name not in self.variables]
        mentions.sort(key=lambda mention: mention[0])
        in_c = []  # of READ_IN_C: where, the name, what was imported before
        drawn = ""
        current = None

        def set_until(count, watched):
            """Sets what the program does before it imports more than `count` modules."""
            while settings and settings[0][0] <= count:
                _, name, text, is_default = settings.pop(0)
                os.environ[name] = os.environ.get(name, text) if is_default else text
            while mentions and mentions[0][0] <= count:
                _, name, where = mentions.pop(0)
                watched.uncertain[os.fsencode(name)] = where
                if name.startswith(READ_IN_C):
                    in_c.append((where, name, READERS_IN_C & sys.modules.keys()))

        def import_one(names, count):
            nonlocal drawn
            why = import_module(current, names, guard)
            effects.imported(current)
            used = generators.used()
            for before, where, kinds in program.seeds if used else ():
                if before <= count and (not kinds or set(kinds) & set(used)):
                    drawn = drawn or f"{where} may seed a random generator, which {current} uses when it is imported"
            return why

        def import_them(watched):
            nonlocal current
            for count, (current, names) in enumerate(modules):
                count = count if is_first else end
                set_until(count, watched)
                import_one(names, count)
            set_until(end, watched)
            for current in named:
                why = import_one((), end)
                if why:
                    self.missing.append(f"{current} cannot be imported: {why}")
            for name in LATER:
                for current in LATER[name] if name in sys.modules else ():
                    import_one((), end)
            self.asked |= watched.asked

        for before, where in program.hooks:
            if before < end:
                raise Refused(f"{where} may change how modules are imported")
        generators.begin()
        sys.meta_path.insert(0, guard)
        effects.begin()
        try:
            _, read = run_watched(self.variables, import_them)
        except BaseException as error:  # SystemExit, too
            why = guard.why or f"{type(error).__name__}: {error}"
            raise Refused(f"{current} cannot be imported beforehand: {why}") from None
        finally:
            effects.end()
            sys.meta_path.remove(guard)
            guard.end()
            unclear = generators.end()
            for name, text in given.items():  # the script itself sets it
                if text is not None:
                    os.environ[name] = text
                else:
                    os.environ.pop(name, None)
        self.missed |= guard.missed
        for where, name, before in in_c:
            if READERS_IN_C & sys.modules.keys() - before:
                raise Refused(f"{where} may set {name}, which a library may read when it is imported")
        why = guard.why or read or drawn or unclear
        if why:
            raise Refused(why)
        if os.getcwd() != folder:
            raise Refused("a module has changed the folder in which the program runs")
        if sys.path[: len(path)] != path:  # in a worker, before or after the script's own
            raise Refused("a module puts a folder before those in sys.path, or removes one")


def shadowed(program, fresh, missed):
    """A file of the program in whose place a library's module is imported already; "" for none.

    `missed`: modules that are not there when a library looks for them."""
    tops = {name.partition(".")[0] for name in sys.modules} - fresh - set(sys.builtin_module_names) | missed
    for folder in program.folders():
        try:
            entries = os.listdir(folder)
        except OSError:
            continue
        for entry in entries:
            name, dot, suffix = entry.partition(".")
            if name not in tops:
                continue
            path = os.path.join(folder, entry)
            is_module = suffix.endswith(("py", "pyc", "so")) if dot else os.path.isfile(path + "/__init__.py")
            module = getattr(sys.modules.get(name), "__file__", None) or ""
            if is_module and not os.path.realpath(module).startswith(os.path.realpath(path)):
                return path
    return ""


# Of jemalloc, which pyarrow has in it: it takes care of forks, and does without the thread in a fork.
HARMLESS_THREADS = {b"jemalloc_bg_thd\n"}


def threads():
    """How many there are beside the main one, without the harmless ones."""
    count = -1
    for thread in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{thread}/comm", "rb") as file:
                count += file.read() not in HARMLESS_THREADS
        except OSError:
            pass  # it has ended
    return count


def children():
    """Of this thread; none where the kernel does not say."""
    try:
        with open("/proc/thread-self/children") as file:
            return file.read().split()
    except OSError:
        return []


def descriptors():
    """Those that are open, beside the standard streams and the agent's; with what they are."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if int(name) not in (0, 1, 2, CONTROL):
                found.append(f"descriptor {name}, {os.readlink('/proc/self/fd/' + name)}")
        except OSError:
            pass  # that of the list itself
    return found


def has_cuda():
    """Whether CUDA's driver is initialised in this process, by whatever library."""
    import ctypes

    try:
        driver = ctypes.CDLL("libcuda.so.1", os.RTLD_NOLOAD)
        return driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) == 0
    except (OSError, AttributeError):
        return False  # it is not even loaded


def check_state():
    """Raises Refused for what a fork must not inherit."""
    # First, since CUDA also opens files and starts threads.
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if (cuda is not None and cuda.is_initialized()) or has_cuda():
        raise Refused("CUDA is initialised by an import")
    found = descriptors()
    if found:
        raise Refused("a module has left open " + found[0])
    if threads() > 0:
        # A library of linear algebra ends its threads before a fork, and starts them when needed.
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
    if threads() > 0:
        raise Refused(f"the imported modules have {threads()} threads")
    import _signal

    if any(_signal.getitimer(which)[0] > 0 for which in (0, 1, 2)):
        raise Refused("a module has set a timer")
    if text_of("/proc/self/timers"):  # of timer_create: a fork has none
        raise Refused("a module has made a timer")
    locked = [line.split()[1] for line in text_of("/proc/self/status").splitlines() if line.startswith("VmLck:")]
    if locked not in ([], ["0"]):
        raise Refused("a module has locked memory (mlock), which a fork has not")
    if children():
        raise Refused(f"the imported modules have started process {children()[0]}")
    if os.fstat(1).st_size > 0:
        raise Refused("the imported modules write to stdout or stderr")


class Priority:
    """That of the template while it imports: below all others, if it can come back from there."""

    def __init__(self):
        self.nice = os.getpriority(os.PRIO_PROCESS, 0)
        self.is_lowered = self.has_group = False

    def lower(self, with_group=True):
        self.has_group = with_group
        self.group(19)
        child = os.fork()
        if child == 0:
            try:
                os.setpriority(os.PRIO_PROCESS, 0, 19)
                os.setpriority(os.PRIO_PROCESS, 0, self.nice)
            except OSError:
                os._exit(1)
            os._exit(0)
        self.is_lowered = os.waitpid(child, 0)[1] == 0
        if self.is_lowered:
            os.setpriority(os.PRIO_PROCESS, 0, 19)

    def restore(self):
        if self.is_lowered:
            os.setpriority(os.PRIO_PROCESS, 0, self.nice)
        self.group(0)

    def group(self, nice):
        """Of this session's automatic group, where the kernel makes these.  Forks have their own."""
        try:
            with open("/proc/self/autogroup", "w" if self.has_group else "r") as file:
                self.has_group and file.write(str(nice))
        except OSError:
            pass


def memory_kib():
    """The template's share of the memory that it and others use."""
    with open("/proc/self/smaps_rollup") as file:
        for line in file:
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0


def forget_archive():
    """Leaves no trace of how this file was found."""
    os.close(5)
    sys.path[:] = [entry for entry in sys.path if entry != ARCHIVE]
    sys.path_importer_cache.pop(ARCHIVE, None)
    zipimport = sys.modules.get("zipimport")
    if zipimport is not None:
        zipimport._zip_directory_cache.pop(ARCHIVE, None)
    rest = os.environ["PYTHONPATH"][len(ARCHIVE) + 1 :]
    if rest:
        os.environ["PYTHONPATH"] = rest
    else:
        del os.environ["PYTHONPATH"]


def import_real_one():
    """The machine's own sitecustomize, which this file stands before; None for none."""
    mine = sys.modules.pop("sitecustomize")
    try:
        import sitecustomize

        return sitecustomize
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        return None
    finally:
        if "sitecustomize" not in sys.modules:
            sys.modules["sitecustomize"] = mine


def renew_streams(streams):
    """stdout and stderr are other files now: makes Python's objects as for a fresh start.

    The streams stay the same objects, since modules may have kept them."""
    import io

    for stream, descriptor in streams:
        raw = io.FileIO(descriptor, "wb", closefd=False)  # -u: without a buffer
        raw.name = stream.name
        stream.__init__(
            raw,
            encoding=stream.encoding,
            errors=stream.errors,
            newline="\n",
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )


def renew_key():
    """Of multiprocessing, which is different in each fresh process."""
    process = sys.modules.get("multiprocessing.process")
    if process is not None:
        key = process.AuthenticationString(os.urandom(32))
        process._current_process._config["authkey"] = key


def renew_times():
    logging = sys.modules.get("logging")
    if logging is not None:
        import time

        is_ns = isinstance(logging._startTime, int)
        logging._startTime = time.time_ns() if is_ns else time.time()


def renew_ranks():
    """What the modules of NOTED_RANKS would have noted in this worker."""
    for module, (function, attribute, names) in NOTED_RANKS.items():
        noted = getattr(sys.modules.get(module), function, None)
        rank = next((os.environb[name] for name in names if name in os.environb), None)
        if noted is not None and rank is not None:
            setattr(noted, attribute, int(rank))


def set_environment(given, changes):
    """`given`: bytes by name, and what imports have changed; None: removed."""
    for name in list(os.environ._data):
        del os.environb[name]
    for name, value in {**given, **changes}.items():
        if value is not None:
            os.environb[name] = value


class Template:
    def __init__(self, socket_module, parts, control):
        """`parts`: the modules beside this file, by their names."""
        self.socket_module, self.parts = socket_module, parts
        self.control = control
        self.pid = os.getpid()
        self.changes, self.known = {}, {}
        self.effects = Effects()

    def begin(self, message):
        """Before any other module may be imported.  Returns the machine's own sitecustomize."""
        # The one that made the pair of sockets.  In another namespace of process ids both are 0.
        module = self.socket_module
        credentials = self.control.getsockopt(module.SOL_SOCKET, module.SO_PEERCRED, 12)
        agent = int.from_bytes(credentials[:4], sys.byteorder)
        if os.getppid() != agent or agent == 0:
            raise Refused("the program that is to be Python starts another process as Python")
        fields = os.fsdecode(message).split("\0")

        def take():
            count = int(fields.pop(0))
            taken = fields[:count]
            del fields[:count]
            return taken

        self.arguments, self.named, self.variables, self.manner = take(), take(), take(), take()
        real, read = run_watched(self.variables, lambda _: import_real_one())
        self.fresh = {name.partition(".")[0] for name in sys.modules}
        self.at_start = dict(os.environ._data)  # in any process, before the script
        why = read or read_at_start(self.variables)
        if why:
            raise Refused(why)
        return real

    def prepare(self):
        """All until it is ready.  Returns the text about it."""
        priority = Priority()
        if not self.manner:
            priority.lower()
        import ctypes
        import time

        began = time.monotonic()
        self.libc = ctypes.CDLL(None)
        before = first_environment()
        before.pop(b"PYTHONPATH")
        if b"PYTHONPATH" in os.environ._data:
            before[b"PYTHONPATH"] = os.environ._data[b"PYTHONPATH"]
        self.before = before
        started = time.time_ns()
        if is_user_customized():
            raise Refused("there is a usercustomize module")
        self.generators = self.parts["random"].Generators()
        self.libraries = folders_of_libraries()
        self.program = self.parts["program"].Program(self.arguments, sys.path, self.is_library)
        if self.program.begin is None:
            raise Refused("the script is no file")
        self.preload = Preload(self.program, self.libraries, self.named, self.variables, self.effects, self.generators)
        self.import_all(self.program.look(self.named), started)
        with open(COMM, "rb") as file:
            self.comm = file.read().rstrip(b"\n")
        set_comm(b"ddprun-template")
        priority.restore()
        kib = memory_kib()
        count = len(sys.modules)
        return f"{count} modules in {time.monotonic() - began:.1f} s; the template uses {kib // 1024} MB"

    def is_library(self, file):
        return is_in(file, self.libraries)

    def import_all(self, modules, started):
        """Imports them and finds out what that has changed.  `started`: in ns since 1970."""
        self.preload.run(modules)
        before, after = self.before, os.environ._data
        changed_names = [n for n in {**before, **after} if before.get(n) != after.get(n)]
        self.changes = {n: after.get(n) for n in changed_names if n not in SET_AGAIN}
        for name in self.variables:
            if os.fsencode(name) in self.changes:
                raise Refused(f"a module sets {name} when it is imported")
        for name in [n for n in self.changes if self.at_start.get(n) != after.get(n)]:
            file = self.program.file_with(os.fsdecode(name))
            if file:
                raise Refused(f"{file} names {os.fsdecode(name)}, which a module sets when it is imported")
        if self.program.module in sys.modules:
            raise Refused(f"a library imports {self.program.module}, the program itself")
        path = shadowed(self.program, self.fresh, self.preload.missed)
        if path:
            raise Refused(f"{path} has the name of a library's module")
        import gc

        sys.path_importer_cache.clear()  # what the folders held: for the workers to see anew
        gc.collect()
        check_state()
        self.effects.refuse()
        self.known = {**self.signatures(), **self.known}  # of what was imported before, as it was then
        for file, known in self.known.items():
            if known is not None and known[0] >= started:
                raise Refused(f"{file} has been changed just now")
        self.parts["pages"].join_pages(self.libc)

    def be_next(self, descriptor, files):
        """In a fork: becomes the next template.  `files`: those of the workers."""
        os.dup2(descriptor, CONTROL, inheritable=False)
        os.close(descriptor)
        module = self.socket_module
        self.control = module.socket(module.AF_UNIX, module.SOCK_SEQPACKET, 0, CONTROL)
        self.pid = os.getpid()
        try:
            if self.control.recv(1) != b"L":
                os._exit(127)
            self.die_with_agent()
            self.control.send(b"R" + os.fsencode(self.learn(files)))
        except BaseException as error:
            why = str(error) if isinstance(error, Refused) else f"{type(error).__name__}: {error}"
            self.control.send(b"N" + os.fsencode(why[:2000]))
            os._exit(0)

    def learn(self, files):
        """Imports what the workers have.  Returns the text about it; Refused(""): nothing new."""
        import time

        began, started = time.monotonic(), time.time_ns()
        priority = Priority()
        priority.lower(with_group=False)
        before = set(sys.modules)
        names = self.parts["memory"].names_in(files)
        self.program.look_at_learned(names)
        self.import_all([(name, ()) for name in self.new_of(names)], started)
        new = [name for name in sys.modules if name not in before]
        if not new:
            raise Refused("")
        priority.restore()
        tops = list(dict.fromkeys(name.partition(".")[0] for name in new))
        some = ", ".join(tops[:3]) + (", ..." if len(tops) > 3 else "")
        took = time.monotonic() - began
        kib = memory_kib()
        return f"{len(new)} module{'s'[len(new) == 1:]} ({some}) in {took:.1f} s; the template uses {kib // 1024} MB"

    def new_of(self, names):
        """Those that are not imported here, and are neither of the program nor in NEVER."""
        tops = {module.partition(".")[0] for module in self.named}
        guard = Guard(self.libraries, tops, self.program.folders())
        known, new = {}, []
        for name in names:
            top = name.partition(".")[0]
            if top not in known:
                spec = guard.spec_of(top) if not top.startswith("__") and top not in sys.modules else None
                known[top] = top in sys.modules or (spec is not None and not guard.is_kept_out(top, spec))
            if known[top] and name not in sys.modules and not top.startswith("__"):
                new.append(name)
        return new

    def serve(self):
        """Forks workers until the agent has gone.  Returns, with its socket, in a worker only."""
        while True:
            message, sockets = self.receive(self.control, 1, 253)
            files = sockets[1:] if message == b"L" else []
            if not message:
                os._exit(0)
            try:
                self.check_files()
                if message == b"K":
                    self.control.send(b"K")
                    continue
                socket = self.fork(sockets[: len(sockets) - len(files)], files)
            except (Refused, OSError) as error:
                if os.getpid() == self.pid:  # not a child that cannot fork
                    why = str(error) if isinstance(error, Refused) else f"the template cannot fork: {error}"
                    self.control.send(b"C" + os.fsencode(why))
                os._exit(0)
            if socket is not None and message == b"L":
                self.be_next(socket, files)
            elif socket is not None:
                return socket

    def signatures(self):
        """Of all files from which something has been loaded."""
        paths = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
            for line in maps:
                fields = line.rstrip("\n").split(None, 5)
                if len(fields) == 6 and fields[5].startswith("/"):
                    paths.add(fields[5])
        signature = self.parts["program"].signature
        return {path: signature(path) for path in paths if isinstance(path, str) and not path.startswith(ARCHIVE)}

    def check_files(self):
        """Raises Refused if a fresh start would import something else, or find something else in it."""
        path = self.parts["program"].changed(self.known)
        if path:
            raise Refused(f"{path} has been changed")
        path = self.parts["program"].changed(self.program.signatures)
        if path:  # the workers read it anew
            now = self.program.anew(self.named)
            if not self.program.is_the_same_before_imports(now, self.is_read, self.generators.are_used):
                raise Refused(f"{path} has been changed, and what the program does before its imports, too")
            self.program.signatures = now.signatures
        path = shadowed(self.program, self.fresh, self.preload.missed)
        if path:
            raise Refused(f"{path} has the name of a library's module")

    def is_read(self, name):
        return self.preload.is_read(name) or os.fsencode(name) in self.changes

    def fork(self, sockets, files=()):
        """By a child that ends at once, so that they become the agent's children.

        Returns its socket in each of them, which has the `files`, too; None here."""
        self.agent = os.getppid()
        read_end, write_end = os.pipe()
        middle = os.fork()
        if middle == 0:
            for index, socket in enumerate(sockets):
                child = os.fork()
                if child == 0:
                    for descriptor in (*sockets[:index], *sockets[index + 1 :], read_end, write_end, CONTROL):
                        os.close(descriptor)
                    self.control.detach()
                    return socket
                os.write(write_end, b" %d" % child)
            os._exit(0)
        os.close(write_end)
        for descriptor in (*sockets, *files):
            os.close(descriptor)
        os.waitpid(middle, 0)
        pids = b""
        # The workers have this end until they close it; what has been written is all there is.
        os.set_blocking(read_end, False)
        try:
            pids = os.read(read_end, 65536)
        except BlockingIOError:
            pass
        os.close(read_end)
        self.control.send((b"L" if files else b"F") + pids)
        return None

    def receive(self, socket, size, most):
        """A message and its descriptors."""
        module = self.socket_module
        message, ancillary, _, _ = socket.recvmsg(size, module.CMSG_SPACE(4 * most))
        found = []
        for level, kind, data in ancillary:
            if (level, kind) == (module.SOL_SOCKET, module.SCM_RIGHTS):
                data = data[: len(data) // 4 * 4]
                found += [int.from_bytes(data[i : i + 4], sys.byteorder) for i in range(0, len(data), 4)]
        return message, found

    def wait_to_begin(self, descriptor):
        """In a fork: does what takes long, and waits.  Returns its socket and what came with the G.

        It stays in the template's session meanwhile, by which a sweep knows it."""
        for name in ("known", "program", "fresh", "preload"):  # to free them is to copy the pages they are in
            delattr(self, name)
        self.generators.renew()
        renew_key()
        module = self.socket_module
        socket = module.socket(module.AF_UNIX, module.SOCK_SEQPACKET, 0, descriptor)
        message, found = self.receive(socket, 1, 3)
        if message != b"G" or len(found) != 3:
            os._exit(127)  # the agent does not want it any more
        return socket, found

    def die_with_agent(self):
        pr_set_pdeathsig, sigkill = 1, 9
        self.libc.prctl(pr_set_pdeathsig, sigkill, 0, 0, 0)
        if os.getppid() != self.agent:
            os._exit(127)

    def become_worker(self, socket, found):
        """Makes a fork what a fresh worker is."""
        try:
            out, err, environment = found
            os.setsid()
            set_comm(self.comm)
            self.die_with_agent()
            os.dup2(out, 1)
            os.dup2(err, 2)
            given = read_environment(environment)
            for one in found:
                os.close(one)
            set_environment(given, self.changes)
            renew_ranks()
            renew_streams(((sys.stdout, 1), (sys.stderr, 2)))
            renew_times()
            thread = sys.modules["threading"].main_thread() if "threading" in sys.modules else None
            if hasattr(thread, "_set_native_id"):
                thread._set_native_id()
            socket.send(bytes(4))
            socket.close()
        except BaseException as error:
            number = getattr(error, "errno", None) or 22
            socket.send(number.to_bytes(4, sys.byteorder))
            os._exit(127)


def is_user_customized():
    import site
    from importlib.util import find_spec

    return bool(site.ENABLE_USER_SITE) and find_spec("usercustomize") is not None


def read_at_start(variables):
    """What Python has run before this file, unwatched, that reads what is different in each worker; "" for nothing.

    Those are the lines of .pth files that begin with an import, and what they import."""
    import re
    import site

    quoted = re.compile("[\"'](" + "|".join(map(re.escape, variables)) + ")[\"']")
    files = []
    for folder in (*site.getsitepackages(), site.getusersitepackages()):
        try:
            files += [os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".pth")]
        except OSError:
            pass
    texts = {file: [line for line in text_of(file).splitlines() if re.match("import[ \t]", line)] for file in files}
    standard = (os.path.dirname(os.path.realpath(os.__file__)) + os.sep,)
    packages = folders_of_libraries()
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or file.startswith(ARCHIVE) or not file.endswith(".py"):
            continue
        is_standard = is_in(file, standard) and not is_in(file, tuple(set(packages) - set(standard)))
        if not is_standard:
            texts[file] = [text_of(file)]
    for file, lines in texts.items():
        for line in lines:
            found = quoted.search(line)
            if found:
                return f"{file}, which Python runs at its start, names {found[1]}"
    return ""


def text_of(file):
    try:
        with open(file, encoding="utf-8", errors="replace") as source:
            return source.read()
    except OSError:
        return ""


def read_environment(descriptor):
    return variables_in(os.pread(descriptor, os.fstat(descriptor).st_size, 0))


def first_environment():
    """What this process was started with."""
    with open("/proc/self/environ", "rb") as file:
        return variables_in(file.read())


def variables_in(text):
    given = {}
    for entry in text.split(b"\0"):
        name, _, value = entry.partition(b"=")
        if name:
            given[name] = value
    return given


def set_comm(name):
    with open(COMM, "wb") as file:
        file.write(name)


def main():
    """As `sitecustomize`.  Returns in a worker only."""
    import _socket

    control = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, CONTROL)
    most = 256 * 1024
    if sys.argv[:1] == ["-c"]:  # now it is known that this Python comes here: the script is not run
        fields = os.fsdecode(control.recv(most, _socket.MSG_PEEK)).split("\0")
        arguments = fields[1 : 1 + int(fields[0])]
        os.execve(arguments[0], arguments, first_environment())  # Python may have set some itself
    try:
        import ddprun_memory  # all beside this file
        import ddprun_pages
        import ddprun_program
        import ddprun_random

        parts = {"memory": ddprun_memory, "pages": ddprun_pages, "program": ddprun_program, "random": ddprun_random}
        for name in parts:
            del sys.modules["ddprun_" + name]
        template = Template(_socket, parts, control)
        forget_archive()
        os.set_inheritable(CONTROL, False)
        real = template.begin(control.recv(most))
        text = template.prepare()
        for missing in template.preload.missing:
            control.send(b"W" + os.fsencode(missing[:2000]))
        control.send(b"R" + os.fsencode(text))
    except BaseException as error:
        why = str(error) if isinstance(error, Refused) else f"{type(error).__name__}: {error}"
        control.send(b"N" + os.fsencode(why[:2000]))
        os._exit(0)
    try:
        template.become_worker(*template.wait_to_begin(template.serve()))
    except BaseException:
        os._exit(127)
    return real


if __name__ == "sitecustomize":
    try:
        found = main()
    except BaseException:
        os._exit(127)  # never on to the script
    if found is None:
        raise ImportError("no module named sitecustomize", name="sitecustomize")
