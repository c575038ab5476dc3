"""What a compile yields: the image, and what the assembler said of each kernel in it."""

from __future__ import annotations

import re
from collections.abc import Mapping
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
    """A compiled unit. `image` is what is loaded; `path` is the cache's file, None where it could not be written."""

    path: Path | None
    image: bytes
    kernels: Mapping[str, KernelInfo]
    seconds: float
    cached: bool


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
