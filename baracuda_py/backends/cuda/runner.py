"""What runs a plan on a CUDA device.

The steady state is the code `hotpath` generates; whatever it does not know comes here, is validated in full,
and raises the typed error or is prepared once. Nothing is memoised on array identity.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NoReturn

from ...core import config
from ...core.args import Args
from ...core.errors import BaracudaError, InvalidProblemError, NotPreparedError
from ...core.execution import Makers, Views
from ...core.intake import count_written, stream_pointer
from ...core.memo import keep
from ...core.plan import Plan
from ...core.tensor import TensorRef
from ...interop.dynamo import PLAN, broken_at
from ...interop.packages import package_name
from ...jit.compiler import compile_many
from ...jit.nvrtc import load
from .again import Again
from .bound import bound
from .checks import after, before
from .direct import Direct
from .hotpath import LAYOUTS, generated
from .intake import flatten, twin
from .prepared import Layouts

_ALIGNMENTS = 64  # remembered per layout, of 16 to the power of operands
_RAW, _CHECK = config.raw("BARACUDA_CHECK")


class CudaRunner(Layouts):
    """Prepared layouts of one plan and its `run`: see `core.execution.Runner`."""

    compile_many = staticmethod(compile_many)  # what `warm` compiles kernels with, ahead of any plan

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.check: Any = None  # what BARACUDA_CHECK held when last read, and what it meant
        self.checked = False
        self._by_kind: dict[type, Callable[..., None]] = {}
        plan.run = self.run  # type: ignore[method-assign]

    @property
    def versions(self) -> tuple[str, str]:
        """The driver and the compiler: what was measured with others is measured anew."""
        return ("no driver", "") if self.plan.device.fake else _versions()

    @broken_at(PLAN)
    def run(self, args: Args, workspace: Any = None, stream: Any = None) -> None:
        """The first run, one of another package, or the first after a change of BARACUDA_CHECK: from now on `plan.run`
        is the code generated for it."""
        held = _RAW(_CHECK)
        if held != self.check:
            self.checked = config.get("BARACUDA_CHECK")
            self.check = held
            self._by_kind.clear()
            self.plan.run = self.run  # type: ignore[method-assign]
        self.check_form(args)
        run = self._runner(args)
        if run is not CudaRunner.run_any:
            self.plan.run = partial(run, self)  # type: ignore[method-assign]
        run(self, args, workspace, stream)

    def _runner(self, args: Args) -> Callable[..., None]:
        kind = self.kind(args)
        run = self._by_kind.get(kind)
        if run is None:
            package = package_name(kind)
            if self.checked:
                run = _run_checked
            elif package in ("cupy", "torch"):
                run = generated(self.plan.args, package, kind)
            else:
                run = CudaRunner.run_any
            self._by_kind[kind] = run
        return run

    def run_refs(self, args: Args, workspace: Any, stream: int | None) -> None:
        """Nothing to read and nothing to order: straight to the generated code."""
        if self.checked or _RAW(_CHECK) != self.check:
            return self.run(args, workspace, stream)
        generated(self.plan.args, "ref", TensorRef)(self, args, workspace, stream)

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

    def prepare(self, args: Args) -> None:
        """Validate, choose, compile and load this layout, and remember it where `run` will look.

        The plan's device is current: arrays are read in the order of its stream, and rows may be measured there.
        """
        if self.several and self.runtime.current_device() != self.ordinal:
            self.there(self.prepare, args)
            return
        self.plan.plan_layout(args)
        kind = self.kind(args)
        package, held, alike = package_name(kind), None, (kind, twin(kind))
        if package not in ("cupy", "torch") or any(type(a) not in alike for a in self.arrays(args)):
            held, args = self.refs(args)
            package, kind = "ref", TensorRef
        generated(self.plan.args, package, kind, True)(self, args)
        del held

    def bind(self, args: Args, workspace: Any, stream: Any) -> Callable[[], None]:
        """Everything fixed; see `Plan.bind`."""
        self.check_form(args)
        make: Callable[[], Callable[[], None]] = partial(bound, self, args, workspace, stream)
        return self.there(make) if self.several else make()

    def direct(self, makers: Makers, lead: Any, views: Views = None) -> Direct | None:
        """The functional layer's short path, where the plan and its arrays have one."""
        return Direct(self, makers, type(lead), views) if Direct.serves(self.plan, lead) else None

    def again(self, args: Args) -> Again | None:
        """What runs calls like this one, all of lists of torch tensors."""
        self.check_form(args)
        return Again(self, args) if Again.serves(self, args) else None

    def remember(self, package: str, key: Any, alignment: tuple[int, ...], args: Args) -> None:
        """Prepare a layout under the key that generated code finds it by."""
        with self._lock():
            prepared, layout = self.ready(args)
            layout = keep(self.layouts[package], key, layout, LAYOUTS)
            keep(layout.by_alignment, alignment, prepared, _ALIGNMENTS)

    def run_unprepared(
        self, package: str, key: Any, alignment: tuple[int, ...], args: Args, workspace: Any, stream: int
    ) -> None:
        """First sight of a layout (or of an alignment of it): prepare it, remember it, run it."""
        if self.runtime.capturing(stream):
            raise NotPreparedError(
                f"{self.plan.op}: this layout was not prepared before capture; call plan.prepare(args) first"
            )
        self.remember(package, key, alignment, args)
        generated(self.plan.args, package, TensorRef if package == "ref" else self.kind(args))(
            self, args, workspace, stream
        )

    def unreadable(self, args: Args, error: Exception) -> NoReturn:
        """Reading an array failed: the typed error of the full check if it finds one, else what was raised."""
        if not isinstance(error, BaracudaError):
            self.plan.plan_layout(args)
        raise error

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

    def stream_of(self, args: Args, stream: Any) -> int:
        """The caller's stream as a pointer, or the current one of the operands' package."""
        return self.current(args)() if stream is None else stream_pointer(stream)


@cache
def _versions() -> tuple[str, str]:
    from cupy.cuda.runtime import driverGetVersion

    return f"driver {driverGetVersion()}", "nvrtc {}.{}".format(*load().version)


def _run_checked(runner: CudaRunner, args: Args, workspace: Any = None, stream: Any = None) -> None:
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
    flat, values = flatten(runner.plan, refs, 0 if memory is None else memory.ptr, runner.ordinal)
    with runner.runtime.on_stream(at):  # the status word is cleared and read where the kernels write it
        status = cupy.zeros(1, cupy.uint32)
        whole = before(runner.plan, refs)
        prepared.call((*flat[:-2], status.data.ptr, 0), values, at)
        cupy.cuda.runtime.streamSynchronize(at)
        found = int(status[0])
        after(runner.plan, refs, whole and not found)
    count_written(args)
    del held
    if found:
        raise InvalidProblemError(
            f"{runner.plan.op}: a value on the device is out of range; {runner.plan.value_policy}"
        )
