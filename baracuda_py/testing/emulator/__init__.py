"""Kernels without a GPU: what NVRTC makes of them, PTX, is translated to C++ and run thread by thread.

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
from ..lapack import standing_in
from ..layouts import aligned_bytes
from ..recording import Function, Memory, Record, Recorder
from .translate import translate

_HERE = Path(__file__).parent
_FLAGS = (
    "-std=c++17", "-w", "-march=native", "-ffp-contract=off", "-fPIC", "-shared", "-U_FORTIFY_SOURCE", f"-I{_HERE}",
)  # fmt: skip
_ALONE = ("-nostdlib", "-lgcc")  # of a kernel: the library of the threads has loaded what it calls
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
        """A library's stand-in on the host makes the step ready, where it has one (`testing.lapack`)."""
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
    library: ctypes.CDLL, symbol: str, grid: Sizes, block: Sizes, smem: int, params: bytes, seed: int,
    cluster: int = 1,
) -> None:  # fmt: skip
    """One launch, with `smem` bytes of dynamic shared memory, in clusters of so many blocks; raises EmulationError."""
    static, dynamic = (ctypes.c_uint32.in_dll(library, f"{symbol}__{name}").value for name in ("static", "dynamic"))
    if static + smem > _SHARED:
        raise EmulationError(f"{symbol}: {static + smem} bytes of shared memory, of {_SHARED}")
    smem += dynamic
    text, image = ctypes.create_string_buffer(_TEXT), ctypes.create_string_buffer(params, len(params))
    sizes = ctypes.c_uint * 3
    run = _threads().simt_run
    with _ONE_GRID():
        failed = run(
            getattr(library, symbol), sizes(*grid), sizes(*block), smem, image, cluster, _BLOCKS, seed, _YIELD_EVERY,
            text, _TEXT,
        )  # fmt: skip
    if failed:
        raise EmulationError(f"{symbol}, grid {grid}, block {block}: {text.value.decode()}")


@lru_cache(maxsize=512)
def translated(unit: Unit, target: str, symbol: str) -> ctypes.CDLL:
    """One of a unit's kernels, as a library."""
    _threads()
    unit = alone(unit, symbol)
    key = compiler.cache_key(unit, target, source.flatten(unit.text, f"{unit.name}.cu"), default_cache())
    # -O1 takes four times as long to compile as it takes to run the kernel once or twice.
    return _library(f"{key} {symbol}", "-O0", lambda: translate(ptx(unit, target), symbol))


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


def _library(key: str, level: str, code: Callable[[], str] | None) -> ctypes.CDLL:
    """Compiled, or found where another run or process left it."""
    command = [os.environ.get("CXX") or shutil.which("g++") or "c++", level, *_FLAGS]
    sources = sorted(path for path in _HERE.iterdir() if path.suffix in (".cpp", ".hpp", ".py"))
    facts = [key.encode(), _machine(command[0]), *map(str.encode, command), *(path.read_bytes() for path in sources)]
    folder = default_cache().folder("emulator")
    digest = hashlib.sha256(b"\0".join(facts)).hexdigest()
    library = folder / f"{digest[:32]}.so"
    if not library.exists():
        with tempfile.TemporaryDirectory(dir=folder) as work:
            files = [path for path in sources if path.suffix == ".cpp"]
            if code is not None:
                files = [Path(work, "kernels.cpp")]
                files[0].write_text(code())
            made = Path(work, "made.so")
            rest = [] if code is None else _ALONE
            found = subprocess.run([*command, *map(str, files), *rest, "-o", str(made)], capture_output=True, text=True)
            if found.returncode:
                errors = [line for line in found.stderr.splitlines() if "error" in line]
                raise EmulationError("\n".join([" ".join(command), *errors[:5]]))
            made.chmod(0o700)  # whatever the umask says
            os.replace(made, library)
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
