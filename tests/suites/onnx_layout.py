"""ONNX operators of shape and layout as calls of ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import baracuda_py as bc

from .onnx_node import Node, need

Handler = Callable[[Node], Any]


def _axis_of(n: Node, default: int = 0) -> int:
    return int(n.get("axis", default))


def _ints(values: Any) -> tuple[int, ...]:
    return tuple(int(one) for one in values.tolist())


def _split(n: Node) -> Any:
    axis, extent = _axis_of(n), n[0].shape[_axis_of(n)]
    if n[1] is not None:
        return bc.split(n[0], _ints(n[1]), axis)
    size = -(-extent // (n.get("num_outputs") or n.outputs))
    return bc.split(n[0], size, axis)


def _slice(n: Node) -> Any:
    starts, ends = _ints(n[1]), _ints(n[2])
    axes = _ints(n[3]) if n[3] is not None else tuple(range(len(starts)))
    steps = _ints(n[4]) if n[4] is not None else (1,) * len(starts)
    x = n[0]
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        extent = x.shape[axis]
        low, high = (-1, extent - 1) if step < 0 else (0, extent)
        start = min(max(start + extent if start < 0 else start, max(low, 0)), high)
        end = min(max(end + extent if end < 0 else end, low), extent)
        x = bc.slice_copy(x, axis, start, None if end < 0 else end, step)
    return x


def _pad(n: Node) -> Any:
    rank = n[0].ndim
    axes = [a % rank for a in _ints(n[3])] if n[3] is not None else list(range(rank))
    given = _ints(n[1])
    widths = [(0, 0)] * rank
    for i, axis in enumerate(axes):
        widths[axis] = (given[i], given[len(axes) + i])
    value = 0 if n[2] is None or not n[2].size else n[2].item()
    mode = n.get("mode", "constant")
    return bc.pad(n[0], widths, mode, value)


def _one_hot(n: Node) -> Any:
    depth, (off, on) = int(n[1].item()), n[2].tolist()
    index = bc.cast(n[0], "int64")
    index = bc.where(bc.lt(index, 0), bc.add(index, depth), index)  # below 0 it counts from the end
    return bc.one_hot(index, depth, axis=_axis_of(n, -1), on=on, off=off, element=n[2].dtype)


def _trilu(n: Node) -> Any:
    k = 0 if n[1] is None else int(n[1].item())
    return (bc.triu if n.get("upper", 1) else bc.tril)(n[0], k)


def _eye_like(n: Node) -> Any:
    from onnx import helper

    wanted = n.get("dtype")
    element = n[0].dtype if wanted is None else helper.tensor_dtype_to_np_dtype(wanted)
    return bc.eye(*n[0].shape, int(n.get("k", 0)), element, like=n[0])


def _range(n: Node) -> Any:
    start, limit, step = (x.item() for x in n.inputs)
    return bc.arange(start, limit, step, n[0].dtype, like=n.xp.zeros(1))


def _col2im(n: Node) -> Any:
    size, block = _ints(n[1]), _ints(n[2])
    pads = n.get("pads") or [0] * (2 * len(size))
    padding = [(pads[i], pads[i + len(size)]) for i in range(len(size))]
    dilation, stride = (tuple(n.get(w) or [1] * len(size)) for w in ("dilations", "strides"))
    return bc.col2im(n[0], size, block, dilation, padding, stride)


def _expand(n: Node) -> Any:
    shape = np.broadcast_shapes(n[0].shape, _ints(n[1]))
    return bc.expand_copy(n[0], shape)


def _reshape(n: Node) -> Any:
    wanted = list(_ints(n[1]))
    if not n.get("allowzero", 0):
        wanted = [n[0].shape[i] if size == 0 else size for i, size in enumerate(wanted)]
    return bc.reshape(n[0], tuple(wanted))


def _depth_to_space(n: Node) -> Any:
    return bc.depth_to_space(n[0], n.get("blocksize"), n.get("mode", "DCR"))


def _flatten(n: Node) -> Any:
    axis = _axis_of(n, 1)
    axis = axis + n[0].ndim if axis < 0 else axis
    return bc.reshape(n[0], (int(np.prod(n[0].shape[:axis])), -1))


def _center_crop_pad(n: Node) -> Any:
    shape = n[0].shape
    axes = [a % len(shape) for a in n.get("axes", range(len(shape)))]
    widths = [(0, 0)] * len(shape)
    for axis, size in zip(axes, _ints(n[1]), strict=True):
        more = size - shape[axis]
        before = more // 2 if more > 0 else -(-more // 2)
        widths[axis] = (before, more - before)
    return bc.pad(n[0], widths)


def _unsqueeze(n: Node) -> Any:
    return bc.copy(bc.unsqueeze(n[0], n.axes() or ()))


def _transpose(n: Node) -> Any:
    order = n.get("perm")
    return bc.transpose_copy(n[0]) if order is None else bc.permute_copy(n[0], tuple(order))


def _concat(n: Node) -> Any:
    return bc.concat(list(n.inputs), axis=_axis_of(n))


def _space_to_depth(n: Node) -> Any:
    need(n[0].ndim == 4, "images have four axes")
    return bc.space_to_depth(n[0], n.get("blocksize"), n.get("mode", "DCR"))


LAYOUT: dict[str, Handler] = {
    "CenterCropPad": _center_crop_pad,
    "Col2Im": _col2im,
    "Concat": _concat,
    "DepthToSpace": _depth_to_space,
    "Expand": _expand,
    "EyeLike": _eye_like,
    "Flatten": _flatten,
    "OneHot": _one_hot,
    "Pad": _pad,
    "Range": _range,
    "Reshape": _reshape,
    "Slice": _slice,
    "SpaceToDepth": _space_to_depth,
    "Split": _split,
    "Squeeze": lambda n: bc.squeeze(n[0], n.axes()),
    "Tile": lambda n: bc.tile(n[0], _ints(n[1])),
    "Transpose": _transpose,
    "Trilu": _trilu,
    "Unsqueeze": _unsqueeze,
}
