# SPDX-License-Identifier: BSD-3-Clause
"""The random generators that all modules share: those of `random`, numpy.random and torch.

A fresh process has a random seed in each of them, unless an import has set a fixed one.  A template
(template.py) imports for all workers of a node, so a fork of it needs a new seed in those that no
import has fixed, and the same state as a fresh process in the others.  The state alone does not say
which is which, so the seeding is noted while imports run.  The functions that modules may keep, such
as random.seed, stay the same objects; what is put below them is taken away afterwards.
"""

import sys


class Seeding:
    """Whether a generator's state comes from a fixed seed."""

    def __init__(self):
        self.is_fixed = False
        self.free = set()  # states that it has had while it was not fixed: they may be set again

    def seed(self, value):
        self.is_fixed = value is not None

    def read(self, state):
        if not self.is_fixed:
            self.free.add(state)

    def set(self, state):
        self.is_fixed = state not in self.free


class OfRandom:
    def __init__(self):
        import _random
        import random

        self.random, self.below = random, _random.Random
        self.seeding = Seeding()
        self.fixed = None  # the state, if it is

    def begin(self):
        seeding, shared = self.seeding, self.random._inst

        class Below(self.below):
            """Between random.Random and _random.Random, whose methods the former calls."""

            __slots__ = ()

            def seed(self, *values):
                super().seed(*values)
                if self is shared:
                    seeding.seed(values[0] if values else None)

            def getstate(self):
                state = super().getstate()
                if self is shared:
                    seeding.read(state)
                return state

            def setstate(self, state):
                super().setstate(state)
                if self is shared:
                    seeding.set(state)

        class Noted(self.random.Random, Below):
            pass

        self.put_back()  # a fork has a new seed
        self.plain, shared.__class__ = shared.__class__, Noted

    def end(self):
        self.random._inst.__class__ = self.plain
        self.seeding.free.clear()
        self.fixed = self.random.getstate() if self.seeding.is_fixed else None
        return ""

    def put_back(self):
        if self.fixed is not None:
            self.random.setstate(self.fixed)

    def state(self):
        return self.below.getstate(self.random._inst)

    renew = put_back  # where it is not fixed, `random` itself takes a new seed in a fork


class OfNumpy:
    MODULE = "numpy.random.mtrand"

    def __init__(self):
        self.seeding = Seeding()
        self.generator = self.noted = None

    def begin(self):
        if self.MODULE in sys.modules:
            self.put_below()

    def put_below(self):
        """numpy.random.seed() and set_state() call the bit generator's methods."""
        generator = getattr(sys.modules[self.MODULE], "_rand", None)
        bits = getattr(generator, "_bit_generator", None)
        if not hasattr(bits, "_legacy_seeding"):
            return
        seeding, state_of = self.seeding, self.state_of

        class Noted(type(bits)):
            def _legacy_seeding(self, seed):
                bits._legacy_seeding(seed)
                seeding.seed(seed)

            @property
            def state(self):
                seeding.read(state_of(bits))
                return bits.state

            @state.setter
            def state(self, value):
                bits.state = value
                seeding.set(state_of(bits))

        self.generator, self.bits, self.noted = generator, bits, Noted()
        generator._bit_generator = self.noted

    @staticmethod
    def state_of(bits):
        state = bits.state["state"]
        return state["key"].tobytes(), state["pos"]

    def end(self):
        """Returns what cannot be known; "" for nothing."""
        self.seeding.free.clear()
        if self.noted is None:
            return ""
        is_replaced = self.generator._bit_generator is not self.noted
        if not is_replaced:
            self.generator._bit_generator = self.bits
        self.noted = None
        return "numpy's random generator is replaced by an import" if is_replaced else ""

    def state(self):
        return self.state_of(self.bits) if self.noted is not None else None

    def renew(self):
        numpy = sys.modules.get("numpy.random")
        if numpy is not None and not self.seeding.is_fixed:
            numpy.seed()

    def watched(self, spec):
        """Of MODULE: the same, and begins as soon as it is loaded."""
        spec.loader = LoaderOfNumpy(spec.loader, self.put_below)
        return spec


class LoaderOfNumpy:
    def __init__(self, loader, then):
        self.loader, self.then = loader, then

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self.loader
        self.loader.exec_module(module)
        self.then()


class OfTorch:
    def __init__(self):
        self.seed = None  # before the imports, or as soon as it was there
        self.is_fixed = False

    @staticmethod
    def generator():
        return getattr(sys.modules.get("torch._C"), "default_generator", None)

    def begin(self):
        """Also as soon as it may be there."""
        generator = self.generator()
        if self.seed is None and generator is not None:
            self.seed = generator.initial_seed()

    def end(self):
        """Returns what cannot be known; "" for nothing."""
        generator = self.generator()
        seed = None if generator is None else generator.initial_seed()
        if seed == self.seed:
            return ""
        self.seed, self.is_fixed = seed, True
        # torch.seed() is as random as this, and a fixed one may be.
        return "" if seed < 2**32 else "torch's random generator has a seed of 64 bits from an import"

    def state(self):
        generator = self.generator()
        return None if generator is None else generator.get_state().tolist()

    def renew(self):
        generator = self.generator()
        if generator is not None and not self.is_fixed:
            generator.seed()


class Generators:
    def __init__(self):
        self.numpy, self.torch = OfNumpy(), OfTorch()
        self.all = {"random": OfRandom(), "numpy": self.numpy, "torch": self.torch}
        self.are_used = False  # by imports

    def begin(self):
        """Imports follow."""
        for one in self.all.values():
            one.begin()
        self.states = {name: one.state() for name, one in self.all.items()}

    def end(self):
        """They are done.  Returns what cannot be known of them; "" for nothing."""
        return next(iter([why for why in [one.end() for one in self.all.values()] if why]), "")

    def used(self):
        """Those that have another state than at the last call."""
        before, self.states = self.states, {name: one.state() for name, one in self.all.items()}
        used = [name for name, state in self.states.items() if before[name] not in (None, state)]
        self.are_used = self.are_used or bool(used)
        return used

    def renew(self):
        """In a fork, which is to be as a fresh process."""
        for one in self.all.values():
            one.renew()
