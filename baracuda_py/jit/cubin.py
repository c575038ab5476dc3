"""What a compile yields: the image, and what the assembler said of each kernel in it."""

from __future__ import annotations

import contextlib
import hashlib
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class KernelInfo:
    """Resources of one kernel; spills include those of functions it calls that were not inlined. Sizes are bytes.

    `serialised`: its products on wgmma wait for one another, since the assembler could not do otherwise.
    """

    registers: int
    spill_stores: int
    spill_loads: int
    stack: int
    static_smem: int
    serialised: bool = False


@dataclass(frozen=True)
class Cubin:
    """A compiled unit. `path` is None where the cache could not be written; `load_path()` serves both cases."""

    path: Path | None
    image: bytes
    kernels: Mapping[str, KernelInfo]
    seconds: float
    cached: bool

    @contextlib.contextmanager
    def load_path(self) -> Iterator[Path]:
        """A file holding the image while the context lasts, for `cupy.RawModule(path=)`.

        Without a cached file it is a private temporary one, named by its content because CuPy remembers
        modules by path. OSError where no temporary directory can be written either: then load `image`
        with `cupy.cuda.function.Module().load`.
        """
        if self.path is not None and self.path.is_file():
            yield self.path
            return
        with contextlib.ExitStack() as stack:
            path = Path(stack.enter_context(_temporary_folder()), f"{hashlib.sha256(self.image).hexdigest()}.cubin")
            path.write_bytes(self.image)
            yield path


def _temporary_folder() -> tempfile.TemporaryDirectory[str]:
    try:
        return tempfile.TemporaryDirectory(prefix="baracuda-")
    except OSError:
        return tempfile.TemporaryDirectory(prefix="baracuda-", dir="/dev/shm")


_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_STACK = re.compile(r"(\d+) bytes cumulative stack size")
_SMEM = re.compile(r"(\d+) bytes smem")
_SERIALISED = re.compile(r"instructions are serialized .*function '([^']+)'")


def parse_ptxas(log: str) -> dict[str, KernelInfo]:
    """Registers, spills, stack and static shared memory per kernel, from the `-v` log of the assembler.

    Functions that were not inlined are listed after the kernel that calls them and count towards it.
    """
    kernels: dict[str, KernelInfo] = {}
    serialised = set(_SERIALISED.findall(log))
    for block in re.split(r"(?=^.*Compiling entry function ')", log, flags=re.MULTILINE):
        entry = _ENTRY.search(block)
        if entry is None:
            continue
        frames = [tuple(map(int, frame)) for frame in _FRAME.findall(block)]
        used = next((line for line in block.splitlines() if _USED.search(line)), "")
        kernels[entry[1]] = KernelInfo(
            registers=_number(_USED, used),
            spill_stores=sum(frame[1] for frame in frames),
            spill_loads=sum(frame[2] for frame in frames),
            stack=max([_number(_STACK, used), *(frame[0] for frame in frames)]),
            static_smem=_number(_SMEM, used),
            serialised=entry[1] in serialised,
        )
    return kernels


def _number(pattern: re.Pattern[str], text: str) -> int:
    match = pattern.search(text)
    return int(match[1]) if match else 0
