"""What a function of the package gives where it is asked for: on the NumPy backend, on the emulator, on a GPU."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from baracuda_py.core.args import arrays_of, scalars_of
from baracuda_py.core.element import ElementKind
from baracuda_py.core.solving import solve
from baracuda_py.testing.places import call


def on(place: str, function: Callable[..., Any], *arrays: np.ndarray, plan: Any = None, **given: Any) -> Any:
    """function(*arrays, **given) by its plan (or another one), whose attributes and scalars `given` are.

    Every output is wanted; of several there is a tuple.
    """
    plan, fixed = plan or function.plan, {} if plan else dict(function.fixed)  # type: ignore[attr-defined]
    fields = {f.name for f in dataclasses.fields(plan.descriptor)}
    names = [spec.name for spec in arrays_of(plan.args) if spec.reads]
    held = dict(zip(names, arrays, strict=False))
    shapes = {name: x.shape for name, x in held.items()}
    elements = {name: ElementKind.of(x.dtype) for name, x in held.items()}
    desc = solve(plan, shapes, elements, {**fixed, **{n: v for n, v in given.items() if n in fields}})
    scalars = {spec.name: given[spec.name] for spec in scalars_of(plan.args) if spec.name in given}
    outputs = [spec.name for spec in arrays_of(plan.args) if spec.role == "out"]
    wanted = [name for name in outputs if name != "mask"]
    made = call(plan, desc, wanted, place, **held, **scalars)
    found = tuple(made[name] for name in wanted)
    return found[0] if len(found) == 1 else found
