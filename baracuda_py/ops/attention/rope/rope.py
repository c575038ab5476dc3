"""rope: rotary position embedding (Su et al. 2021, RoFormer), of one tensor or of queries and keys in one launch.

Pair j of the first `rotary_dim` columns is turned by the angle position · inv_freq[j]; the other columns are copied.
Pairing "half" joins columns j and j + rotary_dim / 2 (GPT-NeoX, Llama), "interleaved" joins 2j and 2j + 1 (GPT-J).
`rope_frequencies` gives inv_freq and scale of a model whose context was extended.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import lru_cache
from typing import Any

from ....core import (
    Args, Array, Descriptor, ElementKind, Geometry, Guarantee, Kernel, Params, Plan, Problem, Relative,
    Scalar, Step, Variant, View, Vjp, choice, element, extent, integer, number, operand, output, scalar,
)  # fmt: skip
from ....calls.functional import functional
from ....schedules.map import divider
from ..layouts import Layouts
from .rotary import (
    MOST_AXES, Rotary, angles, angles_in_torch, check_angles, check_tokens, frequencies_operand, interleaved_field,
    positions_operand, random_sections, rotate, rotate_in_torch, section_field, settle_angles, table_operand,
    tables_field, TABLES,
)  # fmt: skip
from ....core.benchmark import Benchmark

X = "batch_size num_heads seq_len head_dim"
X2 = "batch_size num_heads2 seq_len head_dim"
THREADS = 128
LANES = 2  # heads a block has in work at a time; twice as many in small problems (decoding: 7.5 us against 8.7)
HEADS = 16  # a block takes; it makes their rows' angles once
TABLE = 128  # pairs whose frequencies travel in the parameters: rotary_dim up to 256


@dataclass(frozen=True, kw_only=True)
class RopeDescriptor(Rotary, Descriptor):
    """x is [batch_size, num_heads, seq_len, head_dim], x2 the same with num_heads2 heads.

    rotary_dim is even and at most head_dim (None: all of it). inv_freq[j] = base^(-2j / rotary_dim). table_shape: that
    of cos and sin, of which axes may be 1; None is [batch_size, seq_len, pairs]. mrope_section: how many pairs turn by
    the positions along each axis (Qwen2-VL: time, height, width), in this order, or with mrope_interleaved (Qwen3-VL)
    dealt out in turn: pair j to axis a = j mod axes while j < axes · mrope_section[a], else to the first.
    """

    batch_size: int = extent()
    num_heads: int = extent()
    seq_len: int = extent()
    head_dim: int = extent()
    num_heads2: int = extent(0)
    rotary_dim: int | None = integer(None, minimum=0)
    pairing: str = choice(("half", "interleaved"), "half")
    base: float = number(10000.0, above=0.0)
    table_shape: tuple[int, ...] = tables_field()
    mrope_section: tuple[int, ...] = section_field()
    mrope_interleaved: bool = interleaved_field()
    element: ElementKind = element()


@dataclass(slots=True, kw_only=True)
class RopeArgs(Args):
    """`positions` is [seq_len] or [batch_size, seq_len] (absent: 0 … seq_len - 1), with mrope_section [axes, batch_size
    or 1, seq_len]; `offset` is added to each.

    `inv_freq` replaces the frequencies that `base` gives. `cos` and `sin`, [seq_len, pairs] or [batch_size or 1,
    seq_len, pairs], replace all of these; they are in the accumulator's element or in x's. They may have a column for
    each rotated column, a pair's two being equal (only one is read), and an axis of 1 for heads before seq_len: Hugging
    Face's (where they turn fewer columns than head_dim, rotary_dim must say so). Either way they are multiplied by
    `scale`. `x2`, turned by the same angles, goes to `y2`.
    """

    x: Array = operand(X)
    positions: Array | None = positions_operand()
    inv_freq: Array | None = frequencies_operand()
    x2: Array | None = operand(X2, optional=True)
    cos: Array | None = table_operand()
    sin: Array | None = table_operand()
    y: Array = output(X, inplace=("x",))
    y2: Array | None = output(X2, optional=True, needs="x2", inplace=("x2",))
    offset: Scalar = scalar(0, integer=True)
    scale: Scalar = scalar(1.0)


def reference(desc: RopeDescriptor, *, x: Any, x2: Any, wanted: set[str], **turn: Any) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in."""
    cos, sin = angles(desc, x.dtype, **turn)
    results = {"y": rotate(desc, x, cos, sin)}
    if "y2" in wanted:
        results["y2"] = rotate(desc, x2, cos, sin)
    return results


@lru_cache(maxsize=64)
def turns(base: float, rotary: int) -> tuple[tuple[tuple[float, float], ...], tuple[int, ...]]:
    """inv_freq / 2π of the first pairs, as two doubles each and as fractions of 2^64 (whole turns are none).

    One float64 would be off by 1e-10 turns at position 1e6.
    """
    with localcontext() as context:
        context.prec = 40  # two float64 words hold 32 digits
        turn = 2 * Decimal("3.14159265358979323846264338327950288419716939937510")
        values = [Decimal(base) ** (Decimal(-2 * i) / max(rotary, 1)) / turn for i in range(min(rotary // 2, TABLE))]
        pairs = tuple((float(v), float(v - Decimal(float(v)))) for v in values)
        return pairs, tuple(int(v % 1 * 2**64) for v in values)


def angle_params() -> dict[str, str]:
    """Params fields of positions, frequencies and tables; `kernels/attention/rope/rope.cuh` reads them."""
    return {
        "positions": "ptr", "inv_freq": "ptr", "cos": "ptr", "sin": "ptr", "scale": "scalar", "seq_len": "i64",
        "rotary_dim": "i64", "position_strides": "i64[3]", "sections": "u32", "by_sections": "u32[3]",
        "section_ends": f"u32[{MOST_AXES}]", "angle_strides": "i64[2][3]", "inv_freq_stride": "i64",
        "table_pairs": "i64", "base": "f64", "table": f"f64[{TABLE}][2]", "positions_wide": "i32",
        "inv_freq_wide": "i32", "tables_wide": "u32", "step_rows": "u32", "step_pairs": "u32", "turns": f"u64[{TABLE}]",
    }  # fmt: skip


def rotation_params(sides: int) -> dict[str, str]:
    """Params fields for `sides` inputs and outputs; `kernels/attention/rope/rope.cuh` reads them."""
    return {
        **dict.fromkeys(("x", "y", "x2", "y2", "x3", "y3")[:sides], "ptr"), **angle_params(), "rows": "i64",
        "units": "i64", "rotary_units": "i64", "copy_units": "i64", "head_counts": "i64[3]", "group_heads": "i64",
        "head_dim": "i64", "strides": f"i64[{sides}][4]", "inverse": "i32", "tiles": "u32", "groups": "u32",
        "first_group": "u32[2]", "tile_rows": "u32", "block_units": "u32", "lanes": "u32",
    }  # fmt: skip


PARAMS = Params("RopeParams", offset="iscalar", **rotation_params(4))


def kernels(name: str = "rope", params: Params = PARAMS) -> tuple[Kernel, Kernel]:
    """The kernel of both directions, or that of another op with the same instances; some with more registers.

    On 268 MB eight blocks an SM took 138 us where six took 143 (H200), but not every instance has room for that. (NVRTC
    12 spills 5 registers of 16-bit halves.)
    """
    template = f"{name}<{{T}}, {{INTERLEAVED}}, {{WIDE}}>"

    def axes(lean: bool) -> Any:
        return lambda kind: {
            "INTERLEAVED": (False, True),
            "WIDE": tuple(wide for wide in (True, False) if is_lean(kind, wide) == lean),
        }

    return (
        Kernel(name, template, params, axes(True), THREADS, 8),
        Kernel(f"{name}_roomy", template, params, axes(False), THREADS, 6),
    )


def is_lean(kind: ElementKind, wide: bool) -> bool:
    """Whether the instance fits 64 registers."""
    return wide and kind is not ElementKind.F64


def is_wide(desc: Any, views: Sequence[View]) -> bool:
    """Whether rows fall into chunks of 16 bytes that hold whole pairs' halves."""
    width = 16 // desc.element.itemsize
    whole = desc.rotary // 2 % width == 0 and desc.head_dim % width == 0
    return whole and all(v.inner_dense and v.aligned(16) for v in views)


def rotation(
    p: Problem, views: Sequence[View], heads: tuple[int, ...], wide: bool, value_units: int = 0
) -> dict[str, Any]:
    """What `rotation_params` declares but the pointers. `heads`: how many each input has; `views`: input, output, …"""
    desc = p.desc
    vec = 16 // desc.element.itemsize if wide else 2
    half = desc.rotary // 2
    rotary_units = -(-half // vec) if desc.pairing == "half" else -(-half // 2 * 2 // vec)
    copy_units = -(-(desc.head_dim - desc.rotary) // (2 * vec))
    units = max(rotary_units + copy_units, value_units)
    rows, most = desc.batch_size * desc.seq_len, max(heads)
    full = p.device.sms * 8 * THREADS  # threads that fill the device
    small = rows * units * sum(heads) * LANES < full * HEADS
    lanes = max(1, min(2 * LANES if small else LANES, most))
    block_units = max(1, min(units, THREADS // lanes))
    tile_rows = THREADS // (lanes * block_units)
    tiles, unit_blocks = max(1, -(-rows // tile_rows)), -(-units // block_units)
    group = HEADS
    while group > lanes and tiles * unit_blocks * sum(-(-n // group) for n in heads) * THREADS < full:
        group //= 2
    ends = list(itertools.accumulate(-(-n // group) for n in heads))
    positions = None if p.positions is None else p.positions.broadcast_to(desc.positions_shape)
    tables = [] if p.cos is None else [v.broadcast_to(desc.table_shape) for v in (p.cos, p.sin)]
    return {
        **angle_values(p, positions, tables, THREADS), "rows": rows, "units": units, "rotary_units": rotary_units,
        "copy_units": copy_units, "head_counts": heads, "group_heads": group, "tiles": tiles,
        "groups": max(ends[-1], 1), "first_group": ends[:2], "tile_rows": tile_rows, "block_units": block_units,
        "lanes": lanes, "head_dim": desc.head_dim, "strides": [list(v.strides) for v in views], "inverse": 0,
    }  # fmt: skip


def angle_values(p: Problem, positions: View | None, tables: Sequence[View], threads: int) -> dict[str, Any]:
    """What `angle_params` declares but the pointers, for blocks of `threads`; positions and tables in whole shapes."""
    desc = p.desc
    half, doubles = desc.rotary // 2, desc.acc is ElementKind.F64
    table, fractions = turns(desc.base, desc.rotary) if p.inv_freq is None else ((), ())
    dealt = len(desc.mrope_section) if desc.mrope_interleaved else 0
    return {
        "seq_len": max(desc.seq_len, 1), "step_rows": threads // max(half, 1), "step_pairs": threads % max(half, 1),
        "rotary_dim": desc.rotary, "turns": () if doubles else fractions,
        "position_strides": [0, 0, 0] if positions is None else [0, *positions.strides][-3:],
        "sections": len(desc.mrope_section), "by_sections": divider(dealt),
        "section_ends": [*desc.section_ends, *(half,) * (MOST_AXES - len(desc.mrope_section))],
        "angle_strides": [[v.strides[0], v.strides[-2], v.strides[-1] * desc.table_step] for v in tables],
        "inv_freq_stride": 0 if p.inv_freq is None else p.inv_freq.strides[0], "table_pairs": min(half, TABLE),
        "base": desc.base, "table": table if doubles else (),
        "positions_wide": positions is not None and positions.element is ElementKind.I64,
        "inv_freq_wide": p.inv_freq is not None and p.inv_freq.element is ElementKind.F64,
        "tables_wide": sum(1 << i for i, v in enumerate(tables) if v.element is desc.element.acc),
    }  # fmt: skip


def rotation_geometry(p: Problem, name: str, params: Mapping[str, Any], views: Sequence[View], wide: bool) -> Geometry:
    """The launch of `rotation`'s parameters."""
    axes = {"INTERLEAVED": p.desc.pairing == "interleaved", "WIDE": wide}
    half, rows = p.desc.rotary // 2, params["tile_rows"]
    smem = 2 * half * rows * p.desc.acc.itemsize
    grid = params["tiles"] * params["groups"] * -(-params["units"] // params["block_units"])
    name = name if is_lean(p.desc.element, wide) else f"{name}_roomy"
    step = Step(name, (max(1, grid), 1, 1), params, axes, THREADS, smem=smem)
    layout = "contiguous" if all(v.dense for v in views) else "inner_contiguous" if wide else "strided"
    return Geometry((step,), layout=layout)


def geometry(p: Problem, names: tuple[str, str, str, str], inverse: bool) -> Geometry | str:
    """`names`: the operands that stand for x, y, x2 and y2; `inverse` turns by the negated angle."""
    desc = p.desc
    x, y, x2, y2 = (p.views[n] for n in names)
    second = x2 is not None and y2 is not None
    views: list[View] = [x, y, *((x2, y2) if second else ())]
    wide = is_wide(desc, views)
    params = rotation(p, views, (desc.num_heads, desc.num_heads2 if second else 0), wide)
    params |= {**dict(zip(("x", "y", "x2", "y2"), names, strict=True)), "inverse": inverse}
    return rotation_geometry(p, "rope", params, views, wide)


def random_case(draw: Any, descriptor: type[RopeDescriptor]) -> RopeDescriptor:
    """A descriptor for tests: whole and partial rotation, sections, vector and odd head sizes."""
    head_dim = draw.sizes(2, 6, 20, 64, 80, 127, 128)
    partial = 2 * draw.integer(0, head_dim // 2) if draw.flag() or head_dim % 2 else None
    seq_len, rotary = draw.integer(0, 17), head_dim if partial is None else partial
    tables = (None, (seq_len, rotary), (1, 1, seq_len, rotary), (1, 1, seq_len, rotary // 2))
    return descriptor(
        batch_size=draw.integer(0, 3), num_heads=draw.integer(0, 5), seq_len=seq_len, head_dim=head_dim,
        num_heads2=draw.integer(0, 3), rotary_dim=partial, pairing=draw.choice(("half", "interleaved")),
        base=draw.sizes(10000, 500, 1000000), table_shape=draw.choice(tables), element=draw.element,
        **random_sections(draw, rotary // 2),
    )  # fmt: skip


def in_torch(torch: Any, desc: RopeDescriptor, *, x: Any, x2: Any, wanted: set[str], **turn: Any) -> Any:
    """The formula, of angles in float64."""
    cos, sin = angles_in_torch(torch, desc, x, **turn)
    made = {"y": rotate_in_torch(torch, desc, x, cos, sin)}
    return made if x2 is None else made | {"y2": rotate_in_torch(torch, desc, x2, cos, sin)}


def rope_benchmarks() -> tuple[Benchmark, ...]:
    """The queries of a large model."""
    return (
        Benchmark(
            "[8, 32, 4096, 128] bf16", batch_size=8, num_heads=32, seq_len=4096, head_dim=128, element="bfloat16"
        ),
    )


class RopePlan(Plan):
    """y = x with pair j of each row turned by (position + offset) · inv_freq[j] and multiplied by scale.

    x, y [batch, heads, seq_len, head_dim], any strides; x2, y2 the same with heads of their own. The pair (a, b)
    becomes scale · (a cos t - b sin t, b cos t + a sin t) (Su et al. 2021); columns beyond rotary_dim are copied.
    inv_freq float32 or float64; see `rope_frequencies` for models of extended context, and `RopeArgs` for tables. The
    functional layer takes arrays of layout "bshd", [batch, seq_len, heads, head_dim], too; given x2 it returns (y, y2).
    Packed tokens [tokens, heads, head_dim] are x[None] of that layout, with the positions of all tokens.
    """

    op = "attention.rope"
    descriptor = RopeDescriptor
    args = RopeArgs
    autocast = "widest"
    reference = staticmethod(reference)
    vjp = Vjp("RopeBackwardPlan", grads={"x": "dx", "x2": "dx2"})
    value_policy = "any position is legal: a negative one turns backwards"
    variants = (
        Variant(
            "rotate", lambda p: geometry(p, ("x", "y", "x2", "y2"), False), source="attention/rope/rope.cu",
            kernels=kernels(), guarantee=Guarantee(Relative(2), batch_invariant=True), may_spill=True,
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = rope_benchmarks()

    @staticmethod
    def case(draw: Any) -> RopeDescriptor:
        return random_case(draw, RopeDescriptor)

    @classmethod
    def check(cls, desc: Any, views: Mapping[str, Any]) -> None:
        check_angles(desc, views)

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        settle_angles(desc, arrays)

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        if "x2" in shapes and len(shapes["x2"]) == 4:
            facts["num_heads2"] = shapes["x2"][1]
        check_tokens(shapes, "x", ("x2",), facts)

    @classmethod
    def flops(cls, desc: RopeDescriptor) -> int:
        return 3 * desc.batch_size * desc.num_heads * desc.seq_len * desc.rotary


rope = functional(RopePlan, layouts=Layouts(("x", "x2", *TABLES, "y", "y2")), returns=("y2",))
