"""aqlm_dequantize: weights that are sums of vectors, which codes take from codebooks (AQLM)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Exact, Geometry, Guarantee, InvalidProblemError, Kernel, Params, Plan,
    Problem, Step, Variant, extent, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core import element as element_field
from ...core.benchmark import BYTES, Benchmark
from ...core.element import cast as cast_values
from ...core.element import decode, encode

E = ElementKind
ELEMENTS = (E.F16, E.BF16, E.F32)
CODES = (E.U8, E.I8, E.U16, E.I16, E.I32)
_THREADS = 256


@dataclass(frozen=True, kw_only=True)
class AqlmFields:
    """W is [out_groups · out_group, in_groups · in_group], each group the sum of a vector of each of `books` codebooks.

    A codebook has `entries` vectors, a power of two.
    """

    out_groups: int = extent()
    in_groups: int = extent()
    books: int = extent()
    entries: int = extent()
    out_group: int = extent()
    in_group: int = extent()
    element: ElementKind = element_field(ELEMENTS)

    def validate(self) -> None:
        """Vectors and codebooks that there are."""
        if not (self.books and self.out_group and self.in_group):
            raise InvalidProblemError(
                f"codebooks must be one at least, of vectors of a weight at least, got books = {self.books}, out_group "
                f"= {self.out_group} and in_group = {self.in_group}"
            )
        if self.entries.bit_count() != 1 or self.entries > 1 << 24:
            raise InvalidProblemError(f"entries must be a power of two of at most 2^24, got {self.entries}")

    @property
    def n(self) -> int:
        """Rows of W."""
        return self.out_groups * self.out_group

    @property
    def k(self) -> int:
        """Columns of W."""
        return self.in_groups * self.in_group


@dataclass(frozen=True, kw_only=True)
class AqlmDequantizeDescriptor(AqlmFields, Descriptor):
    """See `AqlmFields`; y is W, in the codebooks' element."""


@dataclass(slots=True, kw_only=True)
class AqlmDequantizeArgs(Args):
    """codes are integers of 8, 16 or 32 bits, of either sign; they and codebooks are dense, rows of y contiguous."""

    codes: Array = operand("out_groups in_groups books", element=CODES, layout="dense")
    codebooks: Array = operand("books entries out_group in_group", layout="dense")
    scales: Array | None = operand("out_groups", optional=True)
    y: Array = output("n k", layout="inner")


def summed(desc: Any, codes: Any, codebooks: Any, scales: Any) -> Any:
    """W in the dtype of codebooks, its sums in the order of the codebooks."""
    at = codes.astype(np.int64) & (desc.entries - 1)
    total = codebooks[0][at[..., 0]]
    for m in range(1, desc.books):
        total = total + codebooks[m][at[..., m]]
    if scales is not None:
        total = total * scales[:, None, None, None]
    return total.swapaxes(1, 2).reshape(desc.n, desc.k)


def reference(desc: AqlmDequantizeDescriptor, *, codes: Any, codebooks: Any, scales: Any) -> Mapping[str, Any]:
    """NumPy, in float32, on the stored values."""

    def single(x: Any) -> Any:
        return None if x is None else np.asarray(decode(x, desc.element)).astype(np.float32)

    with np.errstate(all="ignore"):
        y = summed(desc, codes, single(codebooks), single(scales))
    return {"y": np.array(encode(cast_values(y, desc.element), desc.element))}


def aqlm_fields() -> dict[str, str]:
    """The fields of `Params` that kernels of W read."""
    return {
        "codes": "ptr", "codebooks": "ptr", "scales": "ptr", "n": "i64", "k": "i64", "groups": "i64",
        "scale_step": "i64", "books": "i32", "entries": "i32", "out_group": "i32", "in_group": "i32",
        "code_bytes": "i32",
    }  # fmt: skip


def aqlm_values(p: Problem) -> dict[str, Any]:
    """Their values."""
    desc = p.desc
    return {
        "n": desc.n, "k": desc.k, "groups": desc.in_groups, "books": desc.books, "entries": desc.entries,
        "out_group": desc.out_group, "in_group": desc.in_group, "code_bytes": p.codes.element.itemsize,
        "scale_step": 0 if p.scales is None else p.scales.strides[0],
    }  # fmt: skip


def width(p: Problem, *rows: Any) -> int:
    """Weights of an access: 16 bytes of a vector, where vectors and rows of these views lie so, else one."""
    most = 16 // int(p.desc.element.itemsize)
    whole = p.desc.in_group % most == 0 and all(view.aligned(16) for view in (p.codebooks, *rows))
    return most if whole else 1


def widths(element: ElementKind) -> Mapping[str, Any]:
    """The axis of kernels that says which."""
    return {"N": (1, 16 // element.itemsize)}


PARAMS = Params("AqlmDequantizeParams", y="ptr", y_step="i64", **aqlm_fields())


def _geometry(p: Problem) -> Geometry | str:
    each = width(p, p.y)
    blocks = -(-p.desc.n * (p.desc.k // each) // _THREADS)
    if blocks >= 2**31:
        return f"needs {blocks} blocks, a grid has 2**31 - 1"
    values = {"y_step": p.y.strides[0], **aqlm_values(p)}
    steps = (Step("dequantize", (blocks, 1, 1), values, {"N": each}, _THREADS),) if blocks else ()
    return Geometry(steps, layout="contiguous" if p.y.dense else "strided")


def aqlm_case(draw: Any) -> dict[str, Any]:
    """Fields of a random matrix."""
    return {
        "out_groups": draw.sizes(1, 5, 33, 0), "in_groups": draw.sizes(1, 3, 40, 0), "books": draw.integer(1, 3),
        "entries": draw.choice((1, 16, 256)), "out_group": draw.choice((1, 1, 2)),
        "in_group": draw.choice((8, 16, 3, 4)),
    }  # fmt: skip


class AqlmDequantizePlan(Plan):
    """y[out_group · i + a, in_group · j + b] = scales[i] · Σ over m of codebooks[m, codes[i, j, m], a, b].

    codes [out_groups, in_groups, books], codebooks [books, entries, out_group, in_group] and scales [out_groups], as
    AQLM stores them (Egiazarian et al., Extreme compression of large language models via additive quantization, 2024):
    1 x 16 has one codebook of 2^16 vectors of 8 weights, 2 x 8 two of 2^8. Codes count modulo entries, so that those of
    8 and 16 bits may be signed, as there. Sums are float32, in the order of the codebooks, each operation rounded; y is
    rounded once more. There is no gradient.
    """

    op = "quantize.aqlm_dequantize"
    descriptor, args, reference = AqlmDequantizeDescriptor, AqlmDequantizeArgs, staticmethod(reference)
    raw = True
    value_policy = "codes count modulo the entries of a codebook, a power of two"
    variants = (
        Variant(
            "vectors", _geometry, source="quantize/aqlm_dequantize.cu", elements=ELEMENTS,
            kernels=(Kernel("dequantize", "aqlm_dequantize<{T}, {N}>", PARAMS, widths, threads=_THREADS),),
            guarantee=Guarantee(Exact(), batch_invariant=True),
        ),
    )  # fmt: skip
    benchmarks = tuple(
        Benchmark(f"[14336, 4096], {books} x {bits} bits, to f16", out_groups=14336, in_groups=512, books=books,
                  entries=1 << bits, out_group=1, in_group=8, element="float16", work=BYTES, target=None, peers=())
        for books, bits in ((1, 16), (2, 8))
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> AqlmDequantizeDescriptor:
        return AqlmDequantizeDescriptor(**aqlm_case(draw), element=draw.element)

    @classmethod
    def bytes(cls, desc: Any) -> int:
        codes = desc.out_groups * desc.in_groups * desc.books * (1 if desc.entries <= 256 else 2)
        return int(codes + desc.n * desc.k * desc.element.itemsize)


aqlm_dequantize = functional(AqlmDequantizePlan)
