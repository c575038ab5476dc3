"""qk_norm_rope_append: the RMS norm of queries' and keys' heads, their rotary embedding and the append to paged caches.

What `qk_norm_rope` (or `rope`) and an append do one after the other, in one launch and without the rotated keys' way
through memory: what a serving step does between the projection and attention (Qwen 3). Caches hold the elements, or
codes of fp8, int8 or int4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....core import (
    Args, Array, Descriptor, ElementKind, Geometry, Guarantee, InvalidProblemError, Kernel, Params, PerOutput, Plan,
    Problem, Relative, Scalar, Step, Variant, choice, element, extent, flag, inout, integer, number, operand, output,
    scalar,
)  # fmt: skip
from ....calls.functional import functional
from ....core.benchmark import BYTES, Benchmark
from ....core.element import INDICES
from ....core.element import cast as cast_values
from ....schedules.norms import affine_element, affine_elements
from ...elementwise.cast import CODES
from ..layouts import PAGE_LAYOUTS, Layouts
from ..paged.page_tables import APPEND_TABLES, INDEX, locate, random_ints, settle, table_fields
from ..rope.qk_norm_rope import (
    MOST_HELD, THREADS, head_grid, head_params, normalized, room, side_values, units, weight_values, weighted,
)  # fmt: skip
from ..rope.rope import angle_params, angle_values, is_wide
from ..rope.rotary import (
    Rotary, angles, frequencies_operand, interleaved_field, random_sections, rotate, section_field,
)  # fmt: skip
from .paged_kv_append import PagedKvAppendPlan, check_places, paged_case, paged_tables, place_values
from .paged_kv_append_fp8 import SOURCES, random_head_scales
from .quantized_caches import GROUPS, LARGEST, QuantizedCaches, group_field

E = ElementKind
PLAIN = "plain"
FORMATS = (PLAIN, *map(str, LARGEST))
MADE = ("int8", "int4")  # formats whose scales are made of what is stored
CACHE = "num_pages num_kv_heads page_size"


@dataclass(frozen=True, kw_only=True)
class QkNormRopeAppendDescriptor(QuantizedCaches, Rotary, Descriptor):
    """num_tokens packed tokens: num_heads queries and num_kv_heads keys of d_k columns, values of d_v.

    norm: whether queries and keys are normalised. format: what caches hold, "plain" the element, or codes; group_size:
    columns of int4 that share a scale, None all of a head's. rotary_dim, pairing, base, mrope_section and
    mrope_interleaved are those of `RopeDescriptor`, eps, weight_offset and weight_element those of `RMSNormDescriptor`,
    the others those of `PagedKvAppendDescriptor`.
    """

    batch_size: int = extent(0)
    num_tokens: int = extent()
    num_heads: int = extent()
    num_kv_heads: int = extent()
    num_pages: int = extent()
    page_size: int = extent(minimum=1)
    d_k: int = extent()
    d_v: int = extent()
    norm: bool = flag(True)
    format: str = choice(FORMATS, PLAIN)
    group_size: int | None = group_field()
    rotary_dim: int | None = integer(None, minimum=0)
    pairing: str = choice(("half", "interleaved"), "half")
    base: float = number(10000.0, above=0.0)
    mrope_section: tuple[int, ...] = section_field()
    mrope_interleaved: bool = interleaved_field()
    eps: float = number(1e-6, minimum=0.0)
    weight_offset: float = number(0.0)
    weight_element: ElementKind = affine_element()
    element: ElementKind = element(SOURCES)
    max_pages: int = extent(0)
    num_indices: int = extent(0)

    def validate(self) -> None:
        Rotary.validate(self)
        if self.format == PLAIN and self.group_size is not None:
            raise InvalidProblemError(f"format 'plain' has no scales: leave out group_size, got {self.group_size}")
        self.check_caches()

    @property
    def head_dim(self) -> int:  # type: ignore[override]
        """Columns of the heads that are normalised and rotated."""
        return self.d_k

    @property
    def seq_len(self) -> int:  # type: ignore[override]
        """Rows that are rotated."""
        return self.num_tokens

    @property
    def positions_shape(self) -> tuple[int, ...]:
        """The shape of positions."""
        return (*((len(self.mrope_section),) if self.mrope_section else ()), self.num_tokens)

    @property
    def num_bounds(self) -> int:
        """Length of an array of bounds."""
        return self.batch_size + 1

    @property
    def code(self) -> ElementKind:
        """The element whose codes are stored, or the element itself."""
        return self.element if self.format == PLAIN else E.of(self.format)

    @property
    def aux_element(self) -> ElementKind:
        """The second element of the SKU."""
        return self.code_element


def _random_scales(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> Any:
    """Test data: what stands there before."""
    return rng.uniform(0.5, 2, shape)


@dataclass(slots=True, kw_only=True)
class QkNormRopeAppendArgs(Args):
    """q, k and v may be views of one packed array [tokens, heads + 2 kv_heads, d]; yq may be q. Any strides.

    positions [num_tokens], with mrope_section [axes, num_tokens]; inv_freq, offset and scale are those of `RopeArgs`,
    weights those of `QkNormRopeArgs`, tables those of `PagedKvAppendArgs`. Codes travel as int8, or as uint8 those of
    fp8, and of int4 two columns, the even one low. With k_scales and v_scales, which integers need, each token and head
    has a scale made of it, of int4 each group of columns, as `paged_kv_append_quantized` does; without, fp8 divides by
    k_scale · k_head_scale, as `paged_kv_append_fp8` does.
    """

    q: Array = operand("num_tokens num_heads d_k")
    k: Array = operand("num_tokens num_kv_heads d_k")
    v: Array = operand("num_tokens num_kv_heads d_v")
    k_cache: Array = inout(f"{CACHE} k_bytes", element="code_element")
    v_cache: Array = inout(f"{CACHE} v_bytes", element="code_element")
    positions: Array = operand("*positions_shape", element=INDICES, values=(-64, 1_000_000))
    q_weight: Array | None = operand("d_k", element="weight_element", optional=True)
    k_weight: Array | None = operand("d_k", element="weight_element", optional=True)
    inv_freq: Array | None = frequencies_operand()
    page_table: Array | None = operand("batch_size max_pages", element=INDEX, optional=True, values=random_ints)
    cache_offsets: Array | None = operand("batch_size", element=INDEX, optional=True, values=random_ints)
    token_indptr: Array | None = operand("num_bounds", element=INDEX, optional=True, values=random_ints)
    kv_indices: Array | None = operand("num_indices", element=INDEX, optional=True, values=random_ints)
    kv_indptr: Array | None = operand("num_bounds", element=INDEX, optional=True, values=random_ints)
    kv_last_page_len: Array | None = operand("batch_size", element=INDEX, optional=True, values=random_ints)
    slot_mapping: Array | None = operand("num_tokens", element=INDEX, optional=True, values=random_ints)
    k_scales: Array | None = inout(f"{CACHE} k_groups", element=E.F32, optional=True, values=_random_scales)
    v_scales: Array | None = inout(f"{CACHE} v_groups", element=E.F32, optional=True, values=_random_scales)
    k_head_scale: Array | None = operand(
        "num_kv_heads", element=E.F32, optional=True, layout="dense", values=random_head_scales
    )  # fmt: skip
    v_head_scale: Array | None = operand(
        "num_kv_heads", element=E.F32, optional=True, layout="dense", values=random_head_scales
    )  # fmt: skip
    yq: Array = output("num_tokens num_heads d_k", inplace=("q",))
    offset: Scalar = scalar(0, integer=True)
    scale: Scalar = scalar(1.0)
    k_scale: Scalar = scalar(1.0)
    v_scale: Scalar = scalar(1.0)


def _single(x: Any) -> Any:
    """Rounded to float32."""
    return cast_values(np.asarray(x), E.F32).astype(x.dtype)


def _stored(desc: Any, x: Any, groups: int | None, given: Any, heads: Any) -> tuple[Any, Any]:
    """Codes as numbers, and scales, of rows [tokens, heads, d]; the rows, quotients and scales are float32 numbers.

    groups: of a row, whose scales are made of it; None where scales are given.
    """
    if desc.format == PLAIN:
        return x, None
    x, kind = _single(x), desc.code
    largest = x.dtype.type(LARGEST[kind])
    if groups is not None:
        rows = x.reshape(*x.shape[:-1], groups, x.shape[-1] // groups if groups else 1)
        most = np.abs(rows).max(axis=-1, initial=0)
        scale = _single(np.where(np.isfinite(most), most / largest, np.nan))
        y = np.where(scale[..., None] > 0, rows / scale[..., None], 0).reshape(x.shape)
    else:
        scale = x.dtype.type(given) * (np.ones((1, 1)) if heads is None else heads[:, None])
        y = x / _single(scale)
    y = np.clip(_single(y), -largest, largest)
    y = np.rint(y) if kind in (E.I8, E.S4) else y
    return y[..., ::2] % 16 + 16 * (y[..., 1::2] % 16) if kind is E.S4 else y, scale


def reference(
    desc: QkNormRopeAppendDescriptor, *, q: Any, k: Any, v: Any, positions: Any, q_weight: Any, k_weight: Any,
    inv_freq: Any, k_cache: Any, v_cache: Any, k_scales: Any, v_scales: Any, k_scale: Any, v_scale: Any,
    k_head_scale: Any, v_head_scale: Any, scale: Any, offset: Any, **tables: Any,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype q comes in; caches and scales are updated in place."""
    token, page, cell, _ = locate(desc, **tables)
    turn = {"inv_freq": inv_freq, "cos": None, "sin": None, "scale": scale, "offset": offset}
    shape = (desc.num_tokens, 1, desc.num_frequencies)
    cos, sin = (a.reshape(shape) for a in angles(desc, q.dtype, positions=positions, **turn))
    with np.errstate(all="ignore"):
        turned = [
            rotate(desc, weighted(desc, normalized(desc, x)[0], weight) if desc.norm else x, cos, sin)
            for x, weight in ((q, q_weight), (k, k_weight))
        ]
        for x, cache, scales, groups, given, heads in (
            (turned[1], k_cache, k_scales, desc.k_groups, k_scale, k_head_scale),
            (v, v_cache, v_scales, desc.v_groups, v_scale, v_head_scale),
        ):
            codes, found = _stored(desc, x[token], None if scales is None else groups, given, heads)
            cache[page, :, cell] = codes
            if scales is not None:
                scales[page, :, cell] = found
    made = {"yq": turned[0], "k_cache": k_cache, "v_cache": v_cache}
    return made if k_scales is None else made | {"k_scales": k_scales, "v_scales": v_scales}


PARAMS = Params(
    "QkNormRopeAppendParams", q="ptr", k="ptr", v="ptr", yq="ptr", k_cache="ptr", v_cache="ptr", k_scales="ptr",
    v_scales="ptr", k_head_scale="ptr", v_head_scale="ptr", status="status", k_scale="scalar", v_scale="scalar",
    from_strides="i64[3][3]", to_strides="i64[3][4]", scale_strides="i64[2][4]", head_counts="i64[3]",
    rotary_units="i64", copy_units="i64", units="i64", head_dim="i64", value_units="i64", value_dim="i64",
    lanes="i32", norm="i32", format="i32", groups="i32[2]", columns="i32[2]", lane_bits="i32[2]", rows_at="i32",
    row_pitch="i32", batch="i64", new_len="i64", reach="i64", by_new="u32[3]", **head_params(3),
    **angle_params() | {"table": "f64[1][2]"},  # which only float64 reads; parameters have 4 KB
    **table_fields(APPEND_TABLES),
)  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    desc, coded, halves = p.desc, p.desc.format != PLAIN, p.desc.code is E.S4
    width, counts = 16 // desc.element.itemsize, units(desc)
    value_units = -(-desc.d_v // (2 * width))
    most = max(sum(counts), value_units)
    if most > MOST_HELD * 32:
        return f"d_k and d_v must be at most {MOST_HELD * 64 * width} of {desc.element}, got {desc.d_k} and {desc.d_v}"
    lanes = min(32, 1 << max(most - 1, 0).bit_length())
    held = max(1, -(-most // lanes))
    news, caches = [p.q, p.k, p.v], [p.k_cache, p.v_cache]
    wide = held == 1 and desc.d_v % width == 0 and is_wide(desc, [*news, p.yq, *(() if coded else caches)])
    wide = wide and all(v.inner_dense and v.aligned(width * v.element.itemsize // desc.per_byte) for v in caches)
    heads, fill = (desc.num_heads, desc.num_kv_heads, desc.num_kv_heads), room(desc.element) * p.device.sms
    values = side_values(desc.num_tokens, heads, lanes, fill) | weight_values(p) | angle_values(p, None, (), THREADS)
    places, _ = place_values(p)
    own = p.k_scales is not None
    positions = list(p.positions.strides)
    values |= {
        "position_strides": [positions[0] if desc.mrope_section else 0, 0, positions[-1]],
        "positions_wide": p.positions.element is E.I64, "cos": "@null", "sin": "@null",
        "side_blocks": values["side_tiles"], "from_strides": [list(v.strides) for v in news],
        "to_strides": [[p.yq.strides[0], p.yq.strides[1], 0, p.yq.strides[2]], *(list(v.strides) for v in caches)],
        "scale_strides": [list(v.strides) for v in (p.k_scales, p.v_scales)] if own else [],
        "rotary_units": counts[0], "copy_units": counts[1], "units": sum(counts), "head_dim": desc.d_k,
        "value_units": value_units, "value_dim": desc.d_v, "norm": desc.norm,
        "seq_len": desc.num_tokens,  # of none the only block has nothing to do
        "format": CODES.index(desc.code), "by_new": [1, 0, 0], "groups": [desc.k_groups, desc.v_groups],
        "columns": [desc.group_size or d for d in (desc.d_k, desc.d_v)],
        "rows_at": max(values["side_rows"]) * desc.rotary + desc.d_k, "row_pitch": -(-max(desc.d_k, desc.d_v) // 4) * 4,
        **places,
    }  # fmt: skip
    smem = (values["rows_at"] + halves * THREADS // lanes * values["row_pitch"]) * desc.acc.itemsize
    piece = width if wide else 2  # columns of int4 that a lane takes at a time
    values["lane_bits"] = [min(lanes - 1, max(-(-n // piece) - 1, 0)).bit_length() for n in values["columns"]]
    axes = {"INTERLEAVED": desc.pairing == "interleaved", "WIDE": wide, "HELD": held, "PER_BYTE": coded * desc.per_byte}
    name = "heads" if wide else "heads_any"
    step = Step(name, head_grid(values, fill), values, axes, THREADS, smem=smem)
    dense = all(v.dense for v in (*news, p.yq, *caches))
    return Geometry((step,), layout="contiguous" if dense else "inner_contiguous" if wide else "strided")


def _kernels() -> tuple[Kernel, Kernel]:
    """Of whole chunks where a lane holds one unit of a head, as nearly all models have, and of everything else."""
    template = "qk_norm_rope_append<{T}, {INTERLEAVED}, {WIDE}, {HELD}, {PER_BYTE}>"
    axes: dict[str, Any] = {"INTERLEAVED": (False, True), "WIDE": (True,), "HELD": (1,), "PER_BYTE": (0, 1, 2)}
    others = axes | {"WIDE": (False,), "HELD": (1, MOST_HELD)}
    return (
        Kernel("heads", template, PARAMS, axes, THREADS, 2),
        Kernel("heads_any", template, PARAMS, others, THREADS, 1),
    )


def _benchmark(tokens: int, **more: Any) -> Benchmark:
    each = -(-(100 + tokens // 64) // 16)
    return Benchmark(
        f"64 x {tokens // 64} tokens, 32/8 heads of 128, bf16 to {more.get('format', 'bf16')}", batch_size=64,
        num_tokens=tokens, num_heads=32, num_kv_heads=8, num_pages=64 * each, page_size=16, d_k=128, d_v=128,
        element="bfloat16", max_pages=each, make=paged_tables, work=BYTES, peers=(), **more,
    )  # fmt: skip


class QkNormRopeAppendPlan(Plan):
    """yq = rope(rms_norm(q) · q_weight); k_cache[page, h, cell] = rope(rms_norm(k) · k_weight), v_cache[…] = v.

    Norm, weights and rotation are those of `QkNormRopePlan` (norm=False leaves the norm out), of packed tokens; page
    and cell are those of `PagedKvAppendPlan`. Codes are made of float32 numbers: those of `PagedKvAppendQuantizedPlan`
    where k_scales and v_scales are given, else those of `PagedKvAppendFp8Plan`.
    """

    op = "attention.qk_norm_rope_append"
    descriptor = QkNormRopeAppendDescriptor
    args = QkNormRopeAppendArgs
    reference = staticmethod(reference)
    value_policy = PagedKvAppendPlan.value_policy + (
        "; queries of all tokens are rotated, and any position is legal; where a scale is made, a group of zeros has "
        "scale 0, one with NaN or an infinity in it scale NaN, and both have codes of 0"
    )
    variants = (
        Variant(
            "heads", _geometry, source="attention/cache/qk_norm_rope_append.cu", elements=SOURCES, kernels=_kernels(),
            guarantee=Guarantee(
                PerOutput(tuple((n, Relative(2)) for n in ("yq", "k_cache", "v_cache", "k_scales", "v_scales"))),
                batch_invariant=True,
            ),
        ),
    )  # fmt: skip
    benchmarks = (
        _benchmark(64 * 512),
        _benchmark(64),
        _benchmark(64 * 512, format="int8", also=("k_scales", "v_scales")),
        _benchmark(64 * 512, format="float8_e4m3fn"),
        _benchmark(64 * 512, format="int4", group_size=32, also=("k_scales", "v_scales")),
    )

    @staticmethod
    def case(draw: Any) -> QkNormRopeAppendDescriptor:
        facts, form = paged_case(draw), draw.choice(FORMATS)
        d_k = draw.sizes(
            2, 6, 20, 64, 80, 127, 128, rare=tuple(n for n in (300, 600) if n * draw.element.itemsize <= 2048)
        )
        d_v = draw.sizes(d_k, 0, 2, 64)
        if form == "int4":
            d_k, d_v = d_k // 2 * 2, d_v // 2 * 2
            facts["group_size"] = draw.choice((None, *(n for n in GROUPS if not d_k % n and not d_v % n)))
        partial = 2 * draw.integer(0, d_k // 2) if draw.flag() or d_k % 2 else None
        facts |= {"num_kv_heads": facts.pop("num_heads"), "d_k": d_k, "d_v": d_v, "format": form}
        return QkNormRopeAppendDescriptor(
            **facts, num_heads=draw.integer(0, 5), norm=draw.flag(), rotary_dim=partial,
            pairing=draw.choice(("half", "interleaved")), base=float(draw.sizes(10000, 500)),
            weight_offset=draw.choice((0.0, 1.0)), weight_element=draw.choice(affine_elements(draw.element)),
            element=draw.element, **random_sections(draw, (d_k if partial is None else partial) // 2),
        )  # fmt: skip

    @classmethod
    def check(cls, desc: Any, views: Mapping[str, Any]) -> None:
        check_places(desc, views, "k")
        weights = [n for n in ("q_weight", "k_weight") if views[n] is not None]
        if weights and not desc.norm:
            raise InvalidProblemError(f"{' and '.join(weights)} must be None with norm=False")
        made, given = ([n for n in (f"k_{s}", f"v_{s}") if views[n] is not None] for s in ("scales", "head_scale"))
        if len(made) == 1 or (desc.format in MADE and not made):
            raise InvalidProblemError(f"format {desc.format!r} has scales made: give k_scales and v_scales")
        if desc.format == PLAIN and made + given:
            raise InvalidProblemError(f"format 'plain' has no scales: leave out {', '.join(made + given)}")
        if made and given:
            raise InvalidProblemError(f"scales are made, {', '.join(made)}, or given, {', '.join(given)}: not both")

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        settle(desc, arrays, APPEND_TABLES)
        if not desc.norm:
            arrays.update(dict.fromkeys(("q_weight", "k_weight")))
        made, given = ("k_scales", "v_scales"), ("k_head_scale", "v_head_scale")
        own = desc.format in MADE or (desc.format != PLAIN and all(arrays[n] is not None for n in made))
        if desc.format == PLAIN or not own:
            arrays.update(dict.fromkeys(made))
        if desc.format == PLAIN or own:
            arrays.update(dict.fromkeys(given))
        if own and any(arrays[n] is None for n in made):
            shape = (desc.num_pages, desc.num_kv_heads, desc.page_size)
            groups = (desc.k_groups, desc.v_groups)
            arrays.update({n: np.ones((*shape, g), np.float32) for n, g in zip(made, groups, strict=True)})
        arrays["k_scale"], arrays["v_scale"] = 0.25, 0.03

    check_values = PagedKvAppendPlan.check_values

    @classmethod
    def bytes(cls, desc: Any) -> int:
        size, coded = desc.element.itemsize, desc.code_element.itemsize
        stored = (desc.d_k + desc.d_v) * size + (desc.k_bytes + desc.v_bytes) * coded
        return int(desc.num_tokens * (2 * desc.num_heads * desc.d_k * size + desc.num_kv_heads * stored))


qk_norm_rope_append = functional(
    QkNormRopeAppendPlan, layouts=Layouts(("k_cache", "v_cache", "k_scales", "v_scales"), PAGE_LAYOUTS)
)
