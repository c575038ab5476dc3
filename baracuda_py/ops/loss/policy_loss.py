"""policy_loss: clipped policy-gradient losses of tokens (PPO, GRPO, DAPO, GSPO), and the clipped loss of values."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Geometry, Guarantee, InvalidProblemError, Kernel, Params, Plan, Problem,
    Relative, Step, Variant, Vjp, choice, derived, element, extent, number, operand, output,
)  # fmt: skip
from ...core.benchmark import Benchmark
from ...core.tensor import Shape, broadcast_shape
from ...core.variant import aligned

REDUCTIONS = ("none", "sum", "token_mean", "sequence_mean", "length_mean")
ESTIMATORS = ("k1", "k2", "k3")
LEVELS = ("token", "sequence")
TOKENS = "batch tokens"
THREADS, CHUNK = 256, 2048  # tokens that a block adds up
_FINISHERS = 512
_PART = 5  # numbers of a chunk: what counts, the loss, clipped tokens, and the two divergences


class PolicyLossKind(enum.Enum):
    """What is clipped."""

    POLICY = "policy"
    VALUE = "value"


K = PolicyLossKind


@dataclass(frozen=True, kw_only=True)
class PolicyLossDescriptor(Descriptor):
    """Operands have shape (batch, tokens); the loss has shape () or, with reduction "none", that of the operands.

    reduction: "token_mean" divides the sum by the number of tokens that count (DAPO), "sequence_mean" is the mean over
    sequences of their tokens' means (GRPO), "length_mean" divides the sum by batch × max_length (Dr. GRPO), "sum" by
    nothing. epsilon_low, epsilon_high: how far the ratio may go below and above 1 (of values: the value, from the old
    one). delta: the ratio's upper bound whatever the advantage (dual clip); 0 is none. beta: of the divergence from the
    reference model, estimated by kl_estimator. importance_sampling_level: a ratio a token, or one a sequence (GSPO).
    entropy_coef: of the entropy bonus. beta and entropy_coef count where `reference` and `entropy` are there.
    """

    kind: PolicyLossKind = choice(PolicyLossKind)
    batch: int = extent()
    tokens: int = extent()
    reduction: str = choice(REDUCTIONS, "token_mean")
    epsilon_low: float = number(0.2, minimum=0.0)
    epsilon_high: float = number(derived(lambda desc: desc.epsilon_low), minimum=0.0)
    delta: float = number(0.0, minimum=0.0)
    beta: float = number(0.0)
    kl_estimator: str = choice(ESTIMATORS, "k3")
    importance_sampling_level: str = choice(LEVELS, "token")
    entropy_coef: float = number(0.0)
    max_length: int = extent(derived(lambda desc: desc.tokens))
    element: ElementKind = element()

    def validate(self) -> None:
        if self.kind is not K.VALUE:
            return
        for name, usual in (("delta", 0), ("beta", 0), ("entropy_coef", 0), ("importance_sampling_level", "token")):
            if getattr(self, name) != usual:
                raise InvalidProblemError(
                    f"the loss of values has no {name}; it must be {usual}, got {getattr(self, name)}"
                )

    @property
    def loss_shape(self) -> Shape:
        """One loss a token, or one in all."""
        return (self.batch, self.tokens) if self.reduction == "none" else ()

    @property
    def loss_element(self) -> ElementKind:
        """The operands' element for losses of tokens; their means and sums are in the accumulator's."""
        return self.element if self.reduction == "none" else self.acc

    @property
    def chunks(self) -> int:
        """Blocks that a sequence is added up by."""
        return -(-self.tokens // CHUNK)

    @property
    def per_sequence(self) -> bool:
        """Whether a sequence has one ratio."""
        return self.importance_sampling_level == "sequence"


def random_logs(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> Any:
    """Test data: logarithms of probabilities of two models that are not far apart."""
    return -rng.uniform(0.0, 1.0, shape)


TOKEN_KINDS = (K.POLICY,)


@dataclass(slots=True, kw_only=True)
class PolicyLossArgs(Args):
    """Any strides. policy, old, reference: log-probabilities of the tokens by the model, by the one that made them, and
    by the reference model; of the kind "value", policy and old are values and advantages what they should be (returns).

    advantages broadcast: (batch, 1) is one a sequence. mask: the tokens that count, by default all. entropy: of the
    tokens' distributions. clip_fraction: the part of the tokens at which the clipped term was taken and is another;
    approx_kl: the mean of ratio - 1 - log ratio; kl: that of the divergence from the reference model.
    """

    policy: Array = operand(TOKENS, values=random_logs)
    old: Array = operand(TOKENS, values=random_logs)
    advantages: Array = operand(TOKENS, broadcast=True)
    reference: Array | None = operand(TOKENS, kinds=TOKEN_KINDS, optional=True, values=random_logs)
    mask: Array | None = operand(TOKENS, element=ElementKind.BOOL, optional=True)
    entropy: Array | None = operand(TOKENS, kinds=TOKEN_KINDS, optional=True, values=random_logs)
    loss: Array = output("*loss_shape", element="loss_element")
    clip_fraction: Array | None = output(element="acc", optional=True)
    approx_kl: Array | None = output(element="acc", optional=True, kinds=TOKEN_KINDS)
    kl: Array | None = output(element="acc", optional=True, kinds=TOKEN_KINDS, needs="reference")


class Terms(NamedTuple):
    """Of every token: its loss, the slope by the logarithm of its ratio (or by its value), whether it is clipped,
    and the divergence from the reference model with its slope by `policy`."""

    loss: Any
    slope: Any
    clipped: Any
    kl: Any
    kl_slope: Any


def counted(desc: Any, mask: Any) -> tuple[Any, Any]:
    """Which tokens count, and how many of each sequence, 1 at least, [batch, 1]."""
    seen = np.ones((desc.batch, desc.tokens), bool) if mask is None else mask
    return seen, np.maximum(seen.sum(1, keepdims=True), 1)


def _halves(less: Any, more: Any, first: Any, second: Any) -> Any:
    """The slope of the lesser of two terms; of equal ones the mean of both."""
    return np.where(less, first, np.where(more, second, (first + second) / 2))


def terms_of(desc: Any, policy: Any, old: Any, advantages: Any, reference: Any, mask: Any, entropy: Any) -> Terms:
    """By NumPy, in the dtype of policy."""
    none = np.zeros_like(policy)
    if desc.kind is K.VALUE:
        low, high = old - policy.dtype.type(desc.epsilon_low), old + policy.dtype.type(desc.epsilon_high)
        far, near = policy - advantages, np.minimum(np.maximum(policy, low), high) - advantages
        inside = (policy >= low) & (policy <= high)
        a, b = far * far, near * near
        slope = _halves(a > b, b > a, far, np.where(inside, near, 0))
        return Terms(np.maximum(a, b) / 2, slope, b > a, none, none)
    s = policy - old
    if desc.per_sequence:
        seen, count = counted(desc, mask)
        s = np.broadcast_to(np.where(seen, s, 0).sum(1, keepdims=True) / count.astype(s.dtype), s.shape)
    r = np.exp(s)
    low, high = 1 - desc.epsilon_low, 1 + desc.epsilon_high
    capped = np.minimum(r, desc.delta) if desc.delta else r
    a, b = capped * advantages, np.minimum(np.maximum(r, low), high) * advantages
    first = np.where(r <= desc.delta, advantages, 0) if desc.delta else advantages
    second = np.where((r >= low) & (r <= high), advantages, 0)
    slope = _halves(a < b, b < a, first, second)
    slope = np.where((slope == 0) & ~np.isnan(r), 0, -slope * r)
    loss, kl, kl_slope = -np.minimum(a, b), none, none
    if reference is not None:
        d = reference - policy
        kl, kl_slope = {
            "k1": lambda: (-d, np.ones_like(d)), "k2": lambda: (d * d / 2, -d),
            "k3": lambda: (np.expm1(d) - d, -np.expm1(d)),
        }[desc.kl_estimator]()  # fmt: skip
        loss = loss + desc.beta * kl if desc.beta else loss
    loss = loss - desc.entropy_coef * entropy if entropy is not None else loss
    return Terms(loss.astype(policy.dtype), slope.astype(policy.dtype), b < a, kl, kl_slope)


def reference(
    desc: PolicyLossDescriptor, *, policy: Any, old: Any, advantages: Any, reference: Any, mask: Any, entropy: Any,
    wanted: set[str],
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype policy comes in."""
    with np.errstate(all="ignore"):
        found = terms_of(desc, policy, old, advantages, reference, mask, entropy)
        seen, count = counted(desc, mask)
        every = max(int(seen.sum()), 1)

        def added(x: Any) -> Any:
            return np.where(seen, x, 0).astype(policy.dtype)

        s = policy - old
        loss = added(found.loss)
        if desc.reduction == "sequence_mean":
            loss = (loss.sum(1, keepdims=True) / count.astype(loss.dtype)).sum() / loss.dtype.type(desc.batch)
        elif desc.reduction != "none":
            loss = loss.sum() / loss.dtype.type(divisor_of(desc, every))
        made = {
            "loss": loss, "clip_fraction": added(found.clipped).sum() / every,
            "approx_kl": added(np.expm1(s) - s).sum() / every, "kl": added(found.kl).sum() / every,
        }  # fmt: skip
        return {name: one for name, one in made.items() if name == "loss" or name in wanted}


def divisor_of(desc: Any, every: int) -> int:
    """What the sum of the tokens' losses is divided by."""
    return int({"token_mean": every, "length_mean": desc.batch * desc.max_length}.get(desc.reduction, 1))


def in_torch(
    torch: Any, desc: PolicyLossDescriptor, *, policy: Any, old: Any, advantages: Any, reference: Any, mask: Any,
    entropy: Any, wanted: set[str],
) -> Any:  # fmt: skip
    """The papers' formulas in torch."""
    seen = torch.ones_like(policy, dtype=torch.bool) if mask is None else mask
    count, every = seen.sum(1, keepdim=True).clamp(min=1), seen.sum().clamp(min=1)
    s, kl = policy - old, torch.zeros_like(policy)

    def added(x: Any) -> Any:
        return torch.where(seen, x, torch.zeros_like(x))

    moved = torch.expm1(s) - s
    if desc.kind is K.VALUE:
        near = torch.minimum(torch.maximum(policy, old - desc.epsilon_low), old + desc.epsilon_high)
        a, b = -((policy - advantages) ** 2) / 2, -((near - advantages) ** 2) / 2
    else:
        s = (added(s).sum(1, keepdim=True) / count).expand_as(s) if desc.per_sequence else s
        r = s.exp()
        a = (r.clamp(max=desc.delta) if desc.delta else r) * advantages
        b = r.clamp(1 - desc.epsilon_low, 1 + desc.epsilon_high) * advantages
    loss = -torch.minimum(a, b)
    if reference is not None:
        d = reference - policy
        kl = -d if desc.kl_estimator == "k1" else d * d / 2 if desc.kl_estimator == "k2" else torch.expm1(d) - d
        loss = loss + desc.beta * kl
    loss = added(loss if entropy is None else loss - desc.entropy_coef * entropy)
    if desc.reduction == "sequence_mean":
        loss = (loss.sum(1, keepdim=True) / count).sum() / desc.batch if desc.batch else loss.sum() * torch.nan
    elif desc.reduction != "none":
        divisor = every if desc.reduction == "token_mean" else divisor_of(desc, 1)
        loss = loss.sum() / torch.as_tensor(divisor, device=loss.device)
    wide = torch.promote_types(policy.dtype, torch.float32)
    made = {"loss": loss if desc.reduction == "none" else loss.to(wide)}
    means = {"clip_fraction": (b < a).to(wide), "approx_kl": moved.to(wide), "kl": kl.to(wide)}
    return made | {name: added(x).sum() / every for name, x in means.items() if name in wanted}


_OPERANDS = ("policy", "old", "advantages", "reference", "mask", "entropy")
FIELDS: dict[str, str | int] = {
    **dict.fromkeys(_OPERANDS, "ptr"), "step": "i64[6][2]", "policy_threads": THREADS, "policy_chunk": CHUNK,
    **dict.fromkeys(("rows", "tokens", "chunks"), "i64"),
    **dict.fromkeys(("low", "high", "delta", "beta", "bonus", "divisor"), "f64"),
    **dict.fromkeys(("value", "estimator", "per_sequence", "per_token", "by_row", "by_count"), "i32"),
}  # fmt: skip
SCALE = {"dloss": "ptr", "dstep": "i64[2]", "counts": "ptr", "total": "ptr"}
ROWS = Params("PolicyRowsParams", **FIELDS, **SCALE, loss="ptr", loss_step="i64[2]", parts="workspace", what="i32")
FINISH = Params(
    "PolicyFinishParams", **dict.fromkeys(("loss", "clip_fraction", "approx_kl", "kl"), "ptr"), parts="workspace",
    total="ptr", rows="i64", chunks="i64", divisor="f64", by_row="i32", by_count="i32", lanes="i32",
)  # fmt: skip
FORWARD_KERNELS = (
    Kernel("policy_rows", "policy_rows<{T}>", ROWS, threads=THREADS, min_blocks=3, kindless=True),
    Kernel("policy_finish", "policy_finish<{T}>", FINISH, threads=_FINISHERS, kindless=True),
)
COUNTS, TERMS, SLOPES = range(3)  # what policy_rows adds up


def constants(p: Problem) -> dict[str, Any]:
    """What the kernels of tokens are told of the problem."""
    desc = p.desc
    views = [p.views[name] for name in _OPERANDS]
    steps = [[0, 0] if v is None else list(v.broadcast_to((desc.batch, desc.tokens)).strides) for v in views]
    centre = 0.0 if desc.kind is K.VALUE else 1.0
    return {
        "step": steps, "rows": desc.batch, "tokens": desc.tokens, "chunks": desc.chunks,
        "low": centre - desc.epsilon_low, "high": centre + desc.epsilon_high, "delta": desc.delta, "beta": desc.beta,
        "bonus": desc.entropy_coef, "value": int(desc.kind is K.VALUE), "per_sequence": int(desc.per_sequence),
        "estimator": ESTIMATORS.index(desc.kl_estimator), "per_token": int(desc.reduction == "none"), **division(desc),
    }  # fmt: skip


def division(desc: Any) -> dict[str, Any]:
    """How the sum of the losses is divided."""
    by_row = desc.reduction == "sequence_mean"
    return {
        "divisor": float(desc.batch if by_row else divisor_of(desc, 1)), "by_row": int(by_row),
        "by_count": int(desc.reduction == "token_mean"),
    }  # fmt: skip


def part_bytes(desc: Any) -> int:
    """Bytes of the sums of all chunks."""
    return aligned(max(desc.batch * desc.chunks, 1) * _PART * desc.acc.itemsize)


def rows_step(p: Problem, what: int, facts: Mapping[str, Any]) -> Step:
    """A launch over all chunks; `facts` says where what it takes and gives is."""
    absent = {"loss": "@null", "loss_step": [0, 0], "dloss": "@null", "dstep": [0, 0], "counts": "@null"}
    at = {**constants(p), **absent, "total": "@null", "what": what, **facts}
    return Step("policy_rows", (p.desc.batch * p.desc.chunks, 1, 1), at, {}, THREADS)


def finish_step(p: Problem, facts: Mapping[str, Any]) -> Step:
    """The launch that adds up the chunks' sums."""
    at = {
        **division(p.desc), "rows": p.desc.batch, "chunks": p.desc.chunks, "lanes": 32 if p.desc.chunks > 2 else 1,
        **dict.fromkeys(("loss", "clip_fraction", "approx_kl", "kl", "total"), "@null"), **facts,
    }  # fmt: skip
    return Step("policy_finish", (1, 1, 1), at, {}, _FINISHERS)


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    layout = "contiguous" if all(v.dense for v in p.flat()) else "strided"
    size, per_token = part_bytes(desc), desc.reduction == "none"
    steps: list[Step] = []
    facts: dict[str, Any] = {"parts": 0}
    if desc.batch and desc.tokens:
        if desc.per_sequence:
            steps.append(rows_step(p, COUNTS, {"parts": size}))
            facts["counts"] = ("@workspace", size)
        if per_token:
            facts |= {"loss": "loss", "loss_step": list(p.loss.strides)}
        steps.append(rows_step(p, TERMS, facts))
    results = [name for name in ("clip_fraction", "approx_kl", "kl") if p.views[name] is not None]
    results += [] if per_token else ["loss"]
    if results:
        steps.append(finish_step(p, {"parts": 0, **{name: name for name in results}}))
    return Geometry(tuple(steps), size * (1 + desc.per_sequence), layout)


class PolicyLossPlan(Plan):
    """The clipped surrogate of log-probabilities of tokens, or the clipped squared error of values (kind "value").

    policy: with r = exp(policy - old), or of its mean over the sequence's tokens (GSPO, Zheng et al. 2025), the term is
    -min(min(r, delta) A, clip(r, 1 - epsilon_low, 1 + epsilon_high) A) + beta KL - entropy_coef H (Schulman et al.
    2017; epsilon_high above epsilon_low is DAPO's, Yu et al. 2025; delta is the dual clip, Ye et al. 2020). KL of a
    token, with d = reference - policy: k1 -d, k2 d² / 2, k3 exp(d) - 1 - d (GRPO's, Shao et al. 2024; Schulman 2020).
    value: max((v - R)², (clip(v, old - epsilon_low, old + epsilon_high) - R)²) / 2.

    A token that mask leaves out is not used, whatever it is. A sequence of which nothing counts has a mean of 0, as
    has a batch; the mean of no sequences is NaN. Terms are computed and added in float32 (float64 of float64), chunks
    of 2048 tokens at a time, in an order that extents alone fix.
    """

    op = "loss.policy_loss"
    kinds = PolicyLossKind
    descriptor = PolicyLossDescriptor
    args = PolicyLossArgs
    reference = staticmethod(reference)
    vjp = Vjp("PolicyLossBackwardPlan", grads={"policy": "dpolicy", "entropy": "dentropy"})
    variants = (
        Variant(
            "chunks", _geometry, source="loss/policy_loss.cu", kernels=FORWARD_KERNELS,
            guarantee=Guarantee(Relative(2), batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = tuple(
        Benchmark(f"policy, {level} ratios, [512, 8192] f32", kind="policy", batch=512, tokens=8192, beta=0.04,
                  importance_sampling_level=level, element="float32", also=("reference", "mask"))
        for level in LEVELS
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> PolicyLossDescriptor:
        return PolicyLossDescriptor(kind=draw.kind, **policy_case(draw), element=draw.element)

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        whole = broadcast_shape(shapes, ("policy", "old"))
        if len(whole) == 2:
            facts.setdefault("batch", whole[0])
            facts.setdefault("tokens", whole[1])

    @classmethod
    def coupled(cls, desc: Any) -> bool:
        """A mean divides by the number of all items."""
        return desc.reduction not in ("none", "sum")


def policy_case(draw: Any) -> dict[str, Any]:
    """Short sequences; rarely one of several chunks, or of more than a warp adds at once."""
    facts: dict[str, Any] = {"batch": draw.integer(0, 4), "tokens": draw.sizes(7, 0, 1, 40, 300)}
    if draw.rarely():
        facts |= {"batch": draw.integer(1, 2), "tokens": draw.choice((2049, 6200))}
    facts["reduction"] = draw.choice(REDUCTIONS)
    facts["epsilon_low"] = draw.choice((0.2, 0.1))
    facts["epsilon_high"] = draw.choice((0.2, 0.28))
    if facts["reduction"] == "length_mean":
        facts["max_length"] = facts["tokens"] + draw.integer(1, 3)
    if draw.kind is K.POLICY:
        facts |= {
            "delta": draw.choice((0.0, 1.5)), "kl_estimator": draw.choice(ESTIMATORS),
            "importance_sampling_level": draw.choice(LEVELS), "beta": draw.choice((0.0, 0.3)),
            "entropy_coef": draw.choice((0.0, 0.1)),
        }  # fmt: skip
    return facts
