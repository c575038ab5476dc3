"""sparse24_gemm: x by a compressed 2:4 sparse matrix on sparse tensor cores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.memo import cached_property
from ...core import (
    Args, Array, Descriptor, ElementKind, Exact, Forward, Geometry, Guarantee, InvalidProblemError, Kernel, Params,
    Plan, Problem, Step, Variant, element, extent, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.args import finite_only
from ...core.benchmark import FLOPS, Benchmark
from ...core.error_bound import ErrorBound
from ...schedules.gemm import steps_of, wide_view
from ...schedules.packed_gemm import LINES, SIZES, STAGES, THREADS, staging_bytes, tile_size
from .sparse24 import metadata_in_order, places_of
from .sparse24_unpacked import unpacked_rows
from .sparse24_wgmma import wgmma_row

E = ElementKind
HALVES = (E.F16, E.BF16)


@dataclass(frozen=True, kw_only=True)
class Sparse24GemmDescriptor(Descriptor):
    """x is [m, k], the compressed matrix [n, k], of which two of every four neighbours along k are stored; y [m, n]."""

    m: int = extent()
    n: int = extent()
    k: int = extent()
    element: ElementKind = element((*HALVES, E.I8))

    def validate(self) -> None:
        if self.k % 4:
            raise InvalidProblemError(f"k must be a multiple of 4, groups of which two are kept, got {self.k}")
        if self.element is E.I8 and self.k >= 1 << 18:
            raise InvalidProblemError(f"k of int8 must be below {1 << 18}, so that sums have 32 bits, got {self.k}")

    @cached_property
    def kept(self) -> int:
        """Values of a row of the matrix."""
        return self.k // 2

    @cached_property
    def metadata_bytes(self) -> int:
        """Bytes of metadata of a row of the matrix."""
        return -(-self.k // 8)

    @property
    def out_element(self) -> ElementKind:
        """int32 of int8, else that of x."""
        return E.I32 if self.element is E.I8 else self.element


@finite_only
def _finite(rng: Any, desc: Any, shape: tuple[int, ...]) -> Any:
    """Values of x for tests: infinities and NaN would meet the zeros of an unpacked W."""
    if desc.element is E.I8:
        return rng.integers(-128, 128, shape)
    return rng.standard_normal(shape) * rng.choice(
        np.array([1.0, 0.0, -0.0, 2.0**-20]), shape, p=(0.85, 0.05, 0.05, 0.05)
    )


@dataclass(slots=True, kw_only=True)
class Sparse24GemmArgs(Args):
    """Any strides. values and metadata are what `sparse24_compress` makes of the matrix; int8 has no bias."""

    x: Array = operand("m k", values=_finite)
    values: Array = operand("n kept")
    metadata: Array = operand("n metadata_bytes", element=E.U8, values=metadata_in_order)
    bias: Array | None = operand("n", optional=True)
    y: Array = output("m n", element="out_element")


def reference(desc: Sparse24GemmDescriptor, *, x: Any, values: Any, metadata: Any, bias: Any) -> Mapping[str, Any]:
    """NumPy: each row of the matrix with the elements of x at its places, so that the others count for nothing."""
    places = places_of(metadata, desc.k // 4) + 4 * np.arange(desc.k // 4)[:, None]
    y: Any = np.zeros((desc.m, desc.n), np.int32 if desc.element is E.I8 else x.dtype)
    x, values = (a.astype(y.dtype) for a in (x, values))
    with np.errstate(all="ignore"):
        for n in range(desc.n):
            y[:, n] = x[:, places[n].reshape(-1)] @ values[n]
        return {"y": y if bias is None else y + bias}


def in_torch(torch: Any, desc: Sparse24GemmDescriptor, *, x: Any, values: Any, metadata: Any, bias: Any) -> Any:
    """torch.matmul by the dense matrix."""
    groups = desc.k // 4
    bytes_ = metadata.long()
    nibbles = torch.stack([bytes_ & 15, bytes_ >> 4], -1).flatten(1)[:, :groups]
    dense = torch.zeros((desc.n, groups, 4), dtype=values.dtype, device=values.device)
    places = torch.stack([nibbles & 3, nibbles >> 2], -1)
    dense = dense.scatter(-1, places, values.reshape(desc.n, groups, 2)).reshape(desc.n, desc.k)
    if desc.element is E.I8:
        return (x.double() @ dense.double().T).to(torch.int32)
    y = x @ dense.T
    return y if bias is None else y + bias


PARAMS = Params(
    "Sparse24GemmParams", y="ptr", x="ptr", values="ptr", metadata="ptr", bias="ptr", m="i64", n="i64", k="i64",
    x_strides="i64[2]", values_strides="i64[2]", metadata_strides="i64[2]", y_strides="i64[2]", bias_step="i64",
    wide="i32", **LINES,
)  # fmt: skip
_KERNELS = (Kernel("mma", "sparse24_gemm<{T}, {SIZE}>", PARAMS, {"SIZE": SIZES}, threads=THREADS, min_blocks=1),)


def _wide(p: Problem) -> int:
    """A bit for each operand whose rows are dense and aligned to what is copied at once: of metadata 8 or 16 bytes."""
    metadata = p.metadata.strides[1] == 1 and p.metadata.aligned(16 // p.desc.element.itemsize)
    found = (wide_view(p.values), metadata, wide_view(p.x), wide_view(p.y))
    return sum(1 << n for n, yes in enumerate(found) if yes)


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    size, blocks = tile_size(desc.n, desc.m, p.device.sms)
    if blocks >= 2**31:
        return f"needs {blocks} blocks, a grid has 2**31 - 1"
    values = {
        "m": desc.m, "n": desc.n, "k": desc.k, "wide": _wide(p),
        "bias_step": 0 if p.bias is None or desc.n == 1 else p.bias.strides[0],
        **{f"{name}_strides": steps_of(p.views[name]) for name in ("x", "values", "metadata", "y")},
    }  # fmt: skip
    shared = max(STAGES * size * (64 + 128 + 16 // desc.element.itemsize), staging_bytes(size, True))
    layout = "contiguous" if all(view.dense for view in p.flat()) else "strided"
    return Geometry((Step("mma", (blocks, 1, 1), values, {"SIZE": size}, THREADS, shared),), layout=layout)


def _bound(element: ElementKind, _: Any = None) -> ErrorBound:
    return Exact() if element is E.I8 else Forward(128)


def _benchmark(element: str) -> Benchmark:
    return Benchmark(
        f"4096 × 8192 × 8192 {element}", m=4096, n=8192, k=8192, element=element, work=FLOPS, target=None, peers=(),
        make=_ordered,
    )  # fmt: skip


def _ordered(torch: Any, desc: Sparse24GemmDescriptor) -> dict[str, Any]:
    ordered = torch.tensor([4, 8, 12, 9, 13, 14], dtype=torch.uint8)
    nibbles = ordered[torch.randint(0, 6, (2, desc.n, desc.metadata_bytes))]
    return {"metadata": nibbles[0] | nibbles[1] << 4}


class Sparse24GemmPlan(Plan):
    """y = x @ Wᵀ + bias of a W whose rows `Sparse24CompressPlan` made of a 2:4 sparse matrix [n, k].

    float16 and bfloat16 with sums in float32, int8 with exact sums in int32. Sparse tensor cores read half of what a
    dense product reads of W and multiply at twice its rate (sm_80 and later). Many rows of x go through W unpacked in
    the workspace, n · k elements, where that is faster; with `batch_invariant=True` none do. Elements of x where
    nothing is stored count for nothing, NaN and infinities, too; but those meet the zeros of an unpacked W and make y
    NaN. Metadata whose places do not ascend gives numbers of no meaning, and never reaches outside the operands.
    `sparse24_matmul` has gradients and other elements.
    """

    op = "quant_gemm.sparse24_gemm"
    descriptor = Sparse24GemmDescriptor
    args = Sparse24GemmArgs
    reference = staticmethod(reference)
    value_policy = (
        "metadata whose places do not ascend gives numbers of no meaning; infinities and NaN of x where nothing is "
        "stored count for nothing, or make y NaN where W is unpacked"
    )
    variants = (
        wgmma_row(
            (*HALVES, E.I8),
            Guarantee(_bound, batch_invariant=True, order="wgmma_sparse", roundings=lambda desc: desc.k // 8),
        ),
        Variant(
            "mma_sparse", _geometry, source="quant_gemm/sparse24_gemm.cu", elements=(*HALVES, E.I8),
            kernels=_KERNELS,
            guarantee=Guarantee(_bound, batch_invariant=True, order="mma_sparse", roundings=lambda desc: desc.k // 8),
        ),
        *unpacked_rows(Sparse24GemmArgs, HALVES, Guarantee(Forward(128), roundings=lambda desc: desc.k // 8)),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (_benchmark("bfloat16"), _benchmark("int8"))

    @staticmethod
    def case(draw: Any) -> Sparse24GemmDescriptor:
        sizes = {
            "m": draw.sizes(1, 7, 64, 70, 0, rare=(130,)), "n": draw.sizes(1, 5, 64, 70, rare=(136,)),
            "k": 4 * draw.sizes(0, 1, 4, 17, 64, 68, rare=(96, 224)),
        }  # fmt: skip
        if draw.rarely():  # the wide tiles of warpgroups
            sizes |= {"m": 100, "n": 392}
        return Sparse24GemmDescriptor(**sizes, element=draw.element)

    @classmethod
    def check(cls, desc: Any, views: Mapping[str, Any]) -> None:
        if desc.element is E.I8 and views["bias"] is not None:
            raise InvalidProblemError("bias must be None where x is int8, whose sums are int32")

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        if desc.element is E.I8:
            arrays["bias"] = None

    @classmethod
    def flops(cls, desc: Sparse24GemmDescriptor) -> int:
        """Of the dense product."""
        return 2 * desc.m * desc.n * desc.k


sparse24_gemm = functional(Sparse24GemmPlan)
