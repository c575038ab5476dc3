"""The NumPy backend: a page's reference, float64 inside, rounded once into the caller's arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from ..core import config
from ..core.args import Args, Operand, arrays_of, operands_of
from ..core.device import Device
from ..core.element import ElementKind, cast, decode
from ..core.errors import InvalidProblemError
from ..core.execution import Makers, Views
from ..core.finite import all_finite, report, word
from ..core.intake import count_written
from ..core.memory import raise_lacking
from ..core.plan import Plan
from ..core.spec import NUMPY_APART, Spec
from ..interop.arrays import settled, to_numpy


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

    def direct(self, makers: Makers, lead: Any, views: Views = None) -> None:
        """None: the time of a call is its evaluation."""

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
    results = evaluate(type(plan), plan.desc, held, apart=apart)
    for spec in arrays_of(type(args)):
        if spec.writes and held[spec.name] is not None:
            _store(spec, plan.desc, held[spec.name], results[spec.name])
            for bits, element in _bits(spec, plan, held) if checked else ():
                report(plan.op, spec.name, bits, element, whole)
    count_written(args)


def _bits(spec: Operand, plan: Plan, held: Mapping[str, Any]) -> Iterator[tuple[np.ndarray, ElementKind]]:
    """The floats of an operand as the unsigned integers that hold them."""
    value = held[spec.name]
    for array in value if isinstance(value, list) else () if value is None else (value,):
        element = _element(spec, plan.desc, array)
        held_in = word(element)
        if held_in is not None:
            for part in (array.real, array.imag) if element.is_complex else (array,):
                yield part.view(held_in), element


@np.errstate(all="ignore")  # a GPU does not warn of infinities either, nor of signalling NaNs that it converts
def evaluate(
    plan: type[Spec], desc: Any, arrays: Mapping[str, Any], compute: Any = np.float64, apart: bool = False
) -> dict[str, Any]:
    """The reference on stored arrays, floats handed over in `compute`; every in-out is in the result.

    apart: items of a batch have the bits that they have alone.

    Outputs appear in `arrays` as the buffers wanted (None: not wanted); their contents are not read.
    """
    given: dict[str, Any] = {}
    for spec in operands_of(plan.args):
        value = arrays.get(spec.name)
        if spec.role == "scalar":
            given[spec.name] = value.reshape(()) if isinstance(value, np.ndarray) else value  # shape (1,) is taken, too
        elif not spec.reads:
            given[spec.name] = value is not None
        elif isinstance(value, list):
            given[spec.name] = [_load(plan, spec, desc, item, compute) for item in value]
        else:
            given[spec.name] = None if value is None else _load(plan, spec, desc, value, compute)
    wanted = {spec.name: given.pop(spec.name) for spec in arrays_of(plan.args) if spec.role == "out"}
    optional = {s.name for s in arrays_of(plan.args) if s.role == "out" and s.optional}
    extra: dict[str, Any] = {"wanted": {n for n in wanted if wanted[n]}} if optional else {}
    if apart and plan.apart:
        extra["apart"] = True
    results = dict(plan.reference(desc, **given, **extra))
    for spec in arrays_of(plan.args):
        if spec.role == "inout":
            results.setdefault(spec.name, given[spec.name])
    return results


def _hold(value: Any) -> Any:
    if value is None or isinstance(value, (int, float)):
        return value
    if isinstance(value, (list, tuple)):
        return [to_numpy(item) for item in value]
    array = to_numpy(value)
    return array


def _load(plan: type[Spec], spec: Operand, desc: Any, value: np.ndarray, compute: Any) -> np.ndarray:
    element = _element(spec, desc, value)
    if plan.raw:
        # One value of a packed element in each byte is no storage of it: the page refuses it.
        bytewise = element.bits == 8 and value.dtype == element.dtype != element.carrier
        stored = value.view(element.carrier) if bytewise else value
        return stored.copy() if spec.writes else stored
    decoded = decode(value, element)
    if element.is_inexact:
        dtype = np.result_type(compute, np.complex64) if element.is_complex else compute
        # Row-major whatever the layout: NumPy sums along memory, and a view must give the bits of its dense copy.
        with np.errstate(invalid="ignore"):  # a signaling NaN
            return np.array(decoded, dtype, order="C", copy=True if spec.writes else None)
    return decoded.copy() if spec.writes else decoded


def _element(spec: Operand, desc: Any, value: np.ndarray) -> ElementKind:
    allowed = spec.elements(desc)
    found = ElementKind.of(value.dtype)
    return found if found in allowed else allowed[0]


def _store(spec: Operand, desc: Any, target: Any, result: Any) -> None:
    if isinstance(target, list):
        for one, value in zip(target, result, strict=True):
            _store(spec, desc, one, value)
        return
    element = _element(spec, desc, target)
    value = np.asarray(result)
    if value.dtype != target.dtype:
        if not value.dtype == element.carrier != element.dtype:  # bytes of the element are what they are
            value = cast(value, element)
        value = value.view(target.dtype) if value.dtype != target.dtype else value
    target[...] = value


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
