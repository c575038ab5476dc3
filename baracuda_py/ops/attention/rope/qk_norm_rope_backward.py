"""qk_norm_rope_backward: the gradients of qk_norm_rope in queries, keys and both weights, in one pass over them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....core import (
    Args, Array, Geometry, Guarantee, Kernel, Params, Plan, Problem, Relative, Scalar, Step, Variant, functional,
    operand, output, scalar,
)  # fmt: skip
from ....core.variant import aligned
from ..layouts import Layouts
from .qk_norm_rope import (
    THREADS, K, Q, QkNormRopeDescriptor, QkNormRopePlan, common, layout_of, normalized, qk_benchmarks, random_case,
    weighted, AXES, OWN,
)  # fmt: skip
from .rope import rotation_params
from .rotary import TABLES, angles, check_tokens, frequencies_operand, positions_operand, rotate, table_operand

_BLOCKS = 4  # of queries, and of keys, a multiprocessor


@dataclass(frozen=True, kw_only=True)
class QkNormRopeBackwardDescriptor(QkNormRopeDescriptor):
    """The forward's fields."""


@dataclass(slots=True, kw_only=True)
class QkNormRopeBackwardArgs(Args):
    """Everything but dyq and dyk is that of the forward call; each output may be None."""

    dyq: Array = operand(Q)
    dyk: Array = operand(K)
    q: Array = operand(Q)
    k: Array = operand(K)
    q_weight: Array | None = operand("head_dim", element="weight_element", optional=True)
    k_weight: Array | None = operand("head_dim", element="weight_element", optional=True)
    positions: Array | None = positions_operand()
    inv_freq: Array | None = frequencies_operand()
    cos: Array | None = table_operand()
    sin: Array | None = table_operand()
    dq: Array | None = output(Q, optional=True, inplace=("dyq", "q"))
    dk: Array | None = output(K, optional=True, inplace=("dyk", "k"))
    dq_weight: Array | None = output("head_dim", element="weight_element", optional=True, needs="q_weight")
    dk_weight: Array | None = output("head_dim", element="weight_element", optional=True, needs="k_weight")
    offset: Scalar = scalar(0, integer=True)
    scale: Scalar = scalar(1.0)


def reference(
    desc: QkNormRopeBackwardDescriptor, *, dyq: Any, dyk: Any, q: Any, k: Any, q_weight: Any, k_weight: Any,
    wanted: set[str], **turn: Any,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype q comes in."""
    cos, sin = angles(desc, q.dtype, **turn)
    made: dict[str, Any] = {}
    with np.errstate(all="ignore"):
        for side, dy, x, weight in (("q", dyq, q, q_weight), ("k", dyk, k, k_weight)):
            g, (xhat, rstd) = rotate(desc, dy, cos, -sin), normalized(desc, x)
            w = weighted(desc, g, weight)
            slope = np.mean(w * xhat, axis=-1, keepdims=True) if desc.head_dim else w
            made |= {f"d{side}": rstd * (w - xhat * slope), f"d{side}_weight": np.sum(g * xhat, axis=(0, 1, 2))}
    return {name: value for name, value in made.items() if name in wanted}


PARAMS = Params(
    "QkNormRopeBackwardParams", sums="workspace", sums2="workspace", want="i32", **OWN, **rotation_params(6)
)
COMBINE = Params(
    "QkNormRopeCombineParams", dweight="ptr", dweight2="ptr", sums="workspace", sums2="workspace", columns="i64",
    parts="i64", stride="i64", stride2="i64", wide="i32",
)  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    views = [p.dyq, p.dq, p.dyk, p.dk, p.q, p.k]
    found = common(p, views, (desc.num_heads, desc.num_kv_heads))
    if isinstance(found, str):
        return found
    values, wide = found
    outs = {"dq": p.dq, "dk": p.dk}
    names = {n: n if v is not None else "@null" for n, v in outs.items()}
    want = (p.dq_weight is not None) + 2 * (p.dk_weight is not None)
    parts = max(1, min(values["tiles"], p.device.sms * _BLOCKS))
    nbytes = aligned(parts * desc.head_dim * desc.acc.itemsize) if want else 0
    place = {"sums": 0, "sums2": nbytes}
    values |= {
        "x": "dyq",
        "y": names["dq"],
        "x2": "dyk",
        "y2": names["dk"],
        "x3": "q",
        "y3": "k",
        "want": want,
        **place,
    }
    groups = THREADS // values["lanes"]
    smem = (values["tile_rows"] * desc.rotary + (1 + (groups if want else 0)) * desc.head_dim) * desc.acc.itemsize
    axes = {"INTERLEAVED": desc.pairing == "interleaved", "WIDE": wide}
    steps = [Step("heads", (parts, 2, 1), values, axes, THREADS, smem=smem)]
    if want and desc.head_dim:
        last = {
            **place, "dweight": "dq_weight", "dweight2": "dk_weight", "columns": desc.head_dim, "parts": parts,
            "stride": 0 if p.dq_weight is None else p.dq_weight.strides[0],
            "stride2": 0 if p.dk_weight is None else p.dk_weight.strides[0], "wide": values["wide"],
        }  # fmt: skip
        steps.append(Step("combine", (-(-desc.head_dim // (THREADS // 32)), 2, 1), last, {}, THREADS))
    return Geometry(tuple(steps), 2 * nbytes, layout_of(views, wide))


class QkNormRopeBackwardPlan(Plan):
    """dq = rstd·(g·w - xhat·mean(g·w·xhat)) and dq_weight = Σ g·xhat, where g is dyq turned back; the same of keys.

    xhat = q·rstd and rstd are made again from q. The weights' gradients are summed in a fixed order: the heads that a
    lane takes, lanes, blocks.
    """

    op = "attention.qk_norm_rope_backward"
    direction = "backward"
    descriptor = QkNormRopeBackwardDescriptor
    args = QkNormRopeBackwardArgs
    autocast = "widest"
    reference = staticmethod(reference)
    value_policy = "any position is legal: a negative one turns backwards"
    variants = (
        Variant(
            "heads", _geometry, source="attention/rope/qk_norm_rope.cu",
            kernels=(
                Kernel("heads", "qk_norm_rope_backward<{T}, {INTERLEAVED}, {WIDE}>", PARAMS, AXES, THREADS),
                Kernel("combine", "qk_norm_rope_combine<{T}>", COMBINE, threads=THREADS),
            ),
            guarantee=Guarantee(Relative(2)),
        ),
    )  # fmt: skip
    benchmarks = qk_benchmarks("dq", "dk", "dq_weight", "dk_weight")

    @staticmethod
    def case(draw: Any) -> QkNormRopeDescriptor:
        return random_case(draw, QkNormRopeBackwardDescriptor)

    check = QkNormRopePlan.check
    complete = QkNormRopePlan.complete

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        check_tokens(shapes, "dyq", ("dyk", "q", "k"), facts)


qk_norm_rope_backward = functional(
    QkNormRopeBackwardPlan, layouts=Layouts(("dyq", "dyk", "q", "k", *TABLES, "dq", "dk"))
)
