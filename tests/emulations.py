"""Emulated tests that need not run again: `tests/emulations.lock` has what each that passed depended on.

A test that the lock names is first run dry: what it does on the host it does, launches are noted in place of made, and
what they would have written the NumPy backend writes. Its key is of all else that the outcome depends on: the text of
the kernels that it launches, with their grids and parameters, every byte of the operands, the references and bounds of
the plans, the emulator, and the text of the test with what it imports of the tests and of `baracuda_py.testing`. Where
the lock has that key the test has passed; where it has another, where the dry run fails, and for one test in a hundred
whatever the lock says, it runs. What the lock does not name runs at once. So after a change the lock may be brought up
to date, and need not be:

    pytest -n auto --emulations passed tests && python tests/emulations.py passed

which says of what has no key why: where NumPy's result fails the test, kernels with memory that no operand has.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import hashlib
import inspect
import random
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, lru_cache, partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scripts import tool

from baracuda_py.core.args import operands_of
from baracuda_py.core.plan import Plan
from baracuda_py.core.tensor import TensorRef
from baracuda_py.jit import compiler
from baracuda_py.jit import launch as runtimes
from baracuda_py.testing import emulator, libraries
from baracuda_py.testing.emulator import Emulator, alone
from baracuda_py.testing.fingerprint import functions, kernel_text, python_text
from baracuda_py.testing.recording import Launched, Memory

LOCK = Path(__file__).with_suffix(".lock")
SAMPLE = 0.01  # of the tests that the lock knows run all the same
_TESTS = Path(__file__).parent
_anew = random.SystemRandom()  # which hypothesis does not seed
_FIXTURES = {"emulation", "monkeypatch", "place", "request", "_first_device", "_own_numbers"}
"""Those that a test may have, its parameters aside, to run twice as if it ran once."""
_ADDRESSES = (0x55, 0x56, 0x7E, 0x7F)  # what addresses begin with, and hardly any other number of a parameter struct


class Noted:
    """What a dry run would have launched, in order, as a digest."""

    def __init__(self) -> None:
        self.digest, self.launches, self.opaque = hashlib.blake2b(digest_size=6), 0, ""
        self.memory: list[tuple[int, int, str]] | None = None  # of the plan that runs now: addresses, and whose

    def add(self, *parts: object) -> None:
        for part in parts:
            self.digest.update(part if isinstance(part, bytes) else f"{part}\n".encode())

    def words(self, part: Any) -> str:
        """An object as its repr tells it, functions by their text; none must be known by where it lies."""
        if isinstance(part, (tuple, list)):
            return f"[{', '.join(map(self.words, part))}]"
        if isinstance(part, partial):
            return self.words((part.func, part.args, *part.keywords.items()))
        if inspect.ismethod(part):
            return self.words((part.__func__, part.__self__))
        if inspect.isfunction(part):
            return f"{functions(part)}{self.words([cell.cell_contents for cell in part.__closure__ or ()])}"
        text = repr(part)
        if " at 0x" in text:
            self.opaque = self.opaque or f"no words for {text}"
        return text

    def launched(self, one: Launched, seed: int) -> None:
        self.launches += 1
        if self.memory is None:
            self.opaque = self.opaque or f"{one.function.symbol} is launched by no plan's run"
            return
        kernel = _kernel(one.function.unit, one.function.symbol, one.function.device.target)
        self.add(kernel, one.grid, one.block, one.smem, one.cluster, seed)
        image = bytearray(one.image)
        for at in range(0, len(image) - 7, 8):
            word = int.from_bytes(image[at : at + 8], "little")
            name = self.place(word)
            if name is not None:
                image[at : at + 8] = bytes(8)
                self.add(at, name)
            elif word >> 40 in _ADDRESSES:
                self.opaque = self.opaque or f"{one.function.symbol} takes an unknown pointer"
        self.add(bytes(image))

    def place(self, address: int) -> str | None:
        """What an address is in: an operand of the plan that runs, or memory that was allocated for a plan."""
        made = [found for one in _allocated if (found := one()) is not None]
        spaces = [*(self.memory or ()), *((m.ptr, m.ptr + m.bytes.size, f"of {m.bytes.size} bytes at ") for m in made)]
        inside = [f"{name}{address - low}" for low, high, name in spaces if low <= address < high]
        return next(iter(inside or [f"the end of {name}" for low, high, name in spaces if address == high]), None)

    def called(self, prepare: Any, pointers: Any, scalars: Any, workspace: int, nbytes: int, *stream: int) -> None:
        """A library's step: what makes it ready, from what, and its operands."""
        places = [self.place(one) if one else "null" for one in (*pointers, *(one for one, _ in scalars), workspace)]
        self.add(self.words(prepare), places, [number for _, number in scalars], nbytes, _libraries())
        if None in places:
            self.opaque = self.opaque or "a library takes an unknown pointer"

    def run(self, plan: Plan, args: Any, launch: Callable[[], None]) -> None:
        """What a plan's run would launch; its outputs are NumPy's."""
        if self.memory is not None or not isinstance(runtimes._fake, Emulator):
            return launch()
        given = {spec.name: getattr(args, spec.name) for spec in operands_of(type(args))}
        seen = {name: _seen(value) for name, value in given.items()}
        bounds = [row.guarantee.of(plan.desc.element, plan.kind, plan.desc) for row in plan.rows]
        self.add(type(plan).__qualname__, *map(self.words, (plan.desc, plan.device, plan.preference, bounds)))
        self.add(_locks()._reference(type(plan)))
        self.memory = []
        try:
            for spec in operands_of(type(args)):
                value, shown = given[spec.name], seen[spec.name]
                several = isinstance(value, (list, tuple))
                for i, (own, one) in enumerate(zip(value, shown, strict=True) if several else [(value, shown)]):
                    self.add(spec.name, i)
                    if own is one:  # no array
                        self.add(self.words(own))
                        continue
                    start = one.ctypes.data
                    low, high = _reach(start, one.shape, one.strides, one.itemsize)
                    self.memory.append((low, high, f"{spec.name} {i} at "))
                    self.add(start - low, start % 16, one.shape, one.strides, one.dtype)
                    self.add(one.tobytes() if getattr(spec, "reads", True) else b"")
            launch()
        finally:
            self.memory = None
        type(plan).select(plan.desc, device="cpu").run(type(args)(**seen))


@lru_cache(maxsize=4096)
def _kernel(unit: Any, symbol: str, target: str) -> str:
    unit = alone(unit, symbol)
    head, own = _locks().split(unit.text)
    parts = (_locks()._included(head), kernel_text(own), symbol, *compiler.options(unit, target))
    return hashlib.blake2b("\0".join(map(str, parts)).encode(), digest_size=10).hexdigest()


def _seen(x: Any) -> Any:
    """A CuPy array, or a reference, over host memory as NumPy's; a list of them as theirs; another operand as it is."""
    if isinstance(x, (list, tuple)):
        return [_seen(one) for one in x]
    if isinstance(x, TensorRef):
        size = x.element.itemsize  # type: ignore[union-attr]
        strides = tuple(s * size for s in x.strides or ())
        low, high = _reach(x.ptr, x.shape, strides, size)
        dtype, start = x.element.dtype, x.ptr  # type: ignore[union-attr]
    elif hasattr(getattr(x, "data", None), "mem"):
        low, high = x.data.mem.ptr, x.data.mem.ptr + x.data.mem.size
        dtype, start, strides = x.dtype, x.data.ptr, x.strides
    else:
        return x
    held = (ctypes.c_ubyte * max(high - low, 1)).from_address(low)
    return np.ndarray(x.shape, dtype, held, start - low, strides)


def _reach(start: int, shape: tuple[int, ...], strides: tuple[int, ...], size: int) -> tuple[int, int]:
    """Where the memory of an array begins and ends."""
    if 0 in shape:
        return start, start
    steps = [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
    return start + sum(min(s, 0) for s in steps), start + sum(max(s, 0) for s in steps) + size


class _Library:
    """A library's step as it was made ready: a dry run notes it."""

    noted: Noted | None = None

    def __init__(self, prepare: Callable[..., Any], call: Callable[..., None]) -> None:
        self._prepare, self._call = prepare, call
        if hasattr(call, "workspace"):
            self.workspace = call.workspace

    def __call__(self, *given: Any) -> None:
        if self.noted is None:
            return self._call(*given)
        self.noted.called(self._prepare, *given)


def _library(self: Emulator, prepare: Callable[..., Any], device: Any) -> _Library:
    return _Library(prepare, _made_ready(self, prepare, device))


def _allocate(self: Emulator, nbytes: int, stream: int, package: str) -> Memory:
    memory = _made(self, nbytes, stream, package)
    _allocated[:] = [*(one for one in _allocated if one() is not None), weakref.ref(memory)]
    return memory


# Plans keep both what a library made ready and their workspaces, from one run to the next.
_allocated: list[weakref.ref[Memory]] = []
_made_ready, Emulator.library = Emulator.library, _library  # type: ignore[method-assign]
_made, Emulator.allocate = Emulator.allocate, _allocate  # type: ignore[method-assign]


class _Runs:
    """`Plan.run` while a dry run lasts: it stands before what a runner puts on its plan."""

    def __init__(self, noted: Noted) -> None:
        self.noted, self.plain = noted, Plan.run

    def __get__(self, plan: Plan | None, kind: type[Plan]) -> Any:
        if plan is None:
            return self.plain
        run = vars(plan).get("run") or self.plain.__get__(plan)
        return partial(self.call, plan, run) if plan.device.fake else run

    def __set__(self, plan: Plan, run: Any) -> None:
        vars(plan)["run"] = run

    def call(self, plan: Plan, run: Any, args: Any, *more: Any, **named: Any) -> None:
        self.noted.run(plan, args, partial(run, args, *more, **named))


@contextlib.contextmanager
def dry() -> Iterator[Noted]:
    """Emulated devices launch nothing within, and the NumPy backend writes what plans would have written."""
    noted, bind = Noted(), Plan.bind
    emulated = sys.modules["baracuda_py.testing.emulated"]  # the package gives a function of this name

    def dry_bind(self: Plan, args: Any, workspace: Any = None, stream: Any = None) -> Callable[[], None]:
        call = bind(self, args, workspace, stream)
        return partial(noted.run, self, args, call) if self.device.fake else call

    def launch(kernel: None, symbol: str, *sizes: object) -> None:
        runtime: Any = runtimes._fake
        noted.launched(runtime.record.launches[-1], runtime.seed)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Plan, "run", _Runs(noted))
        patch.setattr(Plan, "bind", dry_bind)
        patch.setattr(emulator, "run_kernel", launch)
        patch.setattr(emulator, "translated", lambda unit, target, symbol: None)
        patch.setattr(_Library, "noted", noted)
        patch.setattr(emulated, "Truth", lambda case: SimpleNamespace(wrong=lambda got, bound: None))
        patch.setattr(emulated, "_SEEDS", emulated._SEEDS[:1])
        yield noted


def key(test: Callable[[], object], module: ModuleType) -> tuple[str, str]:
    """The key of a test of a module; or "", and why it has none where it is one that launches."""
    try:
        with _forgetting(_helpers(module)), dry() as noted:
            test()
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # also a skip
        return "", f"{type(error).__name__}: {error}".partition("\n")[0]
    if noted.opaque or not noted.launches:
        return "", noted.opaque
    noted.add(_text(module), _locks()._checks())
    return _short(noted.digest.digest()), ""


@cache
def _helpers(module: ModuleType) -> list[ModuleType]:
    """A module of the tests and those that it imports of them."""
    found = {module.__name__: module}
    todo = [module]
    while todo:
        for value in vars(todo.pop()).values():
            name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
            one = sys.modules.get(name) if isinstance(name, str) else None
            file = getattr(one, "__file__", None)
            if one is not None and file and _TESTS in Path(file).parents and name not in (*found, __name__, "scripts"):
                found[str(name)] = one
                todo.append(one)
    return [found[name] for name in sorted(found)]


@contextlib.contextmanager
def _forgetting(modules: Iterable[ModuleType]) -> Iterator[None]:
    """What tests keep of other runs is not for a dry one, nor the other way round."""
    fresh: dict[int, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        for module in modules:
            for name, value in vars(module).items():
                if isinstance(value, _Kept) and value.__module__.partition(".")[0] != "baracuda_py":
                    patch.setattr(module, name, fresh.setdefault(id(value), cache(value.__wrapped__)))
        yield


_Kept = type(cache(print))


@cache
def _text(module: ModuleType) -> str:
    modules = _helpers(module)
    values = [value for one in modules for value in vars(one).values()]
    ours = [f for f in values if str(getattr(f, "__module__", "")).startswith("baracuda_py.testing")]
    text = functions(*(f for f in ours if inspect.isfunction(f) or inspect.isclass(f)))
    return _digest(*(python_text(inspect.getsource(one)) for one in modules), text)


@cache
def _libraries() -> str:
    files = sorted(Path(str(libraries.__file__)).parent.glob("*.py"))
    return _digest(*(python_text(file.read_text()) for file in files))


def _digest(*texts: str) -> str:
    return hashlib.blake2b("\0".join(texts).encode(), digest_size=10).hexdigest()


@cache
def _locks() -> ModuleType:
    return tool("emulation_lock")


@cache
def known() -> Mapping[str, str]:
    """The key of each test that the lock has, by a mark of its name."""
    return _read(LOCK)


def _read(file: Path) -> dict[str, str]:
    lines = file.read_text().splitlines() if file.exists() else ()
    return dict(line.split() for line in lines if not line.startswith("#"))


written: list[Path] = []  # where the keys of this run go, given by `--emulations`


def note(path: str | Path) -> None:
    """Keys of what passes from now on go to a file, too."""
    written.append(Path(path).absolute())


def _short(digest: bytes) -> str:
    return base64.urlsafe_b64encode(digest).decode()


def mark_of(name: str) -> str:
    """What the lock calls a test."""
    return _short(hashlib.blake2b(name.encode(), digest_size=3).digest())


@cache
def _emulates(module: ModuleType) -> bool:
    return any("emulat" in inspect.getsource(one) for one in _helpers(module))


def _is_plain(item: pytest.Function) -> bool:
    """Whether a test may run twice as if it ran once: of parameters, and of fixtures that keep nothing."""
    direct = item.callspec.params if hasattr(item, "callspec") else {}

    def plain(name: str) -> bool:
        made = item._fixtureinfo.name2fixturedefs.get(name)
        return name in _FIXTURES or (name in direct and (not made or made[-1].func.__module__.startswith("_pytest.")))

    return all(map(plain, item.fixturenames))


def run(item: pytest.Function) -> bool | None:
    """True where a test that emulates passed before, or passes now; None where it is to run as any other."""
    mark = mark_of(item.nodeid)
    if not (mark in known() or (written and _emulates(item.module))) or not _is_plain(item):
        return None
    given = {name: item.funcargs[name] for name in item._fixtureinfo.argnames}
    with pytest.MonkeyPatch.context() as patch:
        own = {"monkeypatch": patch} if "monkeypatch" in given else {}
        made, why = key(partial(item.obj, **(given | own)), item.module)
    if not made or made != known().get(mark) or _anew.random() < SAMPLE:
        item.obj(**given)
    for path in written:
        with path.open("a") as file:
            file.write(f"{mark} {made}\n" if made else f"# {item.nodeid}: {why}\n" if why else "")
    return True


def main() -> None:
    """Put the keys of runs into the lock, beside those of other tests."""
    files = [Path(name) for name in sys.argv[1:]]
    keys = dict(known())
    for file in files:
        keys |= _read(file)
        print(*sorted({line for line in file.read_text().splitlines() if line.startswith("#")}), sep="\n")
    LOCK.write_text("".join(f"{mark} {made}\n" for mark, made in sorted(keys.items())))


if __name__ == "__main__":
    main()
