"""ONNX's operators of indexing: functions of a node of `onnx_node`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import baracuda_py as bc

from .onnx_node import Node

_REDUCE = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


def _gather(n: Node) -> Any:
    return bc.take(n[0], n[1], axis=n.get("axis", 0))


def _gather_elements(n: Node) -> Any:
    return bc.gather(n[0], n[1], axis=n.get("axis", 0))


def _scatter_elements(n: Node) -> Any:
    axis, reduction = n.get("axis", 0), n.get("reduction", "none")
    if reduction == "none":
        return bc.scatter(n[0], n[1], n[2], axis=axis)
    return bc.scatter_reduce(n[0], n[1], n[2], _REDUCE[reduction], axis=axis)


def _compress(n: Node) -> Any:
    y, count = bc.compress(n[1], n[0], axis=n.get("axis"))
    axis = n.get("axis", 0) % y.ndim
    return y[(slice(None),) * axis + (slice(0, int(count)),)]


def _nonzero(n: Node) -> Any:
    y, count = bc.nonzero(n[0])
    return y[:, : int(count)]


INDEXING: dict[str, Callable[[Node], Any]] = {
    "Compress": _compress,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": lambda n: bc.gather_nd(n[0], n[1], batch_dims=n.get("batch_dims", 0)),
    "NonZero": _nonzero,
    "Scatter": _scatter_elements,
    "ScatterElements": _scatter_elements,
    "ScatterND": lambda n: bc.scatter_nd(n[0], n[1], n[2], n.get("reduction", "none")),
}
