"""The checks that need a CUDA device: results within the row's bound of the reference, and what a run may touch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ..core.args import arrays_of, scalars_of
from ..core.element import ElementKind, joined
from ..core.error_bound import Backward, Chained, ErrorBound, Exact, Forward, PerOutput, Relative
from ..core.errors import UnsupportedError
from ..core.memo import cached_property
from ..core.plan import Plan
from ..core.tensor import TensorRef
from .draw import Case, Draw, fill, make_case
from .layouts import Laid
from .operands import Operands, operands
from .reference import element_of, evaluate, values, yardstick
from .tolerance import check

_WIDER = {ElementKind.F64: np.longdouble, ElementKind.C128: np.longdouble}
_REPEATS = 50
DEVICE: Any = 0


class OnDevice:
    """Laid-out operands copied to the current device, byte for byte, guards and poison included."""

    def __init__(self, ready: Operands) -> None:
        import cupy

        self.ready = ready
        self.buffers = {id(one): cupy.asarray(one.buffer) for _, _, one in ready.items()}

    def wrap(self, one: Laid) -> Any:
        """The operand as a `cupy.ndarray`."""
        import cupy

        return cupy.ndarray(one.shape, one.dtype, self.buffers[id(one)].data + one.start, one.strides)

    def args(self) -> Any:
        """The call's Args."""
        fields = self.ready.fields()
        for spec in arrays_of(self.ready.case.plan.args):
            held = self.ready.laid[spec.name]
            if held is not None:
                fields[spec.name] = [self.wrap(x) for x in held] if isinstance(held, list) else self.wrap(held)
        return self.ready.case.plan.args(**fields)

    def refill(self) -> None:
        """Put every buffer back as it was before the run."""
        for _, _, one in self.ready.items():
            self.buffers[id(one)].set(one.before)

    def fetch(self) -> Iterator[tuple[Any, int, Laid, np.ndarray, np.ndarray]]:
        """Declaration, place, layout, buffer and values of every operand, after a run."""
        for spec, i, one in self.ready.items():
            after = self.buffers[id(one)].get()
            values = np.ndarray(one.shape, one.dtype, after.data, one.start, one.strides)
            yield spec, i, one, after, np.array(values, order="C")

    def harm(self) -> str | None:
        """What the run changed that it must not."""
        for spec, i, one, after, _ in self.fetch():
            found = one.damage(spec.writes, after)
            if found:
                return f"{spec.name}{f'[{i}]' if spec.many else ''}: {found}"
        return None

    def written(self) -> dict[tuple[str, int], np.ndarray]:
        """Everything that the run wrote."""
        return {(spec.name, i): values for spec, i, _, _, values in self.fetch() if spec.writes}


class Truth:
    """A case's results as they should be, for as many runs as one likes."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self._wide = _WIDER.get(case.desc.element, np.float64) if case.plan.widest is np.longdouble else np.float64
        self._limits = case.desc.element.limits
        self._truth = evaluate(case, self._wide)
        self._narrow = np.float64 if self._wide is np.longdouble else np.float32
        self._lows: dict[Chained | None, dict[str, Any]] = {}

    def _low(self, bound: Relative) -> dict[str, Any]:
        chained = bound if isinstance(bound, Chained) else None
        if chained not in self._lows:
            self._lows[chained] = yardstick(self.case, self._truth, self._wide, self._narrow, chained)
        return self._lows[chained]

    @cached_property
    def _own(self) -> dict[str, Any]:
        return evaluate(self.case, self._narrow)

    @cached_property
    def _finite(self) -> list[dict[str, Any]]:
        """With the largest number of the element in place of infinities, and with half of it."""

        def at(largest: float) -> dict[str, Any]:
            def within(x: np.ndarray) -> np.ndarray:
                return joined(within(x.real), within(x.imag)) if x.dtype.kind == "c" else np.clip(x, -largest, largest)

            return evaluate(self.case, self._wide, within)

        return [at(float(self._limits.max)), at(float(self._limits.max) / 2)]

    @cached_property
    def _scale(self) -> dict[str, Any]:
        """On absolute values, those of factors and terms too: a negative one takes nothing from a bound."""
        given = self.case.arrays
        numbers = [spec.name for spec in scalars_of(self.case.plan.args) if not spec.integer]  # a seed stays itself
        sizes = {name: abs(given[name]) for name in numbers if isinstance(given[name], (int, float))}
        return evaluate(replace(self.case, arrays={**given, **sizes}), self._wide, np.abs)

    def _wanted(self, actual: np.ndarray, item: Callable[[Any], Any]) -> np.ndarray:
        """The truth. NaN serves for an infinity times a factor that may be 0 in the dtypes of the op, since it is
        below the element's least normal number: where (of real numbers) the formula in them gives NaN, or the result
        hardly differs between the largest number of the element in place of the infinity and half of it. It serves as
        well where the formula gives NaN in them since sums beyond the element's largest number meet."""
        truth = np.asarray(item(self._truth))
        if truth.dtype.kind not in "fc":
            return truth
        unsure = ~(np.abs(truth) <= float(self._limits.max)) & ~np.isnan(truth) & (actual != actual)
        if not unsure.any():
            return truth
        with np.errstate(invalid="ignore"):
            part = np.abs(np.subtract(*map(item, self._finite)))
        lost = np.isinf(truth) & (part < float(self._limits.max) * 2.0 ** (self._limits.min_exponent - 1))
        if truth.dtype.kind == "f":
            lost |= np.isnan(np.asarray(item(self._own)))
        return np.where(unsure & lost, np.nan, truth)

    def wrong(self, got: dict[tuple[str, int], np.ndarray], bound: ErrorBound) -> str | None:
        """The first result outside its bound, or None. Integer and bool outputs are exact under any bound."""
        specs = {s.name: s for s in arrays_of(self.case.plan.args)}
        for (name, i), actual in got.items():
            spec = specs[name]

            def item(results: Any, name: str = name, i: int = i, many: bool = bool(spec.many)) -> Any:
                return None if results is None else results[name][i] if many else results[name]

            element = element_of(spec, self.case.desc, actual)
            own = Exact() if not element.is_inexact else bound.of(name) if isinstance(bound, PerOutput) else bound
            if isinstance(own, Backward):
                if far := self._residual(got, name, element, own):
                    return f"{name}: {far}"
                continue
            low = self._low(own) if isinstance(own, Relative) else None
            scale = self._scale if isinstance(own, Forward) else None
            message = check(own, actual, self._wanted(actual, item), element=element, low=item(low), scale=item(scale))
            if message:
                return f"{name}{f'[{i}]' if spec.many else ''}: {message}"
        return None

    def _residual(
        self, got: dict[tuple[str, int], np.ndarray], name: str, element: ElementKind, bound: Backward
    ) -> str:
        """How far the backward error of an output is beyond its bound, or ""."""
        wide = _WIDER.get(element, np.float64)
        results = {
            spec: one.astype(np.result_type(wide, np.complex64) if one.dtype.kind == "c" else wide)
            for (spec, _), one in got.items()
        }
        given = {operand: x for operand, x in values(self.case, wide).items() if x is not None}
        found = np.asarray(self.case.plan.residual(self.case.desc, name, **(given | results)))
        worst = found.max(initial=0.0)
        allowed = bound.c * element.limits.eps
        return "" if worst <= allowed else f"{element}, {bound}: {float(worst):.4g}, allowed {float(allowed):.4g}"


def wrong_plan(case: Case | Operands, plans: Iterable[Plan]) -> str | None:
    """What the first of some plans for one case gets wrong, or None; a case's operands are dense, outputs poisoned."""
    laid = case if isinstance(case, Operands) else operands(case)
    ready, truth = OnDevice(laid), Truth(laid.case)
    args = ready.args()
    for plan in plans:
        ready.refill()
        plan.run(args)
        sku = plan.can_implement(args).sku
        found = ready.harm() or truth.wrong(ready.written(), sku.precision_guarantee.error)  # type: ignore[union-attr]
        if found:
            return f"{sku}, {plan.device.smem} bytes of shared memory: {found}"
    return None


def _prepared(plan: type[Plan], draw: Draw, **how: Any) -> tuple[Plan, Operands]:
    case = make_case(plan, draw, special=how.pop("special", False))
    chosen = plan.select(case.desc, device=DEVICE)
    return chosen, operands(case, draw if how.pop("strided", True) else None, **how)


def _sync() -> None:
    import cupy

    cupy.cuda.runtime.deviceSynchronize()


def gpu_error(plan: type[Plan], draw: Draw) -> None:
    """Over shapes, layouts, offsets and special values: within the bound, everything written, nothing else touched."""
    chosen, ready = _prepared(plan, draw, special=draw.integer(0, 3) == 0, strided=draw.integer(0, 3) > 0)
    device = OnDevice(ready)
    args = device.args()
    verdict = chosen.can_implement(args)
    if not verdict:
        dense = all(one.view.flags.c_contiguous for _, _, one in ready.items())
        if dense or not isinstance(verdict.error, UnsupportedError):
            raise AssertionError(f"{ready}\n{verdict.reason}")
        return
    chosen.run(args)
    _sync()
    bound = verdict.sku.precision_guarantee.error  # type: ignore[union-attr]
    wrong = device.harm() or Truth(ready.case).wrong(device.written(), bound)
    if wrong:
        raise AssertionError(f"{ready}\n{verdict.sku}: {wrong}")


def gpu_inplace(plan: type[Plan], draw: Draw) -> None:
    """An output in place of the input it may replace: the same bits as with memory of its own."""
    for spec in arrays_of(plan.args):
        for name in spec.inplace:
            case = make_case(plan, draw)
            if spec.name not in case.wanted or not isinstance(case.arrays[name], np.ndarray):
                continue
            chosen, ready = plan.select(case.desc, device=DEVICE), operands(case)
            if ready.laid[spec.name].shape != ready.laid[name].shape:
                continue
            apart, together = OnDevice(ready), operands(case)
            if together.laid[spec.name].dtype != together.laid[name].dtype:
                continue
            chosen.run(apart.args())
            together.laid[spec.name] = together.laid[name]
            shared = OnDevice(together)
            chosen.run(shared.args())
            _sync()
            together.laid[name] = None
            if (harm := shared.harm()) is not None:
                raise AssertionError(f"{ready}\n{spec.name} in place of {name}: {harm}")
            _equal(f"{ready}\n{spec.name} in place of {name}", apart.written(), shared.written())


def _equal(where: str, a: dict[tuple[str, int], np.ndarray], b: dict[tuple[str, int], np.ndarray]) -> None:
    for key, value in a.items():
        if key in b and value.tobytes() != b[key].tobytes():
            count = int(np.count_nonzero(value.view(np.uint8) != b[key].view(np.uint8))) if value.ndim else 1
            raise AssertionError(f"{where}: {key[0]} differs in {count} bytes")


def gpu_determinism(plan: type[Plan], draw: Draw) -> None:
    """Fifty runs give one set of bits."""
    chosen, ready = _prepared(plan, draw, strided=draw.flag())
    device = OnDevice(ready)
    args = device.args()
    verdict = chosen.can_implement(args)
    if not verdict or not verdict.sku.precision_guarantee.deterministic:  # type: ignore[union-attr]
        return
    chosen.run(args)
    _sync()
    first = device.written()
    for _ in range(_REPEATS - 1):
        device.refill()
        chosen.run(args)
    _sync()
    _equal(f"{ready}\n{verdict.sku}: run again", first, device.written())


def gpu_layout_bits(plan: type[Plan], draw: Draw) -> None:
    """Wide equals narrow: strided and unaligned operands give the bits of dense ones under the same promise."""
    case = make_case(plan, draw)
    chosen = plan.select(case.desc, device=DEVICE)
    results = []
    for source in (None, draw):
        device = OnDevice(operands(case, source))
        verdict = chosen.can_implement(device.args())
        if not verdict:
            return
        chosen.run(device.args())
        results.append((device, verdict.sku))
    _sync()
    (dense, a), (strided, b) = results
    assert a is not None and b is not None
    library = a.backend.is_library or b.backend.is_library  # picks its algorithm by layout
    same = a.precision_guarantee == b.precision_guarantee
    if not library and same and a.precision_guarantee.bit_stable_on_same_hardware:
        _equal(f"{strided.ready}\n{a} and {b} promise the same", dense.written(), strided.written())


def gpu_capture(plan: type[Plan], draw: Draw) -> None:
    """With outputs and workspace given, a prepared run is captured into a graph, and the graph replays new inputs."""
    import cupy

    case = make_case(plan, draw)
    chosen, ready = plan.select(case.desc, device=DEVICE), operands(case)
    device = OnDevice(ready)
    args = device.args()
    if not any(values.size for _, _, _, _, values in device.fetch()):
        return
    chosen.prepare(args)
    workspace = _workspace(chosen.workspace_size(args))
    stream = cupy.cuda.Stream(non_blocking=True)
    _sync()
    with stream:
        stream.begin_capture()
        chosen.run(args, workspace[0])
        graph = stream.end_capture()
    fresh = operands(make_like(case, draw))
    for (_, _, one), (_, _, other) in zip(ready.items(), fresh.items(), strict=True):
        one.buffer[:] = other.buffer
        one.seal()
    device.refill()
    ready.case.arrays.update(fresh.case.arrays)
    _sync()
    graph.launch(stream)
    _sync()
    wrong = device.harm() or Truth(fresh.case).wrong(device.written(), chosen.precision_guarantee.error)
    if wrong:
        raise AssertionError(f"{ready}\nreplayed with new inputs: {wrong}")


def make_like(case: Case, draw: Draw) -> Case:
    """The same descriptor, operands present and scalars (a graph keeps those), other contents of the same dtypes."""
    present = {s.name: case.arrays.get(s.name) is not None or s.name in case.wanted for s in arrays_of(case.plan.args)}
    numbers = {s.name: case.arrays[s.name] for s in scalars_of(case.plan.args)}  # operands may be made from them
    for _ in range(64):
        other = fill(case.plan, case.desc, draw.seed(), present, numbers=numbers, kind=case.kind)
        if _dtypes(other) == _dtypes(case):
            return other
    return case


def _dtypes(case: Case) -> list[Any]:
    found = [(n, v) for n, v in case.arrays.items()]
    return [(n, [(x.dtype, x.shape) for x in v] if isinstance(v, list) else getattr(v, "shape", None),
             getattr(v, "dtype", None)) for n, v in found]  # fmt: skip


def _workspace(nbytes: int) -> tuple[Any, Any]:
    """A workspace of exactly so many bytes, all 0xFF, between guards; and the buffer it lies in."""
    import cupy

    buffer = cupy.full(nbytes + 1024, 0xFF, cupy.uint8)
    buffer[:512] = 0xA5
    buffer[512 + nbytes :] = 0xA5
    return (TensorRef(buffer.data.ptr + 512, (nbytes,), None, "uint8", nbytes) if nbytes else None), buffer


def gpu_workspace(plan: type[Plan], draw: Draw) -> None:
    """The workspace is used, not overrun: exactly workspace_size(args) bytes, poisoned, between guards."""
    chosen, ready = _prepared(plan, draw, strided=draw.flag())
    device = OnDevice(ready)
    args = device.args()
    if not chosen.can_implement(args):
        return
    needed = chosen.workspace_size(args)
    given, buffer = _workspace(needed)
    chosen.run(args, given)
    _sync()
    guards = buffer.get()
    if not (guards[:512] == 0xA5).all() or not (guards[512 + needed :] == 0xA5).all():
        raise AssertionError(f"{ready}\nthe run wrote outside its workspace of {needed} bytes")
    bound = chosen.can_implement(args).sku.precision_guarantee.error  # type: ignore[union-attr]
    wrong = device.harm() or Truth(ready.case).wrong(device.written(), bound)
    if wrong:
        raise AssertionError(f"{ready}\nwith a poisoned workspace: {wrong}")


def gpu_threads(plan: type[Plan], draw: Draw) -> None:
    """Eight threads on eight streams share a plan; each gets the bits it gets alone."""
    import cupy

    case = make_case(plan, draw)
    chosen = plan.select(case.desc, device=DEVICE)
    mine = [OnDevice(operands(make_like(case, draw))) for _ in range(8)]
    alone = []
    for device in mine:
        chosen.run(device.args())
        _sync()
        alone.append(device.written())
        device.refill()
    _sync()
    errors: list[BaseException] = []
    gate = threading.Barrier(8)

    def work(device: OnDevice) -> None:
        try:
            cupy.cuda.Device(0).use()
            with cupy.cuda.Stream(non_blocking=True) as stream:
                gate.wait()
                args = device.args()
                for _ in range(20):
                    chosen.run(args)
                stream.synchronize()
        except BaseException as error:
            errors.append(error)

    # In-outs advance with every run, so one run is compared for them and twenty for everything else.
    if any(s.role == "inout" for s in arrays_of(plan.args)):
        return
    threads = [threading.Thread(target=work, args=(device,)) for device in mine]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    for device, before in zip(mine, alone, strict=True):
        _equal(f"{device.ready}\nfrom eight threads", before, device.written())


gpu_error.examples = 40  # type: ignore[attr-defined]
gpu_layout_bits.examples = 15  # type: ignore[attr-defined]
gpu_inplace.applies = lambda plan: any(s.inplace for s in arrays_of(plan.args))  # type: ignore[attr-defined]

GPU_CHECKS = (gpu_error, gpu_inplace, gpu_determinism, gpu_layout_bits, gpu_capture, gpu_workspace, gpu_threads)
