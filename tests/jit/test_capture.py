"""Which edges of a captured graph become programmatic, against a driver that keeps a graph in dicts."""

from __future__ import annotations

import types
from typing import Any

import pytest

from baracuda_py.core.errors import BaracudaError
from baracuda_py.jit.capture import overlap

KERNEL, MEMSET = "kernel", "memset"


class Driver:
    """The graph calls that `overlap` makes. Nodes are ints; `nodes` maps them to (type, function)."""

    CUgraphNodeType = types.SimpleNamespace(CU_GRAPH_NODE_TYPE_KERNEL=KERNEL)

    def __init__(self, nodes: dict[int, tuple[str, int]], edges: list[tuple[int, int]], suffix: str = "") -> None:
        self.nodes, self.edges = nodes, dict.fromkeys(edges, (0, 0))
        self.refuse = 0
        for name in ("GetEdges", "RemoveDependencies", "AddDependencies"):
            setattr(self, f"cuGraph{name}{suffix}", getattr(self, f"_{name}"))

    @staticmethod
    def CUgraphEdgeData() -> Any:
        return types.SimpleNamespace(type=0, from_port=0, to_port=0)

    def cuGraphNodeGetType(self, node: int) -> tuple[int, str]:
        return 0, self.nodes[node][0]

    def cuGraphKernelNodeGetParams(self, node: int) -> tuple[int, Any]:
        return 0, types.SimpleNamespace(func=self.nodes[node][1])

    def _GetEdges(self, graph: Any, count: int) -> tuple[Any, ...]:
        pairs = list(self.edges)[:count]
        return 0, [a for a, _ in pairs], [b for _, b in pairs], [None] * count, len(self.edges)

    def _RemoveDependencies(self, graph: Any, sources: Any, targets: Any, data: Any, count: int) -> tuple[int]:
        for pair in zip(sources, targets, strict=True):
            del self.edges[pair]
        assert len(data) == count
        return (self.refuse,)

    def _AddDependencies(self, graph: Any, sources: Any, targets: Any, data: Any, count: int) -> tuple[int]:
        for a, b, d in zip(sources, targets, data, strict=True):
            self.edges[a, b] = (d.type, d.from_port)
        return (0,)


def make(suffix: str = "") -> Driver:
    nodes = {
        1: (KERNEL, 10),
        2: (KERNEL, 11),
        3: (MEMSET, 0),
        4: (KERNEL, 10),
        5: (KERNEL, 99),
        6: (KERNEL, 11),
        7: (KERNEL, 11),
    }
    return Driver(nodes, [(1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 7), (2, 7)], suffix)


@pytest.mark.parametrize("suffix", ["", "_v2"])
def test_only_lone_edges_between_kernels_to_ours(suffix: str) -> None:
    driver = make(suffix)
    overlap(driver, object(), {10, 11})
    early = {pair for pair, kind in driver.edges.items() if kind == (1, 1)}
    assert early == {
        (1, 2),
        (5, 6),
    }  # not after or into a memset, not into a library's kernel, not where two edges meet
    assert len(driver.edges) == 7


def test_a_graph_without_our_kernels_is_left_alone() -> None:
    driver = make()
    overlap(driver, object(), set())
    assert set(driver.edges.values()) == {(0, 0)}


def test_a_refusal_is_an_error() -> None:
    driver = make()
    driver.refuse = 1
    with pytest.raises(BaracudaError, match="refused a step"):
        overlap(driver, object(), {10, 11})
