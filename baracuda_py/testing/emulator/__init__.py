"""Kernels without a GPU: what NVRTC makes of them, PTX, is translated to steps of C++ and run thread by thread.

    with emulating() as emulator:
        plan = RMSNormPlan.select(desc, device=emulated_device(9.0))
        plan.run(args)                       # CuPy arrays over host memory: see `pointer_view`

What goes on between threads is as on a GPU: barriers, shuffles, tensor-core products, shared memory with its bounds,
clusters of blocks, copies behind the program, which land as late as they may. A seed picks the order of threads. What
the assembler makes of PTX, and the order in which other threads see memory, are not emulated. It takes NVRTC and a C++
compiler (`CXX`, g++).
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import itertools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path

import numpy as np

from ..._forking import Mutex
from ...core.device import Device, fake_device
from ...core.errors import BaracudaError, CompileError, UnsupportedError
from ...jit import compiler, nvrtc, source, toolkit
from ...jit.cache import default_cache
from ...jit.launch import install_fake
from ...jit.source import Unit
from ..layouts import aligned_bytes
from ..libraries import standing_in
from ..recording import Function, Memory, Record, Recorder
from . import steps
from .translate import listed, translate

_HERE = Path(__file__).parent
_FLAGS = (
    "-std=c++17", "-w", "-march=native", "-ffp-contract=off", "-fPIC", "-shared", "-U_FORTIFY_SOURCE", f"-I{_HERE}",
)  # fmt: skip
_ALONE = ("-nostdlib", "-lgcc")  # of a kernel: the library of the threads has loaded what it calls
_STEPS_LEVEL = "-O1"  # steps are compiled once for all kernels; one kernel is compiled at -O0, as it runs once or twice
_ONE_GRID = Mutex()
Sizes = tuple[int, int, int]
_GUARD = 256  # bytes around an allocation
_TEXT = 2000
_ENTRY = 'extern "C" __global__'
_SHARED = 227 * 1024  # bytes of shared memory that a block has at most, on any device
_BLOCKS, _YIELD_EVERY = 3, 61  # blocks run at a time; a thread yields at one in so many accesses of shared memory


class EmulationError(BaracudaError):
    """A kernel did what it must not, or waits for ever; the message tells the line of its PTX, which `ptx` gives."""


@dataclass
class _Guarded(Memory):
    whole: np.ndarray


class Emulator(Recorder):
    """The runtime emulated devices run on."""

    def __init__(self) -> None:
        super().__init__()
        self.seed = 1

    def launch(self, function: Function, gx: int, gy: int, gz: int, bx: int, by: int, bz: int, smem: int, stream: int,
               params: int, extra: int, cluster: int = 1) -> tuple[int]:  # fmt: skip
        """Run the kernel to its end."""
        done = super().launch(function, gx, gy, gz, bx, by, bz, smem, stream, params, extra, cluster)
        launched = self.record.launches[-1]
        library = translated(function.unit, function.device.target, function.symbol)
        run_kernel(library, function.symbol, launched.grid, launched.block, smem, launched.image, self.seed, cluster)
        return done

    def allocate(self, nbytes: int, stream: int, package: str) -> Memory:
        """Poisoned host memory between guards."""
        whole = aligned_bytes(nbytes + 2 * _GUARD)
        whole[:] = 0xA5
        memory = _Guarded(whole[_GUARD : _GUARD + nbytes], whole)
        memory.bytes[:] = 0xFF
        self.record.allocations.append(memory)
        return memory

    def library(self, prepare: Callable[[Device], Callable[..., None]], device: Device) -> Callable[..., None]:
        """A library's stand-in on the host makes the step ready, where it has one (`testing.libraries`)."""
        try:
            return prepare(device)
        except UnsupportedError as error:
            raise EmulationError(f"the row calls a library, which takes a device: {error}") from None

    def clear(self, pointer: int, nbytes: int, stream: int) -> None:
        """At once."""
        ctypes.memset(pointer, 0, nbytes)

    def overrun(self) -> str | None:
        """Which allocation had bytes around it written, if one had."""
        for memory in self.record.allocations:
            whole = memory.whole  # type: ignore[attr-defined]
            if (whole[:_GUARD] != 0xA5).any() or (whole[_GUARD + memory.bytes.size :] != 0xA5).any():
                return f"something wrote outside a workspace of {memory.bytes.size} bytes"
        return None


def run_kernel(
    kernel: Kernel | ctypes.CDLL, symbol: str, grid: Sizes, block: Sizes, smem: int, params: bytes, seed: int,
    cluster: int = 1,
) -> None:  # fmt: skip
    """One launch, with `smem` bytes of dynamic shared memory, in clusters of so many blocks; raises EmulationError."""
    if isinstance(kernel, Kernel):
        static, dynamic = kernel.static, kernel.dynamic
        function, program = None, ctypes.byref(kernel.program)
    else:
        static, dynamic = (ctypes.c_uint32.in_dll(kernel, f"{symbol}__{name}").value for name in ("static", "dynamic"))
        function, program = getattr(kernel, symbol), None
    if static + smem > _SHARED:
        raise EmulationError(f"{symbol}: {static + smem} bytes of shared memory, of {_SHARED}")
    smem += dynamic
    text, image = ctypes.create_string_buffer(_TEXT), ctypes.create_string_buffer(params, len(params))
    sizes = ctypes.c_uint * 3
    run = _threads().simt_run
    with _ONE_GRID():
        failed = run(
            function, program, sizes(*grid), sizes(*block), smem, image, cluster, _BLOCKS, seed, _YIELD_EVERY, text,
            _TEXT,
        )  # fmt: skip
    if failed:
        raise EmulationError(f"{symbol}, grid {grid}, block {block}: {text.value.decode()}")


@lru_cache(maxsize=512)
def translated(unit: Unit, target: str, symbol: str) -> Kernel | ctypes.CDLL:
    """One of a unit's kernels: as steps, which are kept, or as a library where it calls functions."""
    _threads()
    unit = alone(unit, symbol)
    key = compiler.cache_key(unit, target, source.flatten(unit.text, f"{unit.name}.cu"), default_cache())
    key = f"{key} {symbol}"
    kept = _listing(key)
    if kept.exists():
        return Kernel(steps.loads(kept.read_text()))
    if not _path(key, "-O0", ".so").exists() and (made := listed(ptx(unit, target), symbol)) is not None:
        with tempfile.TemporaryDirectory(dir=kept.parent) as work:
            Path(work, "made").write_text(steps.dumps(made))
            os.replace(Path(work, "made"), kept)
        return Kernel(made)
    return _library(key, "-O0", lambda: translate(ptx(unit, target), symbol))


class Kernel:
    """A kernel whose steps have their functions' addresses."""

    def __init__(self, made: steps.Listing) -> None:
        self.static, self.dynamic = made.static, made.dynamic
        self._code, self._data = steps.linked(made, _FUNCTIONS.addresses(made.kinds))
        self.program = _Program(self._code.ctypes.data, made.frame)


class _Program(ctypes.Structure):  # as grid.hpp has it
    _fields_ = (("code", ctypes.c_void_p), ("frame", ctypes.c_uint64))


class _Entry(ctypes.Structure):  # as steps.py writes it
    _fields_ = (("name", ctypes.c_char_p), ("step", ctypes.c_void_p))


class _Functions:
    """The functions of steps, which all kernels and processes share."""

    def __init__(self) -> None:
        self._lock = Mutex()
        self._addresses: dict[str, int] = {}  # by name
        self._loaded: set[Path] = set()

    def addresses(self, kinds: list[str]) -> dict[str, int]:
        """Of kinds of step. What no library has is compiled, all of it at once."""
        names = {kind: steps.named(kind) for kind in kinds}
        with self._lock():
            if self._missing(names):
                mark = _path("steps", _STEPS_LEVEL, "")
                for path in sorted(mark.parent.glob(f"{mark.name}-*.so")):
                    self._load(path)
            if missing := self._missing(names):
                digest = hashlib.sha256("".join(missing).encode()).hexdigest()[:32]
                path = mark.with_name(f"{mark.name}-{digest}.so")
                _compile(path, _STEPS_LEVEL, lambda: steps.functions(missing))
                self._load(path)
            return {kind: self._addresses[name] for kind, name in names.items()}

    def _missing(self, names: dict[str, str]) -> list[str]:
        return sorted(kind for kind, name in names.items() if name not in self._addresses)

    def _load(self, path: Path) -> None:
        if path in self._loaded:
            return
        self._loaded.add(path)
        table = _Entry.in_dll(ctypes.CDLL(str(path)), "steps")
        entries = ctypes.cast(ctypes.pointer(table), ctypes.POINTER(_Entry))
        for entry in itertools.takewhile(lambda entry: entry.name, map(entries.__getitem__, itertools.count())):
            self._addresses[entry.name.decode()] = entry.step


_FUNCTIONS = _Functions()


def alone(unit: Unit, symbol: str) -> Unit:
    """The unit with one of its kernels, a line each: the others cost as much to compile."""
    lines = unit.text.splitlines()
    if any(line.startswith(_ENTRY) and not line.endswith("}") for line in lines):
        return unit  # not written by a page
    lines = [line for line in lines if not line.startswith(_ENTRY) or f" {symbol}(" in line]
    return replace(unit, text="\n".join(lines) + "\n", symbols=(symbol,))


@lru_cache(maxsize=8)
def ptx(unit: Unit, target: str) -> str:
    """What NVRTC makes of a unit before it assembles it."""
    text = source.flatten(unit.text, f"{unit.name}.cu")
    options = [o for o in compiler.options(unit, target) if "gpu-architecture" not in o and "ptxas" not in o]
    includes = [f"--include-path={folder}" for folder in toolkit.include_dirs()]
    architecture = f"--gpu-architecture={target.replace('sm_', 'compute_')}"
    output = nvrtc.load().compile(text, f"{unit.name}.cu", (architecture, *options, *includes), "PTX")
    if output.error:
        raise CompileError(f"{unit.name} for {target}: {output.error}", output.log)
    return output.image.rstrip(b"\0").decode()


def missing() -> str | None:
    """What emulation lacks on this machine, or None."""
    try:
        nvrtc.load()
        _threads()
    except (CompileError, EmulationError, OSError) as error:
        return str(error).splitlines()[0]
    return None


def emulated_device(cc: float, multiprocessors: int | None = None) -> Device:
    """A fake device for the emulator: plans are cached by device and keep the runtime they met first.

    With few multiprocessors, small problems are already more than one block for each.
    """
    device = fake_device(cc)
    return replace(device, name=device.name.replace("fake", "emulated"), sms=multiprocessors or device.sms)


@cache
def _threads() -> ctypes.CDLL:
    """The library that runs threads; kernels call it."""
    return _library("threads", "-O3", None)


@cache
def _machine(compiler: str) -> bytes:
    """What the compiler defines for this CPU, and its version: a library made elsewhere may have other instructions."""
    return subprocess.run([compiler, *_FLAGS, "-dM", "-E", "-xc++", os.devnull], capture_output=True).stdout


def _command(level: str) -> list[str]:
    return [os.environ.get("CXX") or shutil.which("g++") or "c++", level, *_FLAGS]


def _sources(*suffixes: str) -> list[Path]:
    return sorted(path for path in _HERE.iterdir() if path.suffix in suffixes)


@cache
def _texts(*suffixes: str) -> bytes:
    return b"|".join(path.read_bytes() for path in _sources(*suffixes))


def _kept(suffix: str, *facts: bytes) -> Path:
    return default_cache().folder("emulator") / f"{hashlib.sha256(b'|'.join(facts)).hexdigest()[:32]}{suffix}"


def _path(key: str, level: str, suffix: str) -> Path:
    """Where what is made from a key and from the emulator is kept, by this CPU and compiler."""
    command = _command(level)
    made_by = map(str.encode, command)
    return _kept(suffix, key.encode(), _machine(command[0]), *made_by, _texts(".cpp", ".hpp", ".py"))


def _listing(key: str) -> Path:
    """Where the steps of a kernel are kept: what writes them is Python, and no compiler."""
    return _kept(".json", key.encode(), _texts(".py"))


def _compile(library: Path, level: str, code: Callable[[], str] | None) -> None:
    """Make a library of some code, or of the emulator's own."""
    command = _command(level)
    with tempfile.TemporaryDirectory(dir=library.parent) as work:
        files = [str(path) for path in _sources(".cpp")]
        if code is not None:
            Path(work, "kernels.cpp").write_text(code())
            files = [str(Path(work, "kernels.cpp")), *_ALONE]
        made = Path(work, "made.so")
        found = subprocess.run([*command, *files, "-o", str(made)], capture_output=True, text=True)
        if found.returncode:
            errors = [line for line in found.stderr.splitlines() if "error" in line]
            raise EmulationError("\n".join([" ".join(command), *errors[:5]]))
        made.chmod(0o700)  # whatever the umask says
        os.replace(made, library)


def _library(key: str, level: str, code: Callable[[], str] | None) -> ctypes.CDLL:
    """Compiled, or found where another run or process left it."""
    library = _path(key, level, ".so")
    if not library.exists():
        _compile(library, level, code)
    return ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL if code is None else ctypes.RTLD_LOCAL)


_EMULATOR = Emulator()  # one object: plans are cached, and keep the runtime they met first


@contextlib.contextmanager
def emulating(seed: int = 1) -> Iterator[Emulator]:
    """Emulated devices run on the emulator while the context lasts."""
    outer, _EMULATOR.record, _EMULATOR.seed = _EMULATOR.record, Record(), seed
    previous = install_fake(_EMULATOR)
    try:
        with standing_in():
            yield _EMULATOR
    finally:
        _EMULATOR.record = outer
        install_fake(previous)
