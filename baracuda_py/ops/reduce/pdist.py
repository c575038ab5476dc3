"""pdist: distances between all pairs of rows (torch.nn.functional.pdist, scipy.spatial.distance.pdist), and dx."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Geometry, Guarantee, Params, Plan, Problem, Relative, Ulp, Variant, Vjp,
    element, extent, number, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.element import cast, decode
from ...core.error_bound import ErrorBound
from ...core.variant import Kernel, Step
from ...schedules.geometry import grid
from ...schedules.reduce import REDUCE, lanes_of
from . import reduce_formulas as formulas
from .reduce_gradients import sign

THREADS = 256
_KINDS = {0.0: "L0Norm", 1.0: "L1Norm", 2.0: "L2Norm", math.inf: "MaxNorm"}
_OTHER = "PNorm"


@dataclass(frozen=True, kw_only=True)
class PdistDescriptor(Descriptor):
    """x has shape (rows, features), y one distance for each pair of rows; p is the order of the norm, 0 or more."""

    rows: int = extent()
    features: int = extent()
    p: float = number(2.0, minimum=0, infinite=True)
    element: ElementKind = element()

    @property
    def pairs(self) -> int:
        """Pairs of rows."""
        return self.rows * (self.rows - 1) // 2


@dataclass(slots=True, kw_only=True)
class PdistArgs(Args):
    """Any strides. y is in the order (0, 1), (0, 2), …, (1, 2), …"""

    x: Array = operand("rows features")
    y: Array = output("pairs")


def _pairs(desc: PdistDescriptor, x: Any) -> tuple[Any, Any, Any]:
    """The rows of each pair, and their differences."""
    i, j = np.triu_indices(desc.rows, 1)
    return i, j, x[i] - x[j]


def reference(desc: PdistDescriptor, *, x: Any) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in."""
    with np.errstate(all="ignore"):
        _, _, apart = _pairs(desc, x)
        if desc.p == 0:
            y = np.sum(apart != 0, axis=1)
        elif desc.p == math.inf:
            y = np.max(np.abs(apart), axis=1, initial=0)
        else:
            y = formulas.l2_norm(apart, (1,)) if desc.p == 2 else formulas.p_norm(apart, (1,), desc.p)
    return {"y": np.asarray(y, x.dtype)}


PARAMS = Params(
    "PdistParams", x="ptr", y="ptr", rows="i64", features="i64", pairs="i64", row="i64", feature="i64", step="i64",
    order="f64", lanes="i32", pdist_threads=THREADS, **REDUCE,
)  # fmt: skip
_KERNELS = tuple(
    Kernel(name, f"pdist<kinds::{name}<double>, {{T}}>", PARAMS, threads=THREADS) for name in (*_KINDS.values(), _OTHER)
)


def _facts(p: Problem) -> dict[str, Any]:
    desc = p.desc
    return {
        "rows": desc.rows, "features": desc.features, "row": p.x.strides[0], "feature": p.x.strides[1],
        "step": p.y.strides[0], "order": desc.p,
    }  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    lanes = lanes_of(desc.features)
    values = {**_facts(p), "pairs": desc.pairs, "lanes": lanes}
    blocks = grid(-(-desc.pairs // (THREADS // lanes)))
    step = Step(_KINDS.get(desc.p, _OTHER), blocks, values, {}, THREADS)
    return Geometry((step,), layout="contiguous" if p.x.dense and p.y.dense else "strided")


def _bound(element: ElementKind, _: Any = None) -> ErrorBound:
    return Relative(4) if element is ElementKind.F64 else Ulp(0.51)


def in_torch(torch: Any, desc: PdistDescriptor, *, x: Any) -> Any:
    """torch.linalg.vector_norm of the differences: torch's pdist fails where there are no features."""
    if not desc.features:
        return x.new_zeros(desc.pairs)
    i, j = torch.triu_indices(desc.rows, desc.rows, 1)
    return torch.linalg.vector_norm(x[i] - x[j], desc.p, -1)


class PdistPlan(Plan):
    """y[k] = (Σ |x[i] - x[j]|^p)^(1/p) for each pair of rows i < j (torch.nn.functional.pdist).

    p = 0 counts the features that differ, inf is the largest difference. Differences and sums are in float64, of
    float64 too, so that near rows keep their digits; no power leaves the range. Order of sums: the number of features.
    """

    op = "reduce.pdist"
    descriptor = PdistDescriptor
    args = PdistArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "pairs", _geometry, source="reduce/pdist.cu", kernels=_KERNELS,
            guarantee=Guarantee(_bound, math="float64", batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    vjp = Vjp("PdistBackwardPlan", grads={"x": "dx"})
    benchmarks = (Benchmark("[4096, 128] f32", rows=4096, features=128, element="float32"),)

    @staticmethod
    def case(draw: Any) -> PdistDescriptor:
        return PdistDescriptor(
            rows=draw.sizes(0, 1, 2, 5, 17), features=draw.sizes(0, 1, 3, 30, 130, rare=(2500,)),
            p=draw.choice((0.0, 1.0, 2.0, math.inf, 0.5, 3.0)), element=draw.element,
        )  # fmt: skip


# ---- backward -------------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class PdistBackwardArgs(Args):
    """Any strides. y is the forward's result."""

    dy: Array = operand("pairs")
    x: Array = operand("rows features")
    y: Array = operand("pairs")
    dx: Array = output("rows features")


def backward_reference(desc: PdistDescriptor, *, dy: Any, x: Any, y: Any) -> Mapping[str, Any]:
    """NumPy in the dtype dy comes in."""
    dx = np.zeros_like(x)
    with np.errstate(all="ignore"):
        i, j, apart = _pairs(desc, x)
        norms, zero = y[:, None], x.dtype.type(0)
        if desc.p == 0:
            slopes = np.zeros_like(apart)
        elif desc.p == 1:
            slopes = sign(apart)
        elif desc.p == math.inf:
            sizes = np.asarray(cast(np.abs(apart), desc.element))
            slopes = np.where(decode(sizes, desc.element).astype(x.dtype) == norms, sign(apart), zero)
        else:
            power = sign(apart) * np.power(np.abs(apart) / norms, x.dtype.type(desc.p - 1))
            slopes = np.where((norms == 0) | (apart == 0), zero, apart / norms if desc.p == 2 else power)
        np.add.at(dx, i, dy[:, None] * slopes)
        np.subtract.at(dx, j, dy[:, None] * slopes)
    return {"dx": dx}


BACKWARD_PARAMS = Params(
    "PdistBackwardParams", dy="ptr", x="ptr", y="ptr", dx="ptr", rows="i64", features="i64", row="i64", feature="i64",
    step="i64", dy_step="i64", dx_row="i64", dx_feature="i64", order="f64",
    pdist_threads=THREADS, **REDUCE,
)  # fmt: skip


def _backward_geometry(p: Problem) -> Geometry | str:
    values = {**_facts(p), "dy_step": p.dy.strides[0], "dx_row": p.dx.strides[0], "dx_feature": p.dx.strides[1]}
    step = Step("pdist_backward", grid(-(-p.dx.size // THREADS)), values, {}, THREADS)
    dense = all(view.dense for view in (p.dy, p.x, p.y, p.dx))
    return Geometry((step,), layout="contiguous" if dense else "strided")


class PdistBackwardPlan(Plan):
    """dx[i] = the sum over the other rows j of dy times the slope of their distance, in float64, j in order.

    The slope is 0 where a distance is, where features are equal, and of p = 0. Of p = inf every feature that differs by
    the distance has all of it, as in PyTorch.
    """

    op = "reduce.pdist_backward"
    direction = "backward"
    descriptor = PdistDescriptor
    args = PdistBackwardArgs
    reference = staticmethod(backward_reference)
    variants = (
        Variant(
            "rows", _backward_geometry, source="reduce/pdist.cu",
            kernels=(Kernel("pdist_backward", "pdist_backward<{T}>", BACKWARD_PARAMS, threads=THREADS),),
            guarantee=Guarantee(Relative(4), math="float64"),
        ),
    )  # fmt: skip
    benchmarks = (Benchmark("[4096, 128] f32", rows=4096, features=128, element="float32"),)
    case = staticmethod(PdistPlan.case)

    @classmethod
    def complete(cls, desc: PdistDescriptor, arrays: dict[str, Any]) -> None:
        """y becomes the result of the forward."""
        made = reference(desc, x=decode(arrays["x"], desc.element).astype(np.float64))
        arrays["y"] = np.array(cast(made["y"], desc.element))


pdist = functional(PdistPlan)
pdist_backward = functional(PdistBackwardPlan)
