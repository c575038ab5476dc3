"""Dispatch: validate a call against its declaration, walk the rows, say why.

`read_args` turns arrays into views and raises the typed error of whatever is wrong; `choose` takes the
first row whose geometry fits. Both run on the host alone and work for fake devices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..interop.jax_arrays import TRACED
from .args import Args, Operand, arrays_of, expect_shape, scalars_of
from .arrays import Reading, located, read_only, to_numpy
from .checked import shown
from .descriptor import Descriptor
from .device import Device
from .element import ALL, ElementKind
from .errors import BaracudaError, DeviceMismatchError, InvalidProblemError, MisalignedOperandError, UnsupportedError
from .numbers import met
from .preference import PlanPreference, arch_allowed
from .sku import KernelSku
from .spec import Spec
from .tensor import View, addressable, dense_strides, shares_memory
from .unreadable import traced_error
from .variant import Geometry, Problem, Step, Variant


@dataclass(frozen=True)
class Verdict:
    """What `can_implement` answers: truthy with the exact SKU, or falsy with the error `run` would raise."""

    sku: KernelSku | None = None
    error: BaracudaError | None = None

    def __bool__(self) -> bool:
        return self.error is None

    @property
    def reason(self) -> str:
        return "" if self.error is None else str(self.error)


Views = dict[str, "View | tuple[View, ...] | None"]


def read_args(plan: type[Spec], desc: Descriptor, device: Device, args: Args) -> Views:
    """The operands' views, checked: presence, type, device, element, shape, self-overlap, overlap."""
    if type(args) is not plan.args:
        raise InvalidProblemError(f"{plan.__name__} takes {plan.args.__name__}, got {type(args).__name__}")
    views: Views = {}
    for spec in arrays_of(plan.args):
        value = getattr(args, spec.name)
        if value is None:
            if spec.required(desc):
                raise InvalidProblemError(f"{spec.name} is required, got None")
            views[spec.name] = None
        elif not spec.serves(desc):
            why = f"has a number in its place ({spec.instead})" if spec.instead else f"is not for {desc.kind.value}"  # type: ignore[attr-defined]
            raise InvalidProblemError(f"{spec.name} {why}; it must be None")
        elif spec.many:
            count = len(getattr(desc, spec.many))
            if not isinstance(value, (list, tuple)) or len(value) != count:
                got = len(value) if isinstance(value, (list, tuple)) else type(value).__name__
                raise InvalidProblemError(f"{spec.name} must be a list of {count} arrays, got {got}")
            views[spec.name] = tuple(_read_one(spec, desc, device, item, i) for i, item in enumerate(value))
        else:
            views[spec.name] = _read_one(spec, desc, device, value)
    for spec in arrays_of(plan.args):
        if spec.needs and views[spec.name] is not None and views[spec.needs] is None:
            raise InvalidProblemError(f"{spec.name} is wanted but {spec.needs} is None")
        if spec.like and (view := views[spec.name]) is not None:
            _check_like(spec, view, views[spec.like])
    read_numbers(plan, desc, device, {s.name: getattr(args, s.name) for s in scalars_of(plan.args)})
    _check_overlap(arrays_of(plan.args), views)
    plan.check(desc, views)
    return views


def read_numbers(plan: type[Spec], desc: Descriptor, device: Device, given: Mapping[str, Any]) -> None:
    """The scalars, checked: numbers, or arrays of one on the device, that the elements they meet take."""
    numbers = {s.name: _check_scalar(s, desc, device, given[s.name]) for s in scalars_of(plan.args)}
    if plan.args.__joint__:
        plan.check_numbers(desc, numbers)


def _read_one(spec: Operand, desc: Descriptor, device: Device, value: Any, index: int = 0) -> View:
    where = f"{spec.name}[{index}]" if spec.many else spec.name
    got = located(value, where)
    device.expect(where, got.device)
    allowed = spec.elements(desc)
    if got.element not in allowed and not any(a.carrier == got.element.dtype and a.carrier != a.dtype for a in allowed):
        wanted = " or ".join(map(str, allowed))
        raise InvalidProblemError(f"{where} must be {wanted}, got {got.element}{_cast(spec, where, got, allowed[0])}")
    element = got.element if got.element in allowed else allowed[0]
    expect_shape(spec, desc, got.shape, index)
    view = View(got.ptr, got.shape, got.strides, element)
    check_pointer(where, view)
    if (spec.layout == "inner" and not view.inner_dense) or (spec.layout == "dense" and not view.dense):
        wanted = "be dense (row-major)" if spec.layout == "dense" else "have stride 1 on its last axis"
        raise UnsupportedError(
            f"{where} must {wanted}, got shape {view.shape} strides {view.strides}; copy it to a dense array"
        )
    if spec.writes:
        if got.readonly:
            raise read_only(value, where)
        if _overlaps_itself(view):
            raise InvalidProblemError(
                f"{where} overlaps itself (strides {view.strides}) and cannot be an output; give a dense array"
            )
    return view


def check_pointer(name: str, view: View | Reading) -> None:
    """Raise where a view with elements has a null pointer, or one that its element is not aligned to."""
    if 0 in view.shape:
        return
    if not view.ptr:
        raise InvalidProblemError(f"{name} has shape {view.shape} but a null pointer; give it memory")
    size = view.element.itemsize
    if view.ptr % size:
        raise MisalignedOperandError(
            f"{name} is at address {view.ptr:#x}, no multiple of the {size} bytes of {view.element}; copy it"
        )


SCALAR_TAGS = {ElementKind.F32: 0, ElementKind.F64: 1, ElementKind.I64: 2, ElementKind.I32: 3}
"""Tags of the elements that a scalar's pointer may point to, as `load_scalar_f` and `load_scalar_i` read them."""


def host_number(value: Any, spec: Operand) -> int | float | None:
    """A scalar operand's value where the host knows it, None for a device array; raises where it is neither."""
    if not isinstance(value, (int, float)):
        view = scalar_view(value, spec) if not isinstance(value, np.generic) else None
        if view is not None and view.device == TRACED:
            raise traced_error(spec.name)
        if view is not None:
            check_pointer(spec.name, view)
        if view is not None and view.device >= 0:
            return None
        value = np.asarray(to_numpy(value) if view is not None else value).item()
        if not isinstance(value, (int, float)):
            raise InvalidProblemError(f"{spec.name} must be {_SCALAR}, got {shown(value)}")
    if spec.meets and not spec.integer and isinstance(value, int):
        return int(value)  # as it is: `met` knows what meets it
    if not spec.integer:
        try:
            return float(value)
        except OverflowError:
            raise InvalidProblemError(f"{spec.name} must fit a float64, got {shown(value)}") from None
    if isinstance(value, float) and not value.is_integer():
        raise InvalidProblemError(f"{spec.name} must be an integer, got {shown(value)}")
    if not -(2**63) <= value < 2**64:
        raise InvalidProblemError(f"{spec.name} must fit 64 bits, got {shown(value)}")
    return int(value)


def scalar_view(value: Any, spec: Operand) -> Reading:
    """What is known of an array in a scalar's place; raises where a kernel does not read such a one."""
    try:
        view = located(value, spec.name)
    except InvalidProblemError:
        raise InvalidProblemError(f"{spec.name} must be {_SCALAR}, got {shown(value)}") from None
    if view.shape not in ((), (1,)) or view.element not in SCALAR_TAGS:
        raise InvalidProblemError(f"{spec.name} must be {_SCALAR}, got {view.element} of shape {view.shape}")
    return view


_SCALAR = "a number or a 0-d float32, float64, int32 or int64 array"


def _check_scalar(spec: Operand, desc: Any, device: Device, value: Any) -> int | float | None:
    if value is None and spec.drawn:
        return undrawn(spec, desc)
    number = host_number(value, spec)
    if number is None:
        at = located(value, spec.name).device
        if at != device.ordinal:
            raise DeviceMismatchError(
                f"{spec.name} is on cuda:{at}, the plan is on {device}; give a number or copy it there"
            )
        return None
    if device.kind == "cpu" and not isinstance(value, (int, float, np.generic)):
        return None  # NumPy's arrays are what others are on their device
    return met_number(spec, desc, number)


def undrawn(spec: Operand, desc: Any) -> int:
    """What stands for a seed that is not given; raises where numbers are drawn."""
    if spec.draws(desc):
        raise InvalidProblemError(
            f"{spec.name} is None where {spec.drawn} is {getattr(desc, str(spec.drawn))}; give the stream to draw from "
            "(an integer or a 0-d array), and an offset"
        )
    return 0


def _cast(spec: Operand, where: str, got: Any, wanted: ElementKind) -> str:
    """What to write instead of an operand that holds another element, where a cast makes it."""
    plain = got.element in ALL and wanted in ALL and not (got.element.is_complex and not wanted.is_complex)
    return f"; write cast({where}, '{wanted}')" if spec.reads and plain else ""


def met_number(spec: Operand, desc: Any, number: int | float) -> int | float:
    """A host's number as a launch packs it; raises where the element that it meets does not take it."""
    if not spec.meets or (spec.integer and desc.element.is_inexact):  # whose elements look at another number
        return number
    return met(spec.name, number, desc.element, spec.meets)


def _check_like(spec: Operand, view: Any, other: Any) -> None:
    if (view.shape, view.element) != (other.shape, other.element):
        wanted, got = f"{other.element} of shape {other.shape}", f"{view.element} of shape {view.shape}"
        raise InvalidProblemError(f"{spec.name} must be {wanted} as {spec.like}, got {got}")
    if not view.element.is_inexact:
        raise InvalidProblemError(f"{spec.name} is wanted but {spec.like} is {other.element} and has no gradient")


def _overlaps_itself(view: View) -> bool:
    reach = 0
    for stride, extent in sorted((abs(s), n) for s, n in zip(view.strides, view.shape, strict=True) if n > 1):
        if stride <= reach:
            return view.size > 0
        reach += (extent - 1) * stride
    return False


def _check_overlap(specs: Sequence[Operand], views: Views) -> None:
    spans: list[tuple[int, int, Operand, View]] = []
    for spec in specs:
        value = views[spec.name]
        for view in value if isinstance(value, tuple) else (value,):
            if view is not None and view.size:
                spans.append((view.ptr + view.span[0], view.ptr + view.span[1], spec, view))
    spans.sort(key=lambda s: s[0])
    for i, (_, high, spec, view) in enumerate(spans):
        for low, _, other, seen in spans[i + 1 :]:
            if low >= high:
                break
            if (spec.writes or other.writes) and shares_memory(view, seen):
                _allow_alias(spec, view, other, seen)


def _allow_alias(a: Operand, view: View, b: Operand, seen: View) -> None:
    same = (view.ptr, view.shape, view.element) == (seen.ptr, seen.shape, seen.element) and all(
        a == b for a, b, n in zip(view.strides, seen.strides, view.shape, strict=True) if n > 1
    )
    safe = b.name in a.inplace or a.name in b.inplace
    if same and safe:
        return
    out, other = (a, b) if a.writes else (b, a)
    hint = "only an identical view may be shared" if safe else "give it memory of its own"
    raise InvalidProblemError(f"{out.name} overlaps {other.name}; {hint}")


def refuse_row(plan: type[Spec], variant: Variant, desc: Any, device: Device, preference: PlanPreference) -> str | None:
    """Why this row cannot serve the descriptor on this device at all, or None."""
    kind = getattr(desc, "kind", None) if plan.kinds else None
    if not variant.serves(kind, desc.element):
        return f"not for {desc.element}" if variant.kinds is None or kind in variant.kinds else f"not for {kind}"
    if preference.prefer_backend not in (None, variant.backend):
        return f"backend {preference.prefer_backend.value} was asked for"
    if device.kind != variant.backend.device:
        return f"does not run on {device.kind}"
    if not variant.design.runs_on(device.cc):
        return f"{variant.design.value} design, device is {device.cc[0]}.{device.cc[1]}"
    if not arch_allowed(preference, variant.design):
        return f"{variant.design.value} is newer than max_arch"
    if preference.deterministic and not variant.guarantee.deterministic:
        return "not deterministic; ask PlanPreference(deterministic=False)"
    if (preference.batch_invariant or preference.same_bits) and not variant.guarantee.batch_invariant:
        return "not batch-invariant"
    if preference.same_bits and plan.same_bits and not variant.guarantee.same_bits:
        return f"its bits are its own, not those that {plan.same_bits} shares"
    if variant.guarantee.same_bits and not preference.same_bits and not plan.shares_bits():
        return "for PlanPreference(same_bits=True)"
    return variant.refuses(desc) if variant.refuses else None


def fit(variant: Variant, problem: Problem, preference: PlanPreference) -> Geometry | str:
    """The row's geometry for a layout, or why not."""
    geometry = variant.geometry(problem)
    if isinstance(geometry, str):
        return geometry
    if variant.missing and not problem.device.fake and (why := variant.missing()):
        return why
    for step in geometry.steps:
        if isinstance(step, Step) and step.smem > problem.device.smem:
            return f"needs {step.smem} bytes of shared memory, the device has {problem.device.smem}"
    limit = preference.max_workspace_bytes
    if limit is not None and geometry.workspace > limit:
        return f"needs {geometry.workspace} bytes of workspace, the preference allows {limit}"
    return geometry


def choose(rows: Iterable[Variant], problem: Problem, preference: PlanPreference) -> tuple[Variant, Geometry]:
    """The first row that takes this layout; UnsupportedError tells why each did not."""
    reasons = []
    for variant in rows:
        geometry = fit(variant, problem, preference)
        if not isinstance(geometry, str):
            return variant, geometry
        reasons.append(f"{variant.name}: {geometry}")
    layouts = ", ".join(f"{n} {v.shape} strides {v.strides}" for n, v in problem.views.items() if isinstance(v, View))
    raise UnsupportedError("no row takes this layout (" + layouts + ")\n  " + "\n  ".join(reasons))


def dense_view(name: str, shape: tuple[int, ...], kind: ElementKind) -> View:
    """A dense view without memory; raises where 64 bits do not address it."""
    strides = dense_strides(shape)
    try:
        addressable(0, shape, strides, kind.itemsize)
    except InvalidProblemError as error:
        raise InvalidProblemError(f"{name}: {error}") from None
    return View(0, shape, strides, kind)


def dense_problem(plan: type[Spec], desc: Any, device: Device, optional: bool = False) -> Problem:
    """The problem with dense, aligned operands: what a plan's own SKU describes."""
    views: Views = {}
    for spec in arrays_of(plan.args):
        if not (spec.required(desc) or (optional and spec.serves(desc))):
            views[spec.name] = None
            continue
        kind = spec.elements(desc)[0]
        count = len(getattr(desc, spec.many)) if spec.many else 1
        made = tuple(dense_view(spec.name, spec.shape(desc, i), kind) for i in range(count))
        views[spec.name] = made if spec.many else made[0]
    return Problem(desc, device, views)
