"""The NumPy backend: a page's reference, float64 inside, rounded once into the caller's arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from ..core import config
from ..core.args import Args, Operand, arrays_of, operands_of
from ..core.arrays import settled, to_numpy
from ..core.device import Device
from ..core.element import ElementKind
from ..core.errors import InvalidProblemError
from ..core.execution import Makers, Views
from ..core.finite import all_finite, report, word
from ..core.intake import count_written
from ..core.memory import raise_lacking
from ..core.plan import Plan
from ..core.spec import NUMPY_APART
from .evaluation import Evaluation, element_of
from .numpy_direct import Direct


class NumpyRunner:
    """Runs a plan as its reference: see `core.execution.Runner`. Workspace and streams count for nothing."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._announced = False

    def prepare(self, args: Args) -> None:
        self.plan.plan_layout(args)

    def bind(self, args: Args, workspace: Any = None, stream: Any = None) -> Callable[[], None]:
        args = self._settled(args)
        self.plan.plan_layout(args)
        return lambda: self.run(args)

    def direct(self, makers: Makers, lead: Any, views: Views = None) -> Direct | None:
        """The functional layer's short path, where the plan and its arrays have one."""
        return Direct(self.plan, makers, views) if Direct.serves(self.plan, lead) else None

    def again(self, args: Args) -> None:
        """None: a reference takes longer than what is checked before it."""

    def run(self, args: Args, workspace: Any = None, stream: Any = None) -> None:
        args = self._settled(args)
        variant, geometry, _ = self.plan.plan_layout(args)
        if not self._announced:
            self._announced = True
            self.plan.announce(variant, geometry)
        if geometry.layout != "empty":
            try:
                run_reference(self.plan, args, variant.name == NUMPY_APART)
            except MemoryError as error:
                raise_lacking(error, f"what the NumPy backend computes {self.plan.op} with")

    run_refs = run

    def _settled(self, args: Args) -> Args:
        """Args whose producers have been asked once: what is validated is what is used."""
        if type(args) is not self.plan.args:
            return args  # refused with the rest
        given = {spec.name: getattr(args, spec.name) for spec in operands_of(self.plan.args)}
        for spec in arrays_of(self.plan.args):
            value = given[spec.name]
            many = spec.many and isinstance(value, (list, tuple))
            given[spec.name] = [settled(v, spec.name) for v in value] if many else settled(value, spec.name)
        return self.plan.args(**given)


def run_reference(plan: Plan, args: Args, apart: bool = False) -> None:
    """Run a validated call: evaluate, then write outputs and in-outs."""
    held = {spec.name: _hold(getattr(args, spec.name)) for spec in operands_of(type(args))}
    checked, whole = config.get("BARACUDA_CHECK"), True
    if checked:
        wrong = plan.check_values(plan.desc, held)
        if wrong:
            raise InvalidProblemError(f"{plan.op}: {wrong}; {plan.value_policy}")
        whole = all_finite(bits for spec in arrays_of(type(args)) if spec.reads for bits in _bits(spec, plan, held))
    Evaluation(type(plan), plan.desc, held, apart=apart).run(held)
    for spec in arrays_of(type(args)) if checked else ():
        for bits, element in _bits(spec, plan, held) if spec.writes else ():
            report(plan.op, spec.name, bits, element, whole)
    count_written(args)


def _bits(spec: Operand, plan: Plan, held: Mapping[str, Any]) -> Iterator[tuple[np.ndarray, ElementKind]]:
    """The floats of an operand as the unsigned integers that hold them."""
    value = held[spec.name]
    for array in value if isinstance(value, list) else () if value is None else (value,):
        element = element_of(spec, plan.desc, array.dtype)
        held_in = word(element)
        if held_in is not None:
            for part in (array.real, array.imag) if element.is_complex else (array,):
                yield part.view(held_in), element


def _hold(value: Any) -> Any:
    if value is None or isinstance(value, (int, float)):
        return value
    if isinstance(value, (list, tuple)):
        return [to_numpy(item) for item in value]
    return to_numpy(value)


class NumpyGraph:
    """A function that a replay calls again: see `core.execution.Replay`."""

    memory = 0

    def __init__(self, function: Callable[[], Any], device: Device, warmup: int) -> None:
        self._function = function
        for _ in range(warmup):
            self.outputs = function()

    def replay(self, stream: Any) -> Any:
        self.outputs = _rewritten(self.outputs, self._function())
        return self.outputs


def _rewritten(held: Any, made: Any) -> Any:
    """`made`, its arrays written into those of `held` where the two have the same form."""
    if isinstance(made, np.ndarray) and isinstance(held, np.ndarray):
        if (made.shape, made.dtype) != (held.shape, held.dtype):
            raise InvalidProblemError(
                f"a replay made {made.dtype}{list(made.shape)} where the graph holds {held.dtype}{list(held.shape)}"
            )
        np.copyto(held, made)
        return held
    if isinstance(made, dict) and isinstance(held, dict):
        return {key: _rewritten(held.get(key), value) for key, value in made.items()}
    if type(made) is type(held) and isinstance(made, (list, tuple)) and len(made) == len(held):
        items = [_rewritten(h, m) for h, m in zip(held, made, strict=True)]
        return items if isinstance(made, list) else tuple(items)
    return made
