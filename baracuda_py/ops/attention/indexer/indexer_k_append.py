"""indexer_k_append: keys of the indexer of DeepSeek's sparse attention, from projection to paged cache, in one launch.

Layer norm, rotary embedding of some columns, an orthonormal Hadamard transform, a scale for each key, codes of fp8 and
the scatter of both (DeepSeek-V3.2: k_norm, apply_rotary_emb, rotate_activation, act_quant). `indexer_logits` and
`indexer_topk` read what is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....core import (
    Args, Array, Descriptor, ElementKind, Geometry, Guarantee, InvalidProblemError, Kernel, Params, PerOutput, Plan,
    Problem, Relative, Scalar, Step, Variant, choice, element, extent, flag, inout, integer, number, operand, scalar,
)  # fmt: skip
from ....calls.functional import functional
from ....core.benchmark import BYTES, Benchmark
from ....core.element import INDICES
from ....schedules.norms import affine_element, affine_elements
from ...quantize.fp8_cast import single
from ...quantize.hadamard import transformed
from ..cache.paged_kv_append import PagedKvAppendPlan, check_places, paged_tables, place_values
from ..cache.paged_kv_append_fp8 import SOURCES
from ..mla.records import LARGEST, LEAST
from ..paged.page_tables import APPEND_TABLES, INDEX, locate, placed, random_ints, settle, table_fields
from ..rope.rope import angle_params, angle_values
from ..rope.rotary import Rotary, angles, check_angles, frequencies_operand, rotate
from .indexer_logits import random_scales

E = ElementKind
THREADS = 128
HELD = (4, 16)  # columns of a lane: of keys of up to 128 columns, and of 512
PLAIN = "plain"
FORMATS = ("float8_e4m3fn", PLAIN)


@dataclass(frozen=True, kw_only=True)
class IndexerKAppendDescriptor(Rotary, Descriptor):
    """num_tokens keys of d columns, into num_pages pages of page_size cells.

    norm: whether keys are normalised. rotary_dim columns (None: all), the first or the last (`rotary_columns`), turn;
    pairing and base are those of `RopeDescriptor`. hadamard: whether what comes of that is transformed; d is then a
    power of two. format: what the cache holds, codes or "plain" the element. power_of_two: scales are rounded up to
    one. eps and weight_element are those of `LayerNormDescriptor`, the others those of `PagedKvAppendDescriptor`.
    """

    batch_size: int = extent(0)
    num_tokens: int = extent()
    num_pages: int = extent()
    page_size: int = extent(minimum=1)
    d: int = extent()
    norm: bool = flag(True)
    rotary_dim: int | None = integer(None, minimum=0)
    rotary_columns: str = choice(("first", "last"), "first")
    pairing: str = choice(("half", "interleaved"), "half")
    base: float = number(10000.0, above=0.0)
    hadamard: bool = flag(True)
    format: str = choice(FORMATS, FORMATS[0])
    power_of_two: bool = flag(False)
    eps: float = number(1e-6, minimum=0.0)
    weight_element: ElementKind = affine_element()
    element: ElementKind = element(SOURCES)
    max_pages: int = extent(0)
    num_indices: int = extent(0)

    table_step = 1  # tables have a column a pair

    def validate(self) -> None:
        super().validate()
        if self.hadamard and (self.d < 1 or self.d & (self.d - 1)):
            raise InvalidProblemError(f"d must be a power of two with hadamard=True, got {self.d}")
        if self.format == PLAIN and self.power_of_two:
            raise InvalidProblemError("format 'plain' has no scales: leave out power_of_two")

    @property
    def head_dim(self) -> int:  # type: ignore[override]
        """Columns of a key."""
        return self.d

    @property
    def seq_len(self) -> int:  # type: ignore[override]
        """Keys that are rotated."""
        return self.num_tokens

    @property
    def num_bounds(self) -> int:
        """Length of an array of bounds."""
        return self.batch_size + 1

    @property
    def cache_element(self) -> ElementKind:
        """What the cache holds."""
        return self.element if self.format == PLAIN else E.of(self.format)

    @property
    def aux_element(self) -> ElementKind:
        """The second element of the SKU."""
        return self.cache_element


@dataclass(slots=True, kw_only=True)
class IndexerKAppendArgs(Args):
    """Tables are those of `PagedKvAppendArgs`. weight and bias are the layer norm's, either may be absent.

    A token is rotated by its position in its sequence unless `positions` says otherwise, as it must with slot_mapping;
    `inv_freq` replaces the frequencies that `base` gives. `cos` and `sin`, [num_tokens, rotary_dim / 2] in the element
    or float32, replace all of these. What is rotated is multiplied by `scale`. Codes travel as uint8 or an fp8 dtype;
    k_scales, which go with them, and the cache may be views of pages of bytes.
    """

    k: Array = operand("num_tokens d", layout="inner")
    k_cache: Array = inout("num_pages page_size d", element="cache_element", layout="inner")
    k_scales: Array | None = inout("num_pages page_size", element=E.F32, optional=True, values=random_scales)
    weight: Array | None = operand("d", element="weight_element", optional=True)
    bias: Array | None = operand("d", element="weight_element", optional=True)
    positions: Array | None = operand("num_tokens", element=INDICES, optional=True, values=(-64, 1_000_000))
    inv_freq: Array | None = frequencies_operand()
    cos: Array | None = operand("num_tokens num_frequencies", element="table_elements", optional=True)
    sin: Array | None = operand("num_tokens num_frequencies", element="table_elements", optional=True)
    page_table: Array | None = operand("batch_size max_pages", element=INDEX, optional=True, values=random_ints)
    cache_offsets: Array | None = operand("batch_size", element=INDEX, optional=True, values=random_ints)
    token_indptr: Array | None = operand("num_bounds", element=INDEX, optional=True, values=random_ints)
    kv_indices: Array | None = operand("num_indices", element=INDEX, optional=True, values=random_ints)
    kv_indptr: Array | None = operand("num_bounds", element=INDEX, optional=True, values=random_ints)
    kv_last_page_len: Array | None = operand("batch_size", element=INDEX, optional=True, values=random_ints)
    slot_mapping: Array | None = operand("num_tokens", element=INDEX, optional=True, values=random_ints)
    scale: Scalar = scalar(1.0)


def _normalized(desc: Any, x: Any, weight: Any, bias: Any) -> Any:
    """The layer norm of rows."""
    if not desc.norm or not desc.d:
        return x
    x = x - np.mean(x, axis=-1, keepdims=True)
    x = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + x.dtype.type(desc.eps))
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def _turned(desc: Any, x: Any, cos: Any, sin: Any) -> Any:
    """Rows with the columns that turn turned."""
    if desc.rotary_columns == "first":
        return rotate(desc, x, cos, sin)
    first = desc.d - desc.rotary
    return np.concatenate([x[..., :first], rotate(desc, x[..., first:], cos, sin)], -1)


def _stored(desc: Any, x: Any) -> tuple[Any, Any]:
    """Codes as numbers, and scales; rows, quotients and scales are float32 numbers."""
    x = single(x, x.dtype)
    by = single(np.abs(x).max(axis=-1, initial=0) / LARGEST, x.dtype)
    by = np.where(by < LEAST, x.dtype.type(LEAST), by)
    if desc.power_of_two:
        fraction, exponent = np.frexp(by)
        by = np.where(np.isfinite(by), np.ldexp(np.ones_like(by), exponent - (fraction == 0.5)), by)
    return np.clip(single(x / by[..., None], x.dtype), -LARGEST, LARGEST), by


def reference(
    desc: IndexerKAppendDescriptor, *, k: Any, weight: Any, bias: Any, positions: Any, inv_freq: Any, cos: Any,
    sin: Any, k_cache: Any, k_scales: Any, scale: Any, slot_mapping: Any = None, **tables: Any,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype k comes in; cache and scales are updated in place."""
    if slot_mapping is None:
        token, page, cell, place, _ = placed(desc, **tables)
    else:
        token, page, cell, _ = locate(desc, slot_mapping=slot_mapping)
        place = np.zeros_like(token)  # not known; nothing turns by it
    if cos is None:
        where = place if positions is None else np.asarray(positions)[token]
        turn = {"inv_freq": inv_freq, "cos": None, "sin": None, "scale": scale}
        cos, sin = (a[0, 0] for a in angles(desc, k.dtype, positions=where, **turn))
    else:
        cos, sin = (a[token].astype(k.dtype) * k.dtype.type(scale) for a in (cos, sin))
    with np.errstate(all="ignore"):
        x = _turned(desc, _normalized(desc, k[token], weight, bias), cos, sin)
        if desc.hadamard:
            x = transformed(x, desc.d) * x.dtype.type(desc.d**-0.5)
        if desc.format == PLAIN:
            k_cache[page, cell] = x
            return {"k_cache": k_cache}
        k_cache[page, cell], k_scales[page, cell] = _stored(desc, x)
    return {"k_cache": k_cache, "k_scales": k_scales}


PARAMS = Params(
    "IndexerKAppendParams", k="ptr", k_cache="ptr", k_scales="ptr", weight="ptr", bias="ptr", status="status",
    num_tokens="i64", batch="i64", new_len="i64", reach="i64", by_new="u32[3]", k_stride="i64", cache_stride="i64[2]",
    scale_stride="i64[2]", weight_stride="i64", bias_stride="i64", eps="f64", unit="f64", d="i32", turn_at="i32",
    norm="i32", hadamard="i32", coded="i32", powers="i32", wide="i32", interleaved="i32",
    **angle_params() | {"table": "f64[1][2]"},  # which only float64 reads; parameters have 4 KB
    **table_fields(APPEND_TABLES),
)  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    if desc.d > 32 * HELD[-1]:
        return f"d must be at most {32 * HELD[-1]}, got {desc.d}"
    held = next(n for n in HELD if desc.d <= 32 * n)
    coded, views = desc.format != PLAIN, (p.k, p.k_cache)
    wide = all(v.inner_dense and v.aligned(min(16, held * v.element.itemsize)) for v in views)
    values = angle_values(p, None, () if p.cos is None else (p.cos, p.sin), THREADS) | place_values(p)[0]
    values |= {
        "num_tokens": desc.num_tokens, "by_new": [1, 0, 0], "k_stride": p.k.strides[0],
        "cache_stride": p.k_cache.strides[:-1], "scale_stride": [0, 0] if p.k_scales is None else p.k_scales.strides,
        "weight_stride": 0 if p.weight is None else p.weight.strides[0],
        "bias_stride": 0 if p.bias is None else p.bias.strides[0], "eps": desc.eps,
        "unit": max(desc.d, 1) ** -0.5, "d": desc.d,
        "turn_at": 0 if desc.rotary_columns == "first" else desc.d - desc.rotary, "norm": desc.norm,
        "hadamard": desc.hadamard, "coded": coded, "powers": desc.power_of_two,
        "wide": desc.weight_element is not desc.element, "interleaved": desc.pairing == "interleaved",
        "position_strides": [0, 0, 0 if p.positions is None else p.positions.strides[0]],
        "positions_wide": p.positions is not None and p.positions.element is E.I64,
    }  # fmt: skip
    warps = THREADS // 32
    grid = max(1, -(-desc.num_tokens // warps))
    smem = warps * 32 * held * 4
    step = Step("indexer_k_append", (grid, 1, 1), values, {"HELD": held, "WIDE": wide}, THREADS, smem=smem)
    return Geometry((step,), layout="contiguous" if all(v.dense for v in views) else "inner_contiguous")


_KERNEL = Kernel(
    "indexer_k_append", "indexer_k_append<{T}, {HELD}, {WIDE}>", PARAMS, {"HELD": HELD, "WIDE": (True, False)},
    threads=THREADS,
)  # fmt: skip


def _benchmark(batch: int, new: int, **more: Any) -> Benchmark:
    each = -(-(100 + new) // 64)
    return Benchmark(
        f"{batch} x {new} tokens, pages of 64, bf16 to {more.get('format', 'e4m3')}", batch_size=batch,
        num_tokens=batch * new, num_pages=batch * each, page_size=64, d=128, rotary_dim=64, weight_element="float32",
        power_of_two=not more, element="bfloat16", max_pages=each, make=paged_tables, work=BYTES, peers=(),
        also=("weight", "bias", *(() if more else ("k_scales",))), **more,
    )  # fmt: skip


class IndexerKAppendPlan(Plan):
    """k_cache[page, cell] = u / s, k_scales[page, cell] = s, u = H R (layer_norm(k[t]) · weight + bias) / √d.

    R turns some columns, as `RopePlan` does, H is Sylvester's Hadamard matrix (`HadamardPlan`); each of norm, R and H
    may be left out. s is the largest |u| of a key / 448, at least 2⁻¹²⁶, with power_of_two the next power of two from
    there (UE8M0). Quotients are rounded to nearest, ties to even; u is in float32 and never rounded to the element
    before. With format "plain" the cache holds u itself. Places are those of `PagedKvAppendPlan`. `indexer_logits` and
    `indexer_topk` read k_cache as k and k_scales as k_scale; queries of theirs need the same transform. Forward only.
    """

    op = "attention.indexer_k_append"
    descriptor = IndexerKAppendDescriptor
    args = IndexerKAppendArgs
    reference = staticmethod(reference)
    value_policy = (
        f"{PagedKvAppendPlan.value_policy}; any position is legal; the scale of a key with NaN in it is NaN, of one "
        "with an infinity infinite, and codes are what quotients over it are"
    )
    variants = (
        Variant(
            "tokens", _geometry, source="attention/indexer/indexer_k_append.cu", kernels=(_KERNEL,), elements=SOURCES,
            guarantee=Guarantee(
                PerOutput((("k_cache", Relative(2)), ("k_scales", Relative(2)))), batch_invariant=True
            ),
        ),
    )  # fmt: skip
    benchmarks = (_benchmark(64, 512), _benchmark(128, 1), _benchmark(64, 512, format=PLAIN))

    @classmethod
    def check(cls, desc: Any, views: Mapping[str, Any]) -> None:
        check_places(desc, views, "k")
        check_angles(desc, views)
        given = [name for name in ("weight", "bias") if views[name] is not None]
        if given and not desc.norm:
            raise InvalidProblemError(f"{' and '.join(given)} must be None with norm=False")
        if (desc.format == PLAIN) != (views["k_scales"] is None):
            raise InvalidProblemError(
                f"format 'plain' has no scales: leave out k_scales or give codes; {FORMATS[0]} needs them, got "
                f"{'none' if views['k_scales'] is None else 'some'} with format {desc.format!r}"
            )
        if desc.rotary and all(views[n] is None for n in ("positions", "cos")) and views["slot_mapping"] is not None:
            raise InvalidProblemError("slots do not tell the tokens' positions: give positions, or cos and sin")

    @staticmethod
    def case(draw: Any) -> IndexerKAppendDescriptor:
        batch, new, page = draw.integer(0, 3), draw.integer(0, 4), draw.sizes(4, 1, 3, 64)
        each, table = -(-(batch * new + draw.integer(1, 9)) // page), draw.choice(("slots", "padded", "compressed"))
        pages = batch * each if table != "slots" else each
        hadamard, form = draw.flag(), draw.choice(FORMATS)
        d = draw.sizes(128, 1, 2, 16, 64, 256, 512, *(() if hadamard else (0, 6, 127, 300)))
        partial = 2 * draw.integer(0, d // 2) if draw.flag() or d % 2 else None
        return IndexerKAppendDescriptor(
            batch_size=0 if table == "slots" else batch, num_tokens=batch * new, num_pages=pages + draw.integer(0, 2),
            page_size=page, d=d, norm=draw.flag(), rotary_dim=partial, rotary_columns=draw.choice(("first", "last")),
            pairing=draw.choice(("half", "interleaved")), base=float(draw.sizes(10000, 500)), hadamard=hadamard,
            format=form, power_of_two=form != PLAIN and draw.flag(),
            weight_element=draw.choice(affine_elements(draw.element)), element=draw.element,
            max_pages=each if table == "padded" else 0,
            num_indices=batch * each + draw.integer(0, 2) if table == "compressed" else 0,
        )  # fmt: skip

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        settle(desc, arrays, APPEND_TABLES)
        if not desc.norm:
            arrays.update(dict.fromkeys(("weight", "bias")))
        tables = arrays["cos"] is not None and arrays["sin"] is not None and desc.num_tokens % 2 == 1
        arrays.update(dict.fromkeys(("positions", "inv_freq") if tables else ("cos", "sin")))
        if arrays["slot_mapping"] is not None and not tables and arrays["positions"] is None:
            arrays["positions"] = np.arange(desc.num_tokens, dtype=np.int32)
        if desc.format == PLAIN:
            arrays["k_scales"] = None
        elif arrays["k_scales"] is None:
            arrays["k_scales"] = np.ones((desc.num_pages, desc.page_size), np.float32)

    check_values = PagedKvAppendPlan.check_values

    @classmethod
    def bytes(cls, desc: Any) -> int:
        stored = desc.d * desc.cache_element.itemsize + 4 * (desc.format != PLAIN)
        return int(desc.num_tokens * (desc.d * desc.element.itemsize + stored))


indexer_k_append = functional(IndexerKAppendPlan)
