"""What ops on graphs share: rows of neighbours by offsets, cut to what there is, and random graphs for tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import Descriptor, extent


@dataclass(frozen=True, kw_only=True)
class GraphDescriptor(Descriptor):
    """A graph of offsets - 1 nodes and `edges`, by offsets (CSR): those of node v are indptr[v] to indptr[v + 1]."""

    offsets: int = extent(minimum=1)
    edges: int = extent()

    @property
    def nodes(self) -> int:
        """One less than offsets."""
        return self.offsets - 1


def row_of(indptr: Any, node: int, nodes: int, edges: int) -> tuple[int, int]:
    """Where a node's edges begin and end; nothing of what is no node."""
    if not 0 <= node < nodes:
        return 0, 0
    begin = min(max(int(indptr[node]), 0), edges)
    return begin, min(max(int(indptr[node + 1]), begin), edges)


def random_indptr(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> Any:
    """Test data: offsets that do not decrease, from 0 to all edges."""
    cuts = np.sort(rng.integers(0, desc.edges + 1, max(shape[0] - 2, 0)))
    return np.concatenate([[0], cuts, [desc.edges]])[: shape[0]]


def random_nodes(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> Any:
    """Test data: nodes, and some that are none."""
    return rng.integers(-1, desc.nodes + 1, shape)


def random_ends(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> Any:
    """Test data: the ends of edges, all of them nodes."""
    return rng.integers(0, max(desc.nodes, 1), shape)
