"""qk_norm_rope: the RMS norm of every head of queries and keys and their rotary embedding, in one launch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ....core import (
    Args, Array, Descriptor, ElementKind, Geometry, Guarantee, Kernel, Params, Plan, Problem, Relative, Scalar, Step,
    Variant, Vjp, choice, element, extent, integer, number, operand, output, scalar,
)  # fmt: skip
from ....calls.functional import functional
from ....core.benchmark import Benchmark
from ....core.variant import Blocks
from ....schedules.norms import HALVES, affine_element, affine_elements
from ..layouts import Layouts
from .rope import is_wide, rotation, rotation_params
from .rotary import (
    TABLES, Rotary, angles, angles_in_torch, check_angles, check_tokens, frequencies_operand, interleaved_field,
    positions_operand, random_sections, rotate, rotate_in_torch, section_field, settle_angles, table_operand,
    tables_field,
)  # fmt: skip

Q = "batch_size num_heads seq_len head_dim"
K = "batch_size num_kv_heads seq_len head_dim"
THREADS = 256
MOST_HELD = 2  # units a lane holds
_PASSES = 16  # heads of a token that a group of lanes takes one after another, where that leaves enough blocks


@dataclass(frozen=True, kw_only=True)
class QkNormRopeDescriptor(Rotary, Descriptor):
    """q is [batch_size, num_heads, seq_len, head_dim], k the same with num_kv_heads heads.

    rotary_dim, pairing, base, table_shape, mrope_section and mrope_interleaved are those of `RopeDescriptor`; eps,
    weight_offset and weight_element those of `RMSNormDescriptor`.
    """

    batch_size: int = extent()
    num_heads: int = extent()
    num_kv_heads: int = extent()
    seq_len: int = extent()
    head_dim: int = extent()
    rotary_dim: int | None = integer(None, minimum=0)
    pairing: str = choice(("half", "interleaved"), "half")
    base: float = number(10000.0, above=0.0)
    table_shape: tuple[int, ...] = tables_field()
    mrope_section: tuple[int, ...] = section_field()
    mrope_interleaved: bool = interleaved_field()
    eps: float = number(1e-6, minimum=0.0)
    weight_offset: float = number(0.0)
    weight_element: ElementKind = affine_element()
    element: ElementKind = element()

    @property
    def aux_element(self) -> ElementKind | None:
        """The weights' element where it is another one."""
        return None if self.weight_element is self.element else self.weight_element


@dataclass(slots=True, kw_only=True)
class QkNormRopeArgs(Args):
    """Any strides. positions, inv_freq, cos, sin, offset and scale are those of `RopeArgs`; yq may be q, yk be k."""

    q: Array = operand(Q)
    k: Array = operand(K)
    q_weight: Array | None = operand("head_dim", element="weight_element", optional=True)
    k_weight: Array | None = operand("head_dim", element="weight_element", optional=True)
    positions: Array | None = positions_operand()
    inv_freq: Array | None = frequencies_operand()
    cos: Array | None = table_operand()
    sin: Array | None = table_operand()
    yq: Array = output(Q, inplace=("q",))
    yk: Array = output(K, inplace=("k",))
    offset: Scalar = scalar(0, integer=True)
    scale: Scalar = scalar(1.0)


def normalized(desc: Any, x: Any) -> tuple[Any, Any]:
    """x / rms, and 1 / rms."""
    rstd = 1 / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + x.dtype.type(desc.eps)) if desc.head_dim else x
    return x * rstd, rstd


def weighted(desc: Any, x: Any, weight: Any) -> Any:
    """x times the weights, which have an offset."""
    return x if weight is None else x * (weight + x.dtype.type(desc.weight_offset))


def reference(
    desc: QkNormRopeDescriptor, *, q: Any, k: Any, q_weight: Any, k_weight: Any, **turn: Any
) -> Mapping[str, Any]:
    """NumPy in the dtype q comes in."""
    cos, sin = angles(desc, q.dtype, **turn)
    with np.errstate(all="ignore"):
        sides = (weighted(desc, normalized(desc, x)[0], w) for x, w in ((q, q_weight), (k, k_weight)))
        return {name: rotate(desc, x, cos, sin) for name, x in zip(("yq", "yk"), sides, strict=True)}


def head_params(sides: int) -> dict[str, str]:
    """Params fields of weights and of the blocks of `sides` inputs; `kernels/attention/rope/heads.cuh` reads them."""
    return {
        "weight": "ptr", "weight2": "ptr", "offset": "iscalar", "eps": "f64", "weight_stride": "i64",
        "weight_stride2": "i64", "wide": "i32", "weight_offset": "f64", "side_blocks": f"i64[{sides}]",
        "side_tiles": f"i64[{sides}]", "side_rows": f"i32[{sides}]", "side_ways": f"i32[{sides}]",
    }  # fmt: skip


PARAMS = Params("QkNormRopeParams", **head_params(2), **rotation_params(4))


def room(element: ElementKind, kind: Any = None) -> int:
    """Blocks of the forward that a multiprocessor has registers for."""
    return 3 if element in HALVES else 4


def head_kernels(name: str, params: Params, min_blocks: Blocks) -> tuple[Kernel, Kernel]:
    """Of whole chunks where a lane holds one unit of a head, as nearly all models have, and of everything else.

    The last have registers for one block a multiprocessor named, without which the assembler spills.
    """
    template = f"{name}<{{T}}, {{INTERLEAVED}}, {{WIDE}}, {{HELD}}>"
    pairing = {"INTERLEAVED": (False, True)}
    return (
        Kernel("heads", template, params, pairing | {"WIDE": (True,), "HELD": (1,)}, THREADS, min_blocks),
        Kernel("heads_any", template, params, pairing | {"WIDE": (False,), "HELD": (1, MOST_HELD)}, THREADS, 1),
    )


def units(desc: Any) -> tuple[int, int]:
    """Units of a head that turn, and that do not: two chunks of 16 bytes each."""
    width, half = 16 // desc.element.itemsize, desc.rotary // 2
    turning = half if desc.pairing == "half" else -(-half // 2) * 2
    return -(-turning // width), -(-(desc.head_dim - desc.rotary) // (2 * width))


def side_values(rows: int, heads: tuple[int, ...], lanes: int, fill: int) -> dict[str, Any]:
    """How many of a block's groups of lanes share the heads of a token, side by side: powers of two; and the tiles.

    Few, so that angles and weights serve many heads, but as many as give `fill` blocks.
    """
    groups, passes = THREADS // lanes, _PASSES
    while True:
        ways = [min(groups, 1 << max(-(-n // passes) - 1, 0).bit_length()) for n in heads]
        if passes == 1 or sum(-(-rows * w // groups) for w, n in zip(ways, heads, strict=True) if n) >= fill:
            break
        passes //= 2
    side_rows = [groups // n for n in ways]
    tiles = [-(-rows // r) if n else 0 for r, n in zip(side_rows, heads, strict=True)]
    return {"side_rows": side_rows, "side_ways": ways, "side_tiles": tiles, "lanes": lanes, "head_counts": heads}


def weight_values(p: Problem) -> dict[str, Any]:
    """The weights' parameters."""
    stride = {f"weight_stride{n}": 0 if w is None else w.strides[0] for n, w in (("", p.q_weight), ("2", p.k_weight))}
    return {
        **stride, "eps": p.desc.eps, "weight_offset": p.desc.weight_offset,
        "wide": p.desc.weight_element is not p.desc.element, "weight": "q_weight", "weight2": "k_weight",
    }  # fmt: skip


def head_grid(values: Mapping[str, Any], fill: int) -> tuple[int, int, int]:
    """Tiles of all sides, and shares of their heads where tiles alone do not fill the device."""
    blocks = max(1, sum(values["side_tiles"]))
    passes = max(-(-n // w) for n, w in zip(values["head_counts"], values["side_ways"], strict=True))
    return blocks, max(1, min(passes, -(-fill // blocks), 65535)), 1


def common(p: Problem, views: list[Any], heads: tuple[int, int], fill: int) -> tuple[dict[str, Any], Step] | str:
    """The parameters of both directions but for side_blocks, and the launch, whose grid is still to be set.

    `views` as `rotation` takes them; fill: the blocks that fill the device.
    """
    desc, counts = p.desc, units(p.desc)
    if sum(counts) > MOST_HELD * 32:
        most = MOST_HELD * 32 * 2 * 16 // desc.element.itemsize
        return f"head_dim must be at most {most} of {desc.element}, got {desc.head_dim}"
    lanes = min(32, 1 << max(sum(counts) - 1, 0).bit_length())
    held = max(1, -(-sum(counts) // lanes))
    wide = held == 1 and is_wide(desc, [v for v in views if v is not None])
    shown = [views[0] if v is None else v for v in views]
    values = rotation(p, shown, heads, wide)
    half = max(desc.rotary // 2, 1)
    values |= side_values(values["rows"], heads, lanes, fill) | weight_values(p)
    values |= {
        "rotary_units": counts[0], "copy_units": counts[1], "units": sum(counts), "step_rows": THREADS // half,
        "step_pairs": THREADS % half,
    }  # fmt: skip
    axes = {"INTERLEAVED": desc.pairing == "interleaved", "WIDE": wide, "HELD": held}
    smem = (max(values["side_rows"]) * desc.rotary + desc.head_dim) * desc.acc.itemsize
    return values, Step("heads" if wide else "heads_any", (1, 1, 1), values, axes, THREADS, smem=smem)


def _geometry(p: Problem) -> Geometry | str:
    desc, views = p.desc, [p.q, p.yq, p.k, p.yk]
    heads, fill = (desc.num_heads, desc.num_kv_heads), room(desc.element) * p.device.sms
    found = common(p, views, heads, fill)
    if isinstance(found, str):
        return found
    values, step = found
    values |= {"x": "q", "y": "yq", "x2": "k", "y2": "yk", "side_blocks": values["side_tiles"]}
    step = replace(step, grid=head_grid(values, fill), params=values)
    return Geometry((step,), layout=layout_of(views, step.axes["WIDE"]))


def layout_of(views: list[Any], wide: bool) -> str:
    """The layout class for the SKU."""
    return "contiguous" if all(v is None or v.dense for v in views) else "inner_contiguous" if wide else "strided"


def in_torch(
    torch: Any, desc: QkNormRopeDescriptor, *, q: Any, k: Any, q_weight: Any, k_weight: Any, **turn: Any
) -> Any:
    """torch's rms_norm and the rotation."""
    if not desc.head_dim:
        return NotImplemented
    cos, sin = angles_in_torch(torch, desc, q, **turn)
    made = []
    for x, weight in ((q, q_weight), (k, k_weight)):
        w = None if weight is None else weight + desc.weight_offset
        made.append(
            rotate_in_torch(torch, desc, torch.nn.functional.rms_norm(x, (desc.head_dim,), w, desc.eps), cos, sin)
        )
    return {"yq": made[0], "yk": made[1]}


def random_case(draw: Any, descriptor: type[QkNormRopeDescriptor]) -> QkNormRopeDescriptor:
    """A descriptor for tests: whole and partial rotation, vector and odd head sizes."""
    two_units = tuple(n for n in (300, 600) if n * draw.element.itemsize <= 2048)
    head_dim = draw.sizes(2, 6, 20, 64, 80, 127, 128, 200, rare=two_units)
    partial = 2 * draw.integer(0, head_dim // 2) if draw.flag() or head_dim % 2 else None
    seq_len, rotary = draw.integer(0, 17), head_dim if partial is None else partial
    tables = (None, (seq_len, rotary), (1, 1, seq_len, rotary), (1, 1, seq_len, rotary // 2))
    return descriptor(
        batch_size=draw.integer(0, 3), num_heads=draw.integer(0, 5), num_kv_heads=draw.integer(0, 3), seq_len=seq_len,
        head_dim=head_dim, rotary_dim=partial, pairing=draw.choice(("half", "interleaved")),
        base=float(draw.sizes(10000, 500, 1000000)), table_shape=draw.choice(tables), element=draw.element,
        weight_offset=draw.choice((0.0, 1.0)), weight_element=draw.choice(affine_elements(draw.element)),
        **random_sections(draw, rotary // 2),
    )  # fmt: skip


def qk_benchmarks(*also: str) -> tuple[Benchmark, ...]:
    """The queries and keys of a large model."""
    return (
        Benchmark("[8, 32 + 8, 4096, 128] bf16", also=("q_weight", "k_weight", *also), batch_size=8, num_heads=32,
                  num_kv_heads=8, seq_len=4096, head_dim=128, element="bfloat16"),
    )  # fmt: skip


class QkNormRopePlan(Plan):
    """yq = rope(rms_norm(q) · q_weight), yk = rope(rms_norm(k) · k_weight), the norm over each head: one launch.

    As Qwen 3, Gemma 3 and others have it before attention (Henry et al. 2020, query-key normalisation). q, yq
    [batch_size, num_heads, seq_len, head_dim], k, yk with num_kv_heads heads, any strides; weights [head_dim], with
    weight_offset added. Positions, frequencies, tables, pairing and partial rotation are those of `RopePlan`. head_dim
    is at most 1024 of 16-bit floats, 512 of float32, 256 of float64. The functional layer takes layout "bshd", too.
    """

    op = "attention.qk_norm_rope"
    descriptor = QkNormRopeDescriptor
    args = QkNormRopeArgs
    autocast = "widest"
    reference = staticmethod(reference)
    value_policy = "any position is legal: a negative one turns backwards"
    variants = (
        Variant(
            "heads", _geometry, source="attention/rope/qk_norm_rope.cu",
            kernels=head_kernels("qk_norm_rope", PARAMS, room),
            guarantee=Guarantee(Relative(2), batch_invariant=True),
        ),
    )  # fmt: skip
    vjp = Vjp("QkNormRopeBackwardPlan", grads={"q": "dq", "k": "dk", "q_weight": "dq_weight", "k_weight": "dk_weight"})
    torch = staticmethod(in_torch)
    benchmarks = qk_benchmarks()

    @staticmethod
    def case(draw: Any) -> QkNormRopeDescriptor:
        return random_case(draw, QkNormRopeDescriptor)

    @classmethod
    def check(cls, desc: Any, views: Mapping[str, Any]) -> None:
        check_angles(desc, views)

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        settle_angles(desc, arrays)

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        check_tokens(shapes, "q", ("k",), facts)


qk_norm_rope = functional(QkNormRopePlan, layouts=Layouts(("q", "k", *TABLES, "yq", "yk")))
