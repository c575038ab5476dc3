"""Layouts of one plan's operands made ready to launch on a CUDA device: validated, chosen, compiled, loaded."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from math import inf
from typing import Any

from ..._forking import Mutex, in_child
from ...core.args import Args, Operand, arrays_of, operands_of, scalars_of
from ...core.arrays import located, read_only
from ...core.device import mark_used, refuse_forked
from ...core.dispatch import host_number
from ...core.errors import DeviceMismatchError, NotPreparedError
from ...core.memo import cached_property
from ...core.memory import raise_lacking
from ...core.numbers import range_of
from ...core.plan import Plan
from ...core.tensor import TensorRef, View
from ...core.tuned import on_tuning
from ...core.variant import Geometry, LibraryStep, Step, Variant
from ...interop.packages import package_name
from ...interop.torch_rules import may_be_lazy, of_a_graph
from ...jit.capture import for_graph
from ...jit.launch import Launch, LibraryLaunch, Runtime, runtime_for
from .hotpath import PACKAGES
from .intake import checked_workspace, current_stream, record_stream
from .loading import load_functions

_WORKSPACE = Operand("workspace", "in")


class Prepared:
    """A layout made ready: its steps, and what `run` has to check for it."""

    __slots__ = ("call", "lazy", "steps", "workspace")

    def __init__(self, steps: list[Any], workspace: int, lazy: bool) -> None:
        self.steps = steps
        self.workspace = workspace
        self.lazy = lazy  # whether a torch tensor of this layout may have its negative or conjugate bit set
        self.call: Callable[..., None] = steps[0].call if len(steps) == 1 else self._all

    def _all(self, flat: tuple[int, ...], values: tuple[Any, ...], stream: int) -> None:
        for step in self.steps:
            step.call(flat, values, stream)


class Layout:
    """What shapes, strides and dtypes fix: byte spans, one `Prepared` per pointer alignment mod 16 (() = aligned)."""

    __slots__ = ("by_alignment", "spans")

    def __init__(self, spans: tuple[int, ...]) -> None:
        self.spans = spans
        self.by_alignment: dict[tuple[int, ...], Prepared] = {}


class Layouts:
    """The prepared layouts of one plan, how operands are read for them, and the runtime that loads and launches."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.device = plan.device
        self.ordinal = plan.device.ordinal
        self.layouts: dict[str, dict[Any, Layout]] = {name: {} for name in PACKAGES}
        self.directs: weakref.WeakSet[Any] = weakref.WeakSet()  # short paths, which know some of them, too
        self.first = next(o for o in arrays_of(plan.args) if not o.optional)
        self.numbers: tuple[Any, ...] | None = None  # those of joint Args that were checked last
        self._lock = Mutex()
        mark_used(self.device.fake)
        _made.add(self)

    @cached_property
    def runtime(self) -> Runtime:
        """Launching needs a driver; choosing and compiling do not."""
        return runtime_for(self.device)

    @cached_property
    def several(self) -> bool:
        """Whether another device can be current."""
        return self.runtime.device_count() > 1

    @cached_property
    def _ends(self) -> dict[str, tuple[float, float]]:
        element = self.plan.desc.element
        kinds = ("element", "coefficient")
        return {meets: (-inf, inf) if element.is_inexact else range_of(element, meets) for meets in kinds}

    def plain(self, value: Any, meets: str) -> bool:
        """Whether a number that meets the element is packed as it is, without a look at what else it may be."""
        low, high = self._ends[meets]
        return type(value) is (float if high == inf else int) and low <= value <= high

    def check_numbers(self, values: tuple[Any, ...], pointers: tuple[int, ...]) -> None:
        """Check the numbers of joint Args together, those that the host knows."""
        names = [spec.name for spec in scalars_of(self.plan.args)]
        known = [None if p else value for value, p in zip(values, pointers, strict=True)]
        self.plan.check_numbers(self.plan.desc, dict(zip(names, known, strict=True)))
        self.numbers = None if any(pointers) else values

    def check_form(self, args: Args) -> None:
        """What generated code takes for granted: the Args class, required operands, lists where lists are declared."""
        if type(args) is self.plan.args:
            values = [(spec, getattr(args, spec.name)) for spec in arrays_of(self.plan.args)]
            if all(
                isinstance(v, (list, tuple)) == bool(spec.many) if v is not None else spec.optional
                for spec, v in values
            ):
                return
        self.plan.plan_layout(args)  # says what is wrong

    def kind(self, args: Args) -> type:
        lead = getattr(args, self.first.name)
        return type(lead[0]) if isinstance(lead, (list, tuple)) and lead else type(lead)

    def arrays(self, args: Args) -> Iterator[Any]:
        for spec in arrays_of(self.plan.args):
            value = getattr(args, spec.name)
            if isinstance(value, (list, tuple)):
                yield from value
            elif value is not None:
                yield value

    def package(self, args: Args) -> str:
        """The array package whose allocator serves the call."""
        return package_name(self.kind(args))

    def given(self, args: Args) -> list[Any]:
        """All arrays of a call: operands, items of lists, scalars that are no numbers."""
        scalars = (getattr(args, spec.name) for spec in scalars_of(self.plan.args))
        return [*self.arrays(args), *(s for s in scalars if not isinstance(s, (int, float, type(None))))]

    def read_on(self, at: int, args: Args, workspace: Any) -> tuple[list[Any], Args, Any]:
        """The call as TensorRefs, ordered for a stream; first what has to be kept alive until it has passed there."""
        with self.runtime.on_stream(at):
            held, refs = self.refs(args)
            return held, refs, None if workspace is None else _ref(workspace, _WORKSPACE, held)

    def refs(self, args: Args) -> tuple[list[Any], Args]:
        """The same call with TensorRefs, and what has to be kept alive for them: what other packages handed over."""
        self.check_form(args)
        held: list[Any] = []
        given: dict[str, Any] = {}
        for spec in operands_of(self.plan.args):
            value = getattr(args, spec.name)
            if value is None or (spec.role == "scalar" and host_number(value, spec) is not None):
                given[spec.name] = value
            elif isinstance(value, (list, tuple)):
                given[spec.name] = [_ref(item, spec, held) for item in value]
            else:
                given[spec.name] = _ref(value, spec, held)
        return held, self.plan.args(**given)

    def ready(self, args: Args) -> tuple[Prepared, Layout]:
        variant, geometry, views = self.plan.plan_layout(args, measuring=True)
        refuse_forked(self.device.fake)
        self.plan.announce(variant, geometry)
        flat_views: list[View | None] = []
        starts: dict[str, int] = {}
        for spec in arrays_of(self.plan.args):
            value = views[spec.name]
            starts[spec.name] = len(flat_views)
            flat_views.extend(value if isinstance(value, tuple) else (value,))
        scalars = scalars_of(self.plan.args)
        for spec in scalars:
            starts[spec.name] = len(flat_views) + scalars.index(spec)
        starts["@workspace"] = len(flat_views) + len(scalars)
        starts["@status"] = starts["@workspace"] + 1
        starts["@null"] = starts["@workspace"] + 2
        kernels = [step for step in geometry.steps if isinstance(step, Step)]
        functions = iter(load_functions(self.plan, variant, kernels))
        steps = [self._step(variant, step, starts, geometry, functions) for step in geometry.steps]
        spans = tuple(b for view in flat_views for b in (view.span if view is not None else (0, 0)))
        lazy = any(view is not None and may_be_lazy(view.shape, view.strides, view.element) for view in flat_views)
        asked = (step.workspace for step in steps if isinstance(step, LibraryLaunch))
        return Prepared(steps, max(asked, default=geometry.workspace), lazy), Layout(spans)

    def _step(
        self, variant: Variant, step: Step | LibraryStep, starts: dict[str, int], geometry: Geometry,
        functions: Iterator[Any],
    ) -> Any:  # fmt: skip
        if isinstance(step, LibraryStep):
            return LibraryLaunch(self.runtime.library(step.prepare, self.device), starts, geometry.workspace)
        kernel = variant.kernel(step.kernel)
        scalar_names = [s.name for s in scalars_of(self.plan.args)]
        picks: list[tuple[int, int]] = []
        for slot in kernel.params.pointers:
            given = step.params.get(slot.name)
            if slot.kind == "workspace":
                picks.append((starts["@workspace"], int(given or 0)))
            elif slot.kind == "status":
                picks.append((starts["@status"], 0))
            elif slot.extents:
                name, start, stop = given  # type: ignore[misc]
                base = starts[name]
                picks.extend((base + i, 0) for i in range(start, stop))
                picks.extend((starts["@null"], 0) for _ in range(slot.count - (stop - start)))
            elif slot.name.endswith("_ptr") and slot.name[:-4] in kernel.params.scalars:
                fixed = f"{slot.name[:-4]}_value" in step.params
                picks.append((starts["@null" if fixed else given or slot.name[:-4]], 0))
            elif given is None:
                picks.append((starts[slot.name], 0))
            else:
                name, shift = given if isinstance(given, tuple) else (given, 0)
                picks.append((starts[name], shift))
        fields = [
            (name, step.params.get(f"{name}_ptr", name), whole)
            for name, whole in kernel.params.scalars.items()
            if f"{name}_value" not in step.params
        ]
        scalars = [
            (scalar_names.index(source), kernel.params.slots[f"{name}_value"].offset, whole)
            for name, source, whole in fields
        ]
        image = kernel.params.template(
            {k: v for k, v in step.params.items() if k not in {s.name for s in kernel.params.pointers}}
        )
        maps = [(slot.offset, starts[m.operand], m) for slot in kernel.params.maps if (m := step.params[slot.name])]
        return Launch(
            self.runtime, next(functions), step.grid, step.block, step.smem, kernel.params, image, picks, scalars, maps,
            step.cluster, step.times,
        )  # fmt: skip

    def forget(self) -> None:
        """Drop what is prepared, so that it is chosen again."""
        for known in (*self.layouts.values(), *(one.prepared for one in self.directs)):
            known.clear()
        vars(self.plan).pop("sku", None)

    def overlap(self, args: Args) -> None:
        """Spans met, or a null pointer: the full check, which allows identical in-place views and absent memory of
        zero size, and raises on the rest."""
        self.plan.plan_layout(args)

    def there(self, act: Callable[..., Any], *given: Any) -> Any:
        """Call with the plan's device current. A function that is being captured has made its own device current."""
        previous = self.runtime.current_device()
        if previous != self.ordinal and for_graph():
            raise DeviceMismatchError(
                f"{self.plan.op} would run on {self.device} and not become part of the graph, which is captured on "
                f"cuda:{previous}; give graph(…, device={self.ordinal})"
            )
        self.runtime.use_device(self.ordinal)
        try:
            return act(*given)
        finally:
            self.runtime.use_device(previous)

    def workspace(self, given: Any, needed: int, stream: int, package: str) -> Any:
        """The caller's workspace, checked, or memory of the operands' package, ordered on the stream.

        Under capture it is the caller's, or from the own pool of a `graph`, or of torch's where torch captures.
        """
        if given is not None:
            return checked_workspace(given, needed, self.device)
        captured = self.runtime.capturing(stream) and not for_graph()
        made = None
        if package == "torch" or not captured:
            try:
                made = self.runtime.allocate(needed, stream, package)
            except Exception as error:
                raise_lacking(error, f"the workspace of {self.plan.op}", needed)
        if made is None or (captured and not of_a_graph(made)):
            raise NotPreparedError(f"{self.plan.op} needs {needed} bytes of workspace, to be given under capture")
        return made

    def record_stream(self, args: Args, workspace: Any, stream: int) -> None:
        """See `intake.record_stream`."""
        record_stream((*self.given(args), workspace), stream, self.ordinal)

    def current(self, args: Args) -> Callable[[], int]:
        """What tells the current stream of the operands' package."""
        return current_stream(self.given(args), self.runtime, self.ordinal)


_made: weakref.WeakSet[Layouts] = weakref.WeakSet()


def _forget_parent() -> None:
    """In a forked child: the runtime that plans hold is asked for again, and refused."""
    for layouts in list(_made):
        for name in ("runtime", "several"):
            vars(layouts).pop(name, None)


def _forget_choices() -> None:
    """Before rows are measured: what several rows could do is chosen again."""
    for layouts in list(_made):
        if len(layouts.plan.rows) > 1:
            layouts.forget()


on_tuning(_forget_choices)
in_child(_forget_parent)


def _ref(value: Any, spec: Operand, held: list[Any]) -> TensorRef:
    if isinstance(value, TensorRef):
        return value
    view = located(value, spec.name)
    if view.owner is not None:
        held.append(view.owner)
    if spec.writes and view.readonly:
        raise read_only(value, spec.name)
    return TensorRef.of_checked(view.ptr, view.shape, view.strides, view.element, view.device)
