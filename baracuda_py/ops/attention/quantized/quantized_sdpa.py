"""quantized_sdpa: attention of queries and keys that are codes of 8 bits (SageAttention, FlashAttention-3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ....core import (
    Args, Array, ElementKind, InvalidProblemError, Plan, Scalar, UnsupportedError, Variant, derived, integer,
    operand, output, scalar,
)  # fmt: skip
from ....core import element as element_field
from ....calls.functional import functional
from ....core.args import finite_only
from ....core.benchmark import FLOPS, Benchmark
from ....core.element import unrounded
from ....schedules.attention.dense.forward import HALVES
from ....schedules.attention.quantized import (
    CODES, E4M3, I8, MMA_FP8_ROW, MMA_ROW, SIMT_ROW, VALUES, WGMMA_FP8_ROW, WGMMA_ROW,
)  # fmt: skip
from ..in_torch import attention
from ..layouts import Layouts
from ..score_terms import ALIGNMENTS, AttentionDescriptor, grouped, visible


@dataclass(frozen=True, kw_only=True)
class QuantizedSdpaDescriptor(AttentionDescriptor):
    """q and k are codes of `code_element`, int8 or float8_e4m3fn; v has `element`, y `out_element`.

    Consecutive q_block queries share a scale, and k_block keys; None is all of them. Hopper's row takes any k_block
    that is a multiple of 128 or not less than the keys (head_dim 64: of 64); others go to slower ones. q_scale_heads,
    num_heads or a divisor of it that consecutive heads share, are those that have scales of their own. v of 16 bits
    gives y of its element; v of float8_e4m3fn goes with codes of it, and y is float16, bfloat16 or float8_e4m3fn, by
    default bfloat16.
    """

    element: ElementKind = element_field(VALUES)
    code_element: ElementKind = element_field(CODES, I8)
    out_element: ElementKind = element_field(
        VALUES, derived(lambda desc: desc.element if desc.element in HALVES else ElementKind.BF16)
    )
    q_block: int = integer(derived(lambda desc: max(desc.query_len, 1)), minimum=1)
    k_block: int = integer(derived(lambda desc: max(desc.key_len, 1)), minimum=1)
    q_scale_heads: int = integer(derived(lambda desc: desc.num_heads), minimum=0)

    def validate(self) -> None:
        super().validate()
        if self.num_heads % max(self.q_scale_heads, 1) or (self.num_heads and not self.q_scale_heads):
            raise InvalidProblemError(
                f"q_scale_heads must divide num_heads, got {self.q_scale_heads} and {self.num_heads}"
            )
        if self.element is E4M3 and self.code_element is not E4M3:
            raise UnsupportedError(f"v of {self.element} goes with q and k of it, got {self.code_element}")
        if self.element is not E4M3 and self.out_element is not self.element:
            raise UnsupportedError(f"v of {self.element} gives y of it, got out_element {self.out_element}")

    @property
    def aux_element(self) -> ElementKind:
        """The second element of the SKU."""
        return self.code_element

    @property
    def q_blocks(self) -> int:
        """Blocks of queries that have a scale."""
        return -(-self.query_len // self.q_block)

    @property
    def k_blocks(self) -> int:
        """Blocks of keys that have a scale."""
        return -(-self.key_len // self.k_block)

    @property
    def acc(self) -> ElementKind:
        """The element of lse."""
        return ElementKind.F32


@finite_only
def _codes(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> np.ndarray:
    """All int8 codes that absmax quantisation makes, or e4m3 of normal data."""
    if desc.code_element is I8:
        return np.clip(np.rint(rng.standard_normal(shape) * 40), -127, 127)
    return rng.standard_normal(shape)


@finite_only
def _values(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> np.ndarray:
    return rng.standard_normal(shape)


@finite_only
def _scales(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Those of codes whose values are about 1, with zeros among them."""
    unit = 1 / 40 if desc.code_element is I8 else 1.0
    return np.where(rng.random(shape) < 0.1, 0.0, unit * np.exp2(rng.uniform(-1, 1, shape)))


@finite_only
def _factors(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> np.ndarray:
    return np.exp2(rng.uniform(-1, 1, shape))


@dataclass(slots=True, kw_only=True)
class QuantizedSdpaArgs(Args):
    """A query is its codes times the q_scale of its block, a key likewise, a value its element times v_scale.

    Scales are float32 of any strides. y = out_scale · Σ p v; in float8_e4m3fn too large a number becomes ±448. lse =
    log Σ exp(s), float32. What is not finite makes results NaN that it reaches, or that a neighbour in its tile
    reaches.
    """

    q: Array = operand("batch_size num_heads query_len d_k", element="code_element", layout="inner", values=_codes)
    k: Array = operand("batch_size num_kv_heads key_len d_k", element="code_element", layout="inner", values=_codes)
    v: Array = operand("batch_size num_kv_heads key_len d_v", layout="inner", values=_values)
    q_scale: Array = operand("batch_size q_scale_heads q_blocks", element=ElementKind.F32, values=_scales)
    k_scale: Array = operand("batch_size num_kv_heads k_blocks", element=ElementKind.F32, values=_scales)
    v_scale: Array | None = operand("batch_size num_kv_heads", element=ElementKind.F32, optional=True, values=_factors)
    y: Array = output("batch_size num_heads query_len d_v", element="out_element", layout="inner")
    lse: Array | None = output("batch_size num_heads query_len", element=ElementKind.F32, optional=True, layout="dense")
    out_scale: Scalar = scalar(1.0)


def decoded(x: Any, scale: Any, heads: int, block: int) -> Any:
    """Codes [batch, heads, rows, d] times the scales [batch, heads or a divisor, blocks] of their rows."""
    if scale.shape[1] != heads:
        scale = np.repeat(scale, heads // max(scale.shape[1], 1), axis=1)
    return x.astype(scale.dtype) * np.repeat(scale, block, axis=2)[:, :, : x.shape[2], None]


def _truncated(desc: QuantizedSdpaDescriptor, s: Any, left: Any, right: Any) -> Any:
    """Scores as tensor cores may leave them, which keep 13 bits below the largest product of fp8."""
    rows, keys = (np.abs(x).max(-1, initial=0) for x in (left, right))
    last = s.dtype.type(2.0**-13) * rows[..., None] * np.repeat(keys, desc.group, 1)[:, :, None]
    return np.where(last > 0, np.trunc(s / last) * last, s).astype(s.dtype)


def reference(
    desc: QuantizedSdpaDescriptor, *, q: Any, k: Any, v: Any, q_scale: Any, k_scale: Any, v_scale: Any = None,
    out_scale: Any = 1.0, wanted: set[str], store: Any = unrounded,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype the scales come in; the weights are what a kernel keeps, float16 where v is fp8."""
    dtype = q_scale.dtype.type

    def kept(weights: Any) -> Any:
        if store is unrounded or desc.element in HALVES:
            return store(weights)
        return weights.astype(np.float16).astype(weights.dtype)

    shape = (desc.batch_size, desc.num_heads, desc.query_len, desc.key_len)
    with np.errstate(all="ignore"):
        left = decoded(q, q_scale, desc.num_heads, desc.q_block) * dtype(desc.scale)
        right = decoded(k, k_scale, desc.num_kv_heads, desc.k_block)
        s = (grouped(left, desc) @ right.swapaxes(-1, -2)).reshape(shape)
        s = s if store is unrounded or desc.code_element is I8 else _truncated(desc, s, left, right)
        seen = visible(desc)
        if seen is not None:
            s[:, :, ~seen] = -np.inf
        top = s.max(axis=-1, initial=-np.inf, keepdims=True)
        base = np.where(top == -np.inf, dtype(0), top)
        p = np.exp(s - base)
        total = p.sum(axis=-1, keepdims=True)
        weights = kept(p)
        y = (grouped(weights, desc) @ v.astype(weights.dtype)).reshape(*shape[:3], desc.d_v)
        y = y / np.where(total == 0, dtype(1), total)
        by = dtype(out_scale) * np.ones((1, 1), dtype) if v_scale is None else v_scale * dtype(out_scale)
        y = y * np.repeat(by, 1 if v_scale is None else desc.group, axis=1)[..., None, None]
        largest = desc.out_element.limits.max
        lse = (base + np.log(total))[..., 0]
    return {"y": np.clip(y, -largest, largest) if desc.out_element is E4M3 else y, "lse": lse}


def in_torch(
    torch: Any, desc: Any, *, q: Any, k: Any, v: Any, q_scale: Any, k_scale: Any, v_scale: Any, out_scale: Any,
    wanted: set[str],
) -> Any:  # fmt: skip
    """Attention of the decoded operands."""

    def of_rows(x: Any, scale: Any, block: int) -> Any:
        scale = scale.repeat_interleave(x.shape[1] // max(scale.shape[1], 1), 1)
        return x.to(scale.dtype) * scale.repeat_interleave(block, 2)[:, :, : x.shape[2], None]

    left, right = of_rows(q, q_scale, desc.q_block), of_rows(k, k_scale, desc.k_block)
    values = v.to(left.dtype) * out_scale
    values = values if v_scale is None else values * v_scale[..., None, None]
    made = attention(torch, left, right, values, scale=desc.scale, causal=desc.is_causal, shift=desc.shift)
    largest = desc.out_element.limits.max
    return {"y": made["y"].clamp(-largest, largest) if desc.out_element is E4M3 else made["y"], "lse": made["lse"]}


_SIZES: dict[str, Any] = {"batch_size": 4, "num_heads": 32, "query_len": 4096, "key_len": 4096, "d_k": 128, "d_v": 128}


def _benchmark(title: str, **facts: Any) -> Benchmark:
    return Benchmark(f"[4, 32, 4096, 128] {title}", **_SIZES, **facts, work=FLOPS, target=None, peers=())


class QuantizedSdpaPlan(Plan):
    """y = out_scale · softmax(scale · q kᵀ) (v_scale v) of codes q and k with scales; causal from the top left.

    Products of int8 codes are exact, those of float8_e4m3fn are the tensor cores', which keep some 13 bits below the
    largest term of 32. Weights are of 16 bits: v's, or float16 where v is fp8, whose numbers float16 holds exactly. A
    query that sees no key gives zeros and lse -inf. What quantisation itself changed is no error here.
    """

    op = "attention.quantized_sdpa"
    descriptor = QuantizedSdpaDescriptor
    args = QuantizedSdpaArgs
    reference = staticmethod(reference)
    variants: ClassVar[tuple[Variant, ...]] = (WGMMA_ROW, WGMMA_FP8_ROW, MMA_ROW, MMA_FP8_ROW, SIMT_ROW)
    torch = staticmethod(in_torch)
    benchmarks = (
        _benchmark("int8, bf16 values", element="bfloat16", q_block=16, k_block=128),
        _benchmark("int8, bf16 values, causal", element="bfloat16", q_block=16, k_block=128, is_causal=True),
        _benchmark("e4m3", element="float8_e4m3fn", code_element="float8_e4m3fn"),
        _benchmark("e4m3, causal", element="float8_e4m3fn", code_element="float8_e4m3fn", is_causal=True),
    )

    @staticmethod
    def case(draw: Any) -> QuantizedSdpaDescriptor:
        kv_heads = draw.integer(1, 2)
        heads = kv_heads * draw.integer(1, 3)
        fp8 = draw.element is E4M3
        out_element: Any = draw.choice(VALUES) if fp8 else None
        wider = (64, 128, 200)
        return QuantizedSdpaDescriptor(
            batch_size=draw.integer(0, 2), num_heads=heads, num_kv_heads=kv_heads,
            query_len=draw.sizes(1, 7, 32, 61, 67), key_len=draw.sizes(0, 1, 13, 64, 65, 97, rare=(300,)),
            d_k=draw.sizes(1, 8, 17, 32, 64, 80, rare=wider), d_v=draw.sizes(1, 8, 19, 32, 72, rare=wider),
            scale=draw.choice((None, 0.3, -0.5)), is_causal=draw.flag(), causal_alignment=draw.choice(ALIGNMENTS),
            q_block=draw.choice((None, 1, 16, 33)), k_block=draw.choice((None, 64, 128, 5)),
            q_scale_heads=draw.choice((heads, kv_heads)), element=draw.element,
            code_element=E4M3 if fp8 else draw.choice(CODES), out_element=out_element,
        )  # fmt: skip

    @classmethod
    def flops(cls, desc: QuantizedSdpaDescriptor) -> int:
        return 2 * desc.batch_size * desc.num_heads * desc.pairs * (desc.d_k + desc.d_v)


quantized_sdpa = functional(QuantizedSdpaPlan, layouts=Layouts(("q", "k", "v", "y")))
