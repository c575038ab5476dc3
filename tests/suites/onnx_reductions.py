"""ONNX's reductions, scans and Dropout: functions of a node of `onnx_node`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import baracuda_py as bc

from .onnx_node import Node, need

_REDUCTIONS = {
    "ReduceSum": "sum", "ReduceMean": "mean", "ReduceProd": "prod", "ReduceMax": "amax", "ReduceMin": "amin",
    "ReduceL1": "l1_norm", "ReduceL2": "l2_norm", "ReduceSumSquare": "sum_squares", "ReduceLogSumExp": "logsumexp",
}  # fmt: skip


def _axes(n: Node) -> tuple[int, ...] | None:
    """The axes to reduce: none or all of them where the node names none."""
    axes = n.axes()
    return () if axes is None and n.get("noop_with_empty_axes", 0) else axes


def _reduction(name: str) -> Callable[[Node], Any]:
    def reduction(n: Node) -> Any:
        axes, extreme = _axes(n), name in ("amax", "amin")
        reduced = n[0].shape if axes is None else [n[0].shape[a] for a in axes]
        need(not extreme or 0 not in reduced, f"{name} of no elements is refused")
        return _like(getattr(bc, name)(n[0], axis=axes, keepdims=bool(n.get("keepdims", 1))), n)

    return reduction


def _like(y: Any, n: Node) -> Any:
    """ONNX totals integers in their own element, where torch takes int64."""
    return y if y.dtype == n[0].dtype else bc.cast(y, n[0].dtype)


def _log_sum(n: Node) -> Any:
    return bc.reduce("log(sum(x))", axis=_axes(n), keepdims=bool(n.get("keepdims", 1)))(n[0])


def _place(name: str) -> Callable[[Node], Any]:
    def place(n: Node) -> Any:
        axis, keepdims = n.get("axis", 0) % n[0].ndim, bool(n.get("keepdims", 1))
        find = getattr(bc, name)
        if not n.get("select_last_index", 0):
            return find(n[0], axis=axis, keepdims=keepdims)
        return bc.rsub(find(n.xp.flip(n[0], axis), axis=axis, keepdims=keepdims), n[0].shape[axis] - 1)

    return place


def _scan(name: str) -> Callable[[Node], Any]:
    def scan(n: Node) -> Any:
        how = {"reverse": bool(n.get("reverse", 0)), "exclusive": bool(n.get("exclusive", 0))}
        return _like(getattr(bc, name)(n[0], axis=n.number(1), **how), n)

    return scan


def _dropout(n: Node) -> Any:
    p = n.get("ratio", 0.5) if n[1] is None else n.number(1)
    training = n[2] is not None and bool(n.number(2))
    need(not training or p == 0, "which elements are dropped depends on the generator: ours is Philox")
    y, mask = bc.dropout(n[0], p, training=training, seed=0, return_mask=True)
    return [y, mask][: n.outputs]


REDUCTIONS: dict[str, Callable[[Node], Any]] = {
    **{name: _reduction(ours) for name, ours in _REDUCTIONS.items()},
    "ReduceLogSum": _log_sum, "ArgMax": _place("argmax"), "ArgMin": _place("argmin"),
    "CumSum": _scan("cumsum"), "CumProd": _scan("cumprod"), "Dropout": _dropout,
}  # fmt: skip
