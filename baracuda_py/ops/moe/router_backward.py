"""Gradient of moe_router with respect to the logits, from the experts chosen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...calls.functional import functional
from ...core import (
    Args, Array, Geometry, Guarantee, Params, Plan, Problem, Relative, Scalar, Step, Variant, operand, output, scalar,
)  # fmt: skip
from ...core.benchmark import Benchmark
from ...schedules.geometry import grid
from .router import FIELDS, WARPS, MoeRouterDescriptor, chosen, drawn, kernels, parts_of, scores_of, shared


def random_choices(rng: np.random.Generator, desc: MoeRouterDescriptor, shape: tuple[int, ...]) -> Any:
    """For tests: k different experts for each token."""
    return np.argsort(rng.random((desc.tokens, desc.experts)), axis=-1)[:, : desc.k]


@dataclass(slots=True, kw_only=True)
class MoeRouterBackwardArgs(Args):
    """Any strides; indices and scale as the forward had them."""

    dweights: Array = operand("tokens k", element="acc")
    logits: Array = operand("tokens experts")
    indices: Array = operand("tokens k", element="index_element", values=random_choices)
    dlogits: Array = output("tokens experts")
    scale: Scalar = scalar(1.0)


def reference(
    desc: MoeRouterDescriptor, *, dweights: Any, logits: Any, indices: Any, scale: Any
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype the logits come in."""
    scores = scores_of(desc, logits)
    there = (indices >= 0) & (indices < desc.experts)
    at = np.where(there, indices, 0)
    with np.errstate(all="ignore"):
        slope = np.where(there, dweights.astype(logits.dtype) * logits.dtype.type(scale), 0)
        own = np.where(there, np.take_along_axis(scores, at, -1), 0)
        if desc.normalize:
            total = own.sum(-1, keepdims=True)
            slope = np.where(there, (slope - (slope * (own / total)).sum(-1, keepdims=True)) / total, 0)
        spread = np.zeros_like(logits)
        for t, j in np.argwhere(there):
            spread[t, at[t, j]] += slope[t, j]
        if desc.scoring == "sigmoid":
            dlogits = np.where(spread == 0, 0, spread * scores * (1 - scores))
        else:
            dlogits = scores * (spread - (slope * own).sum(-1, keepdims=True))
    return {"dlogits": dlogits}


PARAMS = Params(
    "MoeRouterBackwardParams", dweights="ptr", dlogits="ptr", grad_steps="i64[2]", out_steps="i64[2]", **FIELDS
)


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    params = {**shared(p), "grad_steps": p.dweights.strides, "out_steps": p.dlogits.strides}
    step = Step(
        "router_backward", grid(-(-desc.tokens // WARPS)), params, {"PARTS": parts_of(desc.experts)}, 32 * WARPS
    )
    dense = all(v.dense for v in p.flat())
    return Geometry((step,), layout="contiguous" if dense else "strided")


def in_torch(
    torch: Any, desc: MoeRouterDescriptor, *, dweights: Any, logits: Any, indices: Any, scale: Any
) -> Any:  # fmt: skip
    """The gradient of the weights of these experts, whatever chose them."""
    there = (indices >= 0) & (indices < desc.experts)
    at = indices.clamp(0, desc.experts - 1).to(torch.int64)
    scores = logits.sigmoid() if desc.scoring == "sigmoid" else logits.softmax(-1)
    own, slope = scores.gather(-1, at) * there, dweights.to(logits.dtype) * scale * there
    if desc.normalize:
        total = own.sum(-1, keepdim=True)
        slope = (slope - (slope * own).sum(-1, keepdim=True) / total) / total * there
    spread = torch.zeros_like(logits).scatter_add(-1, at, slope)
    if desc.scoring == "sigmoid":
        return {"dlogits": spread * scores * (1 - scores)}
    return {"dlogits": scores * (spread - (slope * own).sum(-1, keepdim=True))}


class MoeRouterBackwardPlan(Plan):
    """dlogits [tokens, experts] of `moe_router`'s weights: the experts chosen are constants.

    With ds the gradient of the scores (with normalize (g - Σ g w) / Σ s over the chosen, g = scale dweights and w their
    parts, else g) and 0 for experts not chosen: of softmax p (ds - Σ ds p), of sigmoid ds s (1 - s). An expert outside
    [0, experts) gives nothing.
    """

    op = "moe.moe_router_backward"
    direction = "backward"
    descriptor = MoeRouterDescriptor
    args = MoeRouterBackwardArgs
    reference = staticmethod(reference)
    value_policy = "an expert outside [0, experts) is left out"
    variants = (
        Variant(
            "warps", _geometry, source="moe/router_backward.cu", kernels=kernels("router_backward", PARAMS),
            guarantee=Guarantee(Relative(2), batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark("8 of 256, 8192 tokens, sigmoid f32", tokens=8192, experts=256, k=8, scoring="sigmoid",
                  normalize=True, element="float32", target=None),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> MoeRouterDescriptor:
        """As the forward's."""
        return drawn(draw)

    @classmethod
    def complete(cls, desc: MoeRouterDescriptor, arrays: dict[str, Any]) -> None:
        """indices become those that the forward gives."""
        logits = np.asarray(arrays["logits"]).astype(np.float64)
        found = chosen(desc, logits, scores_of(desc, logits), None)
        arrays["indices"] = np.ascontiguousarray(found.astype(desc.index_element.dtype))


moe_router_backward = functional(MoeRouterBackwardPlan)
