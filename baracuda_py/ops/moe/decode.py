"""moe_decode: the experts of a few tokens in two launches, which stream the weights of those that were chosen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...calls.functional import functional
from ...core import (
    ArchSku, Args, Array, Descriptor, ElementKind, Guarantee, InvalidProblemError, Plan, Relative,
    Variant, choice, element, extent, operand, output,
)  # fmt: skip
from ...core.benchmark import BYTES, Benchmark
from ...core.element import INDICES, unrounded
from ...schedules.moe_decode import ELEMENTS, SIMT_KERNELS, STREAM_KERNELS, UNITS, simt, stream
from ..gated.gated_kinds import SWIGLU_OAI
from ..gemm.gemm import activated, rows_apart

_OAI = (1.702, 7.0)  # gpt-oss's steepness and limit


@dataclass(frozen=True, kw_only=True)
class MoeDecodeDescriptor(Descriptor):
    """x is [tokens, d], each token has k of the experts, gate and up are [experts, f, d], down [experts, d_out, f].

    activation: none, relu, gelu, gelu_tanh or silu, with `up` that of the gate; or swiglu_oai (gpt-oss), which has up.
    """

    tokens: int = extent()
    k: int = extent(minimum=1)
    experts: int = extent()
    d: int = extent()
    f: int = extent()
    d_out: int = extent()
    activation: str = choice(UNITS, "silu")
    element: ElementKind = element()

    @property
    def weight_elements(self) -> tuple[ElementKind, ...]:
        """Those of the router's weights: x's, or its accumulator's."""
        return tuple(dict.fromkeys((self.element, self.element.acc)))


def random_choices(rng: Any, desc: Any, shape: tuple[int, ...]) -> Any:
    """For tests: often few of the experts, seldom one twice, or one that is none."""
    made = rng.integers(0, max(desc.experts, 1), shape)
    made = np.where(rng.random(shape) < rng.choice((0.0, 0.5)), desc.experts // 2, made)
    return np.where(rng.random(shape) < rng.choice((0.0, 0.2)), rng.choice((-1, desc.experts, 2**31 - 1)), made)


@dataclass(slots=True, kw_only=True)
class MoeDecodeArgs(Args):
    """Any strides: gate and up may be the halves of one array, or every other row. Rows are outputs, as in Linear.

    indices: int32 or int64, on the device, never read by the host. weights: of x's element or its accumulator's.
    """

    x: Array = operand("tokens d")
    indices: Array = operand("tokens k", element=INDICES, values=random_choices)
    weights: Array = operand("tokens k", element="weight_elements")
    gate: Array = operand("experts f d")
    down: Array = operand("experts d_out f")
    up: Array | None = operand("experts f d", optional=True)
    gate_bias: Array | None = operand("experts f", optional=True)
    up_bias: Array | None = operand("experts f", optional=True)
    down_bias: Array | None = operand("experts d_out", optional=True)
    y: Array = output("tokens d_out")


def reference(
    desc: MoeDecodeDescriptor, *, x: Any, indices: Any, weights: Any, gate: Any, down: Any, up: Any, gate_bias: Any,
    up_bias: Any, down_bias: Any, apart: bool = False, store: Any = unrounded,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype x comes in: expert by expert, and then a token's results in the order of its choices."""
    product = rows_apart if apart else np.matmul
    y, results = np.zeros((desc.tokens, desc.d_out), x.dtype), np.zeros((desc.tokens, desc.k, desc.d_out), x.dtype)

    def with_bias(rows: Any, matrix: Any, bias: Any, expert: int) -> Any:
        made = product(rows, matrix[expert].T)
        return made if bias is None else made + bias[expert]

    with np.errstate(all="ignore"):
        for expert in range(desc.experts):
            tokens, choices = np.nonzero(indices == expert)
            if not tokens.size:
                continue
            h = with_bias(x[tokens], gate, gate_bias, expert)
            other = None if up is None else with_bias(x[tokens], up, up_bias, expert)
            if desc.activation == "swiglu_oai":
                h = SWIGLU_OAI.product(store(h), store(other), *(x.dtype.type(c) for c in _OAI))
            else:
                h = activated(desc.activation, h)
                h = h if other is None else h * other
            results[tokens, choices] = store(with_bias(store(h), down, down_bias, expert))
        for j in range(desc.k):
            there = (indices[:, j] >= 0) & (indices[:, j] < desc.experts)
            y = np.where(there[:, None], y + results[:, j] * weights[:, j, None].astype(x.dtype), y)
    return {"y": y}


def in_torch(
    torch: Any, desc: MoeDecodeDescriptor, *, x: Any, indices: Any, weights: Any, gate: Any, down: Any, up: Any,
    gate_bias: Any, up_bias: Any, down_bias: Any,
) -> Any:  # fmt: skip
    """Products by the gathered matrices of each choice."""
    there = (indices >= 0) & (indices < desc.experts)
    if not desc.experts:
        return x.new_zeros(desc.tokens, desc.d_out)
    own = torch.where(there, indices, 0).long()

    def product(rows: Any, matrix: Any, bias: Any) -> Any:
        made = torch.einsum("tkd,tkfd->tkf", rows, matrix[own])
        return made if bias is None else made + bias[own]

    rows = x[:, None].expand(-1, desc.k, -1)
    h = product(rows, gate, gate_bias)
    other = None if up is None else product(rows, up, up_bias)
    if desc.activation == "swiglu_oai":
        assert other is not None  # as `check` says
        alpha, limit = _OAI
        h = h.clamp(max=limit)
        h = h * torch.sigmoid(alpha * h) * (other.clamp(-limit, limit) + 1)
    else:
        act = {
            "none": lambda x: x, "relu": torch.relu, "gelu": torch.nn.functional.gelu,
            "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"), "silu": torch.nn.functional.silu,
        }[desc.activation]  # fmt: skip
        h = act(h) if other is None else act(h) * other
    z = product(h, down, down_bias)
    return torch.where(there[..., None], z * weights[..., None].to(z.dtype), 0).sum(1)


def different_choices(torch: Any, desc: Any) -> dict[str, Any]:
    """Experts that are different as far as there are so many, for benchmarks."""
    slots = torch.arange(desc.tokens * desc.k, dtype=torch.int32)
    return {"indices": (slots % desc.experts).reshape(desc.tokens, desc.k)}


class MoeDecodePlan(Plan):
    """y[t] = Σ_j weights[t, j] (down[e] unit(gate[e] x[t], up[e] x[t]) + down_bias[e]), e = indices[t, j].

    `moe` of up to 256 choices, 32 of a token, without moving a row: two launches, which read the matrices of the chosen
    experts, once for up to 32 choices of one, and no others. x [tokens, d]; gate and up [experts, f, d], down
    [experts, d_out, f] in any strides, f16, bf16, f32, f64. unit: act(gate x + gate_bias) (up x + up_bias), without up
    act(gate x + gate_bias), or gpt-oss's (swiglu_oai). Between the products h, and before it is weighted each result,
    is rounded to the element; sums are in float32 (float64 for float64), a token's in the order of its choices. On
    sm_90a a token has the bits that `moe` gives it among any others. An expert outside [0, experts) adds nothing. It
    has no gradient: train with `moe`.
    """

    op = "moe.moe_decode"
    descriptor = MoeDecodeDescriptor
    args = MoeDecodeArgs
    reference = staticmethod(reference)
    apart = True
    value_policy = "a choice outside [0, experts) has no part: a token of none gives zeros"
    variants = (
        Variant(
            "stream", stream, source="moe/decode_stream.cu", kernels=STREAM_KERNELS, elements=ELEMENTS,
            design=ArchSku.SM90A,
            guarantee=Guarantee(Relative(2), batch_invariant=True, order="wgmma"),
        ),
        Variant(
            "simt", simt, source="moe/decode_simt.cu", kernels=SIMT_KERNELS,
            guarantee=Guarantee(Relative(2), batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = tuple(
        Benchmark(
            f"{tokens} tokens, {k} of {experts} experts [{f}, {d}] bf16 ({of})", tokens=tokens, k=k, experts=experts,
            d=d, f=f, d_out=d, activation=unit, element="bfloat16", also=("up", *also), make=different_choices,
            work=BYTES,
        )
        for of, k, experts, d, f, unit, also in (
            ("Qwen3-30B-A3B", 8, 128, 2048, 768, "silu", ()),
            ("gpt-oss-20b", 4, 32, 2880, 2880, "swiglu_oai", ("gate_bias", "up_bias", "down_bias")),
        )
        for tokens in (1, 4, 16)
    )  # fmt: skip

    @classmethod
    def check(cls, desc: Any, views: Mapping[str, Any]) -> None:
        if views["up"] is None and views["up_bias"] is not None:
            raise InvalidProblemError("up_bias is given without up, the weights that it goes with")
        if views["up"] is None and desc.activation == "swiglu_oai":
            raise InvalidProblemError("swiglu_oai needs up, the weights that its gate multiplies")

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        if arrays["up"] is None and desc.activation == "swiglu_oai":
            arrays["up"] = np.flip(arrays["gate"], 0).copy()
        if arrays["up"] is None:
            arrays["up_bias"] = None

    @staticmethod
    def case(draw: Any) -> MoeDecodeDescriptor:
        return MoeDecodeDescriptor(
            tokens=draw.sizes(1, 3, 0, 5, 16), k=draw.integer(1, 3), experts=draw.integer(0, 4),
            d=draw.sizes(8, 64, 5, 0, 72), f=draw.sizes(16, 40, 7, 0, 72), d_out=draw.sizes(8, 1, 24, 72),
            activation=draw.choice(UNITS), element=draw.element,
        )  # fmt: skip

    @classmethod
    def flops(cls, desc: MoeDecodeDescriptor) -> int:
        return 2 * desc.tokens * desc.k * desc.f * (2 * desc.d + desc.d_out)

    @classmethod
    def bytes(cls, desc: MoeDecodeDescriptor) -> int:
        """The matrices of the experts that are chosen, if they are all different, of both halves and the way back."""
        return min(desc.experts, desc.tokens * desc.k) * desc.f * (2 * desc.d + desc.d_out) * desc.element.itemsize


moe_decode = functional(MoeDecodePlan)
