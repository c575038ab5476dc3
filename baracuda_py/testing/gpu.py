"""The checks that need a CUDA device: results within the row's bound of the reference, and what a run may touch."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from ..core.args import arrays_of, scalars_of
from ..core.errors import UnsupportedError
from ..core.plan import Plan
from ..core.tensor import TensorRef
from .draw import Case, Draw, fill, make_case
from .layouts import Laid
from .operands import Operands, operands
from .truth import Truth

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
gpu_capture.applies = lambda plan: not plan.waits  # type: ignore[attr-defined]
gpu_inplace.applies = lambda plan: any(s.inplace for s in arrays_of(plan.args))  # type: ignore[attr-defined]

GPU_CHECKS = (gpu_error, gpu_inplace, gpu_determinism, gpu_layout_bits, gpu_capture, gpu_workspace, gpu_threads)
