"""rope_quantize_fp8: queries and keys rotated, and both with their unrotated columns as fp8, in one launch.

What attention in fp8 does between the projection and its products or its cache (flashinfer.rope.rope_quantize_fp8), of
grouped heads and of latent attention, whose key has no heads: the rotated numbers never go to memory in 16 bits.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....core import (
    Args, Array, Descriptor, ElementKind, Exact, Geometry, Guarantee, InvalidProblemError, Kernel, Params, PerOutput,
    Plan, Problem, Relative, Scalar, Step, Variant, View, choice, element, extent, number, operand, output, scalar,
)  # fmt: skip
from ....calls.entries import entry
from ....calls.functional import functional
from ....core.benchmark import BYTES, Benchmark
from ....core.element import FP8, INDICES
from ....core.element import cast as cast_values
from ....core.outputs import each_of
from ....core.views import shape_of, with_axis, without_axes
from ....schedules.map import divider
from ..cache.paged_kv_append_fp8 import SOURCES
from .rope import angle_params, angle_values, is_wide
from .rotary import (
    Rotary, angles, frequencies_operand, interleaved_field, random_sections, rotate, section_field,
)  # fmt: skip

E = ElementKind
THREADS = 256
PARTS = ("q_rope", "k_rope", "q_nope", "k_nope")
ITEMS = 8  # that a thread of a block takes, where that leaves enough blocks
TILE = 32  # most tokens of a block


@dataclass(frozen=True, kw_only=True)
class RopeQuantizeFp8Descriptor(Rotary, Descriptor):
    """num_tokens tokens, num_heads heads of queries and num_kv_heads of keys: d_rope columns turn, the others do not.

    Those others are d_nope columns of each query's head and d_nope_kv of each key's. All results hold `to_element`.
    pairing, base, mrope_section and mrope_interleaved are those of `RopeDescriptor`; num_positions is the number of
    rows of cos_sin_cache.
    """

    num_tokens: int = extent()
    num_heads: int = extent()
    num_kv_heads: int = extent()
    d_rope: int = extent()
    d_nope: int = extent(0)
    d_nope_kv: int = extent(0)
    num_positions: int = extent(0)
    pairing: str = choice(("half", "interleaved"), "half")
    base: float = number(10000.0, above=0.0)
    mrope_section: tuple[int, ...] = section_field()
    mrope_interleaved: bool = interleaved_field()
    to_element: ElementKind = element(FP8, E.FP8E4M3)
    element: ElementKind = element(SOURCES)

    rotary_dim = None

    def validate(self) -> None:
        if self.d_rope % 2:
            raise InvalidProblemError(f"d_rope must be even, got {self.d_rope}")
        super().validate()

    @property
    def aux_element(self) -> ElementKind:
        """The second element of the SKU."""
        return self.to_element

    @property
    def head_dim(self) -> int:  # type: ignore[override]
        """Columns that are rotated."""
        return self.d_rope

    @property
    def seq_len(self) -> int:  # type: ignore[override]
        """Rows that are rotated."""
        return self.num_tokens

    @property
    def positions_shape(self) -> tuple[int, ...]:
        """The shape of positions."""
        return (*((len(self.mrope_section),) if self.mrope_section else ()), self.num_tokens)

    @property
    def heads(self) -> tuple[int, int]:
        """Of queries and of keys."""
        return self.num_heads, self.num_kv_heads


def _random_table(rng: Any, desc: Any, shape: tuple[int, ...]) -> Any:
    """Test data: cosines and sines of any angles."""
    return rng.uniform(-1, 1, shape)


@dataclass(slots=True, kw_only=True)
class RopeQuantizeFp8Args(Args):
    """Any strides; q_rope and q_nope may be columns of one array, and so may the results, which travel as uint8.

    positions [num_tokens], with mrope_section [axes, num_tokens]; inv_freq, offset and scale are those of `RopeArgs`.
    cos_sin_cache [num_positions, d_rope], float32, replaces the frequencies: a row for each position, the cosines of
    all pairs and then their sines. quant_scale_q and quant_scale_kv: numbers or 0-d arrays.
    """

    q_rope: Array = operand("num_tokens num_heads d_rope")
    k_rope: Array = operand("num_tokens num_kv_heads d_rope")
    positions: Array = operand("*positions_shape", element=INDICES, values=(-64, 1_000_000))
    q_nope: Array | None = operand("num_tokens num_heads d_nope", optional=True)
    k_nope: Array | None = operand("num_tokens num_kv_heads d_nope_kv", optional=True)
    inv_freq: Array | None = frequencies_operand()
    cos_sin_cache: Array | None = operand(
        "num_positions d_rope", element=E.F32, optional=True, values=_random_table
    )  # fmt: skip
    yq_rope: Array = output("num_tokens num_heads d_rope", element="to_element")
    yk_rope: Array = output("num_tokens num_kv_heads d_rope", element="to_element")
    yq_nope: Array | None = output(
        "num_tokens num_heads d_nope", element="to_element", optional=True, needs="q_nope"
    )  # fmt: skip
    yk_nope: Array | None = output(
        "num_tokens num_kv_heads d_nope_kv", element="to_element", optional=True, needs="k_nope"
    )  # fmt: skip
    offset: Scalar = scalar(0, integer=True)
    scale: Scalar = scalar(1.0)
    quant_scale_q: Scalar = scalar(1.0)
    quant_scale_kv: Scalar = scalar(1.0)


def _single(x: Any, dtype: Any) -> Any:
    """Rounded to float32, as numbers of `dtype`."""
    return cast_values(np.asarray(x), E.F32).astype(dtype)


def _coded(desc: Any, x: Any, by: Any) -> Any:
    """x times the scale, a float32 number, within the range of fp8."""
    largest = x.dtype.type(desc.to_element.limits.max)
    return np.clip(_single(_single(x, x.dtype) * _single(float(by), x.dtype), x.dtype), -largest, largest)


def _from_table(desc: Any, dtype: Any, positions: Any, table: Any, scale: Any, offset: Any) -> tuple[Any, Any]:
    """Cosines and sines of the rows that the positions name, [num_tokens, 1, pairs]; zeros where there is none."""
    pairs = desc.num_frequencies
    places = np.asarray(positions).astype(np.int64) + np.int64(offset)
    places = places[desc.pair_axes].T if desc.mrope_section else np.repeat(places[:, None], pairs, axis=1)
    there = (places >= 0) & (places < desc.num_positions)
    row, made = np.where(there, places, 0), []
    for columns in (np.arange(pairs), np.arange(pairs, 2 * pairs)):
        held = table[row, columns].astype(dtype) if desc.num_positions else np.zeros(places.shape, dtype)
        made.append((np.where(there, held, 0) * np.dtype(dtype).type(scale))[:, None])
    return made[0], made[1]


def reference(
    desc: RopeQuantizeFp8Descriptor, *, q_rope: Any, k_rope: Any, q_nope: Any, k_nope: Any, positions: Any,
    inv_freq: Any, cos_sin_cache: Any, offset: Any, scale: Any, quant_scale_q: Any, quant_scale_kv: Any,
    wanted: set[str],
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype q_rope comes in; products with the scale are float32 numbers."""
    with np.errstate(all="ignore"):
        if cos_sin_cache is None:
            turn = {"inv_freq": inv_freq, "cos": None, "sin": None, "scale": scale, "offset": offset}
            shape = (desc.num_tokens, 1, desc.num_frequencies)
            cos, sin = (a.reshape(shape) for a in angles(desc, q_rope.dtype, positions=positions, **turn))
        else:
            cos, sin = _from_table(desc, q_rope.dtype, positions, cos_sin_cache, scale, offset)
        scales = (quant_scale_q, quant_scale_kv)
        turned = (rotate(desc, x, cos, sin) for x in (q_rope, k_rope))
        made = [_coded(desc, x, by) for x, by in zip(turned, scales, strict=True)]
        rest = zip(("yq_nope", "yk_nope"), (q_nope, k_nope), scales, strict=True)
        others = {name: _coded(desc, x, by) for name, x, by in rest if name in wanted}
    return {"yq_rope": made[0], "yk_rope": made[1], **others}


PARAMS = Params(
    "RopeQuantizeFp8Params", **dict.fromkeys(PARTS, "ptr"), **dict.fromkeys((f"y{name}" for name in PARTS), "ptr"),
    cos_sin_cache="ptr", offset="iscalar", quant_scale_q="scalar", quant_scale_kv="scalar", num_tokens="i64",
    num_positions="i64", cache_strides="i64[2]", from_strides="i64[4][3]", to_strides="i64[4][3]", columns="i64[4]",
    tile_rows="i64", code="i32", by_items="u32[3]", by_units="u32[4][3]", ends="u32[3]", **angle_params(),
)  # fmt: skip


def _units(desc: Any, part: int, columns: int, vec: int) -> int:
    """Pairs of chunks that hold a head's columns."""
    half = columns // 2
    if part > 1:
        return -(-columns // (2 * vec))
    return -(-half // vec) if desc.pairing == "half" else -((-half // 2) * 2 // vec)


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    given = [p.views[name] if p.views[f"y{name}"] is not None else None for name in PARTS]
    made = [p.views[f"y{name}"] if x is not None else None for name, x in zip(PARTS, given, strict=True)]
    width = 16 // desc.element.itemsize
    sources: list[View] = [v for v in given if v is not None]
    codes: list[View] = [v for v in made if v is not None]
    wide = is_wide(desc, sources) and all(v.shape[-1] % width == 0 for v in sources)
    wide = wide and all(v.inner_dense and v.aligned(width) for v in codes)
    vec = width if wide else 2
    columns = [0 if v is None else v.shape[-1] for v in given]
    units = [_units(desc, i, n, vec) for i, n in enumerate(columns)]
    counts = [desc.heads[i % 2] * n for i, n in enumerate(units)]
    items = sum(counts)
    if items * TILE >= 2**31:
        return f"the heads of a token must be fewer than {2**31 // TILE} chunks, got {items}"
    fill = p.device.sms * (4 if wide else 2)
    rows = max(1, min(TILE, ITEMS * THREADS // max(items, 1)))
    while rows > 1 and -(-desc.num_tokens // rows) < fill:
        rows //= 2
    tiles = max(1, -(-desc.num_tokens // rows))
    shares = max(1, min(-(-fill // tiles), -(-rows * items // THREADS)))
    table = (0, 0) if p.cos_sin_cache is None else p.cos_sin_cache.strides
    positions = p.positions.strides
    values = angle_values(p, None, (), THREADS) | {
        "cos": "@null", "sin": "@null", "positions_wide": p.positions.element is E.I64,
        "position_strides": [positions[0] if desc.mrope_section else 0, 0, positions[-1]],
        "num_tokens": desc.num_tokens, "num_positions": desc.num_positions, "cache_strides": list(table),
        "from_strides": [[0, 0, 0] if v is None else list(v.strides) for v in given],
        "to_strides": [[0, 0, 0] if v is None else list(v.strides) for v in made], "columns": columns,
        "tile_rows": rows, "code": FP8.index(desc.to_element), "by_items": divider(items),
        "by_units": [divider(n) for n in units], "ends": list(itertools.accumulate(counts))[:3],
    }  # fmt: skip
    axes = {"INTERLEAVED": desc.pairing == "interleaved", "WIDE": wide}
    smem = 2 * 4 * rows * (desc.d_rope // 2)
    if smem > p.device.smem:
        return f"the angles of d_rope {desc.d_rope} take {smem} bytes of shared memory, the device has {p.device.smem}"
    name = "tokens" if wide else "tokens_any"
    step = Step(name, (tiles, shares, 1), values, axes, THREADS, smem=smem)
    layout = "contiguous" if all(v.dense for v in (*sources, *codes)) else "inner_contiguous" if wide else "strided"
    return Geometry((step,), layout=layout)


def _kernels() -> tuple[Kernel, Kernel]:
    """Of whole chunks, and of everything else."""
    template, both = "rope_quantize_fp8<{T}, {INTERLEAVED}, {WIDE}>", (False, True)
    return (
        Kernel("tokens", template, PARAMS, {"INTERLEAVED": both, "WIDE": (True,)}, THREADS, 4),
        Kernel("tokens_any", template, PARAMS, {"INTERLEAVED": both, "WIDE": (False,)}, THREADS, 2),
    )


def _benchmark(name: str, **sizes: Any) -> Benchmark:
    return Benchmark(f"{name}, bf16 to e4m3", **sizes, element="bfloat16", work=BYTES, peers=())


class RopeQuantizeFp8Plan(Plan):
    """yq_rope = rope(q_rope) · quant_scale_q, yk_rope = rope(k_rope) · quant_scale_kv, as fp8; nope columns unrotated.

    Rotation, frequencies, pairing and sections are those of `RopePlan`, of packed tokens [num_tokens, heads, d].
    Rotated numbers are float32, and so are products with the scale, which are rounded to to_element, float8_e4m3fn or
    float8_e5m2, to nearest even, as `fp8_cast` does: what is too large becomes the largest finite number, NaN stays.
    x is y / scale but for rounding. This is FlashInfer's rope_quantize_fp8. There is no gradient.
    """

    op = "attention.rope_quantize_fp8"
    descriptor = RopeQuantizeFp8Descriptor
    args = RopeQuantizeFp8Args
    reference = staticmethod(reference)
    value_policy = (
        "any position is legal: a negative one turns backwards; one outside cos_sin_cache has a cosine and a sine of 0"
    )
    variants = (
        Variant(
            "tokens", _geometry, source="attention/rope/rope_quantize_fp8.cu", elements=SOURCES, kernels=_kernels(),
            guarantee=Guarantee(
                PerOutput((
                    ("yq_rope", Relative(2)), ("yk_rope", Relative(2)), ("yq_nope", Exact()), ("yk_nope", Exact()),
                )),
                batch_invariant=True,
            ),
        ),
    )  # fmt: skip
    benchmarks = (
        _benchmark("8192 tokens, 128 heads and a latent of 64 + 512", num_tokens=8192, num_heads=128, num_kv_heads=1,
                   d_rope=64, d_nope=512, d_nope_kv=512, also=("q_nope", "k_nope", "yq_nope", "yk_nope")),
        _benchmark("65536 tokens, 32/8 heads of 128", num_tokens=65536, num_heads=32, num_kv_heads=8, d_rope=128),
        _benchmark("64 tokens, 32/8 heads of 128", num_tokens=64, num_heads=32, num_kv_heads=8, d_rope=128),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> RopeQuantizeFp8Descriptor:
        d_rope = draw.sizes(2, 6, 20, 64, 80, 128)
        return RopeQuantizeFp8Descriptor(
            num_tokens=draw.sizes(0, 1, 5, 17, 40), num_heads=draw.integer(0, 5), num_kv_heads=draw.integer(0, 3),
            d_rope=d_rope, d_nope=draw.sizes(0, 1, 7, 16, 64, 128), d_nope_kv=draw.sizes(0, 1, 7, 16, 64, 128),
            num_positions=draw.sizes(0, 1, 30), pairing=draw.choice(("half", "interleaved")),
            base=float(draw.sizes(10000, 500)), to_element=draw.choice(FP8), element=draw.element,
            **random_sections(draw, d_rope // 2),
        )  # fmt: skip

    @classmethod
    def check(cls, desc: Any, views: Mapping[str, Any]) -> None:
        if views["cos_sin_cache"] is not None and views["inv_freq"] is not None:
            raise InvalidProblemError("cos_sin_cache replaces inv_freq; give the one or the other")

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        """Positions of which most are rows of the table."""
        if arrays["cos_sin_cache"] is not None:
            arrays["inv_freq"] = None
            places = np.asarray(arrays["positions"]) % (desc.num_positions + 2)
            arrays["positions"] = (places - 1).astype(arrays["positions"].dtype)
        arrays["quant_scale_q"], arrays["quant_scale_kv"] = 0.75, 3.0

    @classmethod
    def bytes(cls, desc: Any) -> int:
        columns = desc.num_heads * (desc.d_rope + desc.d_nope) + desc.num_kv_heads * (desc.d_rope + desc.d_nope_kv)
        return int(desc.num_tokens * columns * (desc.element.itemsize + 1))


_call = functional(RopeQuantizeFp8Plan, returns=("yq_nope", "yk_nope"))


@entry(RopeQuantizeFp8Plan)
def rope_quantize_fp8(
    q_rope: Array, k_rope: Array, positions: Array, q_nope: Array | None = None, k_nope: Array | None = None,
    inv_freq: Array | None = None, cos_sin_cache: Array | None = None, *, pairing: str = "half", base: float = 10000.0,
    mrope_section: Any = (), mrope_interleaved: bool = False, offset: Scalar = 0, scale: Scalar = 1.0,
    quant_scale_q: Scalar = 1.0, quant_scale_kv: Scalar = 1.0, to_element: Any = "float8_e4m3fn", out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """(yq_rope, yk_rope), and yq_nope and yk_nope of what is given: rotated and times a scale as fp8, in one launch.

    q_rope [tokens, heads, d_rope], q_nope [tokens, heads, d_nope]; k_rope and k_nope the same with kv_heads heads, or
    [tokens, d], the one key of latent attention. positions [tokens]. cos_sin_cache [positions, d_rope] of float32, the
    cosines and then the sines of each position, replaces base and inv_freq. Queries are multiplied by quant_scale_q,
    keys by quant_scale_kv: 1 over the k_scale that `paged_kv_append_fp8` divides by. See `RopeQuantizeFp8Plan`.
    """
    ranks = {name: len(shape_of(x, name)) for name, x in (("k_rope", k_rope), ("k_nope", k_nope)) if x is not None}
    if len(set(ranks.values())) > 1:
        raise InvalidProblemError("k_rope and k_nope must both have heads, or neither: [tokens, d]")
    alone = ranks["k_rope"] == 2
    if alone:
        k_rope, k_nope = (
            None if x is None else with_axis(x, 1, n) for n, x in (("k_rope", k_rope), ("k_nope", k_nope))
        )
    of_keys = [False, True, *([False] if q_nope is not None else []), *([True] if k_nope is not None else [])]
    outs = out
    if alone and out is not None:
        outs = tuple(
            with_axis(one, 1, "out") if key and one is not None else one
            for one, key in zip(each_of(out, len(of_keys)), of_keys, strict=True)
        )
    made = _call(
        q_rope, k_rope, positions, q_nope, k_nope, inv_freq, cos_sin_cache, pairing=pairing, base=base,
        mrope_section=mrope_section, mrope_interleaved=mrope_interleaved, to_element=to_element, offset=offset,
        scale=scale, quant_scale_q=quant_scale_q, quant_scale_kv=quant_scale_kv, out=outs, stream=stream,
        preference=preference,
    )  # fmt: skip
    if not alone:
        return made
    if out is not None:
        return out
    return tuple(without_axes(y, {1}, "y") if key else y for y, key in zip(made, of_keys, strict=True))
