"""ONNX's TopK and Unique: functions of a node of `onnx_node`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import baracuda_py as bc

from .onnx_node import Node


def _top_k(n: Node) -> Any:
    axis, largest = n.get("axis", -1), bool(n.get("largest", 1))
    return bc.topk(n[0], int(n.number(1)), axis, largest)


def _unique(n: Node) -> Any:
    """As many as there are, which ONNX wants; in the order of their first places where they are not to be sorted."""
    axis = n.get("axis")
    values, inverse, counts, first, number = bc.unique(
        n[0], axis=axis, return_inverse=True, return_counts=True, return_index=True
    )  # fmt: skip
    along, found, inverse = axis or 0, int(number), inverse.reshape(-1)
    values, counts, first = bc.narrow(values, along, 0, found), counts[:found], first[:found]
    if not n.get("sorted", 1):
        order = bc.argsort(first)
        values = bc.take(values, order, axis=along)
        counts, first = (bc.gather(one, order, axis=0) for one in (counts, first))
        inverse = bc.gather(bc.argsort(order), inverse, axis=0)
    return values, first, inverse, counts


SORTS: dict[str, Callable[[Node], Any]] = {"TopK": _top_k, "Unique": _unique}
