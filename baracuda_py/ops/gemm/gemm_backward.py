"""gemm_backward: the gradients of `GemmPlan`: of the factors, through activation and gate, and of what is added."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, ElementKind, Exact, Forward, Geometry, Guarantee, InvalidProblemError, Kernel, Plan,
    Problem, Scalar, Variant, operand, output, scalar,
)  # fmt: skip
from ...calls.functional import functional
from ...core.args import finite_only
from ...core.benchmark import FLOPS, Benchmark
from ...core.checked import require_some
from ...core.element import cast
from ...core.error_bound import PerOutput
from ...schedules.gemm import ACTIVATIONS, product_kernels
from ...schedules.gemm_backward import ADD, BIAS, GRADIENTS, Launches
from ..gated.gated_kinds import GatedActivationKind, gate_gradient, up_gradient
from .gemm import INNER, GemmArgs, GemmDescriptor, GemmPlan

_SHAPE = "*batch_shape m n"


@dataclass(frozen=True, kw_only=True)
class GemmBackwardDescriptor(GemmDescriptor):
    """The fields of `GemmDescriptor`."""

    def product(self, m: int, n: int, k: int, out: ElementKind | None = None) -> GemmDescriptor:
        """That of a plain product with the same batch, elements and precision."""
        return GemmDescriptor(
            batch_shape=self.batch_shape, m=m, n=n, k=k, math_precision=self.math_precision,
            out_element=self.out_element if out is None else out, element=self.element,
        )  # fmt: skip


@finite_only
def _scales(rng: np.random.Generator, desc: Any, shape: Any) -> Any:
    """Finite ones: infinity times a gradient that is below the accumulator's range, and 0 there, is not its product."""
    return rng.standard_normal(shape)


@finite_only
def _finite(rng: np.random.Generator, desc: Any, shape: Any) -> Any:
    """With zeros among them. The error of a sum is bounded by absolute values: infinite ones say nothing where relu
    has left out the term."""
    return np.where(rng.random(shape) < 0.05, 0.0, rng.standard_normal(shape))


@dataclass(slots=True, kw_only=True)
class GemmBackwardArgs(Args):
    """Any strides; of the outputs those that are wanted. An operand shared by the batch has a gradient for each item.

    pre, and up_pre beside up, are what the forward saved; pre is needed where there is an activation or a gate.
    alpha, beta: as in `GemmArgs`; they, scale_a and scale_b have no gradient.
    """

    dy: Array = operand(_SHAPE, element="out_element", values=_finite)
    a: Array = operand("*batch_shape m k")
    b: Array = operand("*batch_shape k n")
    up: Array | None = operand("*batch_shape k n", optional=True)
    pre: Array | None = operand(
        _SHAPE, element="out_element", optional=True, values=_finite,
        spared=lambda desc, given: desc.activation == "none" and "up" not in given,
    )  # fmt: skip
    up_pre: Array | None = operand(_SHAPE, element="out_element", optional=True, values=_finite)
    scale_a: Array | None = operand("m", element=ElementKind.F32, optional=True, values=_scales)
    scale_b: Array | None = operand("n", element=ElementKind.F32, optional=True, values=_scales)
    da: Array | None = output("*batch_shape m k", optional=True)
    db: Array | None = output("*batch_shape k n", optional=True)
    dup: Array | None = output("*batch_shape k n", optional=True, needs="up")
    dc: Array | None = output(_SHAPE, element="out_element", optional=True)
    dbias: Array | None = output("n", optional=True)
    dup_bias: Array | None = output("n", optional=True, needs="up_pre")
    drow_bias: Array | None = output("m", optional=True)
    dresidual: Array | None = output(_SHAPE, element="out_element", optional=True)
    alpha: Scalar = scalar(1.0)
    beta: Scalar = scalar(1.0)


_G = GatedActivationKind
_KINDS = {"none": _G.BILINEAR_GLU, "relu": _G.REGLU, "gelu": _G.GEGLU, "gelu_tanh": _G.GEGLU_TANH, "silu": _G.SWIGLU}


def reference(
    desc: GemmBackwardDescriptor, *, dy: Any, a: Any, b: Any, up: Any, pre: Any, up_pre: Any, scale_a: Any,
    scale_b: Any, alpha: Any, beta: Any, wanted: set[str],
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy matmul in the dtype the operands come in; g and h, what reaches the accumulators, are rounded for it."""
    kind, rows = _KINDS[desc.activation], tuple(range(dy.ndim - 1))
    with np.errstate(all="ignore"):
        g = h = dy
        if up is not None:
            g = gate_gradient(kind, dy, up_pre, pre, element=desc.element)
            h = up_gradient(kind, dy, up_pre, pre)
        elif desc.activation != "none":
            g = np.asarray(kind.row.gradient(dy, pre), dy.dtype)

        def scaled(x: Any) -> Any:  # as products read it
            x = x if scale_a is None else x * scale_a[:, None]
            x = x if scale_b is None else x * scale_b
            return np.asarray(cast(x, desc.element)).astype(dy.dtype)

        def product(left: Any, right: Any) -> Any:
            if alpha == 0.0:
                return np.zeros((*desc.batch_shape, left.shape[-2], right.shape[-1]), a.dtype)
            return np.matmul(left, right) * a.dtype.type(alpha)

        def turned(x: Any) -> Any:
            return np.swapaxes(x, -1, -2)

        found: dict[str, Any] = {"dresidual": dy}
        if "dc" in wanted:
            found["dc"] = np.zeros_like(g) if beta == 0.0 else g * g.dtype.type(beta)
        if "da" in wanted:
            found["da"] = product(scaled(g), turned(b))
            found["da"] = found["da"] if up is None else found["da"] + product(scaled(h), turned(up))
        if "db" in wanted:
            found["db"] = product(turned(a), scaled(g))
        if "dup" in wanted:
            found["dup"] = product(turned(a), scaled(h))
        if "dbias" in wanted:
            found["dbias"] = np.sum(g, axis=rows)
        if "dup_bias" in wanted:
            found["dup_bias"] = np.sum(h, axis=rows)
        if "drow_bias" in wanted:
            found["drow_bias"] = np.sum(g, axis=(*rows[:-1], g.ndim - 1))
    return {name: value for name, value in found.items() if name in wanted}


def in_torch(torch: Any, desc: GemmBackwardDescriptor, *, wanted: set[str], **given: Any) -> Mapping[str, Any]:
    """Activation and gate by autograd, products by torch.matmul."""
    f = torch.nn.functional
    act = {
        "none": lambda x: x, "relu": torch.relu, "gelu": f.gelu, "silu": f.silu,
        "gelu_tanh": lambda x: f.gelu(x, approximate="tanh"),
    }[desc.activation]  # fmt: skip
    dy, a, b, up, pre, up_pre, alpha, beta = (
        given[n] for n in ("dy", "a", "b", "up", "pre", "up_pre", "alpha", "beta")
    )
    g = h = dy
    if up is not None or desc.activation != "none":
        with torch.enable_grad():
            leaves = [x.detach().requires_grad_() for x in (pre, up_pre)[: 1 if up is None else 2]]
            y = act(leaves[0]) if up is None else act(leaves[0]) * leaves[1]
            g, h = (*torch.autograd.grad(y, leaves, dy), dy)[:2]

    def scaled(x: Any) -> Any:
        x = x if given["scale_a"] is None else x * given["scale_a"][:, None]
        return (x if given["scale_b"] is None else x * given["scale_b"]).to(a.dtype)

    rows = tuple(range(dy.ndim - 1))
    found = {"dresidual": dy, "dc": beta * g, "dbias": g.sum(rows)}
    found["drow_bias"] = g.sum((*rows[:-1], g.ndim - 1))
    if "da" in wanted:
        found["da"] = alpha * torch.matmul(scaled(g), b.mT)
        found["da"] += 0 if up is None else alpha * torch.matmul(scaled(h), up.mT)
    if "db" in wanted:
        found["db"] = alpha * torch.matmul(a.mT, scaled(g))
    if up is not None:
        found |= {"dup": alpha * torch.matmul(a.mT, scaled(h)), "dup_bias": h.sum(rows)}
    return {name: value for name, value in found.items() if name in wanted}


def _instances(kind: ElementKind) -> Mapping[str, Any]:
    return {"OUT": tuple(dict.fromkeys((kind, kind.acc))), "GATED": (False, True)}


_SOURCE = "gemm/gemm_backward.cu"
_KERNELS = (
    Kernel("gradients", "gemm_gradients<{T}, {OUT}, {GATED}>", GRADIENTS, _instances, min_blocks=2, source=_SOURCE),
    Kernel("row_bias", "gemm_row_bias<{T}, {OUT}, {GATED}>", GRADIENTS, _instances, source=_SOURCE),
    Kernel("bias", "gemm_bias<{T}>", BIAS, source=_SOURCE),
    Kernel("add", "gemm_add<{T}>", ADD, source=_SOURCE),
)
_PRODUCTS = ("da", "db", "dup")


def _bound(depth: float) -> Callable[[ElementKind, Any], PerOutput]:
    """Products of what is rounded to the element on its way; sums of columns and rows of what is not."""

    def bound(kind: ElementKind, _: Any) -> PerOutput:
        rounding = float(kind.limits.eps) / float(kind.acc.limits.eps) / 2 if kind is not kind.acc else 0.0
        sums = ("dc", "dbias", "dup_bias", "drow_bias")
        return PerOutput(
            (
                *((name, Forward(depth + rounding)) for name in _PRODUCTS),
                *((name, Forward(128)) for name in sums),
                ("dresidual", Exact()),
            )
        )

    return bound


def _longest(desc: Any) -> int:
    """The terms of the longest product: the last row makes one chain of them."""
    return int(max(desc.n, math.prod(desc.batch_shape) * desc.m))


def _geometry(rows: tuple[Variant, ...]) -> Callable[[Problem], Geometry | str]:
    """The launches whose products go to the first of `rows` that takes them; one has to go to the very first."""

    def geometry(p: Problem) -> Geometry | str:
        return Launches(p, GemmBackwardArgs, GemmArgs, rows).geometry()

    return geometry


def _refuses(row: Variant) -> Callable[[Any], str | None]:
    """What a row of `GemmPlan` refuses of the products of a descriptor."""
    return lambda desc: row.refuses(desc.product(desc.m, desc.n, desc.k)) if row.refuses else None


def _variants(rows: Iterable[Variant]) -> tuple[Variant, ...]:
    """A row for each of `GemmPlan`; products in strides that it does not take go to the last, which takes any."""
    rows = tuple(rows)
    *_, last = rows
    made = []
    for row in rows:
        used = (row,) if row is last else (row, last)
        kernels = {k.name: k for one in used for k in product_kernels(one)}
        depth = row.guarantee.error.c if isinstance(row.guarantee.error, Forward) else 128.0
        made.append(
            Variant(
                row.name, _geometry(used), source=_SOURCE, kernels=(*_KERNELS, *kernels.values()),
                elements=row.elements, design=row.design, backend=row.backend, missing=row.missing,
                guarantee=Guarantee(
                    _bound(depth), math=row.guarantee.math, order=row.guarantee.order, roundings=_longest
                ),
                refuses=_refuses(row),
            )
        )  # fmt: skip
    return tuple(made)


class GemmBackwardPlan(Plan):
    """da, db, dup, dc, dbias, dup_bias, drow_bias, dresidual of `GemmPlan`, of which each may be None and is then free.

    With g = dy act'(pre), gated g = dy up_pre act'(pre) and h = dy act(pre):
    da = alpha (g bᵀ + h upᵀ), db = alpha aᵀ g, dup = alpha aᵀ h, g and h with the scales of rows and columns in the
    products; dc = beta g, dbias = Σ rows g, dup_bias = Σ rows h, drow_bias = Σ columns g, dresidual = dy.
    Products read g and h rounded to the element, where they are not dy itself; sums add them as they are. da of a gate
    is rounded once. Sums are in float32 (float64 for float64), in an order that the extents fix.
    """

    op = "gemm.gemm_backward"
    direction = "backward"
    descriptor = GemmBackwardDescriptor
    args = GemmBackwardArgs
    reference = staticmethod(reference)
    variants = _variants(INNER)
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark(
            "4096^3 bf16", also=("da", "db"), m=4096, n=4096, k=4096, element="bfloat16", work=FLOPS, target=None
        ),
        Benchmark(
            "swiglu 8192 x 14336 x 4096 bf16", also=("up", "pre", "up_pre", "da", "db", "dup"), m=8192, n=14336, k=4096,
            activation="silu", element="bfloat16", work=FLOPS, target=None,
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> GemmBackwardDescriptor:
        kind = draw.element
        return GemmBackwardDescriptor(
            batch_shape=draw.shape(0, 2, 0, 3), m=draw.sizes(0, 1, 7, 64, 130),
            n=draw.sizes(0, 1, 5, 64, 129, rare=(1063,)), k=draw.sizes(0, 1, 16, 67),
            activation=draw.choice(ACTIVATIONS), element=kind, out_element=draw.choice((kind, kind.acc)),
            math_precision=draw.choice(("element", "tf32")) if kind is ElementKind.F32 else "element",
        )  # fmt: skip

    @classmethod
    def check(cls, desc: Any, views: Mapping[str, Any]) -> None:
        require_some(views, "da", "db", "dup", "dc", "dbias", "dup_bias", "drow_bias", "dresidual")
        if views["up"] is None and views["up_pre"] is not None:
            raise InvalidProblemError("up_pre is given without up, the weights that it comes from")
        for name, wanted, why in (
            ("pre", desc.activation != "none" or views["up"] is not None, "an activation or a gate"),
            ("up_pre", views["up"] is not None, "a gate"),
        ):
            if wanted and views[name] is None:
                raise InvalidProblemError(
                    f"{name}, which {why} needs, is None; give what gemm(return_{name}=True) saves"
                )

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        """Tests: what the forward would have saved is there."""
        rng = np.random.default_rng(desc.m + desc.n + desc.k)
        for name, wanted in (
            ("pre", desc.activation != "none" or arrays["up"] is not None),
            ("up_pre", arrays["up"] is not None),
        ):
            if not wanted or arrays[name] is None:
                dtype = arrays["dy"].dtype
                arrays[name] = rng.standard_normal(arrays["dy"].shape).astype(dtype) if wanted else None

    @classmethod
    def flops(cls, desc: GemmBackwardDescriptor) -> int:
        """Of da and db."""
        return 2 * GemmPlan.flops(desc)


gemm_backward = functional(GemmBackwardPlan)
