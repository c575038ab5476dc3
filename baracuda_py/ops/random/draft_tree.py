"""draft_tree: the best nodes of a tree of drafted tokens, with what verifying them needs (EAGLE-2, Li et al. 2024)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Exact, Geometry, Guarantee, Kernel, Params, Plan, Problem, Step, Variant,
    element, extent, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.errors import InvalidProblemError

BOOL, I32, I64 = ElementKind.BOOL, ElementKind.I32, ElementKind.I64
MOST, THREADS = 2048, 512


@dataclass(frozen=True, kw_only=True)
class DraftTreeDescriptor(Descriptor):
    """Of `candidates` drafted tokens of each sequence, at most 2048, the best `nodes` - 1, and the root."""

    batch_size: int = extent()
    candidates: int = extent()
    nodes: int = extent(minimum=1)
    index_element: ElementKind = element((I32, I64), I64)
    element: ElementKind = element()

    def validate(self) -> None:
        if self.candidates > MOST:
            raise InvalidProblemError(f"candidates must be at most {MOST}, got {self.candidates}")
        if self.nodes > self.candidates + 1:
            raise InvalidProblemError(f"nodes must be at most candidates + 1 = {self.candidates + 1}, got {self.nodes}")

    @property
    def picks(self) -> int:
        """Nodes but the root."""
        return self.nodes - 1


def _scores(rng: np.random.Generator, desc: Any, shape: Any) -> Any:
    """Test data: some equal, and some better than their parents."""
    return -np.round(8 * rng.random(shape)) / 8


def _parents(rng: np.random.Generator, desc: Any, shape: Any) -> Any:
    return np.floor(rng.random(shape) * (np.arange(shape[-1]) + 1)).astype(np.int64) - 1


@dataclass(slots=True, kw_only=True)
class DraftTreeArgs(Args):
    """Any strides. parents: of each candidate one before it, or -1 (and anything else) where the root is its parent."""

    root_ids: Array = operand("batch_size", element="index_element", values=(0, 99))
    draft_ids: Array = operand("batch_size candidates", element="index_element", values=(0, 99))
    parents: Array = operand("batch_size candidates", element="index_element", values=_parents)
    scores: Array = operand("batch_size candidates", values=_scores)
    ids: Array = output("batch_size nodes", element="index_element")
    node_parents: Array = output("batch_size nodes", element="index_element")
    depths: Array | None = output("batch_size nodes", element=I32, optional=True)
    picked: Array | None = output("batch_size picks", element="index_element", optional=True)
    mask: Array | None = output("batch_size nodes nodes", element=BOOL, optional=True)


def reference(
    desc: DraftTreeDescriptor, *, root_ids: Any, draft_ids: Any, parents: Any, scores: Any, wanted: set[str]
) -> Mapping[str, Any]:
    """NumPy, sequence by sequence."""
    batch, nodes = desc.batch_size, desc.nodes
    ids, above = np.full((2, batch, nodes), -1, np.int64)
    depths, picked = np.zeros((batch, nodes), np.int32), np.zeros((batch, desc.picks), np.int64)
    mask = np.zeros((batch, nodes, nodes), bool)
    for b in range(batch):
        own = [int(p) if 0 <= p < i else -1 for i, p in enumerate(parents[b])]
        score = np.where(np.isnan(scores[b]), -np.inf, scores[b])
        for i, p in enumerate(own):
            score[i] = score[i] if p < 0 else min(score[i], score[p])
        chosen = np.sort(np.argsort(-score, kind="stable")[: desc.picks])
        ids[b, 0], picked[b], mask[b, 0, 0] = root_ids[b], chosen, True
        node_of = {int(i): n + 1 for n, i in enumerate(chosen)} | {-1: 0}
        for n, i in enumerate(chosen, 1):
            parent = node_of[own[i]]
            ids[b, n], above[b, n], depths[b, n] = draft_ids[b, i], parent, depths[b, parent] + 1
            mask[b, n] = mask[b, parent]
            mask[b, n, n] = True
    return {"ids": ids, "node_parents": above, "depths": depths, "picked": picked, "mask": mask}


PARAMS = Params(
    "DraftTreeParams", root_ids="ptr", draft_ids="ptr", parents="ptr", scores="ptr", ids="ptr", node_parents="ptr",
    depths="ptr", picked="ptr", mask="ptr", candidates="i32", nodes="i32", wide="i32", root_stride="i64",
    draft_strides="i64[2]", parent_strides="i64[2]", score_strides="i64[2]", ids_strides="i64[2]",
    node_strides="i64[2]", depth_strides="i64[2]", picked_strides="i64[2]", mask_strides="i64[3]", draft_most=MOST,
    draft_threads=THREADS,
)  # fmt: skip


def _geometry(p: Problem) -> Geometry:
    def strides(view: Any, rank: int) -> tuple[int, ...]:
        return (0,) * rank if view is None else tuple(view.strides)

    params = {
        "candidates": p.desc.candidates, "nodes": p.desc.nodes, "wide": p.desc.index_element is I64,
        "root_stride": p.root_ids.strides[0], "draft_strides": p.draft_ids.strides,
        "parent_strides": p.parents.strides, "score_strides": p.scores.strides, "ids_strides": p.ids.strides,
        "node_strides": p.node_parents.strides, "depth_strides": strides(p.depths, 2),
        "picked_strides": strides(p.picked, 2), "mask_strides": strides(p.mask, 3),
    }  # fmt: skip
    step = Step("tree", (p.desc.batch_size, 1, 1), params, {}, THREADS)
    return Geometry((step,), layout="contiguous" if p.scores.dense else "strided")


class DraftTreePlan(Plan):
    """The best nodes - 1 of drafted candidates below a root, in their order, and how they hang together.

    A candidate counts with the least score on its path from the root, so that a node's parent is there whenever the
    node is; of equal ones the first comes first, and NaN counts as -inf. ids [B, n]: the root's token, then the nodes',
    a parent before its children; node_parents: places of parents, -1 of the root; depths: 0 of the root; picked
    [B, n - 1]: places among candidates; mask [B, n, n]: whether a node is on another's path, or is it.
    """

    op = "random.draft_tree"
    descriptor = DraftTreeDescriptor
    args = DraftTreeArgs
    reference = staticmethod(reference)
    value_policy = "NaN counts as -inf"
    variants = (
        Variant(
            "block", _geometry, source="random/draft_tree.cu", guarantee=Guarantee(Exact(), batch_invariant=True),
            kernels=(Kernel("tree", "draft_tree<{T}>", PARAMS, {}, THREADS),),
        ),
    )  # fmt: skip
    benchmarks = (
        Benchmark(
            "60 of 800 drafts of 32 sequences", batch_size=32, candidates=800, nodes=61, element="float32", peers=(),
            make=lambda torch, desc: {"parents": torch.arange(desc.candidates).div(10, rounding_mode="floor").sub(1)
                                      .expand(desc.batch_size, -1).contiguous()},
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> DraftTreeDescriptor:
        candidates = draw.sizes(0, 1, 7, 60, 700)
        return DraftTreeDescriptor(
            batch_size=draw.integer(0, 3), candidates=candidates, nodes=1 + draw.integer(0, min(candidates, 30)),
            index_element=draw.choice((I32, I64)), element=draw.element,
        )  # fmt: skip


draft_tree = functional(
    DraftTreePlan, "draft_tree", returns=("ids", "node_parents", "depths", "picked", "mask"),
    doc="""The best nodes of a tree of drafted tokens, for one pass that verifies them (EAGLE-2's dynamic draft tree).

    root_ids [B]: the last token that stands; draft_ids, parents, scores [B, N]: drafted tokens, their parents among
    them (-1: the root), and the logarithms of their paths' probabilities. Returns ids, node_parents, depths [B, nodes],
    picked [B, nodes - 1] and mask [B, nodes, nodes]; see `DraftTreePlan`. `mask.reshape(B * nodes, nodes)` is the
    tree_mask of `batch_paged_extend`, depths are positions after the root's, and `verify_tree(ids, node_parents, …)`
    accepts.
    """,
)  # fmt: skip
