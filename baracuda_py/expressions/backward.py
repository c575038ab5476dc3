"""The plan of a formula's gradient.

Gradients of operands that have the full shape come from one map. Of an operand that was broadcast, the gradient is the
sum of its formula over the axes along which it was: a reduction that makes the formula while it reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ..core import Geometry, Guarantee, Kernel, Params, Problem, Relative, Variant
from ..core.element import FLOATS
from ..core.memo import keep
from ..core.spec import Vjp
from ..schedules.map import map_params
from ..schedules.reduce import reduce_kernels, reduce_params, sum_to
from . import plan as parts
from .cpp import map_text, mapped_text
from .derive import gradient, gradient_names
from .in_torch import gradient_in_torch
from .plan import FormulaPlan, evaluated, formula_kernels, inputs_of, made_plan, map_step, sources
from .shape import ARRAY, Roles, Shape
from .signature import Signature

_SOURCE = "elementwise/expression_gradient.cu"
_WIDTHS = (4, 2, 1)
"""Neighbouring columns that a thread may read: the widest operand, which says, is not known by the element alone."""


class GradientPlan(FormulaPlan):
    """The gradients of a formula, summed over the axes along which operands were broadcast."""

    direction = "backward"


def gradient_plan_of(forward: Shape, wrt: tuple[str, ...], outputs: tuple[str, ...] = ()) -> type[FormulaPlan]:
    """The plan of the gradients for the arrays `wrt`, of cotangents of `outputs` (by default all)."""
    key = (forward, wrt, outputs or forward.outputs)
    return _plans.get(key) or keep(_plans, key, _made(*key), 1024)


_plans: dict[tuple[Shape, tuple[str, ...], tuple[str, ...]], type[FormulaPlan]] = {}


def _made(forward: Shape, wrt: tuple[str, ...], outputs: tuple[str, ...]) -> type[FormulaPlan]:
    if outputs != forward.outputs:
        kept = tuple(one for one in forward.formula.outputs if one[0] in outputs)
        forward = Shape(replace(forward.formula, outputs=kept), forward.roles)
    roles: Roles = (*forward.roles, *(ARRAY for _ in forward.outputs))
    shape = Shape(gradient(forward.formula, wrt), roles, wrt, forward)
    params = Params(
        "FormulaParams", **parts.pointers(shape), **parts.numbers(shape), **map_params(parts.operands(shape))
    )
    kernels = [*formula_kernels(shape, params)]
    for j in range(len(wrt)):
        kernels += _sums(shape, j)
    row = Variant(
        "map", partial(_geometry, shape), source="elementwise/expression.cu", kernels=tuple(kernels),
        elements=lambda kind: kind.elements[:1], prelude=lambda element, kind: _text(shape, kind),
        guarantee=Guarantee(lambda element, kind: _bound(shape, kind), batch_invariant=True),
    )  # fmt: skip
    recipe = gradient_plan_of, (forward, wrt, outputs)
    own = staticmethod(partial(gradient_in_torch, shape))
    return made_plan(GradientPlan, shape, recipe, row, _reference, torch=own)


def _sums(shape: Shape, j: int) -> list[Kernel]:
    """The kernels that sum gradient j."""
    params = reduce_params("SumParams", [f"x{i}" for i in shape.read], **parts.numbers(shape))
    made = reduce_kernels(f"kinds::Sum<Sum{j}>", params, source=f"Mapped{j}", prefix=_prefix(j))
    return [replace(one, source=_SOURCE, axes={"VEC": _WIDTHS} if "VEC" in one.axes_for(FLOATS[0]) else one.axes)
            for one in made]  # fmt: skip


def _prefix(j: int) -> str:
    return f"sum{j}_"


def _text(shape: Shape, kind: Signature) -> str:
    """The functors of the map; for each gradient, what its sum reads: `SumJ` is its element, `MappedJ` the source."""
    program = shape.program(kind)
    text = map_text(program, shape.read)
    given = ", ".join(program.inputs[i].ctype for i in shape.read)
    for j, element in enumerate(program.results):
        if element.is_float:
            text += mapped_text(f"Gradient{j}", program, shape.read, j, element.acc.ctype)
            text += f"namespace baracuda {{\nusing Sum{j} = {element.ctype};\n"
            text += "template <class F, class... Ts> struct Mapped;\n"
            text += f"using Mapped{j} = Mapped<Gradient{j}, {given}>;\n}}\n"
    return text


def _geometry(shape: Shape, p: Problem) -> Geometry | str:
    outs = [p.views[name] for name in shape.outputs]
    whole = [out if out is not None and out.shape == p.desc.shape else None for out in outs]
    steps: list[Any] = []
    used, layout = 0, "contiguous"
    if any(out is not None and out.size for out in whole):
        found = map_step(shape, p, whole)
        if isinstance(found, str):
            return found
        steps, layout = [*found.steps], found.layout
    for j, out in enumerate(outs):
        if out is not None and whole[j] is None:
            at = {**sources(shape), "y": shape.outputs[j]}
            sums = sum_to(p, tuple(inputs_of(shape, p)), out, at, used, _prefix(j))
            if isinstance(sums, str):
                return sums
            steps, used = [*steps, *sums.steps], sums.used
            layout = layout if sums.coalesced and not any(whole) else "strided"
    return Geometry(tuple(steps), used, layout)


def _bound(shape: Shape, kind: Signature) -> Relative:
    worst = max((step.value.ulps for step in shape.program(kind).steps if step.form == "call"), default=0.0)
    return Relative(4 + 2 * worst, 2 + worst)


def _reference(shape: Shape, desc: Any, /, wanted: Any = None, **given: Any) -> Mapping[str, Any]:
    values = zip(shape.outputs, shape.of, evaluated(shape, desc, given), strict=True)
    chosen = shape.outputs if wanted is None else wanted
    return {name: _summed(y, np.shape(given[x])) for name, x, y in values if name in chosen}


def _summed(y: Any, shape: tuple[int, ...]) -> Any:
    """y summed to a shape that was broadcast."""
    lead = y.ndim - len(shape)
    axes = tuple(a for a in range(y.ndim) if a < lead or (shape[a - lead] == 1 and y.shape[a] != 1))
    return np.sum(y, axis=axes).reshape(shape) if axes else y.reshape(shape)


class FormulaVjp(Vjp):
    """Links a formula's plan to that of its gradient, which is made when it is asked for."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.saves, self.kinds = {}, None
        self.grads = dict(zip(shape.arrays, gradient_names(shape.formula, shape.arrays), strict=True))

    @property
    def plan(self) -> Any:
        """The gradient's plan class."""
        return gradient_plan_of(self.shape, self.shape.arrays)
