"""rope_kv_append: rotate queries and new keys, and write the keys and their values into the caches: one launch.

What `rope` and `kv_cache_append` do one after the other, without the rotated keys' way through memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....core import (
    Args, Array, Descriptor, ElementKind, Geometry, Guarantee, Params, Plan, Problem, Relative, Scalar,
    Variant, choice, element, extent, inout, integer, number, operand, output, scalar,
)  # fmt: skip
from ....calls.functional import functional
from ....core.element import INDICES
from . import kv_cache_append
from ..layouts import Layouts, check_heads
from ..rope.rope import RopePlan, is_wide, kernels, rotation, rotation_geometry, rotation_params
from ..rope.rotary import (
    TABLES, Rotary, angles, angles_in_torch, check_tokens, frequencies_operand, interleaved_field, positions_operand,
    random_sections, rotate, rotate_in_torch, section_field, table_operand, tables_field,
)  # fmt: skip
from ....core.benchmark import BYTES, Benchmark

NAMES = ("q", "y", "k_new", "k_cache", "v_new", "v_cache")  # what stands for x, y, x2, y2, x3 and y3


@dataclass(frozen=True, kw_only=True)
class RopeKvAppendDescriptor(Rotary, Descriptor):
    """new_len rows of num_heads queries and num_kv_heads keys (d_k columns) and values (d_v columns).

    The caches have max_cache_len rows; rotary_dim, pairing, base, table_shape, mrope_section and mrope_interleaved are
    those of `RopeDescriptor`.
    """

    batch_size: int = extent()
    num_heads: int = extent()
    num_kv_heads: int = extent()
    new_len: int = extent()
    max_cache_len: int = extent()
    d_k: int = extent()
    d_v: int = extent()
    rotary_dim: int | None = integer(None, minimum=0)
    pairing: str = choice(("half", "interleaved"), "half")
    base: float = number(10000.0, above=0.0)
    table_shape: tuple[int, ...] = tables_field()
    mrope_section: tuple[int, ...] = section_field()
    mrope_interleaved: bool = interleaved_field()
    element: ElementKind = element()

    @property
    def seq_len(self) -> int:  # type: ignore[override]
        """Rows that are rotated."""
        return self.new_len

    @property
    def head_dim(self) -> int:  # type: ignore[override]
        """Their columns."""
        return self.d_k


@dataclass(slots=True, kw_only=True)
class RopeKvAppendArgs(Args):
    """Row l of sample b goes to row cache_offsets[b] + l of the caches, and that is its position unless `positions`,
    [new_len] or [batch_size, new_len], says otherwise; with mrope_section positions are [axes, batch_size or 1,
    new_len] and must be given. The offsets are read, not advanced.

    `inv_freq`, `cos`, `sin` and `scale` are those of `RopeArgs`. y may be q.
    """

    q: Array = operand("batch_size num_heads new_len d_k")
    k_new: Array = operand("batch_size num_kv_heads new_len d_k")
    v_new: Array = operand("batch_size num_kv_heads new_len d_v")
    cache_offsets: Array = operand("batch_size", element=INDICES[::-1], values=kv_cache_append.random_offsets)
    k_cache: Array = inout("batch_size num_kv_heads max_cache_len d_k")
    v_cache: Array = inout("batch_size num_kv_heads max_cache_len d_v")
    positions: Array | None = positions_operand()
    inv_freq: Array | None = frequencies_operand()
    cos: Array | None = table_operand()
    sin: Array | None = table_operand()
    y: Array = output("batch_size num_heads new_len d_k", inplace=("q",))
    scale: Scalar = scalar(1.0)


def reference(
    desc: RopeKvAppendDescriptor, *, q: Any, k_new: Any, v_new: Any, cache_offsets: Any, k_cache: Any, v_cache: Any,
    positions: Any, **turn: Any,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype q comes in; the caches are updated in place."""
    if positions is None:
        positions = np.asarray(cache_offsets).astype(np.int64)[:, None] + np.arange(desc.new_len)
    cos, sin = angles(desc, q.dtype, positions=positions, **turn)
    keys = rotate(desc, k_new, cos, sin)
    caches = kv_cache_append.reference(
        desc, k_new=keys, v_new=v_new, cache_offsets=cache_offsets, k_cache=k_cache, v_cache=v_cache
    )
    return {"y": rotate(desc, q, cos, sin), **caches}


PARAMS = Params(
    "RopeKvAppendParams", cache_offsets="ptr", status="status", value_dim="i64", value_units="i64",
    cache_len="i64", cache_offset_stride="i64", offsets_wide="i32", **rotation_params(6),
)  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    views = [p.views[name] for name in NAMES]
    width = 16 // desc.element.itemsize
    wide = is_wide(desc, views) and desc.d_v % width == 0
    value_units = -(-desc.d_v // (2 * (width if wide else 2)))
    heads = (desc.num_heads, desc.num_kv_heads, desc.num_kv_heads)
    params = rotation(p, views, heads, wide, value_units)
    params |= {
        **dict(zip(("x", "y", "x2", "y2", "x3", "y3"), NAMES, strict=True)),
        "value_dim": desc.d_v, "value_units": value_units, "cache_len": desc.max_cache_len,
        "cache_offset_stride": p.cache_offsets.strides[0],
        "offsets_wide": p.cache_offsets.element is ElementKind.I64,
    }  # fmt: skip
    return rotation_geometry(p, "rope_kv_append", params, views, wide)


def in_torch(
    torch: Any, desc: RopeKvAppendDescriptor, *, q: Any, k_new: Any, v_new: Any, cache_offsets: Any, k_cache: Any,
    v_cache: Any, positions: Any, **turn: Any,
) -> Any:  # fmt: skip
    """`rope` and `kv_cache_append`, one after the other."""
    if positions is None:
        positions = cache_offsets.long()[:, None] + torch.arange(desc.new_len, device=q.device)
    cos, sin = angles_in_torch(torch, desc, q, positions=positions, **turn)
    keys = rotate_in_torch(torch, desc, k_new, cos, sin)
    caches = kv_cache_append.in_torch(
        torch, desc, k_new=keys, v_new=v_new, cache_offsets=cache_offsets, k_cache=k_cache, v_cache=v_cache
    )
    return {"y": rotate_in_torch(torch, desc, q, cos, sin), **caches}


BEFORE = 100  # rows that benchmarks have in the caches already


def _projected(torch: Any, desc: Any) -> dict[str, Any]:
    """Queries, keys and values as they come out of one projection."""
    heads = (desc.num_heads, desc.num_kv_heads, desc.num_kv_heads)
    packed = torch.randn(desc.batch_size, desc.new_len, sum(heads), desc.d_k, dtype=getattr(torch, str(desc.element)))
    made = dict(zip(("q", "k_new", "v_new"), packed.transpose(1, 2).split(heads, 1), strict=True))
    return made | {"cache_offsets": torch.full((desc.batch_size,), BEFORE)}


def _benchmark(batch: int, new: int, length: int) -> Benchmark:
    return Benchmark(
        f"{batch} x {new} tokens, 32/8 heads, bf16", batch_size=batch, num_heads=32, num_kv_heads=8, new_len=new,
        max_cache_len=length, d_k=128, d_v=128, element="bfloat16", make=_projected, work=BYTES, target=0.9, peers=(),
    )  # fmt: skip


class RopeKvAppendPlan(Plan):
    """y = rope(q); k_cache[b, h, cache_offsets[b] + l] = rope(k_new)[b, h, l]; values likewise, as they are.

    q, y [batch, heads, new_len, d_k], k_new [batch, kv_heads, new_len, d_k], v_new [batch, kv_heads, new_len, d_v],
    caches [batch, kv_heads, max_cache_len, …], any strides; cache_offsets [batch] on the device, so that a captured
    graph appends wherever they point. Bits are those of `rope` and `kv_cache_append`. The functional layer takes all
    arrays of layout "bshd", [batch, rows, heads, d], too.
    """

    op = "attention.rope_kv_append"
    descriptor = RopeKvAppendDescriptor
    args = RopeKvAppendArgs
    reference = staticmethod(reference)
    value_policy = (
        "keys and values whose cache_offsets[b] + l lies outside [0, max_cache_len) are skipped, their queries are "
        "rotated all the same; any position is legal"
    )
    variants = (
        Variant(
            "rotate", _geometry, source="attention/cache/rope_kv_append.cu",
            kernels=kernels("rope_kv_append", PARAMS),
            guarantee=Guarantee(Relative(2), batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (_benchmark(8, 4096, 4224), _benchmark(256, 1, 512))

    @staticmethod
    def case(draw: Any) -> RopeKvAppendDescriptor:
        d_k = draw.sizes(2, 6, 20, 64, 80, 127, 128)
        new_len = draw.integer(0, 9)
        rotary = 2 * draw.integer(0, d_k // 2) if draw.flag() or d_k % 2 else None
        columns = d_k if rotary is None else rotary
        return RopeKvAppendDescriptor(
            batch_size=draw.integer(0, 3), num_heads=draw.integer(0, 5), num_kv_heads=draw.integer(0, 3),
            new_len=new_len, max_cache_len=new_len + draw.integer(0, 12), d_k=d_k,
            d_v=draw.choice((d_k, 0, 1, 24, 64, 192)),
            rotary_dim=rotary, pairing=draw.choice(("half", "interleaved")), base=draw.sizes(10000, 500, 1000000),
            table_shape=draw.choice((None, (new_len, columns), (1, 1, new_len, columns))), element=draw.element,
            **random_sections(draw, columns // 2),
        )  # fmt: skip

    check = RopePlan.check
    complete = RopePlan.complete
    check_values = kv_cache_append.KvCacheAppendPlan.check_values

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        check_tokens(shapes, "q", ("k_new", "v_new"), facts)
        check_heads(shapes, "k_new", "k_cache")

    @classmethod
    def bytes(cls, desc: RopeKvAppendDescriptor) -> int:
        rows = desc.batch_size * desc.new_len
        columns = desc.num_heads * desc.d_k + desc.num_kv_heads * (desc.d_k + desc.d_v)
        return 2 * rows * columns * desc.element.itemsize + 8 * desc.batch_size

    @classmethod
    def flops(cls, desc: RopeKvAppendDescriptor) -> int:
        return 3 * desc.batch_size * (desc.num_heads + desc.num_kv_heads) * desc.new_len * desc.rotary


rope_kv_append = functional(
    RopeKvAppendPlan, layouts=Layouts(("q", "k_new", "v_new", "k_cache", "v_cache", *TABLES, "y"))
)
