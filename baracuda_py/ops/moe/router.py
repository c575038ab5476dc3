"""moe_router: the experts of each token and their weights, from the logits of a mixture's gate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...calls.functional import functional
from ...core import (
    Args, Array, Descriptor, ElementKind, Exact, Geometry, Guarantee, InvalidProblemError, Kernel, Params, PerOutput,
    Plan, Problem, Relative, Scalar, Step, Variant, Vjp, choice, element, extent, flag, integer, operand, output,
    scalar,
)  # fmt: skip
from ...core.benchmark import Benchmark
from ...core.element import INDICES
from ...schedules.geometry import grid, strides_of

WARPS = 4  # tokens of a block
PARTS = (1, 2, 4, 8, 16, 32)  # experts of a lane
MOST = 32 * PARTS[-1]
MOST_GROUPS = 32  # one for each lane


@dataclass(frozen=True, kw_only=True)
class MoeRouterDescriptor(Descriptor):
    """logits are [tokens, experts], at most 1024 experts, of which each token takes k.

    scoring: softmax or sigmoid of the logits. group_count groups of neighbouring experts, of which the top_groups best
    have what is chosen; group_scoring: a group counts as its best expert (max) or the sum of its two best (top2).
    normalize: weights are divided by their sum.
    """

    tokens: int = extent()
    experts: int = extent(minimum=1)
    k: int = extent(minimum=1)
    scoring: str = choice(("softmax", "sigmoid"), "softmax")
    group_count: int = integer(1, minimum=1, maximum=MOST_GROUPS)
    top_groups: int = integer(1, minimum=1)
    group_scoring: str = choice(("max", "top2"), "max")
    normalize: bool = flag(False)
    index_element: ElementKind = element(INDICES[::-1], ElementKind.I64)
    element: ElementKind = element()

    def validate(self) -> None:
        if self.experts > MOST:
            raise InvalidProblemError(f"experts must be at most {MOST}, got {self.experts}")
        if self.experts % self.group_count:
            raise InvalidProblemError(f"group_count must divide {self.experts} experts, got {self.group_count}")
        if self.top_groups > self.group_count:
            raise InvalidProblemError(
                f"top_groups must be at most group_count = {self.group_count}, got {self.top_groups}"
            )
        if self.k > self.seen:
            raise InvalidProblemError(f"k must be at most {self.seen}, the experts of top_groups groups, got {self.k}")

    @property
    def of_group(self) -> int:
        """Experts of a group."""
        return self.experts // self.group_count

    @property
    def seen(self) -> int:
        """Experts that a token may get."""
        return self.of_group * self.top_groups


def random_logits(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> Any:
    """For tests: eighths, so that some are equal, and none almost; of float64, which is differentiated, none is.

    None is so large that its sigmoid is 1: then it would be equal to others in float64, but not in a wider reference.
    """
    if desc.element is ElementKind.F64:
        return np.argsort(rng.random(shape), axis=-1) / max(16, shape[-1] / 8) - 3
    return rng.integers(-40, 40, shape) / 8


def random_bias(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> Any:
    """For tests: 64ths."""
    return rng.integers(-32, 32, shape) / 64


@dataclass(slots=True, kw_only=True)
class MoeRouterArgs(Args):
    """Any strides. bias is added to the scores where experts are chosen, and not in the weights."""

    logits: Array = operand("tokens experts", values=random_logits)
    bias: Array | None = operand("experts", element="acc", optional=True, values=random_bias)
    weights: Array = output("tokens k", element="acc")
    indices: Array = output("tokens k", element="index_element")
    scale: Scalar = scalar(1.0)


def scores_of(desc: MoeRouterDescriptor, logits: Any) -> Any:
    """softmax or sigmoid along the last axis."""
    with np.errstate(all="ignore"):
        if desc.scoring == "sigmoid":
            return 1 / (1 + np.exp(-logits))
        e = np.exp(logits - logits.max(-1, keepdims=True, initial=-np.inf))
        return e / e.sum(-1, keepdims=True)


def _best(keys: Any, count: int) -> Any:
    """The places of the largest, in order, of equal ones the lowest first."""
    return np.argsort(-keys, axis=-1, kind="stable")[..., :count]


def chosen(desc: MoeRouterDescriptor, logits: Any, scores: Any, bias: Any) -> Any:
    """The experts of each token [tokens, k]. Without bias and sums logits are compared: rounding makes none equal."""
    grouped = desc.group_count > 1
    keys = logits if bias is None and not (grouped and desc.group_scoring == "top2") else scores
    with np.errstate(all="ignore"):
        keys = keys if bias is None else keys + bias
        keys = np.where(np.isnan(keys), -np.inf, keys)
        if grouped:
            groups = keys.reshape(desc.tokens, desc.group_count, desc.of_group)
            ordered = -np.sort(-groups, axis=-1)
            best = ordered[..., 0]
            if desc.group_scoring == "top2" and desc.of_group > 1:
                best = best + ordered[..., 1]
            own = np.zeros((desc.tokens, desc.group_count), bool)
            np.put_along_axis(own, _best(np.where(np.isnan(best), -np.inf, best), desc.top_groups), True, axis=1)
            own = np.repeat(own, desc.of_group, axis=1)
            # experts of other groups stand behind all, whatever their keys
            order = np.lexsort((np.broadcast_to(np.arange(desc.experts), keys.shape), -keys, ~own), axis=-1)
            return order[:, : desc.k]
    return _best(keys, desc.k)


def reference(
    desc: MoeRouterDescriptor, *, logits: Any, bias: Any, scale: Any
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype the logits come in."""
    scores = scores_of(desc, logits)
    indices = chosen(desc, logits, scores, bias)
    weights = np.take_along_axis(scores, indices, -1)
    with np.errstate(all="ignore"):
        if desc.normalize:
            weights = weights / weights.sum(-1, keepdims=True)
        return {"weights": weights * weights.dtype.type(scale), "indices": indices}


FIELDS: dict[str, Any] = {
    "logits": "ptr", "indices": "ptr", "scale": "scalar", "logit_steps": "i64[2]", "index_steps": "i64[2]",
    "tokens": "i64", "experts": "i32", "k": "i32", "wide": "i32", "sigmoid": "i32", "normalize": "i32",
    "router_warps": WARPS,
}  # fmt: skip
PARAMS = Params(
    "MoeRouterParams", weights="ptr", bias="ptr", weight_steps="i64[2]", bias_step="i64", groups="i32", of_group="i32",
    of_group_inverse="i32", lane_bits="i32", top_groups="i32", top2="i32", by_score="i32", **FIELDS,
)  # fmt: skip


def parts_of(experts: int) -> int:
    """Experts of a lane, of those that kernels are made for."""
    return next(n for n in PARTS if 32 * n >= experts)


def shared(p: Problem) -> dict[str, Any]:
    """What forward and backward are told."""
    desc = p.desc
    return {
        "logit_steps": p.logits.strides, "index_steps": p.indices.strides, "tokens": desc.tokens,
        "experts": desc.experts, "k": desc.k, "wide": desc.index_element is ElementKind.I64,
        "sigmoid": desc.scoring == "sigmoid", "normalize": desc.normalize,
    }  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    top2 = desc.group_scoring == "top2" and desc.group_count > 1
    params = {
        **shared(p), "weight_steps": p.weights.strides, "bias_step": strides_of(p.bias, 1)[0],
        "groups": desc.group_count, "of_group": desc.of_group, "of_group_inverse": -(-(1 << 20) // desc.of_group),
        "lane_bits": (32 // desc.group_count).bit_length() - 1, "top_groups": desc.top_groups, "top2": top2,
        "by_score": p.bias is not None or top2,
    }  # fmt: skip
    step = Step("router", grid(-(-desc.tokens // WARPS)), params, {"PARTS": parts_of(desc.experts)}, 32 * WARPS)
    dense = all(v.dense for v in (p.logits, p.weights, p.indices))
    return Geometry((step,), layout="contiguous" if dense else "strided")


def in_torch(torch: Any, desc: MoeRouterDescriptor, *, logits: Any, bias: Any, scale: Any) -> Any:
    """torch's operations; its order of equal ones is that of a stable sort."""
    scores = logits.sigmoid() if desc.scoring == "sigmoid" else logits.softmax(-1)
    plain = bias is None and not (desc.group_count > 1 and desc.group_scoring == "top2")
    keys = (logits if plain else scores).detach()
    keys = keys if bias is None else keys + bias
    keys = keys.masked_fill(keys.isnan(), -torch.inf)
    own = torch.zeros_like(keys, dtype=torch.bool)
    if desc.group_count > 1:
        groups = keys.unflatten(-1, (desc.group_count, desc.of_group))
        top2 = desc.group_scoring == "top2"
        best = groups.topk(min(1 + top2, desc.of_group), -1)[0].sum(-1)
        best = best.masked_fill(best.isnan(), -torch.inf)
        order = torch.sort(best, dim=-1, descending=True, stable=True)[1][..., : desc.top_groups]
        left = torch.ones_like(best, dtype=torch.bool).scatter(-1, order, False)
        own = left.repeat_interleave(desc.of_group, -1)
    order = torch.sort(keys, dim=-1, descending=True, stable=True)[1]
    late = own.gather(-1, order).to(torch.int8)
    order = order.gather(-1, torch.sort(late, dim=-1, stable=True)[1])
    indices = order[..., : desc.k]
    weights = scores.gather(-1, indices)
    if desc.normalize:
        weights = weights / weights.sum(-1, keepdim=True)
    return {"weights": weights * scale, "indices": indices}


def drawn(draw: Any) -> MoeRouterDescriptor:
    """A random problem."""
    groups = draw.choice((1, 1, 2, 4, 8))
    of_group = draw.sizes(1, 2, 3, 5, 32, 64, rare=(128,)) if groups == 1 else draw.sizes(1, 2, 3, 8, 32)
    if groups == 1 and draw.rarely():
        of_group = draw.choice((257, 600, 1024))
    top = draw.integer(1, groups)
    return MoeRouterDescriptor(
        tokens=draw.sizes(0, 1, 3, 5, 9), experts=groups * of_group, k=min(draw.integer(1, 9), of_group * top),
        scoring=draw.choice(("softmax", "sigmoid")), group_count=groups, top_groups=top,
        group_scoring=draw.choice(("max", "top2")), normalize=draw.flag(),
        index_element=draw.choice(INDICES), element=draw.element,
    )  # fmt: skip


def kernels(name: str, params: Params) -> tuple[Kernel, ...]:
    """Of a pass: one for each number of experts of a lane."""
    return (Kernel(name, f"moe_{name}<{{T}}, {{PARTS}}>", params, {"PARTS": PARTS}, threads=32 * WARPS),)


class MoeRouterPlan(Plan):
    """(weights, indices) [tokens, k]: each token's experts, best first, and `scale` times their scores.

    scores = softmax(logits) or sigmoid(logits), in float32 (float64 for float64). The k best of scores + bias are
    chosen (without a bias, and groups by sums, of the logits, which are in the same order), of equal ones the lowest
    number; where scores are compared, those are equal that rounding makes so, as the sigmoid of large logits, which is
    1. bias has no part in the weights (DeepSeek-V3's balance without a loss). Of group_count groups of neighbours only
    the top_groups best take part: by their best expert (DeepSeek-V2) or the sum of their two best (V3). With normalize
    a token's weights are divided by their sum, which of a softmax is that of the chosen logits (Mixtral, gpt-oss). At
    most 1024 experts and 32 groups. The gradient is that of the weights.
    """

    op = "moe.moe_router"
    descriptor = MoeRouterDescriptor
    args = MoeRouterArgs
    reference = staticmethod(reference)
    value_policy = "NaN counts as -inf where experts are chosen, which are always k different ones"
    variants = (
        Variant(
            "warps", _geometry, source="moe/router.cu", kernels=kernels("router", PARAMS),
            guarantee=Guarantee(
                PerOutput((("weights", Relative(2)), ("indices", Exact()))), batch_invariant=True, native=True
            ),
        ),
    )  # fmt: skip
    vjp = Vjp("MoeRouterBackwardPlan", grads={"logits": "dlogits"})
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark("8 of 256, 8192 tokens, sigmoid, 4 of 8 groups f32", also=("bias",), tokens=8192, experts=256, k=8,
                  scoring="sigmoid", group_count=8, top_groups=4, group_scoring="top2", normalize=True,
                  element="float32", target=None),
        Benchmark("8 of 128, 8192 tokens, softmax bf16", tokens=8192, experts=128, k=8, normalize=True,
                  element="bfloat16", target=None),
        Benchmark("8 of 256, 16 tokens f32", tokens=16, experts=256, k=8, normalize=True, element="float32",
                  target=None),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> MoeRouterDescriptor:
        return drawn(draw)


moe_router = functional(MoeRouterPlan, "moe_router", returns=("weights", "indices"))
