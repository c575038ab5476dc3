"""Benchmarked problems of pooling, and of reading and writing by index."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from cases import Arrays, Case, case, empty, make, optional, randn

import baracuda_py as bc

# ---- pooling: the stem of a ResNet (3 × 3 every 2), halving (2 × 2), and a mean of overlapping windows ---------------

_LAST = torch.channels_last
_POOLS = {
    "stem": {"kernel_size": 3, "stride": 2, "padding": 1},
    "halving": {"kernel_size": 2, "stride": 2},
    "overlapping": {"kernel_size": 3, "stride": 1, "padding": 1},
}


def _pool(kind: str, windows: str, last: bool, backward: bool, compiled: bool) -> Case:
    facts = {"kind": kind, "shape": (128, 64, 112, 112), "spatial_rank": 2, "element": "bfloat16", **_POOLS[windows]}
    plan, descriptor = bc.PoolPlan, bc.PoolDescriptor
    if backward:
        plan, descriptor = bc.PoolBackwardPlan, bc.PoolBackwardDescriptor
    desc = descriptor(**facts)
    stride, padding = desc.stride, desc.padding

    def laid(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(memory_format=_LAST) if last else tensor

    def forward(x: torch.Tensor) -> Any:
        if kind == "max":
            return F.max_pool2d(x, desc.kernel_size, stride, padding, return_indices=True)
        return F.avg_pool2d(x, desc.kernel_size, stride, padding)

    def arrays() -> Arrays:
        x = laid(randn(*desc.shape))
        if not backward:
            indices = {"indices": laid(empty(*desc.out_shape, dtype=torch.int64))} if kind == "max" else {}
            return {"x": x, "y": laid(empty(*desc.out_shape)), **indices}
        saved = {"indices": laid(forward(x)[1])} if kind == "max" else {}
        return {"dy": laid(randn(*desc.out_shape)), **saved, "dx": laid(empty(*desc.shape))}

    def peer(s: Arrays) -> Any:
        if not backward:
            return forward(s["x"])
        if kind == "max":
            return torch.ops.aten.max_pool2d_with_indices_backward(
                s["dy"], s["dx"], desc.kernel_size, stride, padding, (1, 1), False, s["indices"]
            )
        return torch.ops.aten.avg_pool2d_backward(
            s["dy"], s["dx"], desc.kernel_size, stride, padding, False, True, None
        )

    where = "channels last" if last else "channels first"
    shown = f"[128, 64, 112, 112] bf16, {kind} {windows}, {where}"
    outputs = ["dx"] if backward else ["y"]
    return make(plan, desc, arrays, outputs, shown, {"torch": peer}, compiled=optional(compiled, peer))


for _kind, _windows in (("max", "stem"), ("max", "halving"), ("avg", "overlapping")):
    for _last in (False, True):
        case("pooling.pool")(partial(_pool, _kind, _windows, _last, False))
        case("pooling.pool_backward")(partial(_pool, _kind, _windows, _last, True))


# ---- indices ---------------------------------------------------------------------------------------------------------


def _indices(extent: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, extent, shape, device="cuda")


@case("indexing.gather")
def gather(compiled: bool) -> Case:
    rows, columns, picked = 8192, 16384, 4096
    desc = bc.GatherDescriptor(shape=(rows, columns), index_shape=(rows, picked), axis=1, element="bfloat16")

    def arrays() -> Arrays:
        return {"x": randn(rows, columns), "index": _indices(columns, rows, picked), "y": empty(rows, picked)}

    def peer(s: Arrays) -> Any:
        return torch.gather(s["x"], 1, s["index"])

    return make(
        bc.GatherPlan, desc, arrays, ["y"], "[8192, 4096] of [8192, 16384] bf16", {"torch": peer},
        compiled=optional(compiled, peer), nbytes=bc.GatherPlan.bytes(desc),
    )  # fmt: skip


@case("indexing.take")
def take(compiled: bool, axis: int = 0) -> Case:
    shape = (65536, 2048) if axis == 0 else (512, 1024, 256)
    count = 65536 if axis == 0 else 1024
    desc = bc.TakeDescriptor(shape=shape, index_shape=(count,), axis=axis, element="bfloat16")

    def arrays() -> Arrays:
        return {"x": randn(*shape), "indices": _indices(shape[axis], count), "y": empty(*desc.out_shape)}

    def peer(s: Arrays) -> Any:
        return torch.index_select(s["x"], axis, s["indices"])

    return make(
        bc.TakePlan, desc, arrays, ["y"], f"{count} slices of {list(shape)} bf16, axis {axis}", {"torch": peer},
        compiled=optional(compiled, peer), nbytes=bc.TakePlan.bytes(desc),
    )  # fmt: skip


case("indexing.take")(partial(take, axis=1))


@case("indexing.take_backward")
def take_backward(compiled: bool) -> Case:
    shape, count = (65536, 2048), 65536
    desc = bc.TakeBackwardDescriptor(shape=shape, index_shape=(count,), axis=0, element="bfloat16")

    def arrays() -> Arrays:
        return {"dy": randn(count, shape[1]), "indices": _indices(shape[0], count), "dx": empty(*shape)}

    def peer(s: Arrays) -> Any:
        return torch.zeros_like(s["dx"]).index_add_(0, s["indices"], s["dy"])

    return make(
        bc.TakeBackwardPlan, desc, arrays, ["dx"], "65536 slices of [65536, 2048] bf16", {"torch": peer},
        compiled=optional(compiled, peer),
    )  # fmt: skip


def _scatter(kind: str, compiled: bool) -> Case:
    rows, columns = 8192, 4096
    facts = {"kind": kind, "shape": (rows, columns), "index_shape": (rows, columns), "axis": 1, "element": "float32"}
    desc = bc.ScatterDescriptor(**facts)

    def arrays() -> Arrays:
        index = _indices(columns, rows, columns)
        if kind == "set":  # each place once, so that every order is right
            index = torch.argsort(torch.rand(rows, columns, device="cuda"), 1)
        x, src, y = (randn(rows, columns, dtype=torch.float32) for _ in range(3))
        return {"x": x, "index": index, "src": src, "y": y}

    def peer(s: Arrays) -> Any:
        made = torch.scatter if kind == "set" else torch.scatter_add
        return made(s["x"], 1, s["index"], s["src"])

    return make(
        bc.ScatterPlan, desc, arrays, ["y"], f"[8192, 4096] f32, {kind}", {"torch": peer},
        compiled=optional(compiled, peer),
    )  # fmt: skip


case("indexing.scatter")(partial(_scatter, "set"))
case("indexing.scatter")(partial(_scatter, "add"))
