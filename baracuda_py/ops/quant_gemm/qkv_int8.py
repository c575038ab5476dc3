"""qkv_int8: q, k and v of one x by three int8 matrices, in one launch where x has few rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Chained, Descriptor, ElementKind, Geometry, Guarantee, InvalidProblemError, Kernel, Params, Plan,
    Problem, Scalar, Step, Variant, View, Vjp, extent, operand, output, scalar,
)  # fmt: skip
from ...calls.functional import functional
from ...core import element as element_field
from ...core.benchmark import BYTES, EAGER, Benchmark
from ...core.checked import INT32
from ...core.element import HALVES
from ...core.variant import aligned
from ...schedules.gemm import Operand, product_kernels, product_steps, wide_view
from ...schedules.products import Place
from ..gemm.gemm import GemmArgs, GemmDescriptor, rows_apart
from .block_gemm import ELEMENTS, many
from .qkv_gemm import PARTS, layout_of, own_scales
from .unpacked import DENSE, held_view

E = ElementKind
_WARPS, _COLUMNS, _RUN = 8, 32, 16  # of a block; of y in a block; of k of a lane
TILES = (1, 2)  # of 8 rows of x, that a block may have
_LAYOUTS = ("any", "along_n", "along_k")
_ANY, _ALONG_N, _ALONG_K = range(3)


@dataclass(frozen=True, kw_only=True)
class QkvInt8Descriptor(Descriptor):
    """x is [m, k] in `element`; the matrices are [k, n_q], [k, n_k] and [k, n_v]."""

    m: int = extent()
    n_q: int = extent()
    n_k: int = extent()
    n_v: int = extent()
    k: int = extent()
    element: ElementKind = element_field(ELEMENTS)

    def validate(self) -> None:
        if max(self.n_q, self.n_k, self.n_v, self.k) > INT32:
            raise InvalidProblemError(f"extents must be below 2**31, got {self}")

    @property
    def widths(self) -> tuple[int, int, int]:
        """Of the three matrices."""
        return self.n_q, self.n_k, self.n_v


def random_int8(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> Any:
    """Test data: any of the 256 numbers."""
    return rng.integers(-128, 128, shape)


def random_scales(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> Any:
    """Test data: of both signs, over some powers of two."""
    return np.exp2(rng.uniform(-8, -2, shape)) * rng.choice((-1, 1), shape)


def _matrix(name: str) -> Any:
    return operand(f"k n_{name}", element=E.I8, values=random_int8)


def _scales(name: str) -> Any:
    return operand(f"n_{name}", element=E.F32, optional=True, values=random_scales)


@dataclass(slots=True, kw_only=True)
class QkvInt8Matrices(Args):
    """Three int8 matrices of any strides, with a scale each, and one for each column where scales are given."""

    w_q: Array = _matrix("q")
    w_k: Array = _matrix("k")
    w_v: Array = _matrix("v")
    scales_q: Array | None = _scales("q")
    scales_k: Array | None = _scales("k")
    scales_v: Array | None = _scales("v")
    scale_q: Scalar = scalar(1.0)
    scale_k: Scalar = scalar(1.0)
    scale_v: Scalar = scalar(1.0)


@dataclass(slots=True, kw_only=True)
class QkvInt8Args(QkvInt8Matrices):
    """Any strides."""

    x: Array = operand("m k")
    bias_q: Array | None = operand("n_q", optional=True)
    bias_k: Array | None = operand("n_k", optional=True)
    bias_v: Array | None = operand("n_v", optional=True)
    y_q: Array = output("m n_q")
    y_k: Array = output("m n_k")
    y_v: Array = output("m n_v")


def reference(desc: QkvInt8Descriptor, *, x: Any, apart: bool = False, **given: Any) -> Mapping[str, Any]:
    """NumPy matmul in the dtype x comes in, then the scales and the bias."""
    made = {}
    with np.errstate(all="ignore"):
        for part in PARTS:
            w = given[f"w_{part}"].astype(x.dtype)
            y = rows_apart(x, w) if apart else np.matmul(x, w)
            y = y * x.dtype.type(np.float32(given[f"scale_{part}"]))
            for name, act in (("scales", np.multiply), ("bias", np.add)):
                vector = given[f"{name}_{part}"]
                y = y if vector is None else act(y, vector.astype(x.dtype))
            made[f"y_{part}"] = y
    return made


def in_torch(torch: Any, desc: QkvInt8Descriptor, *, x: Any, **given: Any) -> Any:
    """The formula, the products by torch.matmul."""
    made = {}
    for part in PARTS:
        y = torch.matmul(x, given[f"w_{part}"].to(x.dtype)) * given[f"scale_{part}"]
        y = y if (scales := given[f"scales_{part}"]) is None else y * scales
        made[f"y_{part}"] = (y if (bias := given[f"bias_{part}"]) is None else y + bias).to(x.dtype)
    return made


_VECTORS = ("scales", "bias")
FEW = Params(
    "QkvInt8Params", x="ptr", **{f"{name}_{part}": "ptr" for name in ("w", *_VECTORS, "y") for part in PARTS},
    scale_q="scalar", scale_k="scalar", scale_v="scalar", first="i64[3]", m="i64", n="i64[3]", k="i64",
    x_steps="i64[2]", w_steps="i64[3][2]", y_steps="i64[3][2]", scale_steps="i64[3]", bias_steps="i64[3]",
    layout="i32[3]", wide_x="i32", int8_warps=_WARPS, int8_columns=_COLUMNS, int8_run=_RUN,
    Int8Layout=_LAYOUTS,
)  # fmt: skip
_WIDEN_PARAMS = Params(
    "QkvInt8WidenParams", w="ptr", scales="ptr", y="ptr", scale="scalar", rows="i64", cols="i64", w_steps="i64[2]",
    scale_steps="i64[2]", y_pitch="i64", wide="i32", scaled="i32",
)  # fmt: skip
WIDEN = Kernel("widen", "qkv_int8_widen<{T}>", _WIDEN_PARAMS, source="quant_gemm/qkv_int8_widen.cu")


def _layout(w: View) -> int:
    """How the kernel reads a matrix: words along n, runs along k, or bytes."""
    along_k, along_n = w.strides
    if along_n == 1 and not (w.ptr | along_k) % 4:
        return _ALONG_N
    return _ALONG_K if along_k == 1 and not (w.ptr | along_n) % _RUN else _ANY


def _few(p: Problem) -> Geometry | str:
    """One launch: the blocks of three products, one after the other."""
    desc, blocks, first = p.desc, 0, []
    tiles = 1 if desc.m <= 8 else TILES[-1]
    for n in desc.widths:
        first.append(blocks)
        blocks += -(-desc.m // (8 * tiles)) * -(-n // _COLUMNS)
    if blocks >= 2**31:
        return f"needs {blocks} blocks, a grid has 2**31 - 1"
    vectors = {
        name: [0 if (view := p.views[f"{name}_{part}"]) is None else view.strides[0] for part in PARTS]
        for name in _VECTORS
    }
    values = {
        "first": first, "m": desc.m, "n": desc.widths, "k": desc.k, "x_steps": p.x.strides,
        "w_steps": [p.views[f"w_{part}"].strides for part in PARTS],
        "y_steps": [p.views[f"y_{part}"].strides for part in PARTS], "scale_steps": vectors["scales"],
        "bias_steps": vectors["bias"], "layout": [_layout(p.views[f"w_{part}"]) for part in PARTS],
        "wide_x": wide_view(p.x),
    }  # fmt: skip
    step = Step("few", (blocks, 1, 1), values, {"NT": tiles}, smem=_WARPS * _COLUMNS * 8 * tiles * 4)
    return Geometry((step,), layout=layout_of(p))


def widened(p: Problem, part: str, at: int, scaled: bool) -> tuple[Operand, tuple[Step, ...], int]:
    """A matrix in the element at byte `at` of the workspace, what writes it, and the first byte that is free then.

    scaled: with its scales. Its rows lie there as they do in memory, along k or along n.
    """
    w = p.views[f"w_{part}"]
    turned = abs(w.strides[0]) < abs(w.strides[1])
    rows = View(w.ptr, w.shape[::-1], w.strides[::-1], w.element) if turned else w
    held = held_view(p.desc.element, rows.shape)
    made = Operand(Place("@workspace", at), held)
    if not held.size:
        return made.t if turned else made, (), at
    scales = p.views[f"scales_{part}"] if scaled else None
    step = 0 if scales is None else scales.strides[0]
    params = {
        "w": f"w_{part}", "scales": "@null" if scales is None else f"scales_{part}", "y": ("@workspace", at),
        "scale_ptr": f"scale_{part}", "rows": rows.shape[0], "cols": rows.shape[1], "w_steps": rows.strides,
        "scale_steps": (step, 0) if turned else (0, step), "y_pitch": held.strides[0], "wide": wide_view(rows),
        "scaled": scaled,
    }  # fmt: skip
    blocks = -(-rows.shape[0] * -(-rows.shape[1] // _RUN) // 256)
    used = at + aligned(rows.shape[0] * held.strides[0] * held.element.itemsize)
    return made.t if turned else made, (Step("widen", (blocks, 1, 1), params),), used


def _widened(row: Variant) -> Callable[[Problem], Geometry | str]:
    """Three products, each by a matrix that is widened into the same workspace."""

    def geometry(p: Problem) -> Geometry | str:
        steps: list[Any] = []
        used = 0
        for part, n in zip(PARTS, p.desc.widths, strict=True):
            if not n:
                continue
            desc = GemmDescriptor(m=p.desc.m, n=n, k=p.desc.k, element=p.desc.element)
            w, before, free = widened(p, part, 0, False)
            given = {"a": Operand(Place("x"), p.x), "b": w, "y": Operand(Place(f"y_{part}"), p.views[f"y_{part}"])}
            for name, to in (("bias", "bias"), ("scales", "scale_b")):
                if (view := p.views[f"{name}_{part}"]) is not None:
                    given[to] = Operand(Place(f"{name}_{part}"), view)
            made = product_steps(p, QkvInt8Args, (row,), GemmArgs, desc, given, free, (f"scale_{part}", 0.0))
            if isinstance(made, str):
                return f"{part}: {made}"
            steps += [*before, *made[0]]
            used = max(used, free + made[1])
        return Geometry(tuple(steps), used, layout_of(p))

    return geometry


GUARANTEE = Guarantee(Chained(4, mean=3))


class QkvInt8Plan(Plan):
    """q, k, v = scale · (x @ W) · scales + bias by three int8 matrices of any widths, which stay int8 in memory.

    x [m, k] in f16, bf16 or f32, W_q [k, n_q], W_k [k, n_k], W_v [k, n_v] in any strides (transposed views of rows
    [n, k] too), the results in x's element. int8 numbers are exact in all three, products in float32 (f32: rounded),
    sums in float32; scale, a number of the matrix, scales, float32 [n] of columns, and bias [n] come then, before the
    one rounding. Up to 64 rows of f16 or bf16 take one launch, in an order of sums that k alone fixes; others go
    through each matrix widened in the workspace, which the three share. x has a gradient; the others are constants.
    """

    op = "quant_gemm.qkv_int8"
    descriptor = QkvInt8Descriptor
    args = QkvInt8Args
    reference = staticmethod(reference)
    apart = True
    variants = (
        Variant(
            "few", _few, source="quant_gemm/qkv_int8_few.cu", elements=HALVES,
            kernels=(Kernel("few", "qkv_int8_few<{T}, {NT}>", FEW, {"NT": TILES}, min_blocks=2),),
            guarantee=replace(GUARANTEE, batch_invariant=True, order="mma"),
        ),
        *(
            Variant(
                f"widened_{row.name}", _widened(row), source="quant_gemm/qkv_int8_widen.cu",
                kernels=(WIDEN, *product_kernels(row)),
                elements=tuple(e for e in ELEMENTS if e in row.elements_for(None)), design=row.design,
                backend=row.backend, missing=row.missing, guarantee=replace(GUARANTEE, order=row.name), first=many,
            )
            for row in DENSE
        ),
    )  # fmt: skip
    vjp = Vjp("QkvInt8BackwardPlan", grads={"x": "dx"})
    torch = staticmethod(in_torch)
    benchmarks = tuple(
        Benchmark(f"[{m}, 4096] x [4096, 4096 + 1024 + 1024] f16", m=m, n_q=4096, n_k=1024, n_v=1024, k=4096,
                  element="float16", work=BYTES, peers=(EAGER,))
        for m in (1, 16, 512)
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> QkvInt8Descriptor:
        return QkvInt8Descriptor(**int8_case(draw), element=draw.element)

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        own_scales(desc, arrays)

    @classmethod
    def flops(cls, desc: Any) -> int:
        return int(2 * desc.m * desc.k * sum(desc.widths))

    @classmethod
    def bytes(cls, desc: Any) -> int:
        n, size = sum(desc.widths), int(desc.element.itemsize)
        return int(n * desc.k + desc.m * (desc.k + n) * size)


def int8_case(draw: Any) -> dict[str, Any]:
    """Small matrices for tests, of unequal widths."""
    sizes = {
        "m": draw.sizes(1, 5, 9, 17, 0, rare=(8, 33, 65)), "n_q": draw.sizes(5, 32, 64, 1),
        "n_k": draw.choice((3, 16, 0)), "n_v": draw.choice((2, 33, 16)),
        "k": draw.sizes(64, 7, 80, 0, 520, rare=(1104,)),
    }  # fmt: skip
    if draw.rarely():  # the wide tiles of the dense product
        sizes |= {"m": 130, "n_q": 264}
    return sizes


qkv_int8 = functional(QkvInt8Plan)
