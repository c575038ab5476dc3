"""rope: rotary position embedding (Su et al. 2021, RoFormer), of one tensor or of queries and keys in one launch.

Pair j of the first `rotary_dim` columns is turned by the angle position · inv_freq[j]; the other columns are copied.
Pairing "half" joins columns j and j + rotary_dim / 2 (GPT-NeoX, Llama), "interleaved" joins 2j and 2j + 1 (GPT-J).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import lru_cache
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Geometry, Guarantee, Kernel, OpCategory, Params, Plan, Problem, Relative,
    Scalar, Step, Variant, View, Vjp, choice, element, extent, functional, integer, number, operand, output, scalar,
)  # fmt: skip
from ...core.element import INDICES
from ...core.errors import InvalidProblemError

X = "batch_size num_heads seq_len head_dim"
X2 = "batch_size num_heads2 seq_len head_dim"
FREQUENCIES = (ElementKind.F32, ElementKind.F64)
THREADS = 128  # at some 90 registers five blocks, 640 threads with 128 bytes in flight each, fit an SM
TABLE = 128  # pairs whose frequencies travel in the parameters: rotary_dim up to 256


def random_frequencies(rng: Any, desc: Any, shape: tuple[int, ...]) -> Any:
    """Radians per position, as large and as small as usual ones."""
    return rng.uniform(1e-5, 1, shape)


@dataclass(frozen=True, kw_only=True)
class RopeDescriptor(Descriptor):
    """x is [batch_size, num_heads, seq_len, head_dim], x2 the same with num_heads2 heads.

    rotary_dim is even and at most head_dim (None: all of it). inv_freq[j] = base^(-2j / rotary_dim).
    """

    batch_size: int = extent()
    num_heads: int = extent()
    seq_len: int = extent()
    head_dim: int = extent()
    num_heads2: int = extent(0)
    rotary_dim: int | None = integer(None, minimum=0)
    pairing: str = choice(("half", "interleaved"), "half")
    base: float = number(10000.0, above=0.0)
    element: ElementKind = element()

    def validate(self) -> None:
        if self.rotary % 2 or self.rotary > self.head_dim:
            raise InvalidProblemError(
                f"rotary_dim must be even and at most head_dim, got {self.rotary} for head_dim {self.head_dim}"
            )

    @property
    def rotary(self) -> int:
        """Columns that are rotated."""
        return self.head_dim if self.rotary_dim is None else self.rotary_dim

    @property
    def num_frequencies(self) -> int:
        """Pairs, each with an angle of its own."""
        return self.rotary // 2


@dataclass(slots=True, kw_only=True)
class RopeArgs(Args):
    """`positions` is [seq_len] or [batch_size, seq_len] (absent: 0 … seq_len - 1); `offset` is added to each.

    `inv_freq` replaces the frequencies that `base` gives. `x2`, turned by the same angles, goes to `y2`.
    """

    x: Array = operand(X)
    positions: Array | None = operand(
        "batch_size seq_len", element=INDICES, optional=True, broadcast=True, values=(-64, 1_000_000)
    )
    inv_freq: Array | None = operand("num_frequencies", element=FREQUENCIES, optional=True, values=random_frequencies)
    x2: Array | None = operand(X2, optional=True)
    y: Array = output(X, inplace=("x",))
    y2: Array | None = output(X2, optional=True, needs="x2", inplace=("x2",))
    offset: Scalar = scalar(0, integer=True)


def angles(desc: RopeDescriptor, positions: Any, inv_freq: Any, offset: Any, dtype: Any) -> tuple[Any, Any]:
    """cos and sin in `dtype`, broadcastable to [batch, heads, seq_len, pairs]; the angle stays in float64 or wider."""
    wide = np.result_type(dtype, np.float64)
    if inv_freq is None:
        inv_freq = wide.type(desc.base) ** (-np.arange(0, desc.rotary, 2).astype(wide) / wide.type(max(desc.rotary, 1)))
    places = np.arange(desc.seq_len) if positions is None else np.asarray(positions)
    places = np.atleast_2d(places.astype(np.int64) + np.int64(offset))[:, None, :, None]
    with np.errstate(invalid="ignore"):
        angle = places.astype(wide) * inv_freq.astype(wide)
        return np.cos(angle).astype(dtype), np.sin(angle).astype(dtype)


def rotate(desc: RopeDescriptor, x: Any, cos: Any, sin: Any) -> Any:
    """x with every pair turned; columns from rotary_dim on are copied."""
    y = x.copy()
    if desc.pairing == "half":
        first, second = slice(0, desc.rotary // 2), slice(desc.rotary // 2, desc.rotary)
    else:
        first, second = slice(0, desc.rotary, 2), slice(1, desc.rotary, 2)
    a, b = x[..., first], x[..., second]
    y[..., first] = a * cos - b * sin
    y[..., second] = b * cos + a * sin
    return y


def reference(
    desc: RopeDescriptor, *, x: Any, positions: Any, inv_freq: Any, x2: Any, offset: Any, wanted: set[str]
) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in."""
    cos, sin = angles(desc, positions, inv_freq, offset, x.dtype)
    results = {"y": rotate(desc, x, cos, sin)}
    if "y2" in wanted:
        results["y2"] = rotate(desc, x2, cos, sin)
    return results


@lru_cache(maxsize=64)
def turns(base: float, rotary: int) -> tuple[tuple[float, float], ...]:
    """inv_freq / 2π of the first pairs as two doubles each: float64 alone is off by 1e-10 at position 1e6."""
    with localcontext() as context:
        context.prec = 40  # two float64 words hold 32 digits
        turn = 2 * Decimal("3.14159265358979323846264338327950288419716939937510")
        values = [Decimal(base) ** (Decimal(-2 * i) / max(rotary, 1)) / turn for i in range(min(rotary // 2, TABLE))]
        return tuple((float(v), float(v - Decimal(float(v)))) for v in values)


PARAMS = Params(
    "RopeParams", x="ptr", y="ptr", x2="ptr", y2="ptr", positions="ptr", inv_freq="ptr", offset="iscalar",
    items="i64", units="i64", rotary_units="i64", seq_len="i64", groups="i64", heads="i64", heads2="i64",
    group_heads="i64", head_dim="i64", rotary_dim="i64", strides="i64[4][4]", position_strides="i64[2]",
    inv_freq_stride="i64", table_pairs="i64", base="f64", table=f"f64[{TABLE}][2]", positions_wide="i32",
    inv_freq_wide="i32", inverse="i32",
)  # fmt: skip


def _axes(kind: ElementKind) -> Mapping[str, Any]:
    return {"INTERLEAVED": (False, True), "WIDE": (True, False)}


def kernel() -> Kernel:
    """The kernel of both directions."""
    template = "rope<{T}, {INTERLEAVED}, {WIDE}>"
    return Kernel("rope", template, PARAMS, _axes, threads=THREADS, min_blocks=5, split=("INTERLEAVED", "WIDE"))


def geometry(p: Problem, names: tuple[str, str, str, str], inverse: bool) -> Geometry | str:
    """`names`: the operands that stand for x, y, x2 and y2; `inverse` turns by the negated angle."""
    desc = p.desc
    x, y, x2, y2 = (p.views[n] for n in names)
    second = x2 is not None and y2 is not None
    views: list[View] = [x, y, *((x2, y2) if second else ())]
    width = 16 // desc.element.itemsize
    half = desc.rotary // 2
    wide = half % width == 0 and desc.head_dim % width == 0 and all(v.inner_dense and v.aligned(16) for v in views)
    vec = width if wide else 2
    rotary_units = -(-half // vec) if desc.pairing == "half" else -(-half // 2 * 2 // vec)
    units = rotary_units + -(-(desc.head_dim - desc.rotary) // (2 * vec))
    heads, heads2 = desc.num_heads, desc.num_heads2 if second else 0
    # Heads of one thread share its angles; few enough that the threads fill the device.
    group = 16
    rows = desc.batch_size * desc.seq_len * units
    while group > 1 and rows * -(-(heads + heads2) // group) < p.device.sms * 1024:
        group //= 2
    groups = max(1, -(-(heads + heads2) // group))
    items = rows * groups
    positions = None if p.positions is None else p.positions.broadcast_to((desc.batch_size, desc.seq_len))
    params = {
        **dict(zip(("x", "y", "x2", "y2"), names, strict=True)),
        "items": items, "units": max(units, 1), "rotary_units": rotary_units, "seq_len": desc.seq_len, "groups": groups,
        "heads": heads, "heads2": heads2, "group_heads": -(-(heads + heads2) // groups),
        "head_dim": desc.head_dim, "rotary_dim": desc.rotary,
        "strides": [list(v.strides) for v in views], "base": desc.base,
        "position_strides": [0, 0] if positions is None else list(positions.strides),
        "positions_wide": positions is not None and positions.element is ElementKind.I64,
        "inv_freq_stride": 0 if p.inv_freq is None else p.inv_freq.strides[0],
        "inv_freq_wide": p.inv_freq is not None and p.inv_freq.element is ElementKind.F64,
        "inverse": inverse, "table": turns(desc.base, desc.rotary) if p.inv_freq is None else (),
        "table_pairs": min(half, TABLE),
    }  # fmt: skip
    axes = {"INTERLEAVED": desc.pairing == "interleaved", "WIDE": wide}
    step = Step("rope", (max(1, -(-items // THREADS)), 1, 1), params, axes, THREADS, smem=16 * half)
    layout = "contiguous" if all(v.dense for v in views) else "inner_contiguous" if wide else "strided"
    return Geometry((step,), layout=layout)


def random_case(draw: Any, descriptor: type[RopeDescriptor]) -> RopeDescriptor:
    """A descriptor for tests: whole and partial rotation, vector and odd head sizes."""
    head_dim = draw.sizes(2, 6, 20, 64, 80, 127, 128)
    partial = 2 * draw.integer(0, head_dim // 2) if draw.flag() or head_dim % 2 else None
    return descriptor(
        batch_size=draw.integer(0, 3), num_heads=draw.integer(0, 5), seq_len=draw.integer(0, 17), head_dim=head_dim,
        num_heads2=draw.integer(0, 3), rotary_dim=partial, pairing=draw.choice(("half", "interleaved")),
        base=draw.sizes(10000, 500, 1000000), element=draw.element,
    )  # fmt: skip


class RopePlan(Plan):
    """y = x with pair j of each row turned by (position + offset) · inv_freq[j] (rotary position embedding)."""

    op = "attention.rope"
    category = OpCategory.ATTENTION
    descriptor = RopeDescriptor
    args = RopeArgs
    reference = staticmethod(reference)
    vjp = Vjp("RopeBackwardPlan", grads={"x": "dx", "x2": "dx2"})
    value_policy = "any position is legal: a negative one turns backwards"
    variants = (
        Variant(
            "rotate", lambda p: geometry(p, ("x", "y", "x2", "y2"), False), source="attention/rope.cu",
            kernels=(kernel(),), guarantee=Guarantee(Relative(2), batch_invariant=True),
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> RopeDescriptor:
        return random_case(draw, RopeDescriptor)

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        if "x2" in shapes and len(shapes["x2"]) == 4:
            facts["num_heads2"] = shapes["x2"][1]

    @classmethod
    def flops(cls, desc: Any) -> int:
        return 3 * desc.batch_size * desc.num_heads * desc.seq_len * desc.rotary


rope = functional(RopePlan)
