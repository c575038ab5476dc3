"""What the assembler said of each kernel of a unit, read from its log."""

from __future__ import annotations

import re

from baracuda_py.core.unit import KernelInfo

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
