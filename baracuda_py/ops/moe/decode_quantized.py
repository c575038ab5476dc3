"""chosen_block_gemm: a few tokens' choices of experts by weights in a low-bit format, and two of them as a mixture."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...calls.entries import entry
from ...calls.functional import functional
from ...core import (
    Array, Descriptor, ElementKind, Geometry, InvalidProblemError, Kernel, Params, Plan, Problem, Step, Variant, View,
    choice, extent, flag, operand, output,
)  # fmt: skip
from ...core import element as element_field
from ...core.benchmark import BYTES, Benchmark
from ...core.checked import INT32
from ...core.element import HALVES, INDICES, unrounded
from ...core.preference import PlanPreference
from ...core.tensor import Shape
from ...core.variant import aligned
from ...core.views import shape_of
from ...schedules.gemm import ACTIVATIONS, EPILOGUE, wide_view
from ...schedules.moe_decode import CHOICES, SLOTS
from ..gated.gated_kinds import SWIGLU_OAI
from ..gemm.gemm import activated, rows_apart
from ..quant_gemm.block_gemm import ELEMENTS, GUARANTEE, rows_tile, weights
from ..quant_gemm.chunks import BLOCKS, SIMT_WARPS, chunk_bytes
from ..quant_gemm.grouped_block_gemm import infer_experts
from ..quantize.format_kinds import FormatKind
from ..quantize.stored import StoredArgs, StoredMatrix, format_header, stored_case, stored_params, stored_values
from .decode import random_choices

E = ElementKind
GATED = {"swiglu": "silu", "geglu": "gelu", "geglu_tanh": "gelu_tanh", "reglu": "relu", "swiglu_oai": "none"}
"""Units of two halves, by the activation of the gate; gpt-oss's is one of its own."""
ORDERS = ("gate_first", "gate_last", "interleaved")
_OAI = (1.702, 7.0)  # gpt-oss's steepness and limit
_ROWS = 8  # slots of a work tile
_THREADS = 256
_FEW_TOKENS = 16  # up to which an expert seldom has more rows than a work tile or two


@dataclass(frozen=True, kw_only=True)
class ChosenBlockGemmDescriptor(StoredMatrix, Descriptor):
    """W is [experts, n, k], see `StoredMatrix`; each of the tokens has `choices` experts.

    sources: rows of x, one for each token, or one for each choice. activation: none, relu, gelu, gelu_tanh, silu, or of
    two halves of the n outputs, which stand by `order` (gate_first, gate_last, interleaved), swiglu, geglu, geglu_tanh,
    reglu, swiglu_oai. summed: whether a token's results are weighted and added.
    """

    tokens: int = extent()
    choices: int = extent(minimum=1)
    sources: int = extent()
    experts: int = extent()
    activation: str = choice((*ACTIVATIONS, *GATED), "none")
    order: str = choice(ORDERS, "gate_first")
    summed: bool = flag(False)
    element: ElementKind = element_field(ELEMENTS)

    def validate(self) -> None:
        """Choices are few, x has a row for each or for each token, and halves are equal."""
        StoredMatrix.validate(self)
        slots = self.tokens * self.choices
        if slots > SLOTS or self.choices > CHOICES:
            raise InvalidProblemError(
                f"at most {SLOTS} choices are few, {CHOICES} of a token, got {self.tokens} tokens of {self.choices}; "
                "use moe_quantized"
            )
        if self.sources not in (self.tokens, slots):
            raise InvalidProblemError(
                f"x must have a row for each of {self.tokens} tokens or of {slots} choices, got {self.sources}"
            )
        if self.gated and self.n % 2:
            raise InvalidProblemError(f"n must be even for the two halves of {self.activation}, got {self.n}")

    @property
    def gated(self) -> bool:
        """Whether the outputs are two halves."""
        return self.activation in GATED

    @property
    def batch_shape(self) -> Shape:
        """That of the stored weights."""
        return (self.experts,)

    @property
    def columns(self) -> int:
        """Columns of y."""
        return self.n // 2 if self.gated else self.n

    @property
    def rows(self) -> int:
        """Rows of y."""
        return self.tokens if self.summed else self.tokens * self.choices

    @property
    def weight_elements(self) -> tuple[ElementKind, ...]:
        """Those of the router's weights: x's, or float32."""
        return tuple(dict.fromkeys((self.element, E.F32)))


def _moderate(rng: Any, desc: Any, shape: Any) -> Any:
    """For tests: small in float16, where a product of two halves that is kept would leave its range by a rounding."""
    return rng.standard_normal(shape) * (2.0**-7 if desc.element is E.F16 else 1.0)


@dataclass(slots=True, kw_only=True)
class ChosenBlockGemmArgs(StoredArgs):
    """x, indices, weights, bias and y have any strides; the parts of W are as in `StoredArgs`.

    indices: int32 or int64, on the device, never read by the host. weights: given where results are added, of x's
    element or float32.
    """

    x: Array = operand("sources k", values=_moderate)
    indices: Array = operand("tokens choices", element=INDICES, values=random_choices)
    weights: Array | None = operand("tokens choices", element="weight_elements", optional=True)
    bias: Array | None = operand("experts n", optional=True)
    y: Array = output("rows columns")


def _unit(desc: ChosenBlockGemmDescriptor, h: Any) -> Any:
    if not desc.gated:
        return activated(desc.activation, h)
    parts = (h[:, ::2], h[:, 1::2]) if desc.order == "interleaved" else (h[:, : desc.columns], h[:, desc.columns :])
    gate, up = parts[::-1] if desc.order == "gate_last" else parts
    if desc.activation == "swiglu_oai":
        return SWIGLU_OAI.product(gate, up, *(h.dtype.type(c) for c in _OAI))
    return activated(GATED[desc.activation], gate) * up


def reference(
    desc: ChosenBlockGemmDescriptor, *, x: Any, indices: Any, weights: Any, bias: Any, apart: bool = False,
    store: Any = unrounded, **parts: Any,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype x comes in: expert by expert, and then a token's results in the order of its choices."""
    slots = indices.reshape(-1)
    made = np.zeros((desc.tokens * desc.choices, desc.columns), x.dtype)
    with np.errstate(all="ignore"):
        w = np.swapaxes(_weights(desc, x.dtype, **parts), -1, -2)
        for expert in range(desc.experts):
            (own,) = np.nonzero(slots == expert)
            if not own.size:
                continue
            rows = x[own if desc.sources == slots.size else own // desc.choices]
            h = rows_apart(rows, w[expert]) if apart else rows @ w[expert]
            h = h if bias is None else h + bias[expert]
            whole = desc.activation == "none" and not desc.summed  # rounded once, as it is stored
            made[own] = h if whole else _unit(desc, store(h))
        if not desc.summed:
            return {"y": made}
        results = store(made).reshape(desc.tokens, desc.choices, desc.columns)
        y = np.zeros((desc.tokens, desc.columns), x.dtype)
        for j in range(desc.choices):
            there = (indices[:, j] >= 0) & (indices[:, j] < desc.experts)
            y = np.where(there[:, None], y + results[:, j] * weights[:, j, None].astype(x.dtype), y)
        return {"y": y}


_weights = weights  # a parameter of the reference has the name

PARAMS = Params(
    "ChosenBlockGemmParams", **dict.fromkeys(("x", "indices", "weights", "bias", "made", "y"), "ptr"), n="i64", k="i64",
    x_steps="i64[3]", index_steps="i64[2]", weight_steps="i64[2]", bias_steps="i64[2]", made_steps="i64[2]",
    y_steps="i64[2]", chunk_bytes="i64",
    **dict.fromkeys(
        ("tokens", "choices", "experts", "activation", "oai", "gated", "order", "shared_rows", "wide_indices",
         "wide_weights"), "i32",
    ),
    decode_slots=SLOTS, decode_rows=_ROWS, HalvesOrder=ORDERS, **EPILOGUE, **stored_params(), **BLOCKS,
)  # fmt: skip
_ENDS = tuple(
    Kernel(name, f"chosen_{name}<{{T}}>", PARAMS, threads=_THREADS, source="moe/chosen_ends.cu", kindless=True)
    for name in ("pack", "sum")
)


def _launch(p: Problem, kernel: str, columns: int, smem: int) -> Geometry | str:
    desc, values = p.desc, stored_values(p)
    if isinstance(values, str):
        return values
    if desc.experts > INT32:
        return f"needs fewer than 2**31 experts, got {desc.experts}"
    slots = desc.tokens * desc.choices
    made = aligned(slots * desc.columns * desc.element.itemsize) if desc.summed else 0
    packed = 0 if _as_it_lies(p.x) else aligned(desc.sources * desc.k * desc.element.itemsize)
    values |= {
        "n": desc.n, "k": desc.k, "x_steps": (0, *p.x.strides), "index_steps": p.indices.strides,
        "weight_steps": (0, 0) if p.weights is None else p.weights.strides,
        "bias_steps": (0, 0) if p.bias is None else p.bias.strides, "y_steps": p.y.strides,
        "chunk_bytes": chunk_bytes(desc), "tokens": desc.tokens, "choices": desc.choices, "experts": desc.experts,
        "activation": ACTIVATIONS.index(GATED.get(desc.activation, desc.activation)),
        "oai": desc.activation == "swiglu_oai", "gated": desc.gated, "order": ORDERS.index(desc.order),
        "shared_rows": desc.sources == desc.tokens, "wide_indices": p.indices.element is E.I64,
        "wide_weights": p.weights is not None and p.weights.element is E.F32,
        "made": ("@workspace", 0) if desc.summed else "y",
        "made_steps": (desc.columns, 1) if desc.summed else p.y.strides,
        "weights": "@null" if p.weights is None else "weights",
    }  # fmt: skip
    steps, tiles = [], slots * -(-desc.columns // columns)
    own = values
    if packed:
        to = ("@workspace", made)
        steps.append(_over(desc.sources * desc.k, "pack", values | {"n": desc.sources, "made": to}))
        own = values | {"x": to, "x_steps": (0, desc.k, 1)}
    if tiles:
        steps.append(Step(kernel, (min(tiles, 2 * max(1, p.device.sms)), 1, 1), own, smem=smem))
    if desc.summed and desc.tokens * desc.columns:
        steps.append(_over(desc.tokens * desc.columns, "sum", values | {"n": desc.columns}))
    dense = all(view.dense for view in p.flat())
    return Geometry(tuple(steps), made + packed, "contiguous" if dense else "strided")


def _as_it_lies(x: View) -> bool:
    """Whether products read x where it stands: rows along memory, by offsets of 32 bits."""
    return wide_view(x) and 0 <= x.strides[0] * SLOTS <= INT32


def _over(count: int, kernel: str, values: Mapping[str, Any]) -> Step:
    """A thread for each of `count` numbers."""
    return Step(kernel, (-(-count // _THREADS), 1, 1), values, block=_THREADS)


def _rows(p: Problem) -> Geometry | str:
    tile = rows_tile(p.desc.kind, "rows", 1, 8)
    return _launch(p, "rows", tile.columns, tile.smem)


def _simt(p: Problem) -> Geometry | str:
    return _launch(p, "simt", SIMT_WARPS, 0)


def _different(torch: Any, desc: Any) -> dict[str, Any]:
    """For benchmarks: experts that are different as far as there are so many."""
    slots = torch.arange(desc.tokens * desc.choices, dtype=torch.int32)
    return {"indices": (slots % desc.experts).reshape(desc.tokens, desc.choices)}


class ChosenBlockGemmPlan(Plan):
    """y[t, j] = unit(W[e] x[t, j] + bias[e]), e = indices[t, j], W stored in any format of `FormatKind`.

    Half of `moe_decode_quantized`: up to 256 choices, 32 of a token, by one launch over the experts that were chosen,
    whose weights are read as they are stored, once for up to 8 choices of one, and no others. x has a row for each
    token, or for each choice; W [experts, n, k], bias [experts, n]; y [tokens · choices, n], or n / 2 where the unit is
    of two halves. With `weights` y[t] = Σ_j weights[t, j] W[e] x[t, j], [tokens, n], in the order of the choices. A
    weight is what `block_dequantize` gives, rounded once to x's element, f16, bf16 or f32; sums are in float32 in the
    order of `GroupedBlockGemmPlan`'s for few rows, rounded before the unit, so that a token has the bits that it has
    there. An expert outside [0, experts) gives zeros, and no part of a sum. It has no gradient: train with
    `moe_quantized`.
    """

    op = "moe.chosen_block_gemm"
    kinds = FormatKind
    descriptor = ChosenBlockGemmDescriptor
    args = ChosenBlockGemmArgs
    reference = staticmethod(reference)
    apart = True
    value_policy = (
        "a choice outside [0, experts) has no part: a row of it, and a token of none, are zeros; an entry of index "
        "outside the groups of a row counts as the nearest of them"
    )
    variants = (
        Variant(
            "rows", _rows, source="moe/chosen_block_gemm_rows.cu", elements=HALVES, prelude=format_header,
            kernels=(Kernel("rows", "chosen_block_gemm_rows<{KIND}, {T}>", PARAMS, min_blocks=2), *_ENDS),
            guarantee=replace(GUARANTEE, batch_invariant=True, order="mma"), may_spill=True,
        ),
        Variant(
            "simt", _simt, source="moe/chosen_block_gemm_simt.cu", elements=(E.F32,), prelude=format_header,
            kernels=(Kernel("simt", "chosen_block_gemm_simt<{KIND}, {T}>", PARAMS, min_blocks=2), *_ENDS),
            guarantee=replace(GUARANTEE, batch_invariant=True),
        ),
    )  # fmt: skip
    benchmarks = tuple(
        Benchmark(f"{kind}, {tokens} tokens, {k} of {experts} experts [{2 * f}, {d}] bf16 ({of})", kind=kind,
                  tokens=tokens, choices=k, sources=tokens, experts=experts, n=2 * f, k=d, activation=unit, group=group,
                  element="bfloat16", make=_different, work=BYTES, peers=())
        for of, kind, group, k, experts, d, f, unit in (
            ("gpt-oss-20b", "mxfp4", 32, 4, 32, 2880, 2880, "swiglu_oai"),
            ("Qwen3-30B-A3B", "uint4", 128, 8, 128, 2048, 768, "swiglu"),
        )
        for tokens in (1, 4, 16)
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> ChosenBlockGemmDescriptor:
        sizes = stored_case(draw)
        del sizes["batch_shape"]
        tokens, choices = draw.sizes(1, 3, 0, 5, 16), draw.integer(1, 3)
        activation = draw.choice((*ACTIVATIONS, *GATED))
        sizes["n"] *= 1 + (activation in GATED)
        return ChosenBlockGemmDescriptor(
            **sizes, tokens=tokens, choices=choices, sources=draw.choice((tokens, tokens * choices)),
            experts=draw.integer(0, 4), activation=activation, order=draw.choice(ORDERS), summed=draw.flag(),
            element=draw.element,
        )  # fmt: skip

    @classmethod
    def check(cls, desc: Any, views: Mapping[str, Any]) -> None:
        if (views["weights"] is None) == desc.summed:
            raise InvalidProblemError("weights are given where results are added (summed), and not else")

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        if not desc.summed:
            arrays["weights"] = None
        elif arrays["weights"] is None:
            arrays["weights"] = np.ones((desc.tokens, desc.choices), np.float32)

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        infer_experts(shapes, facts)
        facts["summed"] = bool(facts.get("summed")) or shapes.get("weights") is not None

    @classmethod
    def flops(cls, desc: Any) -> int:
        return int(2 * desc.tokens * desc.choices * desc.n * desc.k)

    @classmethod
    def bytes(cls, desc: Any) -> int:
        """Those of the experts that are chosen, if they are all different."""
        chosen = min(desc.experts, desc.tokens * desc.choices)
        return int(math.prod((chosen, desc.n, desc.k)) * desc.kind.row.bits / 8)


chosen_block_gemm = functional(ChosenBlockGemmPlan)


def chosen_few(x: Any, indices: Any, preference: Any) -> bool:
    """Whether `moe_quantized` of these goes by `moe_decode_quantized`: few tokens, and no limit of its workspace."""
    if not isinstance(preference, (PlanPreference, type(None))) or getattr(preference, "max_workspace_bytes", None):
        return False
    tokens, chosen = shape_of(x, "x"), shape_of(indices, "indices")
    if len(tokens) != 2 or len(chosen) != 2 or chosen[0] != tokens[0]:
        return False
    return tokens[0] <= _FEW_TOKENS and 0 < chosen[1] <= min(CHOICES, SLOTS // max(tokens[0], 1))


@entry(ChosenBlockGemmPlan)
def moe_decode_quantized(
    x: Array, indices: Array, weights: Array, gate_up: Array, down: Array, gate_up_scales: Array | None = None,
    down_scales: Array | None = None, gate_up_zeros: Array | None = None, down_zeros: Array | None = None,
    gate_up_bias: Array | None = None, down_bias: Array | None = None, *, kind: Any = "mxfp4",
    activation: str = "swiglu", order: str = "gate_first", out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """`moe_quantized` of up to 256 choices in three launches that read the chosen experts' weights as they are stored.

    The operands are those of `moe_quantized`, which goes this way for up to 16 tokens: x [tokens, d],
    indices and weights [tokens, k], codes with an axis of experts in front. Both products are rounded, the first
    before its unit, and a token's results are added in the order of its choices: the bits that many tokens get while
    they are at most 16 an expert. Errors name the operand; there is no gradient.
    """
    options = {"kind": kind, "stream": stream, "preference": preference}
    h = chosen_block_gemm(
        gate_up, x, indices, scales=gate_up_scales, zeros=gate_up_zeros, bias=gate_up_bias, activation=activation,
        order=order, **options,
    )  # fmt: skip
    return chosen_block_gemm(
        down, h, indices, scales=down_scales, zeros=down_zeros, weights=weights, bias=down_bias, out=out, **options
    )
