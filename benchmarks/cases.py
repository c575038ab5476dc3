"""The problems that pages declare (`Plan.benchmarks`) made ready to time: operands on the GPU, plans, and peers."""

from __future__ import annotations

import contextlib
import math
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
import torch._functorch.config
from peers import LIBRARIES

from baracuda_py.core.args import Everywhere, Operand, arrays_of, scalars_of
from baracuda_py.core.benchmark import BYTES, COMPILED, FLOPS, IN_ORDER, Benchmark
from baracuda_py.core.element import ElementKind
from baracuda_py.core.plan import Plan
from baracuda_py.core.preference import PlanPreference
from baracuda_py.testing.draw import shapes_of
from baracuda_py.testing.in_torch import descriptor_of, forward_of, has_torch, in_torch, saved_by_forward

torch._functorch.config.donated_buffer = False  # compiled backwards are run again and again on one graph
ROTATE = 512 << 20  # bytes that a case's input sets cover together: several times any L2
MOST_SETS = 8
READY = 20  # seconds that a library may take to its first result

Arrays = dict[str, Any]
Calls = Sequence[Callable[[], Any]]


class WrongResult(Exception):
    """A plan whose results are not those of its page's torch is not timed."""


@dataclass
class Case:
    """A problem ready to time: `candidates` are calls on rotated inputs; ours is "baracuda"."""

    op: str
    shape: str
    element: str
    sku: str
    work: int
    unit: str
    target: str
    candidates: Mapping[str, Calls]


def make(plan: type[Plan], benchmark: Benchmark, *, compiled: bool = True, device: str = "cuda") -> Case:
    """Enough input sets, the plan bound to each, and the peers over them; our results are checked against torch's."""
    desc = plan.descriptor(**benchmark.fields)
    first = operands(plan, benchmark, desc, device)
    size = sum(t.numel() * t.element_size() for t in _tensors(first))
    count = max(1, min(MOST_SETS, -(-ROTATE // max(size, 1))))
    sets = [first] + [operands(plan, benchmark, desc, device) for _ in range(count - 1)]
    preference = PlanPreference(deterministic=False) if benchmark.any_order else None
    chosen = plan.select(desc, preference, device=device)
    args = [plan.args(**s) for s in sets]
    written = frozenset(s.name for s in arrays_of(plan.args) if s.role == "out" and first.get(s.name) is not None)
    short = plan.descriptor(**benchmark.fields | benchmark.checked)
    if short == desc:
        _verify(plan, benchmark, desc, chosen, first, written)
    else:
        given = operands(plan, benchmark, short, device)
        _verify(plan, benchmark, short, plan.select(short, preference, device=device), given, written)
    candidates: dict[str, Calls] = {"baracuda": [chosen.bind(a) for a in args]}
    for peer in benchmark.peers:
        if peer != COMPILED or compiled:
            build = _compiled_once() if peer == COMPILED else lambda function: function
            calls = [in_torch(plan, desc, s, written, build) for s in sets]
            candidates[peer] = [_in_order(call) for call in calls] if peer == IN_ORDER else calls
            if device != "meta" and (why := _refusal(candidates[peer][0])):
                print(f"{plan.op} {benchmark.label}: without {peer}: {why}")
                del candidates[peer]
    if plan.op in LIBRARIES:
        candidates |= _of_libraries(plan, benchmark, desc, sets, device)
    flops = benchmark.work == FLOPS
    work = plan.flops(desc) if flops else plan.bytes(desc) if benchmark.work == BYTES else _moved(plan, first)
    return Case(
        plan.op, benchmark.label, str(desc.element), str(chosen.can_implement(args[0]).sku),
        round(work * benchmark.share), "TFLOP/s" if flops else "TB/s",
        "" if benchmark.target is None else f"{benchmark.target:.2f}", candidates,
    )  # fmt: skip


def _of_libraries(
    plan: type[Plan], benchmark: Benchmark, desc: Any, sets: Sequence[Arrays], device: str
) -> dict[str, Calls]:
    """Peers that are libraries; those that are not ready in `READY` seconds are left out, as some tune for minutes."""
    try:
        with within(READY):
            found = [LIBRARIES[plan.op](desc, s) for s in sets]
            if device != "meta":
                for call in found[0].values():
                    call()
    except TooLong:
        print(f"{plan.op} {benchmark.label}: without peers: not ready in {READY} s")
        return {}
    return {name: [calls[name] for calls in found] for name in found[0]}


class TooLong(BaseException):
    """Not an `Exception`, which a peer might catch."""


@contextlib.contextmanager
def within(seconds: int) -> Iterator[None]:
    """Ends a block of Python that takes longer by `TooLong`; of the main thread alone, as signals are."""

    def late(*_: Any) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _refusal(call: Callable[[], Any]) -> str:
    """Why a peer cannot run at all: torch compiles at the first call, and not everything."""
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return ""


def _compiled_once() -> Callable[[Any], Any]:
    """torch.compile of the first function it is given, in the place of all: those of a case's sets are one function."""
    built: list[Any] = []

    def build(function: Any) -> Any:
        built[:] = built or [torch.compile(function)]
        return built[0]

    return build


def _in_order(function: Callable[[], Any]) -> Callable[[], Any]:
    """A call with torch's deterministic algorithms, which fill no memory that is written anyway."""
    torch.utils.deterministic.fill_uninitialized_memory = False

    def call() -> Any:
        torch.use_deterministic_algorithms(True)
        try:
            return function()
        finally:
            torch.use_deterministic_algorithms(False)

    return call


def operands(plan: type[Plan], benchmark: Benchmark, desc: Any, device: str) -> Arrays:
    """Random operands: those required, those `also` wanted, and those that the benchmark makes."""
    with torch.device(device):
        made = dict(benchmark.make(torch, desc)) if benchmark.make else {}
        saved = _saved(plan, benchmark, desc, made, device)
        for spec in arrays_of(plan.args):
            if spec.name in saved:
                made.setdefault(spec.name, saved[spec.name])
            elif spec.name not in made and (spec.required(desc) or spec.name in benchmark.also):
                made[spec.name] = _contents(spec, desc)
    known = {spec.name for spec in (*arrays_of(plan.args), *scalars_of(plan.args)) if spec.serves(desc)}
    return {name: value for name, value in made.items() if name in known}


def _saved(plan: type[Plan], benchmark: Benchmark, desc: Any, made: Arrays, device: str) -> Arrays:
    """For a backward op: what the forward saves for it, made by the forward of the same operands (not on "meta")."""
    forward = forward_of(plan)
    names = saved_by_forward(plan, forward) if forward else {}
    optional = {spec.name for spec in arrays_of(plan.args) if not spec.required(desc)}
    names = {own: name for own, name in names.items() if own not in optional or own in benchmark.also}
    if forward is None or not names:
        return {}
    forward_desc = descriptor_of(forward, desc)
    given: Arrays = {}
    for spec in arrays_of(forward.args):
        wanted = spec.name in names.values() if spec.role == "out" else spec.name in benchmark.also
        if spec.name in made:
            given[spec.name] = made[spec.name]
        elif not spec.optional or wanted:
            given[spec.name] = _contents(spec, forward_desc)
    given |= {spec.name: made[spec.name] for spec in scalars_of(forward.args) if spec.name in made}
    if device != "meta":
        forward.select(forward_desc, device=device).run(forward.args(**given))
    shared = {spec.name for spec in arrays_of(plan.args) if spec.reads} & set(given)
    return {own: given[name] for own, name in names.items()} | {name: given[name] for name in shared}


_DRAWN = 1 << 22  # numbers that the host draws of an array; more take it longer than all else


def _contents(spec: Operand, desc: Any) -> Any:
    element = spec.elements(desc)[0]
    dtype = getattr(torch, str(element), torch.uint8)  # what torch has no name for travels as bytes
    made = []
    for shape in shapes_of(spec, desc):
        if spec.role == "out":
            made.append(torch.empty(shape, dtype=dtype))
        elif element.is_float and callable(spec.values):
            made.append(_drawn(spec.values, desc, shape, dtype))
        elif element.is_complex:
            made.append(torch.randn(shape, dtype=dtype))
        elif element.is_float:
            made.append(torch.randn(shape, dtype=dtype if element.itemsize > 1 else torch.bfloat16).to(dtype))
        else:
            made.append(torch.from_numpy(_integers(spec, desc, shape)).to(torch.get_default_device(), dtype))
    return made if spec.many else made[0]


def _drawn(values: Any, desc: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """Floats as the operand's declaration makes them: of large arrays the first rows, which are then repeated."""
    count, device = math.prod(shape), torch.get_default_device()
    axis = next((n for n, extent in enumerate(shape) if extent > 1), 0)
    if count <= _DRAWN:
        return torch.from_numpy(np.asarray(values(np.random.default_rng(), desc, shape))).to(device, dtype)
    rows = max(1, shape[axis] * _DRAWN // count)
    first = _drawn(values, desc, (*shape[:axis], rows, *shape[axis + 1 :]), dtype)
    times = [-(-shape[axis] // rows) if n == axis else 1 for n in range(len(shape))]
    return first.repeat(*times).narrow(axis, 0, shape[axis])


def _integers(spec: Operand, desc: Any, shape: tuple[int, ...]) -> Any:
    """Integers as the operand's declaration bounds or makes them."""
    rng = np.random.default_rng()
    if isinstance(spec.values, Everywhere):
        limits = np.iinfo(spec.elements(desc)[0].dtype)
        return rng.integers(limits.min, limits.max, shape, limits.dtype, endpoint=True)
    if callable(spec.values):
        return np.asarray(spec.values(rng, desc, shape))
    low, high = (getattr(desc, v) if isinstance(v, str) else v for v in spec.values or (0, 100))
    return rng.integers(low, high, shape)


def _tensors(arrays: Arrays) -> Iterator[Any]:
    for value in arrays.values():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, torch.Tensor):
                yield one


def _moved(plan: type[Plan], arrays: Arrays) -> int:
    """Bytes of every operand given, those updated in place twice."""
    twice = {
        spec.name: arrays[spec.name] for spec in arrays_of(plan.args) if spec.role == "inout" and spec.name in arrays
    }
    return sum(t.numel() * t.element_size() for part in (arrays, twice) for t in _tensors(part))


def _verify(
    plan: type[Plan], benchmark: Benchmark, desc: Any, chosen: Plan, given: Arrays, written: frozenset[str]
) -> None:
    """Run ours once; compare with the page's torch, where it serves the problem, by relative norm.

    NaN passes only where torch's is NaN too, as a negative number to a fractional power is. Where torch's result of
    16-bit floats is another one, its formula in float32 decides.
    """
    updated = [spec.name for spec in arrays_of(plan.args) if spec.role == "inout"]
    again = given | {name: _copy(given[name]) for name in updated if given.get(name) is not None}
    chosen.run(plan.args(**given))
    names = [name for name in (*updated, *written) if given.get(name) is not None]
    try:
        off = _off(names, given, in_torch(plan, desc, again, written)() if has_torch(plan) else None)
        if off and desc.element.is_float and desc.element.itemsize == 2:  # torch may round between its steps
            wide = replace(
                desc, **{f.name: ElementKind.F32 for f in fields(desc) if getattr(desc, f.name) is desc.element}
            )
            off = _off(names, given, in_torch(plan, wide, {n: _widened(v) for n, v in again.items()}, written)())
    except torch.OutOfMemoryError:  # some functions stand in torch as integrals of many points an element
        print(f"{plan.op} {benchmark.label}: not compared, as torch's formula needs more memory than there is")
        return
    if off:
        raise WrongResult(f"{plan.op} {benchmark.label}: {off}")


def _off(names: Sequence[str], given: Arrays, wanted: Arrays | None) -> str:
    """Which result differs from torch's and by how much, or nothing."""
    for name in names if wanted else ():
        if name not in wanted:
            continue
        ours, theirs = given[name], wanted[name]
        for a, b in zip(*((x if isinstance(x, (list, tuple)) else [x]) for x in (ours, theirs)), strict=True):
            most = 5e-2 if a.element_size() == 1 else 2e-2  # an fp8 result may be the other neighbour of a near tie
            b = b.to(a.dtype) if a.is_floating_point() and a.element_size() == 1 else b
            a, b = ((torch.view_as_real(x) if x.is_complex() else x).float() for x in (a, b))
            same = (a.isnan() & b.isnan()) | (a == b)
            a, b = a.masked_fill(same & ~a.isfinite(), 0), b.masked_fill(same & ~b.isfinite(), 0)
            error = float((a - b).norm() / b.norm().clamp_min(1e-30))
            if not error < most:
                return f"{name} is off torch's by {error:.3g} (relative norm)"
    return ""


def _widened(value: Any) -> Any:
    """Tensors of 16-bit floats as float32."""
    if isinstance(value, list):
        return [_widened(one) for one in value]
    half = isinstance(value, torch.Tensor) and value.dtype in (torch.float16, torch.bfloat16)
    return value.float() if half else value


def _copy(value: Any) -> Any:
    return [one.clone() for one in value] if isinstance(value, list) else value.clone()
