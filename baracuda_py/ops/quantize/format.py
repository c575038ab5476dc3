"""What a low-bit format of matrices is: how codes lie, what a code means, and what scales stand beside it.

A stored matrix [*batch, n, k] is `codes` and, but for formats that keep everything in their blocks, `scales` and
`zeros`: one for each group of a row's neighbours, and of `row_group` rows. Every op over such matrices takes every
format: it reads this declaration on the host, and on the device the struct of the same name
(`kernels/quantize/format.cuh`), so that a new format is a page of tables and one small header.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import ElementKind
from ...core.element import decode as decode_elements
from .gguf_lattices import Lattice

E = ElementKind
SCALES = (E.F32, E.F16, E.BF16, E.E8M0, E.FP8E4M3)
RUN, PART = 32, 8  # values of a row that products take at once, and those that kernels decode together at least
RUNS = {"format_run": RUN, "format_part": PART}
"""The constants of kernels/quantize/format.cuh."""


@dataclass(frozen=True, eq=False)  # compared and hashed by identity
class Format:
    """A row of the table.

    cpp: the struct, and header: the file under kernels/quantize/formats that has it. values(codes, k): the float32
    numbers [*, k] of rows of bytes. bytes(k): of a row. bits: of a value, with what its block has besides. multiple: of
    what k must be. group: values that share a scale, 0 where the problem
    says. scales: the elements that scales may
    have, the usual first; none where blocks hold everything. zeros: the elements of zero points, likewise. unit: bytes
    of the accesses that kernels make where rows begin at multiples of it. lattice: whose points codes name.
    """

    cpp: str
    header: str
    values: Callable[[Any, int], Any]
    bytes: Callable[[int], int]
    bits: float
    multiple: int = PART
    group: int = 0
    scales: tuple[ElementKind, ...] = ()
    zeros: tuple[ElementKind, ...] = ()
    unit: int = 16
    lattice: Lattice | None = None


def stream(codes: Any, bits: int, k: int) -> Any:
    """The k codes of rows of bytes, in the order of bits from the lowest of the first byte on, as uint8."""
    if bits == 8:
        return codes
    each = np.unpackbits(codes, axis=-1, bitorder="little", count=k * bits).reshape(*codes.shape[:-1], k, bits)
    return np.packbits(each, axis=-1, bitorder="little")[..., 0]


def halves(codes: Any) -> Any:
    """The 4-bit codes [*, 2 m] of m bytes, the upper half of each first."""
    low, high = codes & 15, codes >> 4
    return np.stack((high, low), axis=-1).reshape(*codes.shape[:-1], 2 * codes.shape[-1])


def decode(desc: Any, codes: Any, scales: Any = None, zeros: Any = None, index: Any = None, scale: float = 1.0) -> Any:
    """The float32 values [*batch, n, k] of a stored matrix.

    x = (number - zero) · (held · scale), each operation rounded to float32; held is the group's scale, and `scale` a
    number for the whole matrix. Scales in float64, which none are stored in, are computed with in it: so differences
    of the function are told.
    """
    form = desc.kind.row
    kind = np.float64 if scales is not None and scales.dtype == np.float64 else np.float32

    def numbers(held: Any, element: ElementKind) -> Any:
        return (held if held.dtype == np.float64 else decode_elements(held, element)).astype(kind)

    with np.errstate(all="ignore"):
        x = form.values(codes, desc.k).astype(kind)
        if not form.scales:
            return x
        held = numbers(scales, desc.scale_element) * kind(scale)
        of = np.arange(desc.k) // desc.group if index is None else np.clip(index, 0, max(0, desc.k // desc.group - 1))
        rows = np.arange(desc.n) // desc.row_group
        if zeros is not None:
            x = x - numbers(zeros, desc.zero_element)[..., rows, :][..., of]
        return x * held[..., rows, :][..., of]
