"""The CUDA side of a plan: layouts made ready (compiled, loaded), launched, bound, checked.

The steady state is the code `hotpath` generates; whatever it does not know comes here, is validated in full,
and raises the typed error or is prepared once. Nothing is memoised on array identity.
"""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NoReturn

from ..interop.arrays import package_name, read, read_only
from ..interop.torch_rules import may_be_lazy
from ..jit.capture import for_graph
from ..jit.launch import Launch, LibraryLaunch, Runtime, runtime_for
from . import config
from .args import Args, Operand, arrays_of, operands_of, scalars_of
from .bound import bound
from .device import mark_used, refuse_forked
from .dispatch import host_number
from .errors import BaracudaError, InvalidProblemError, NotPreparedError  # fmt: skip
from .hotpath import LAYOUTS, PACKAGES, generated
from .intake import checked_workspace, count_written, current_stream, flatten, record_stream, stream_pointer
from .loading import load_functions
from .memo import keep
from .tensor import TensorRef, View
from .variant import Geometry, LibraryStep, Step, Variant

if TYPE_CHECKING:
    from .plan import Plan


_ALIGNMENTS = 64  # remembered per layout, of 16 to the power of operands
_RAW, _CHECK = config.raw("BARACUDA_CHECK")


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


class Runner:
    """Prepared layouts of one plan and its `run`."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.device = plan.device
        self.ordinal = plan.device.ordinal
        self.layouts: dict[str, dict[Any, Layout]] = {name: {} for name in PACKAGES}
        self.first = next(o for o in arrays_of(plan.args) if not o.optional)
        self.check: Any = None  # what BARACUDA_CHECK held when last read, and what it meant
        self.checked = False
        self._by_kind: dict[type, Callable[..., None]] = {}
        self._lock = threading.Lock()
        mark_used(self.device.fake)
        _runners.add(self)

    @cached_property
    def runtime(self) -> Runtime:
        """Launching needs a driver; choosing and compiling do not."""
        return runtime_for(self.device)

    @cached_property
    def several(self) -> bool:
        """Whether another device can be current."""
        return self.runtime.device_count() > 1

    def run(self, args: Args, workspace: Any = None, stream: Any = None) -> None:
        """The first run, one of another package, or the first after a change of BARACUDA_CHECK: from now on `plan.run`
        is the code generated for it."""
        held = _RAW(_CHECK)
        if held != self.check:
            self.checked = config.get("BARACUDA_CHECK")
            self.check = held
            self._by_kind.clear()
            self.plan.run = self.run  # type: ignore[method-assign]
        self._check_form(args)
        run = self._runner(args)
        if run is not Runner.run_any:
            self.plan.run = partial(run, self)  # type: ignore[method-assign]
        run(self, args, workspace, stream)

    def _check_form(self, args: Args) -> None:
        """What generated code takes for granted: the Args class, required operands, lists where lists are declared."""
        if type(args) is self.plan.args:
            values = [(spec, getattr(args, spec.name)) for spec in arrays_of(self.plan.args)]
            if all(
                isinstance(v, (list, tuple)) == bool(spec.many) if v is not None else spec.optional
                for spec, v in values
            ):
                return
        self.plan.plan_layout(args)  # says what is wrong

    def _runner(self, args: Args) -> Callable[..., None]:
        kind = self._kind(args)
        run = self._by_kind.get(kind)
        if run is None:
            package = package_name(kind)
            if self.checked:
                run = _run_checked
            elif package in ("cupy", "torch"):
                run = generated(self.plan.args, package, kind)
            else:
                run = Runner.run_any
            self._by_kind[kind] = run
        return run

    def _kind(self, args: Args) -> type:
        lead = getattr(args, self.first.name)
        return type(lead[0]) if isinstance(lead, (list, tuple)) and lead else type(lead)

    def _arrays(self, args: Args) -> Iterator[Any]:
        for spec in arrays_of(self.plan.args):
            value = getattr(args, spec.name)
            if isinstance(value, (list, tuple)):
                yield from value
            elif value is not None:
                yield value

    def run_any(self, args: Args, workspace: Any = None, stream: Any = None) -> None:
        """Operands of any package, or of several: as TensorRefs through the same generated code.

        The stream comes first: a package that orders its arrays after a consumer's stream is told the one launched on.
        """
        if self.several and self.runtime.current_device() != self.ordinal:
            return self.on_device(args, workspace, stream)
        at = self.stream_of(args, stream)
        held, refs, memory = self.read_on(at, args, workspace)
        generated(self.plan.args, "ref", TensorRef)(self, refs, memory, at)
        count_written(args)
        self.record_stream(args, workspace, at)
        if held:
            self.runtime.keep(at, held)

    def read_on(self, at: int, args: Args, workspace: Any) -> tuple[list[Any], Args, Any]:
        """The call as TensorRefs, ordered for a stream; first what has to be kept alive until it has passed there."""
        with self.runtime.on_stream(at):
            held, refs = self._refs(args)
            return held, refs, None if workspace is None else _ref(workspace, _WORKSPACE, held)

    def record_stream(self, args: Args, workspace: Any, stream: int) -> None:
        """See `intake.record_stream`."""
        record_stream((*self.given(args), workspace), stream, self.ordinal)

    def package(self, args: Args) -> str:
        """The array package whose allocator serves the call."""
        return package_name(self._kind(args))

    def given(self, args: Args) -> list[Any]:
        """All arrays of a call: operands, items of lists, scalars that are no numbers."""
        scalars = (getattr(args, spec.name) for spec in scalars_of(self.plan.args))
        return [*self._arrays(args), *(s for s in scalars if not isinstance(s, (int, float)))]

    def _refs(self, args: Args) -> tuple[list[Any], Args]:
        """The same call with TensorRefs, and what has to be kept alive for them: what other packages handed over."""
        self._check_form(args)
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

    # -- preparing -------------------------------------------------------------------------------------

    def prepare(self, args: Args) -> None:
        """Validate, choose, compile and load this layout, and remember it where `run` will look."""
        self.plan.plan_layout(args)
        kind = self._kind(args)
        package, held = package_name(kind), None
        if package not in ("cupy", "torch") or any(type(a) is not kind for a in self._arrays(args)):
            held, args = self._refs(args)
            package, kind = "ref", TensorRef
        generated(self.plan.args, package, kind, True)(self, args)
        del held

    def remember(self, package: str, key: Any, alignment: tuple[int, ...], args: Args) -> None:
        """Prepare a layout under the key that generated code finds it by."""
        with self._lock:
            prepared, layout = self.ready(args)
            layout = keep(self.layouts[package], key, layout, LAYOUTS)
            keep(layout.by_alignment, alignment, prepared, _ALIGNMENTS)

    def ready(self, args: Args) -> tuple[Prepared, Layout]:
        variant, geometry, views = self.plan.plan_layout(args)
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
        return Prepared(steps, geometry.workspace, lazy), Layout(spans)

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
                picks.append((starts[slot.name[:-4]], 0))
            elif given is None:
                picks.append((starts[slot.name], 0))
            else:
                name, shift = given if isinstance(given, tuple) else (given, 0)
                picks.append((starts[name], shift))
        scalars = [
            (scalar_names.index(name), kernel.params.slots[f"{name}_value"].offset, whole)
            for name, whole in kernel.params.scalars.items()
        ]
        image = kernel.params.template(
            {k: v for k, v in step.params.items() if k not in {s.name for s in kernel.params.pointers}}
        )
        return Launch(
            self.runtime, next(functions), step.grid, step.block, step.smem, kernel.params, image, picks, scalars
        )

    def slow(self, package: str, key: Any, alignment: tuple[int, ...], args: Args, workspace: Any, stream: int) -> None:
        """First sight of a layout (or of an alignment of it): prepare it, remember it, run it."""
        if self.runtime.capturing(stream):
            raise NotPreparedError(
                f"{self.plan.op}: this layout was not prepared before capture; call plan.prepare(args) first"
            )
        self.remember(package, key, alignment, args)
        generated(self.plan.args, package, TensorRef if package == "ref" else self._kind(args))(
            self, args, workspace, stream
        )

    def unreadable(self, args: Args, error: Exception) -> NoReturn:
        """Reading an array failed: the typed error of the full check if it finds one, else what was raised."""
        if not isinstance(error, BaracudaError):
            self.plan.plan_layout(args)
        raise error

    def overlap(self, args: Args) -> None:
        """Spans met, or a null pointer: the full check, which allows identical in-place views and absent memory of
        zero size, and raises on the rest."""
        self.plan.plan_layout(args)

    def check_spans(self, args: Args, flat: tuple[int, ...], spans: tuple[int, ...]) -> None:
        """The same for lists of operands: neighbours in address order."""
        lows, highs = spans[::2], spans[1::2]
        ordered = sorted((p + low, p + high) for p, low, high in zip(flat, lows, highs, strict=False) if high > low)
        null = bool(ordered) and ordered[0][0] <= 0
        if null or any(high > low for (_, high), (low, _) in itertools.pairwise(ordered)):
            self.overlap(args)

    def on_device(self, args: Args, workspace: Any, stream: Any) -> None:
        """Another device is current: run on the plan's, then restore."""
        self.there(self.run, args, workspace, stream)

    def there(self, act: Callable[..., Any], *given: Any) -> Any:
        """Call with the plan's device current."""
        previous = self.runtime.current_device()
        self.runtime.use_device(self.ordinal)
        try:
            return act(*given)
        finally:
            self.runtime.use_device(previous)

    def workspace(self, given: Any, needed: int, stream: int, package: str) -> Any:
        """The caller's workspace, checked, or memory of the operands' package, ordered on the stream.

        Under capture it is the caller's, or from a `graph`'s own pool.
        """
        if given is None:
            if self.runtime.capturing(stream) and not for_graph():
                raise NotPreparedError(f"{self.plan.op} needs {needed} bytes of workspace, to be given under capture")
            return self.runtime.allocate(needed, stream, package)
        return checked_workspace(given, needed, self.device)

    def stream_of(self, args: Args, stream: Any) -> int:
        """The caller's stream as a pointer, or the current one of the operands' package."""
        return self.current(args)() if stream is None else stream_pointer(stream)

    def current(self, args: Args) -> Callable[[], int]:
        """What tells the current stream of the operands' package."""
        return current_stream(self.given(args), self.runtime, self.ordinal)

    def bind(self, args: Args, workspace: Any, stream: Any) -> Callable[[], None]:
        """Everything fixed; see `Plan.bind`."""
        self._check_form(args)
        make: Callable[[], Callable[[], None]] = partial(bound, self, args, workspace, stream)
        return self.there(make) if self.several else make()


_runners: weakref.WeakSet[Runner] = weakref.WeakSet()


def _forget_parent() -> None:
    """In a forked child: the runtime that plans hold is asked for again, and refused; no lock stays held."""
    for runner in list(_runners):
        for name in ("runtime", "several"):
            vars(runner).pop(name, None)
        runner._lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parent)


_WORKSPACE = Operand("workspace", "in")


def _ref(value: Any, spec: Operand, held: list[Any]) -> TensorRef:
    if isinstance(value, TensorRef):
        return value
    view = read(value, spec.name)
    if view.owner is not None:
        held.append(view.owner)
    if spec.writes and view.readonly:
        raise read_only(value, spec.name)
    return TensorRef.of_checked(view.ptr, view.shape, view.strides, view.element, view.device)


def _run_checked(runner: Runner, args: Args, workspace: Any = None, stream: Any = None) -> None:
    """BARACUDA_CHECK=1: give the kernels a status word, wait, raise if one was set."""
    if _RAW(_CHECK) != runner.check:
        return runner.run(args, workspace, stream)
    if runner.several and runner.runtime.current_device() != runner.ordinal:
        return runner.on_device(args, workspace, stream)
    import cupy

    at = runner.stream_of(args, stream)
    held, refs, given = runner.read_on(at, args, workspace)
    prepared, _ = runner.ready(refs)
    memory = runner.workspace(given, prepared.workspace, at, runner.package(args)) if prepared.workspace else None
    flat, values = flatten(runner.plan.args, refs, 0 if memory is None else memory.ptr, runner.ordinal)
    with runner.runtime.on_stream(at):  # the status word is cleared and read where the kernels write it
        status = cupy.zeros(1, cupy.uint32)
        prepared.call((*flat[:-2], status.data.ptr, 0), values, at)
        cupy.cuda.runtime.streamSynchronize(at)
        found = int(status[0])
    count_written(args)
    del held
    if found:
        raise InvalidProblemError(
            f"{runner.plan.op}: a value on the device is out of range; {runner.plan.value_policy}"
        )
