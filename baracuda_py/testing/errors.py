"""Every declared error of an op, provoked: what `can_implement` says, `run` must raise, and nothing may be written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.args import Operand, arrays_of, scalars_of
from ..core.element import ElementKind
from ..core.errors import (
    BaracudaError,
    DeviceMismatchError,
    InvalidProblemError,
    MisalignedOperandError,
    UnsupportedError,
)
from ..core.tensor import TensorRef
from .draw import Case
from .layouts import aligned_bytes
from .operands import Operands

Wrap = Callable[[np.ndarray], Any]
_CANDIDATES = (ElementKind.F32, ElementKind.I16, ElementKind.C64, ElementKind.U32)


@dataclass(frozen=True)
class Wrong:
    """One wrong call: the fields of Args that differ from the right one, the error it is, and the name it must say."""

    label: str
    operand: str
    fields: dict[str, Any]
    errors: tuple[type[BaracudaError], ...] = (InvalidProblemError,)
    watched: tuple[np.ndarray, ...] = ()


def wrong_calls(ready: Operands, wrap: Wrap, other: Wrap, host: bool) -> Iterator[Wrong]:
    """Wrong calls for laid-out operands. `wrap` makes the plan's kind of array, `other` one of another device."""
    case = ready.case
    for spec in arrays_of(case.plan.args):
        held = ready.laid[spec.name]
        if spec.required(case.desc):
            yield Wrong("missing", spec.name, {spec.name: None})
        if held is None or held == []:
            continue
        first = held[0] if isinstance(held, list) else held
        yield from (_named(spec, held, wrap, wrong) for wrong in _one_wrong(case, spec, first.view, wrap, other, host))
        if isinstance(held, list):
            views = [wrap(x.view) for x in held]
            yield Wrong("a list too long", spec.name, {spec.name: [*views, views[0]]})
            yield Wrong("no list", spec.name, {spec.name: views[0]})
        if spec.writes:
            yield from _overlaps(ready, spec, wrap)
    for spec in arrays_of(case.plan.args):
        if spec.needs and ready.laid[spec.name] is not None and _optional(case, spec.needs):
            yield Wrong("output without what it needs", spec.name, {spec.needs: None})
    for spec in scalars_of(case.plan.args):
        yield Wrong("scalar that is no number", spec.name, {spec.name: "many"})
        if spec.integer:
            yield Wrong("fraction for an integer", spec.name, {spec.name: 0.5})


def _optional(case: Case, name: str) -> bool:
    return not next(s for s in arrays_of(case.plan.args) if s.name == name).required(case.desc)


def _named(spec: Operand, held: Any, wrap: Wrap, wrong: tuple[str, Any, tuple[type[BaracudaError], ...]]) -> Wrong:
    label, value, errors = wrong
    rest = [wrap(x.view) for x in held[1:]] if isinstance(held, list) else None
    watched = (value,) if isinstance(value, np.ndarray) else ()
    return Wrong(label, spec.name, {spec.name: value if rest is None else [value, *rest]}, errors, watched)


def _one_wrong(
    case: Case, spec: Operand, array: np.ndarray, wrap: Wrap, other: Wrap, host: bool
) -> Iterator[tuple[str, Any, tuple[type[BaracudaError], ...]]]:
    invalid = (InvalidProblemError,)
    allowed = spec.elements(case.desc)
    carriers = {a.carrier for a in allowed}
    yield "no array", object(), invalid
    axes = len(spec.shape(case.desc)) + 1 - array.ndim if spec.broadcast else 1  # more than what it broadcasts to
    yield "one axis too many", wrap(np.zeros((*(2,) * axes, *array.shape), array.dtype)), invalid
    if array.ndim and not spec.broadcast:
        yield "one element too many", wrap(np.zeros((*array.shape[:-1], array.shape[-1] + 1), array.dtype)), invalid
    kind = next((k for k in _CANDIDATES if k not in allowed and k.dtype not in carriers), None)
    if kind is not None:
        yield "wrong dtype", wrap(np.zeros(array.shape, kind.dtype)), (InvalidProblemError, UnsupportedError)
    if array.size:
        yield "another device", other(np.array(array)), (DeviceMismatchError,)
        yield "null pointer", _null(array, -1 if host else 0), invalid
    if array.size and array.itemsize > 1:
        yield "misaligned", wrap(_misaligned(array)), (MisalignedOperandError,)
    if spec.layout != "any" and array.ndim and array.shape[-1] > 1 and array.size:
        wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
        yield "stride 2 where the last axis must be dense", wrap(wide[..., ::2]), (UnsupportedError,)
    if spec.layout == "dense" and array.ndim > 1 and array.shape[0] > 1 and array.size:
        wide = np.zeros((*array.shape[:-1], array.shape[-1] + 1), array.dtype)
        yield "gaps where rows must be dense", wrap(wide[..., :-1]), (UnsupportedError,)
    if not spec.writes or not array.size:
        return
    if host:
        fixed = np.zeros(array.shape, array.dtype)
        fixed.flags.writeable = False
        yield "read-only", fixed, invalid
    axis = next((a for a in range(array.ndim) if array.shape[a] > 1), None)
    if axis is not None:
        strides = list(np.zeros(array.shape, array.dtype).strides)
        strides[axis] = 0
        folded = np.lib.stride_tricks.as_strided(np.zeros(array.shape, array.dtype), array.shape, strides)
        yield "overlapping itself", wrap(folded), (InvalidProblemError, UnsupportedError)


def _misaligned(array: np.ndarray) -> np.ndarray:
    """A dense array of the same shape one byte off."""
    raw = aligned_bytes(array.nbytes + array.itemsize)
    made: np.ndarray = np.ndarray(array.shape, array.dtype, raw.data, 1)
    return made


def _null(array: np.ndarray, device: int) -> Any:
    """The same shape at address 0: on a device as a CuPy array, so that a prepared layout meets it."""
    if device < 0:
        return TensorRef(0, array.shape, None, ElementKind.of(array.dtype), device=device)
    import cupy

    memory = cupy.cuda.UnownedMemory(0, array.nbytes, array, device)
    return cupy.ndarray(array.shape, array.dtype, cupy.cuda.MemoryPointer(memory, 0))


def _overlaps(ready: Operands, spec: Operand, wrap: Wrap) -> Iterator[Wrong]:
    """The output's first bytes on another operand's last ones."""
    for other, i, one in ready.items():
        held = ready.laid[spec.name]
        if other.name == spec.name or i or spec.many or other.many:
            continue
        a, b = held.view, one.view
        if not a.size or not b.size:
            continue
        start = (b.nbytes - 1) // a.itemsize * a.itemsize
        if start == 0 and a.shape == b.shape and a.dtype == b.dtype:
            continue  # one element: an identical view
        memory = aligned_bytes(a.nbytes + b.nbytes)
        memory[:] = 0
        below = np.ndarray(b.shape, b.dtype, memory.data, 0)
        below[...] = b
        above = np.ndarray(a.shape, a.dtype, memory.data, start)
        fields = {spec.name: wrap(above), other.name: wrap(below)}
        yield Wrong(f"overlaps {other.name}", spec.name, fields, watched=(memory,))


def check_wrong(plan: Any, ready: Operands, wrap: Wrap, other: Wrap, host: bool) -> None:
    """Each wrong call: a falsy verdict, the same typed error from `run`, the operand named, nothing written."""
    right = ready.fields(wrap)
    for wrong in wrong_calls(ready, wrap, other, host):
        try:
            _check_call(plan, ready, right, wrong)
        except AssertionError as error:
            raise AssertionError(f"{ready}\n{wrong.operand}: {wrong.label}: {error}") from error


def _check_call(plan: Any, ready: Operands, right: dict[str, Any], wrong: Wrong) -> None:
    before = [np.array(w) for w in wrong.watched]
    args = ready.case.plan.args(**{**right, **wrong.fields})
    verdict = plan.can_implement(args)
    if verdict:
        raise AssertionError(f"can_implement says {verdict.sku}, expected {wrong.errors[0].__name__}")
    for name, act in (("run", plan.run), ("bind", plan.bind)):
        try:
            act(args)
        except BaracudaError as error:
            _check_error(name, wrong, verdict.error, error)
        except Exception as error:
            raise AssertionError(f"{name} raised {type(error).__name__}: {error}") from error
        else:
            raise AssertionError(f"{name} raised nothing, can_implement says {verdict.reason}")
    if (harm := ready.damage(writes=False)) is not None:
        raise AssertionError(f"the failed call wrote: {harm}")
    if any(a.tobytes() != b.tobytes() for a, b in zip(before, wrong.watched, strict=True)):
        raise AssertionError("the failed call wrote into it")


def _check_error(name: str, wrong: Wrong, said: Any, error: BaracudaError) -> None:
    if not isinstance(error, wrong.errors):
        raise AssertionError(f"{name} raised {type(error).__name__} ({error}), expected {wrong.errors[0].__name__}")
    if type(error) is not type(said):
        raise AssertionError(f"can_implement says {type(said).__name__}, {name} raised {type(error).__name__}")
    for text in (str(error), str(said)):
        if wrong.operand not in text:
            raise AssertionError(f"the message does not name {wrong.operand}: {text}")
