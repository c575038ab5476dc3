"""speculative_verify: which drafted tokens stay, and the token after them, for chains and trees of drafts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Exact, Geometry, Guarantee, Kernel, Params, Plan, Problem, Scalar, Step,
    Variant, element, extent, operand, output, scalar,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from .draws import streams
from .row_draw import draw as draw_row
from .row_draw import scale_bits
from .words import words64

I32, I64 = ElementKind.I32, ElementKind.I64
_POLICY = "NaN and negative probabilities count as 0; where a row has none above 0 the id is -1"


def _rows(rng: np.random.Generator, desc: Any, shape: Any) -> Any:
    weights = np.exp(2 * rng.standard_normal(shape))
    return weights / weights.sum(axis=-1, keepdims=True)


@dataclass(frozen=True, kw_only=True)
class VerifyChainDescriptor(Descriptor):
    """`steps` drafted tokens of each of batch_size sequences; targets says steps + 1 rows of probabilities."""

    batch_size: int = extent()
    steps: int = extent()
    vocab_size: int = extent(minimum=1)
    index_element: ElementKind = element((I32, I64), I64)
    element: ElementKind = element()

    @property
    def targets(self) -> int:
        """Rows of the target: one more than drafts."""
        return self.steps + 1


def _drafted(rng: np.random.Generator, desc: Any, shape: Any) -> Any:
    return rng.integers(-1, desc.vocab_size, shape, endpoint=True)


@dataclass(slots=True, kw_only=True)
class VerifyChainArgs(Args):
    """Any strides. Probabilities after the softmax and all cut-offs; seed and offset are 64-bit."""

    draft_ids: Array = operand("batch_size steps", element="index_element", values=_drafted)
    draft_probs: Array = operand("batch_size steps vocab_size", values=_rows)
    target_probs: Array = operand("batch_size targets vocab_size", values=_rows)
    ids: Array = output("batch_size targets", element="index_element")
    accepted: Array | None = output("batch_size", element=I32, optional=True)
    seed: Scalar = scalar(integer=True)
    offset: Scalar = scalar(0, integer=True)


def chain_reference(
    desc: VerifyChainDescriptor, *, draft_ids: Any, draft_probs: Any, target_probs: Any, seed: Any, offset: Any,
    wanted: set[str],
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy, sequence by sequence."""
    batch, steps = desc.batch_size, desc.steps
    words = words64(seed, offset, batch * (steps + 1)).reshape(batch, steps + 1)
    bits = scale_bits(desc.vocab_size)
    ids, accepted = np.full((batch, steps + 1), -1, np.int64), np.zeros(batch, np.int64)
    for b in range(batch):
        p, q = target_probs[b].astype(np.float64), draft_probs[b].astype(np.float64)
        stop = 0
        while stop < steps:
            token, u = int(draft_ids[b, stop]), float(words[b, stop] >> np.uint64(11)) * 2.0**-53
            if not 0 <= token < desc.vocab_size or not u * q[stop, token] < p[stop, token]:
                break
            ids[b, stop] = token
            stop += 1
        last = draw_row(p[stop] - q[stop], bits, int(words[b, steps])) if stop < steps else -1
        ids[b, stop] = last if last >= 0 else draw_row(p[stop], bits, int(words[b, steps]))
        accepted[b] = stop
    return {"ids": ids, "accepted": accepted.astype(np.int32)}


CHAIN_PARAMS = Params(
    "VerifyChainParams", draft_ids="ptr", draft_probs="ptr", target_probs="ptr", ids="ptr", accepted="ptr",
    status="status", seed="iscalar", offset="iscalar", steps="i64", cols="i64", ids_strides="i64[2]",
    draft_strides="i64[3]", target_strides="i64[3]", out_strides="i64[2]", accepted_stride="i64", bits="i32",
    wide="i32",
)  # fmt: skip
TREE_PARAMS = Params(
    "VerifyTreeParams", draft_ids="ptr", parents="ptr", target_probs="ptr", ids="ptr", path="ptr", accepted="ptr",
    status="status", seed="iscalar", offset="iscalar", nodes="i64", cols="i64", ids_strides="i64[2]",
    parent_strides="i64[2]", target_strides="i64[3]", out_strides="i64[2]", path_strides="i64[2]",
    accepted_stride="i64", bits="i32", wide="i32",
)  # fmt: skip


def _common(p: Problem) -> dict[str, Any]:
    return {
        "cols": p.desc.vocab_size, "ids_strides": p.draft_ids.strides, "target_strides": p.target_probs.strides,
        "out_strides": p.ids.strides, "accepted_stride": 0 if p.accepted is None else p.accepted.strides[0],
        "bits": scale_bits(p.desc.vocab_size), "wide": p.desc.index_element is I64,
    }  # fmt: skip


def _chain_geometry(p: Problem) -> Geometry:
    params = {**_common(p), "steps": p.desc.steps, "draft_strides": p.draft_probs.strides}
    step = Step("chain", (p.desc.batch_size, 1, 1), params, {}, 1024)
    return Geometry((step,), layout="contiguous" if p.target_probs.dense else "strided")


def _variant(name: str, geometry: Any, params: Params) -> Variant:
    return Variant(
        name, geometry, source=f"random/verify_{name}.cu", guarantee=Guarantee(Exact()),
        kernels=(Kernel(name, f"verify_{name}<{{T}}>", params, {}, 1024),),
    )  # fmt: skip


class VerifyChainPlan(Plan):
    """ids [B, S + 1]: the drafted tokens that stay, one drawn after them, then -1; accepted [B] counts the first.

    Draft i of sequence b stays where u q < p for its probabilities q of the draft and p of the target. At the first
    that does not, a token is drawn from max(p - q, 0), and after the last from the target's row S: what comes out has
    the target's distribution (Leviathan, Kalman, Matias 2023; Chen et al. 2023). Word b (S + 1) + i of 64 bits of the
    Philox stream decides on draft i, and the last of them draws. A drafted id outside the row does not stay.
    """

    op = "random.verify_chain"
    descriptor = VerifyChainDescriptor
    args = VerifyChainArgs
    reference = staticmethod(chain_reference)
    value_policy = _POLICY
    variants = (_variant("chain", _chain_geometry, CHAIN_PARAMS),)
    benchmarks = (
        Benchmark(
            "4 drafts of 32 sequences, 131072 f32", batch_size=32, steps=4, vocab_size=131072, element="float32",
            make=lambda torch, desc: {"seed": 1, "offset": 0}, peers=(),
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> VerifyChainDescriptor:
        return VerifyChainDescriptor(
            batch_size=draw.integer(0, 4), steps=draw.integer(0, 4), vocab_size=draw.sizes(1, 5, 40, 1030),
            index_element=draw.choice((I32, I64)), element=draw.element,
        )  # fmt: skip

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        streams((desc.batch_size, desc.vocab_size), arrays)


@dataclass(frozen=True, kw_only=True)
class VerifyTreeDescriptor(Descriptor):
    """A tree of `nodes` drafted tokens for each of batch_size sequences; node 0 is the last token that stands."""

    batch_size: int = extent()
    nodes: int = extent(minimum=1)
    vocab_size: int = extent(minimum=1)
    index_element: ElementKind = element((I32, I64), I64)
    element: ElementKind = element()


def _few(rng: np.random.Generator, desc: Any, shape: Any) -> Any:
    return rng.integers(0, min(desc.vocab_size, 3), shape)


def _parents(rng: np.random.Generator, desc: Any, shape: Any) -> Any:
    return np.floor(rng.random(shape) * np.arange(shape[-1])).astype(np.int64) - (np.arange(shape[-1]) == 0)


@dataclass(slots=True, kw_only=True)
class VerifyTreeArgs(Args):
    """Any strides. parents: of each node one that comes before it (of node 0 it is not read); others have no parent."""

    draft_ids: Array = operand("batch_size nodes", element="index_element", values=_few)
    parents: Array = operand("batch_size nodes", element="index_element", values=_parents)
    target_probs: Array = operand("batch_size nodes vocab_size", values=_rows)
    ids: Array = output("batch_size nodes", element="index_element")
    path: Array | None = output("batch_size nodes", element="index_element", optional=True)
    accepted: Array | None = output("batch_size", element=I32, optional=True)
    seed: Scalar = scalar(integer=True)
    offset: Scalar = scalar(0, integer=True)


def tree_reference(
    desc: VerifyTreeDescriptor, *, draft_ids: Any, parents: Any, target_probs: Any, seed: Any, offset: Any,
    wanted: set[str],
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy, sequence by sequence and node by node."""
    batch, nodes = desc.batch_size, desc.nodes
    words = words64(seed, offset, batch * nodes).reshape(batch, nodes)
    ids, path = np.full((2, batch, nodes), -1, np.int64)
    accepted = np.zeros(batch, np.int64)
    for b in range(batch):
        node = depth = 0
        while True:
            token = draw_row(
                target_probs[b, node].astype(np.float64), scale_bits(desc.vocab_size), int(words[b, depth])
            )
            ids[b, depth], path[b, depth] = token, node
            later = np.arange(node + 1, nodes)
            child = later[(parents[b, later] == node) & (draft_ids[b, later] == token)]
            if token < 0 or not child.size:
                break
            node, depth = int(child[0]), depth + 1
        accepted[b] = depth
    return {"ids": ids, "path": path, "accepted": accepted.astype(np.int32)}


def _tree_geometry(p: Problem) -> Geometry:
    params = {**_common(p), "nodes": p.desc.nodes, "parent_strides": p.parents.strides,
              "path_strides": (0, 0) if p.path is None else p.path.strides}  # fmt: skip
    step = Step("tree", (p.desc.batch_size, 1, 1), params, {}, 1024)
    return Geometry((step,), layout="contiguous" if p.target_probs.dense else "strided")


class VerifyTreePlan(Plan):
    """ids [B, N]: the tokens along the accepted path of a tree and one more, then -1; accepted [B] counts the drafted.

    target_probs [B, N, V] are the target's probabilities after each node. From node 0 on a token is drawn from the
    node's row, with word b N + depth of 64 bits of the Philox stream; where a child has that token, the first such
    child is next, else the token is the last one. path [B, N] has the nodes that tokens were drawn at, then -1. What
    comes out has the target's distribution, whatever drafted the tree.
    """

    op = "random.verify_tree"
    descriptor = VerifyTreeDescriptor
    args = VerifyTreeArgs
    reference = staticmethod(tree_reference)
    value_policy = _POLICY
    variants = (_variant("tree", _tree_geometry, TREE_PARAMS),)

    benchmarks = (
        Benchmark(
            "16 nodes of 32 sequences, 131072 f32", batch_size=32, nodes=16, vocab_size=131072, element="float32",
            make=lambda torch, desc: {"seed": 1, "offset": 0}, peers=(),
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> VerifyTreeDescriptor:
        return VerifyTreeDescriptor(
            batch_size=draw.integer(0, 4), nodes=draw.integer(1, 9), vocab_size=draw.sizes(1, 3, 40, 1030),
            index_element=draw.choice((I32, I64)), element=draw.element,
        )  # fmt: skip

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        streams((desc.batch_size, desc.vocab_size), arrays)


verify_chain = functional(VerifyChainPlan, returns=("accepted",))
verify_tree = functional(VerifyTreePlan, returns=("accepted", "path"))
