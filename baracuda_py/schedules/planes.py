"""Planes: the geometry of ops that make each point of an image from others, by weights that all its planes share.

A thread has one point of the target (a place along a leading axis and three spatial ones) in a few planes: what it
finds out about the point, coordinates and weights, serves all of them. Planes are the batch axes, merged. Where they
lie together (channels last) a thread has neighbours among them and moves 16 bytes at a time, else planes that lie
apart, so that neighbours in a warp are neighbours in memory either way. Planes that lie one step apart can be taken
many at a time, as their addresses are one pointer and multiples of that step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..core.element import ElementKind
from ..core.params import Params
from ..core.tensor import AXES, View, merge_axes, pad
from ..core.variant import Geometry, Kernel, Step
from .map import THREADS

APART = 4  # planes of a thread where they do not lie together
STACKED = 16  # and where they lie one step apart, in ops that have a kernel for it


def planes_params(operands: int) -> dict[str, str | int]:
    """Params fields for `operands` operands, the target first; `kernels/include/baracuda/planes.cuh` reads them."""
    return {
        "items": "i64", "points": "i64[4]", "groups": "i64", "planes": "i64", "plane_shape": "i64[8]",
        "plane_steps": f"i64[{operands}][8]", "steps": f"i64[{operands}][4]", "plane_rank": "i32", "inner": "i32",
        "planes_threads": THREADS,
    }  # fmt: skip


def planes_kernels(template: str, params: Params, stack: str = "") -> tuple[Kernel, ...]:
    """The kernels of an op: `template` calls them with {N}, planes of a thread, and {TOGETHER}; `stack` with {N}."""

    def together(kind: ElementKind) -> Mapping[str, Any]:
        return {"N": (16 // kind.itemsize,), "TOGETHER": ("true",)}

    def apart(kind: ElementKind) -> Mapping[str, Any]:
        return {"N": (APART,), "TOGETHER": ("false",)}

    made = (
        Kernel("together", template, params, together, threads=THREADS),
        Kernel("apart", template, params, apart, threads=THREADS),
    )
    return (*made, Kernel("stack", stack, params, {"N": (STACKED,)}, threads=THREADS)) if stack else made


def planes_geometry(
    views: Sequence[View], planes: Sequence[int], points: Sequence[int], values: Mapping[str, Any],
    others: Sequence[View] = (), stacks: bool = False,
) -> Geometry | str:  # fmt: skip
    """The launch for the target and its sources; `stacks`: the op has a kernel for planes that lie one step apart.

    planes, points: the axes that are planes, and those of the points, the last ones spatial, up to three, and before
    them at most one that leads. others: operands of other axes, for the SKU's layout.
    """
    target = views[0]
    shape, strides = merge_axes(
        tuple(target.shape[a] for a in planes), [tuple(v.strides[a] for a in planes) for v in views]
    )
    if len(shape) > AXES:
        return f"more than {AXES} axes of planes remain after merging"
    count, size = math.prod(shape), target.element.itemsize
    wide = 16 // size

    def lies_together(view: View, own: Sequence[int]) -> bool:
        rest = [own[a] for a in range(len(own) - 1) if shape[a] > 1]
        rest += [view.strides[a] for a in points if view.shape[a] > 1]
        return own[-1] == 1 and not any(k % wide for k in rest) and view.ptr % 16 == 0

    together = bool(shape) and shape[-1] % wide == 0 and all(map(lies_together, views, strides))
    extent = [target.shape[a] for a in points]
    added = [1] * (4 - len(extent))
    last = [abs(target.strides[a]) for a in points if target.shape[a] > 1]
    inner = together or (bool(shape) and count > 1 and abs(strides[0][-1]) < min(last, default=2**63))
    stacked = stacks and not inner and len(shape) == 1 and count > STACKED // 2
    each = STACKED if stacked else wide if together else APART
    groups = max(1, -(-count // each))
    items = groups * math.prod(extent)
    params = {
        **values, "items": items, "points": [*added, *extent], "groups": groups, "planes": count,
        "plane_shape": pad(shape), "plane_steps": [pad(s) for s in strides], "plane_rank": len(shape), "inner": inner,
        "steps": [[0] * len(added) + [v.strides[a] for a in points] for v in views],
    }  # fmt: skip
    blocks = max(1, -(-items // THREADS))
    if blocks >= 2**31:
        return "more than 2^31 blocks"
    axes: dict[str, Any] = {"N": each} | ({} if stacked else {"TOGETHER": "true" if together else "false"})
    dense = all(v.dense for v in (*views, *others))
    layout = "contiguous" if dense else "inner_contiguous" if together else "strided"
    name = "stack" if stacked else "together" if together else "apart"
    return Geometry((Step(name, (blocks, 1, 1), params, axes, THREADS),), layout=layout)
