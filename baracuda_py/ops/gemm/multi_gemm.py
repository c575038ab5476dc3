"""multi_gemm: y_i = alpha · a_i b_i for lists of matrices of any sizes, in one launch for every 36 of them.

A grouped GEMM over a list of problems, whose sizes the host knows; for rows in groups whose sizes stand on the device
see `grouped_gemm`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Forward, Geometry, Guarantee, InvalidProblemError, Kernel, Params, Plan,
    Problem, Scalar, Step, Variant, derived, element, operand, output, scalar,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import FLOPS, Benchmark
from ...core.descriptor import shapes
from ...schedules.gemm import dense
from ...schedules.multi_tensor import groups

_CAPACITY = 36  # products a launch: 108 bytes each in the parameter struct
_TILE = 64


@dataclass(frozen=True, kw_only=True)
class MultiGemmDescriptor(Descriptor):
    """a_i has shape a_shapes[i] = (m, k), b_i b_shapes[i] = (k, n); y_i is [m, n] in `out_element`.

    out_element: default `element`; float32 for 16-bit operands.
    """

    a_shapes: tuple[tuple[int, ...], ...] = shapes()
    b_shapes: tuple[tuple[int, ...], ...] = shapes()
    out_element: ElementKind = element(default=derived(lambda desc: desc.element))
    element: ElementKind = element()

    def validate(self) -> None:
        if len(self.a_shapes) != len(self.b_shapes):
            raise InvalidProblemError(f"a has {len(self.a_shapes)} matrices and b {len(self.b_shapes)}")
        for i, (a, b) in enumerate(zip(self.a_shapes, self.b_shapes, strict=True)):
            if len(a) != 2 or len(b) != 2:
                raise InvalidProblemError(f"a[{i}] and b[{i}] must be matrices, got shapes {a} and {b}")
            if a[1] != b[0]:
                raise InvalidProblemError(f"a[{i}] has {a[1]} columns and b[{i}] {b[0]} rows: {a} @ {b}")
        if self.out_element not in (self.element, self.element.acc):
            raise InvalidProblemError(
                f"out_element must be {self.element} or {self.element.acc}, got {self.out_element}"
            )

    @property
    def y_shapes(self) -> tuple[tuple[int, ...], ...]:
        """The products' shapes."""
        return tuple((a[0], b[1]) for a, b in zip(self.a_shapes, self.b_shapes, strict=True))


@dataclass(slots=True, kw_only=True)
class MultiGemmArgs(Args):
    """Lists of matrices of any strides; alpha is a number or a 0-d device array, for all of them."""

    a: list[Array] = operand(many="a_shapes")
    b: list[Array] = operand(many="b_shapes")
    y: list[Array] = output(many="y_shapes", element="out_element")
    alpha: Scalar = scalar(1.0)


def reference(desc: MultiGemmDescriptor, *, a: Any, b: Any, alpha: Any) -> Mapping[str, Any]:
    """NumPy matmul, in the dtype the operands come in."""
    if alpha == 0.0:
        return {"y": [np.zeros((x.shape[0], z.shape[1]), x.dtype) for x, z in zip(a, b, strict=True)]}
    return {"y": [x.dtype.type(alpha) * (x @ z) for x, z in zip(a, b, strict=True)]}


PARAMS = Params(
    "MultiGemmParams", **dict.fromkeys(("a", "b", "y"), f"ptr[{_CAPACITY}]"), alpha="scalar",
    sizes=f"i64[{_CAPACITY}][3]", strides=f"i64[{_CAPACITY}][3][2]", first=f"i32[{_CAPACITY}]",
    dense=f"i32[{_CAPACITY}]", count="i32",
)  # fmt: skip


def _instances(kind: ElementKind) -> Mapping[str, Any]:
    return {"OUT": tuple(dict.fromkeys((kind, kind.acc)))}


def _simt(p: Problem) -> Geometry | str:
    desc, steps = p.desc, []
    counts = [-(-m // _TILE) * -(-n // _TILE) for m, n in desc.y_shapes]
    for group in groups(counts, _CAPACITY):
        if group.blocks >= 2**31:
            return f"needs {group.blocks} blocks, a grid has 2**31 - 1"
        at = slice(group.start, group.stop)
        products = list(zip(p.a[at], p.b[at], p.y[at], strict=True))
        params = {
            **{name: (name, group.start, group.stop) for name in ("a", "b", "y")},
            "sizes": [(a.shape[0], *b.shape[::-1]) for a, b, _ in products],
            "strides": [[view.strides for view in views] for views in products],
            "dense": [(a.strides[1] == 1) + 2 * (b.strides[1] == 1) for a, b, _ in products],
            "first": group.first, "count": len(products),
        }  # fmt: skip
        steps.append(Step("multi_gemm", (group.blocks, 1, 1), params, {"OUT": desc.out_element}))
    return Geometry(tuple(steps), layout="contiguous" if dense(p) else "strided")


def in_torch(torch: Any, desc: Any, *, a: Any, b: Any, alpha: Any) -> Any:
    """Products one by one."""
    return {"y": [alpha * (x @ z) for x, z in zip(a, b, strict=True)]}


def _longest(desc: MultiGemmDescriptor) -> int:
    """The terms of the longest sum."""
    return max((k for _, k in desc.a_shapes), default=0)


class MultiGemmPlan(Plan):
    """y_i = alpha · a_i @ b_i for lists of matrices of any sizes and strides.

    f16, bf16, f32, f64; accumulation in float32 (float64 for float64). A product has the same bits alone and in any
    list. alpha = 0 leaves a and b unread. The reference system calls it a grouped GEMM.
    """

    op = "gemm.multi_gemm"
    descriptor = MultiGemmDescriptor
    args = MultiGemmArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "simt", _simt, source="gemm/multi_gemm.cu",
            kernels=(Kernel("multi_gemm", "multi_gemm<{T}, {OUT}>", PARAMS, _instances, min_blocks=2),),
            guarantee=Guarantee(Forward(128), batch_invariant=True, roundings=_longest),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark(
            "32 x [256, 1024] x [1024, 1024] f32", a_shapes=((256, 1024),) * 32, b_shapes=((1024, 1024),) * 32,
            element="float32", work=FLOPS, target=None, peers=(),
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> MultiGemmDescriptor:
        kind = draw.element
        sizes = [
            (draw.sizes(1, 7, 64, 70), draw.sizes(1, 5, 64, 67), draw.sizes(0, 1, 16, 67))
            for _ in range(draw.integer(0, 3))
        ]
        if draw.rarely():
            sizes = sizes * 20
        return MultiGemmDescriptor(
            a_shapes=tuple((m, k) for m, _, k in sizes), b_shapes=tuple((k, n) for _, n, k in sizes), element=kind,
            out_element=draw.choice((kind, kind.acc)),
        )  # fmt: skip

    @classmethod
    def flops(cls, desc: MultiGemmDescriptor) -> int:
        return 2 * sum(m * k * b[1] for (m, k), b in zip(desc.a_shapes, desc.b_shapes, strict=True))


multi_gemm = functional(MultiGemmPlan)
