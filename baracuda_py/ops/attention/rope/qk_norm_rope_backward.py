"""qk_norm_rope_backward: the gradients of qk_norm_rope in queries, keys and both weights, in one pass over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ....core import (
    Args, Array, Geometry, Guarantee, Kernel, Params, Plan, Problem, Relative, Scalar, Step, Variant,
    operand, output, scalar,
)  # fmt: skip
from ....calls.functional import functional
from ....core.variant import aligned
from ..layouts import Layouts
from .qk_norm_rope import (
    THREADS, K, Q, QkNormRopeDescriptor, QkNormRopePlan, common, head_kernels, head_params, layout_of, normalized,
    qk_benchmarks, random_case, weighted,
)  # fmt: skip
from .rope import rotation_params
from .rotary import TABLES, angles, check_tokens, frequencies_operand, positions_operand, rotate, table_operand

_BLOCKS = 2  # a multiprocessor has room for


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
    "QkNormRopeBackwardParams", sums="workspace", sums2="workspace", want="i32", **head_params(2), **rotation_params(6)
)
COMBINE = Params(
    "QkNormRopeCombineParams", dweight="ptr", dweight2="ptr", sums="workspace", sums2="workspace", columns="i64",
    parts="i64[2]", stride="i64", stride2="i64", wide="i32",
)  # fmt: skip


def parts_of(work: Sequence[int], tiles: Sequence[int], blocks: int) -> tuple[int, int]:
    """How many of the persistent blocks are for queries, and for keys, in proportion to `work`."""
    q = min(max(blocks * work[0] // max(sum(work), 1), 1), blocks - 1)
    return min(q, max(tiles[0], 1)), min(blocks - q, max(tiles[1], 1))


def _geometry(p: Problem) -> Geometry | str:
    desc, heads, blocks = p.desc, (p.desc.num_heads, p.desc.num_kv_heads), _BLOCKS * p.device.sms
    views = [p.dyq, p.dq, p.dyk, p.dk, p.q, p.k]
    found = common(p, views, heads, blocks)
    if isinstance(found, str):
        return found
    values, step = found
    names = {n: n if v is not None else "@null" for n, v in (("dq", p.dq), ("dk", p.dk))}
    summed = (p.dq_weight is not None, p.dk_weight is not None)
    wanted = (p.dq is not None or summed[0], p.dk is not None or summed[1])
    parts = parts_of([n * w for n, w in zip(heads, wanted, strict=True)], values["side_tiles"], blocks)
    nbytes = [aligned(n * s * desc.head_dim * desc.acc.itemsize) for n, s in zip(parts, summed, strict=True)]
    place = {"sums": 0, "sums2": nbytes[0]}
    values |= {
        **place, "x": "dyq", "y": names["dq"], "x2": "dyk", "y2": names["dk"], "x3": "q", "y3": "k",
        "want": summed[0] + 2 * summed[1], "side_blocks": parts,
    }  # fmt: skip
    board = THREADS // values["lanes"] * desc.head_dim if any(summed) else 0  # takes the place of the angles
    smem = max(step.smem, (board + desc.head_dim) * desc.acc.itemsize)
    steps = [replace(step, grid=(sum(parts), 1, 1), params=values, smem=smem)]
    if any(summed) and desc.head_dim:
        last = {
            **place, "dweight": "dq_weight", "dweight2": "dk_weight", "columns": desc.head_dim, "parts": parts,
            "stride": 0 if p.dq_weight is None else p.dq_weight.strides[0],
            "stride2": 0 if p.dk_weight is None else p.dk_weight.strides[0], "wide": values["wide"],
        }  # fmt: skip
        steps.append(Step("combine", (-(-desc.head_dim // (THREADS // 32)), 2, 1), last, {}, THREADS))
    # Where one side alone is wanted, it has the other's blocks too, and the sums of its weights another order.
    same = not any(summed) or parts == parts_of(heads, values["side_tiles"], blocks)
    order = "" if same else "queries" if wanted[0] else "keys"
    return Geometry(tuple(steps), sum(nbytes), layout_of(views, step.axes["WIDE"]), order)


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
                *head_kernels("qk_norm_rope_backward", PARAMS, _BLOCKS),
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
