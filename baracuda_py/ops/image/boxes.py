"""Boxes: how two sets of them lie to each other, their areas and forms, and the boxes of masks (torchvision.ops)."""

from __future__ import annotations

import re
from typing import Any

from ...calls.entries import entry
from ...core import Array
from ...core.arrays import read
from ...core.element import ElementKind
from ...core.errors import InvalidProblemError
from ...core.outputs import beside
from ...core.views import shape_of, with_axis
from ..elementwise.binary import BinaryPlan
from ..layout.concat import stack
from ..layout.creation import arange
from ..layout.parts import unbind
from ..reduce.reduce import ReducePlan
from .sampling import formula, one_of, reduced

_SHARED = "(clamp_min(minimum(ax2, bx2) - maximum(ax1, bx1), 0) * clamp_min(minimum(ay2, by2) - maximum(ay1, by1), 0))"
_UNION = f"((ax2 - ax1) * (ay2 - ay1) + (bx2 - bx1) * (by2 - by1) - {_SHARED})"
_IOU = f"({_SHARED} / {_UNION})"
_WIDTH, _HEIGHT = "(maximum(ax2, bx2) - minimum(ax1, bx1))", "(maximum(ay2, by2) - minimum(ay1, by1))"
_HULL = f"({_WIDTH} * {_HEIGHT})"
_APART = "(square((ax1 + ax2 - bx1 - bx2) / 2) + square((ay1 + ay2 - by1 - by2) / 2))"
_DIAGONAL = f"(square({_WIDTH}) + square({_HEIGHT}) + 1e-7)"
_TURN = "(0.4052847345693511 * square(atan((bx2 - bx1) / (by2 - by1)) - atan((ax2 - ax1) / (ay2 - ay1))))"
_FORMULAS = {
    "box_iou": _IOU,
    "generalized_box_iou": f"{_IOU} - ({_HULL} - {_UNION}) / {_HULL}",
    "distance_box_iou": f"{_IOU} - {_APART} / {_DIAGONAL}",
    "complete_box_iou": f"{_IOU} - {_APART} / {_DIAGONAL} - square({_TURN}) / (1 - {_IOU} + {_TURN} + 1e-7)",
}


def _boxes(x: Any, name: str) -> None:
    shape = shape_of(x, name)
    if not shape or shape[-1] != 4:
        raise InvalidProblemError(f"{name} must be [..., 4], got shape {shape}")


def _pairs(name: str, a: Any, b: Any, out: Any, options: dict[str, Any]) -> Any:
    text = _FORMULAS[name]
    for one, letter, label in ((a, "a", "boxes1"), (b, "b", "boxes2")):
        _boxes(one, label)
        if len(shape_of(one, label)) != 2:
            raise InvalidProblemError(f"{label} must be [n, 4], got shape {shape_of(one, label)}")
        if not read(one, label).element.is_float:  # as torch divides integers
            text = re.sub(rf"\b({letter}[xy][12])\b", r"float32(\1)", text)
    names = ("x1", "y1", "x2", "y2")
    facts = {f"a{n}": with_axis(one, 1, "boxes1") for n, one in zip(names, unbind(a, 1), strict=True)}
    facts |= {f"b{n}": with_axis(one, 0, "boxes2") for n, one in zip(names, unbind(b, 1), strict=True)}
    return formula(text)(**facts, out=out, **options)


@entry(BinaryPlan)
def box_iou(
    boxes1: Array, boxes2: Array, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The area that boxes1 [n, 4] and boxes2 [m, 4] share, over that of both: [n, m] (torchvision.ops.box_iou).

    Boxes are corners (x1, y1, x2, y2), integers as float32. One launch, with a gradient. Two boxes without area give
    NaN, as in torchvision.
    """
    return _pairs("box_iou", boxes1, boxes2, out, {"stream": stream, "preference": preference})


@entry(BinaryPlan)
def generalized_box_iou(
    boxes1: Array, boxes2: Array, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """`box_iou` less the part of the box about both that neither covers (torchvision's; Rezatofighi et al. 2019)."""
    return _pairs("generalized_box_iou", boxes1, boxes2, out, {"stream": stream, "preference": preference})


@entry(BinaryPlan)
def distance_box_iou(
    boxes1: Array, boxes2: Array, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """`box_iou` less the squared distance of centres over that of the corners of the box about both (torchvision's).

    Zheng et al. 2020; the divisor has 1e-7 added.
    """
    return _pairs("distance_box_iou", boxes1, boxes2, out, {"stream": stream, "preference": preference})


@entry(BinaryPlan)
def complete_box_iou(
    boxes1: Array, boxes2: Array, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """`distance_box_iou` less a term of how the boxes' aspects differ (torchvision's; Zheng et al. 2020).

    v = 4/π² (atan(w/h of boxes2) - atan(w/h of boxes1))², less v · v / (1 - iou + v + 1e-7). The gradient is that of
    the formula as it stands; torchvision holds v / (1 - iou + v + 1e-7) fixed.
    """
    return _pairs("complete_box_iou", boxes1, boxes2, out, {"stream": stream, "preference": preference})


@entry(BinaryPlan)
def box_area(x: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """(x2 - x1) (y2 - y1) of boxes [..., 4] (torchvision.ops.box_area)."""
    _boxes(x, "x")
    facts = dict(zip(("a", "b", "c", "d"), unbind(x, -1), strict=True))
    return formula("(c - a) * (d - b)")(**facts, out=out, stream=stream, preference=preference)


_TO_CORNERS = {
    "xyxy": ("a", "b", "c", "d"),
    "xywh": ("a", "b", "(a + c)", "(b + d)"),
    "cxcywh": ("(a - 0.5 * c)", "(b - 0.5 * d)", "(a + 0.5 * c)", "(b + 0.5 * d)"),
}


def _converted(source: str, target: str) -> list[str]:
    x1, y1, x2, y2 = _TO_CORNERS[source]
    if target == "xyxy" or source == target:
        return [x1, y1, x2, y2] if target == "xyxy" else ["a", "b", "c", "d"]
    size = [f"({x2} - {x1})", f"({y2} - {y1})"] if source == "xyxy" else ["c", "d"]
    first = [x1, y1] if target == "xywh" else [f"(({x1} + {x2}) / 2)", f"(({y1} + {y2}) / 2)"]
    if source == "cxcywh" and target == "cxcywh":
        first = ["a", "b"]
    return first + size


@entry(BinaryPlan)
def box_convert(
    x: Array, in_fmt: str, out_fmt: str, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Boxes [..., 4] in another form: "xyxy" corners, "xywh" a corner and the size, "cxcywh" the centre and the size.

    torchvision.ops.box_convert. One launch of each of four numbers, and one that puts them together.
    """
    options = {"stream": stream, "preference": preference}
    _boxes(x, "x")
    source, target = one_of("in_fmt", in_fmt, tuple(_TO_CORNERS)), one_of("out_fmt", out_fmt, tuple(_TO_CORNERS))
    facts = dict(zip(("a", "b", "c", "d"), unbind(x, -1), strict=True))
    made = []
    for text in _converted(source, target):
        one = formula(text)
        made.append(one(**{n: facts[n] for n in one.inputs}, **options))
    return stack(made, axis=-1, out=out, **options)


@entry(ReducePlan)
def masks_to_boxes(x: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """The box about each mask of [n, height, width]: [n, 4] corners, float32 (torchvision.ops.masks_to_boxes).

    The corners are the places of the first and last element that is not 0. A mask without one gives (0, 0, 0, 0).
    """
    options = {"stream": stream, "preference": preference}
    shape = shape_of(x, "x")
    if len(shape) != 3 or min(shape[1:]) < 1:
        raise InvalidProblemError(f"x must be [n, height, width] with places, got shape {shape}")
    with beside(x, stream):
        rows, columns = (arange(n, element=ElementKind.F32, like=x) for n in shape[1:])
    rows = with_axis(rows, 1, "rows")
    low = formula("i if x != 0 else inf")
    high = formula("i if x != 0 else -inf")
    first = [reduced("amin", low(x=x, i=i, **options), (1, 2), options) for i in (columns, rows)]
    last = [reduced("amax", high(x=x, i=i, **options), (1, 2), options) for i in (columns, rows)]
    made = stack([*first, *last], axis=-1, **options)
    return formula("float32(x) if abs(x) < inf else 0")(x=made, out=out, **options)
