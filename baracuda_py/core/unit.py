"""What one compile takes and what it yields: the text of a unit, the image, and the resources of each kernel in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Unit:
    """One compile: a few includes, a generated parameter struct and `extern "C"` entries.

    `symbols` names the entries that must come out of it; `options` are added to the compiler's own.
    """

    name: str
    text: str
    options: tuple[str, ...] = ()
    symbols: tuple[str, ...] = ()


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
