# SPDX-License-Identifier: BSD-3-Clause
"""What a program does before its imports, read from its sources: the template does not run them.

A template (template.py) imports what the program imports, before the program runs.  What the program
does first could change what an import finds: a variable that it sets, a seed, an import hook.  So its
files are read in the order in which Python would run their top level.  Each thing that is found has a
count: how many of the imports come before it.

A function's body is not run where it stands.  What is in it counts from the next call of one of the
program's own functions on, whichever that is, or from the end of the top level.
"""

import os
import sys

MOST_FILES = 200  # of the program, that are looked at

# Calls that seed a random generator, by the end of their names, and which; () for any of them.
SEEDING = {
    "manual_seed": ("torch",),
    "set_rng_state": ("torch",),
    "set_state": ("numpy",),
    "setstate": ("random",),
    "seed": (),
    "seed_all": (),
    "seed_everything": (),
    "set_seed": (),
}

# Calls that change how modules are imported.
HOOKING = {
    "beartype_all",
    "beartype_package",
    "beartype_packages",
    "beartype_this_package",
    "install_import_hook",
}
LISTS_OF_HOOKS = tuple(f"sys.{name}.{how}" for name in ("meta_path", "path_hooks") for how in ("append", "extend", "insert"))


def signature(path):
    try:
        info = os.stat(path)
    except OSError:
        return None
    return info.st_mtime_ns, info.st_size, info.st_ino


def changed(known):
    """The first of these files that has another signature; "" for none."""
    return next((path for path, before in known.items() if signature(path) != before), "")


class Program:
    """What the sources of the program do, without running them."""

    def __init__(self, arguments, path, is_library):
        """`arguments`: as in sys.orig_argv; `path`: as sys.path, without the script's folder.

        `is_library`: whether a file is no part of the program.  `begin` is None where the script is no file."""
        import ast

        self.ast = ast
        self.given = arguments, list(path), is_library
        self.is_library = is_library
        self.found = {}  # (module, names that are imported from it): None, in the order of the source
        self.seen, self.seen_later = set(), set()  # files: at the top level, and by imports in functions
        self.signatures = {}  # of these, before they were read
        # Of variables, to a text: how many are found before it, the name, the text, whether it is a default.
        self.settings = []
        self.mentions = {}  # names in quotes, which may be variables that it sets: a count, and where
        self.seeds = []  # calls that seed random generators: a count, where, which generators
        self.hooks = []  # what changes how modules are imported: a count, where
        self.inserted = []  # folders that are put into sys.path, at its beginning
        self.appended = []  # at its end
        self.waiting = []  # what is in functions that have not been called: what to do when they are
        self.module_names = {}  # of the files of `seen_later`
        self.own_names = {}  # of a file, what its functions and classes are called there
        self.run_beforehand = ()
        self.begin, self.package = None, ""
        self.module = ""  # of -m, as the program itself is called
        self.folder, self.path = os.getcwd(), list(path)
        rest = [a for a in arguments[1:] if a != "-u"]
        if rest[:1] == ["-m"] and len(rest) > 1:
            self.path = [self.folder, *path]
            self.module = rest[1]
            self.begin = self.source_of(self.module) or self.source_of(self.module + ".__main__")
            if self.begin and os.path.basename(self.begin) == "__init__.py":
                self.module += ".__main__"
                self.begin = self.source_of(self.module)
            self.package = self.module.rpartition(".")[0]
        elif rest and not rest[0].startswith("-"):
            self.begin = rest[0]
            if os.path.isdir(self.begin):
                self.folder = self.begin
                self.begin = os.path.join(self.begin, "__main__.py")
            else:
                self.folder = os.path.dirname(os.path.realpath(self.begin))
            self.path = [self.folder, *path]

    def file_of(self, module):
        """The source of a module of the program; None for a library's, or for none."""
        file = self.source_of(module)
        return None if file is None or self.is_library(file) else file

    def source_of(self, module):
        folders, file = self.path, None
        for part in module.split("."):
            file, below = None, []
            for folder in folders:
                base = os.path.join(folder, part)
                if os.path.isfile(os.path.join(base, "__init__.py")):
                    file, below = os.path.join(base, "__init__.py"), [base]
                elif os.path.isfile(base + ".py"):
                    file = base + ".py"
                elif os.path.isdir(base):
                    below.append(base)  # of a namespace package, unless a real one follows
                    continue
                else:
                    continue
                break
            folders = below
        return file

    def folders(self):
        """Those of the program that it has in sys.path."""
        return [self.folder, *self.inserted, *self.appended]

    def look(self, named=()):
        """Fills in what is found.  `named`: modules that are imported beforehand, too."""
        files = [self.file_of(name.partition(".")[0]) or "" for name in named]
        self.run_beforehand = tuple(os.path.dirname(f) + os.sep if f.endswith("__init__.py") else f for f in files if f)
        if self.package:
            self.imported(self.package, ())  # as `runpy` does
        self.look_at(self.begin, self.package)
        self.release()
        return list(self.found)

    def look_at_learned(self, names):
        """Looks at those of these modules that are of the program: it imports them somewhere."""
        for name in names:
            self.look_later(name, ())

    def anew(self, named):
        """The same program, as it is now."""
        other = Program(*self.given)
        other.look(named)
        other.look_at_learned(name for file, name in self.module_names.items() if file in self.seen_later)
        return other

    def parsed(self, file):
        """None where it cannot be."""
        self.signatures[file] = signature(file)
        try:
            with open(file, "rb") as source:
                return self.ast.parse(source.read())
        except (OSError, SyntaxError, ValueError, RecursionError):
            return None  # a worker will say so

    def look_at(self, file, package):
        """At its top level, as Python runs it."""
        if file in self.seen or len(self.seen) >= MOST_FILES:
            return
        self.seen.add(file)
        tree = self.parsed(file)
        if tree is None:
            return
        ast, own = self.ast, self.own_names.setdefault(file, set())
        does_it_itself = file.startswith(self.run_beforehand)
        for statement, is_certain in self.top_level(tree.body):
            if isinstance(statement, (ast.Import, ast.ImportFrom)):
                for module, names, bound in self.modules_of(statement, package):
                    files = self.imported(module, names)
                    if files:
                        own.update(bound)
                    if "*" in bound:
                        own.update(*(self.own_names.get(other, ()) for other in files))
            elif not does_it_itself:
                self.look_at_change(statement, file, is_certain)
                self.collect(statement, file, package)
                if self.runs(statement, own):
                    self.release()

    def look_later(self, module, names):
        """At a module that is imported in a function, or its names: it is run by now."""
        for name in (module, *(f"{module}.{name}" for name in names)):
            file = self.file_of(name)
            if file is None or file in self.seen or file in self.seen_later or len(self.seen_later) >= MOST_FILES:
                continue
            self.seen_later.add(file)
            self.module_names[file] = name
            tree = self.parsed(file)
            if tree is not None and not file.startswith(self.run_beforehand):
                is_package = os.path.basename(file) == "__init__.py"
                self.collect(tree, file, name if is_package else name.rpartition(".")[0])
                self.release()

    def modules_of(self, statement, package):
        """Of an import: each module, the names that are imported from it, and what is bound here."""
        if isinstance(statement, self.ast.Import):
            return [(a.name, (), [a.asname or a.name.partition(".")[0]]) for a in statement.names]
        module = statement.module or ""
        if statement.level:
            base = package.split(".") if package else []
            base = base[: len(base) - statement.level + 1]
            module = ".".join([*base, module] if module else base)
        names = tuple(alias.name for alias in statement.names)
        return [(module, names, [alias.asname or alias.name for alias in statement.names])] if module else []

    def imported(self, module, names):
        """Returns the files of the program that are imported by it."""
        file, files = self.file_of(module), []
        if file is None:
            self.found.setdefault((module, tuple(name for name in names if name != "*")))
        else:
            files.append(file)
            is_package = os.path.basename(file) == "__init__.py"
            self.look_at(file, module if is_package else module.rpartition(".")[0])
        for name in names if file is None or is_package else ():
            below = self.file_of(module + "." + name)
            if below is not None:
                files.append(below)
                inner = os.path.basename(below) == "__init__.py"
                self.look_at(below, module + "." + name if inner else module)
        return files

    def file_with(self, variable):
        """One of the program's files that has this name in quotes, and is not imported here; "" for none."""
        imported = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
        for file in (self.seen | self.seen_later) - imported:
            try:
                with open(file, "rb") as source:
                    text = source.read()
            except OSError:
                continue
            if any(os.fsencode(quote + variable + quote) in text for quote in "\"'"):
                return file
        return ""

    def top_level(self, body, is_certain=True):
        """What is carried out when a file is, with whether it surely is; not what is in functions."""
        ast = self.ast
        for statement in body:
            if isinstance(statement, ast.If):
                yield statement.test, False
                test = ast.dump(statement.test)
                if "TYPE_CHECKING" not in test:
                    yield from self.top_level(statement.body, is_certain and "'__main__'" in test)
                yield from self.top_level(statement.orelse, False)
            elif isinstance(statement, ast.Try):
                yield from self.top_level(statement.body, is_certain)
                for handler in statement.handlers:
                    yield handler, False
                yield from self.top_level(statement.orelse, False)
                yield from self.top_level(statement.finalbody, is_certain)
            elif isinstance(statement, ast.With):
                for item in statement.items:
                    yield item, False
                yield from self.top_level(statement.body, is_certain)
            else:
                yield statement, is_certain

    def look_at_change(self, statement, file, is_certain):
        """What the statement surely does to os.environ or sys.path, before the imports that follow."""
        ast, changes = self.ast, []
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                if isinstance(target, ast.Subscript) and self.dotted(target.value) in ("os.environ", "environ"):
                    key = target.slice
                    key = key.value if isinstance(key, getattr(ast, "Index", ())) else key
                    changes.append((key, statement.value, False))
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            called, arguments = self.dotted(statement.value.func), statement.value.args
            if called in ("os.environ.setdefault", "environ.setdefault") and len(arguments) == 2:
                changes.append((*arguments, True))
            elif called in ("os.environ.update", "environ.update"):
                if arguments and isinstance(arguments[0], ast.Dict):
                    changes += [(key, value, False) for key, value in zip(arguments[0].keys, arguments[0].values)]
                changes += [(word, word.value, False) for word in statement.value.keywords]
            elif called in ("sys.path.insert", "sys.path.append") and arguments:
                folder = self.path_of(arguments[-1], file)
                if folder:
                    is_first = called == "sys.path.insert"
                    self.path.insert(0 if is_first else len(self.path), folder)
                    (self.inserted if is_first else self.appended).append(folder)
        for key, value, is_default in changes:
            name = key.arg if isinstance(key, ast.keyword) else getattr(key, "value", None)
            text = getattr(value, "value", None)
            if isinstance(value, ast.Constant) and isinstance(name, str) and isinstance(text, str) and is_certain:
                self.settings.append((len(self.found), name, text, is_default))
                key.is_certain = True  # for `collect`

    def collect(self, node, file, package):
        """Notes all in it that could change what is imported."""
        ast = self.ast
        functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
        nodes = [(node, False)]
        while nodes:
            node, is_later = nodes.pop()
            where = f"{file}:{getattr(node, 'lineno', 0)}"
            children = list(ast.iter_child_nodes(node))
            if isinstance(node, functions):
                body = node.body if isinstance(node.body, list) else [node.body]
                nodes += [(child, True) for child in body]
                children = [child for child in children if child not in body]
            elif isinstance(node, ast.Constant):
                self.note(is_later, self.mention, node, node.value, where)
            elif isinstance(node, ast.keyword):
                where = f"{file}:{node.value.lineno}"
                self.note(is_later, self.mention, node, node.arg, where)
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                for module, names, _ in self.modules_of(node, package):
                    if module:
                        self.note(is_later, self.look_later, module, names)
            elif isinstance(node, ast.Call):
                self.note_call(is_later, node, where)
                children = [child for child in children if child not in self.only_read(node)]
            elif isinstance(node, (ast.Compare, ast.Expr)):  # a text as a statement explains something
                children = [child for child in children if not isinstance(child, ast.Constant)]
            elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
                children = [child for child in children if not isinstance(getattr(child, "value", child), (str, bytes, ast.Constant))]
            nodes += [(child, is_later) for child in reversed(children)]

    def note(self, is_later, how, *what):
        if is_later:
            self.waiting.append((how, what))
        else:
            how(*what)

    def release(self):
        """The program's functions may have been called by now."""
        waiting, self.waiting = self.waiting, []
        for how, what in waiting:
            how(*what)

    def mention(self, node, name, where):
        """Of a text that may be a variable's name."""
        if isinstance(name, bytes):
            name = os.fsdecode(name)
        if isinstance(name, str) and name.isascii() and name.isidentifier() and not hasattr(node, "is_certain"):
            self.mentions.setdefault(name, (len(self.found), where))

    def only_read(self, call):
        """The arguments that are names of what is looked up or shown."""
        called = self.dotted(call.func).rpartition(".")[2]
        count = {"get": 1, "getenv": 1, "getenvb": 1, "print": len(call.args)}.get(called, 0)
        if called in ("getattr", "hasattr"):
            count = 2
        return [argument for argument in call.args[:count] if isinstance(argument, self.ast.Constant)]

    def note_call(self, is_later, call, where):
        called = self.dotted(call.func)
        before, _, last = called.rpartition(".")
        if last in SEEDING:
            kinds = SEEDING[last]
            if last == "seed" and before.endswith("random"):
                kinds = ("random",) if before == "random" else ("numpy",)
            self.note(is_later, self.seed, where, kinds)
        elif last in HOOKING or called in LISTS_OF_HOOKS:
            self.note(is_later, self.hook, where)

    def seed(self, where, kinds):
        self.seeds.append((len(self.found), where, kinds))

    def hook(self, where):
        self.hooks.append((len(self.found), where))

    def runs(self, statement, own):
        """Whether it may call a function of the program; adds to `own` the names that it gives to these."""
        ast = self.ast
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            own.add(statement.name)
            names = {self.dotted(getattr(d, "func", d)).partition(".")[0] for d in statement.decorator_list}
            if names & (own - {statement.name}):
                return True
            if not isinstance(statement, ast.ClassDef):
                return False
        is_call, uses = False, False
        nodes = [statement]
        while nodes:
            node = nodes.pop()
            is_call = is_call or isinstance(node, ast.Call)
            uses = uses or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in own)
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                continue
            nodes += ast.iter_child_nodes(node)
        is_function = isinstance(getattr(statement, "value", None), ast.Lambda)
        if (uses or is_function) and isinstance(statement, (ast.Assign, ast.AnnAssign)):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            own.update(name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name))
        return is_call and uses

    def dotted(self, node):
        parts = []
        while isinstance(node, self.ast.Attribute):
            parts.append(node.attr)
            node = node.value
        return ".".join(reversed([*parts, getattr(node, "id", "")]))

    def path_of(self, node, file):
        """What this expression is in that file, where it is one of the usual ones; None for any other."""
        ast = self.ast
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        if isinstance(node, ast.Name) and node.id == "__file__":
            return os.path.abspath(file)
        if isinstance(node, ast.Attribute) and node.attr == "parent":
            inner = self.path_of(node.value, file)
            return inner and os.path.dirname(inner)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            parts = [self.path_of(node.left, file), self.path_of(node.right, file)]
            return None if None in parts else os.path.join(*parts)
        if not isinstance(node, ast.Call):
            return None
        called, parts = self.dotted(node.func), [self.path_of(argument, file) for argument in node.args]
        if called == "os.getcwd":
            return os.getcwd()
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("resolve", "absolute"):
            return self.path_of(node.func.value, file)
        if not parts or None in parts:
            return None
        if called in ("Path", "pathlib.Path", "str"):
            return os.path.join(*parts)
        if called in ("os.path." + name for name in ("join", "dirname", "abspath", "realpath", "normpath")):
            return getattr(os.path, called[len("os.path.") :])(*parts)
        return None

    def is_the_same_before_imports(self, other, is_read, are_seeds_seen):
        """Whether the imports that both have find the same.

        `is_read`: whether a variable is read by an import; `are_seeds_seen`: whether imports draw random numbers."""
        common = self.found.keys() & other.found.keys()
        return self.before_imports(common, is_read, are_seeds_seen) == other.before_imports(common, is_read, are_seeds_seen)

    def before_imports(self, common, is_read, are_seeds_seen):
        order = list(self.found)

        def imports(count):
            return frozenset(one for one in order[:count] if one in common)

        return (
            self.inserted,
            [(imports(count), *rest) for count, *rest in self.settings if is_read(rest[0])],
            {name: imports(count) for name, (count, _) in self.mentions.items() if is_read(name)},
            {(imports(count), kinds) for count, _, kinds in self.seeds if are_seeds_seen},
            {imports(count) for count, _ in self.hooks if not common <= imports(count)},
        )
