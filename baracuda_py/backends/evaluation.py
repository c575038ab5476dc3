"""A page's reference on arrays as they are stored: floats are handed over in float64, results rounded once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from ..core.args import Operand, arrays_of, scalars_of
from ..core.element import ElementKind, cast, decode
from ..core.spec import Spec


class Evaluation:
    """How a plan's reference is called, settled once for stored arrays of these types; they are not kept.

    Outputs are the buffers wanted (None: not wanted), whose contents are not read. apart: items of a batch have the
    bits that they have alone.
    """

    def __init__(self, plan: type[Spec], desc: Any, arrays: Mapping[str, Any], apart: bool = False) -> None:
        self._plan, self._desc = plan, desc
        specs = arrays_of(plan.args)
        outputs = [s for s in specs if s.role == "out"]
        self._loads = [(s.name, self._loader(s, arrays.get(s.name))) for s in specs if s.reads]
        self._kept = [s.name for s in specs if s.role == "inout"]
        self._numbers = [s.name for s in scalars_of(plan.args)]
        self._stores = [s for s in specs if s.writes and arrays.get(s.name) is not None]
        self._extra: dict[str, Any] = {}
        if any(s.optional for s in outputs):
            self._extra["wanted"] = {s.name for s in outputs if arrays.get(s.name) is not None}
        if apart and plan.apart:
            self._extra["apart"] = True

    def run(self, arrays: Mapping[str, Any]) -> None:
        """Evaluate, and write the outputs and in-outs."""
        with np.errstate(all="ignore"):  # a GPU does not warn of infinities either, nor of NaNs that it converts
            results = self._evaluated(arrays)
            for spec in self._stores:
                _store(spec, self._desc, arrays[spec.name], results[spec.name])

    def _evaluated(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """What the reference makes of arrays and numbers; every in-out is among it."""
        given = {name: load(arrays[name]) if load else None for name, load in self._loads}
        for name in self._numbers:
            value = arrays.get(name)
            value = value.reshape(()) if isinstance(value, np.ndarray) else value  # shape (1,) is taken, too
            given[name] = 0 if value is None else value  # a seed that nothing draws by
        results = dict(self._plan.reference(self._desc, **given, **self._extra))
        for name in self._kept:
            results.setdefault(name, given[name])
        return results

    def _loader(self, spec: Operand, value: Any) -> Callable[[Any], Any] | None:
        """What makes of an operand like this one what the reference takes; None where it is absent."""
        if value is None:
            return None
        if isinstance(value, list):
            return lambda items: [self._one(spec, item.dtype)(item) for item in items]
        return self._one(spec, value.dtype)

    def _one(self, spec: Operand, dtype: np.dtype) -> Callable[[Any], Any]:
        element = element_of(spec, self._desc, dtype)
        if self._plan.raw:
            # One value of a packed element in each byte is no storage of it: the page refuses it.
            bytewise = element.bits == 8 and dtype == element.dtype != element.carrier
            return partial(_raw, carrier=element.carrier if bytewise else None, copied=spec.writes)
        if element.is_inexact:
            compute = np.complex128 if element.is_complex else np.float64
            # Row-major whatever the layout: NumPy sums along memory, and a view must give the bits of its dense copy.
            load = partial(np.array, dtype=compute, order="C", copy=True if spec.writes else None)
            return load if dtype == element.dtype else lambda value: load(decode(value, element))
        return partial(_whole, element=element, copied=spec.writes)


def element_of(spec: Operand, desc: Any, dtype: np.dtype) -> ElementKind:
    """The element of an operand that is held in a dtype."""
    allowed = spec.elements(desc)
    found = ElementKind.of(dtype)
    return found if found in allowed else allowed[0]


def _raw(value: np.ndarray, carrier: Any, copied: bool) -> np.ndarray:
    stored = value if carrier is None else value.view(carrier)
    return stored.copy() if copied else stored


def _whole(value: np.ndarray, element: ElementKind, copied: bool) -> np.ndarray:
    decoded = decode(value, element)
    return decoded.copy() if copied else decoded


def _store(spec: Operand, desc: Any, target: Any, result: Any) -> None:
    if isinstance(target, list):
        for one, value in zip(target, result, strict=True):
            _store(spec, desc, one, value)
        return
    value = np.asarray(result)
    if value.dtype != target.dtype and not (value.dtype == np.float64 and target.dtype == np.float32):
        element = element_of(spec, desc, target.dtype)
        if not value.dtype == element.carrier != element.dtype:  # bytes of the element are what they are
            value = cast(value, element)
        value = value.view(target.dtype) if value.dtype != target.dtype else value
    target[...] = value
