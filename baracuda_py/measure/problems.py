"""Problems to time, from the pages or from a file of shapes: operands, the plan, and its peers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from ..core import registry
from ..core.args import Operand, arrays_of, scalars_of
from ..core.benchmark import BYTES, FLOPS, Benchmark
from ..core.device import Device
from ..core.element import ElementKind
from ..core.errors import BaracudaError
from ..core.plan import Plan
from ..core.preference import PlanPreference
from ..testing.draw import SeededDraw, default_of, fill, shapes_of
from ..testing.in_torch import has_torch, in_torch
from .arrays import in_arrays

Arrays = dict[str, Any]
ROTATE = 512 << 20  # bytes that a problem's input sets cover together on a GPU: several times any L2
MOST_SETS = 8


@dataclass
class Problem:
    """One thing to time: a descriptor of a plan, under a label."""

    plan: type[Plan]
    label: str
    desc: Any
    benchmark: Benchmark | None = None

    @property
    def work(self) -> tuple[float, str]:
        """What the rate counts, and its unit."""
        one = self.benchmark
        if one is not None and one.work == FLOPS:
            return self.plan.flops(self.desc) * one.share, "TFLOP/s"
        share = one.share if one is not None and one.work == BYTES else 1.0
        return self.plan.bytes(self.desc) * share, "TB/s"


def declared(plans: Iterable[type[Plan]], names: Sequence[str], small: bool) -> list[Problem]:
    """The problems of plans (all without one), of the kinds among `names`; `small`: drawn ones, for a host to time."""
    plans = list(plans) or list(registry.plans().values())
    wanted = [name for name in names if not any(name in (p.op, p.__name__) for p in plans)]
    found = []
    for plan in plans:
        if small:
            found += _drawn(plan, wanted)
            continue
        for benchmark in plan.benchmarks:
            desc = plan.descriptor(**benchmark.fields)
            kind = getattr(getattr(desc, "kind", None), "value", None)
            of_kind = [name for name in wanted if plan.kinds and name in [k.value for k in plan.kinds]]
            if not of_kind or kind in of_kind:
                found.append(Problem(plan, benchmark.label, desc, benchmark))
    return found


def _drawn(plan: type[Plan], wanted: Sequence[str]) -> list[Problem]:
    """A problem that `case` draws, of each kind asked for, or of the first."""
    kinds = [kind for kind in plan.kinds or () if kind.value in wanted] or list(plan.kinds or (None,))[:1]
    found = []
    for kind in kinds:
        served = [e for v in plan.variants if v.kinds is None or kind in v.kinds for e in v.elements_for(kind)]
        element = ElementKind.F32 if ElementKind.F32 in served else served[0]
        drawn = [plan.case(SeededDraw(seed, element, kind)) for seed in range(24)]
        desc = max(drawn, key=plan.bytes)
        label = f"{'' if kind is None else f'{kind.value} '}drawn {element}, {plan.bytes(desc)} bytes"
        found.append(Problem(plan, label, desc))
    return found


def of_lines(plan: type[Plan], lines: Sequence[str], read: Callable[[str], Any]) -> list[Problem]:
    """A problem a line, `field=value …`; a # begins a comment."""
    found = []
    for line in lines:
        text = line.partition("#")[0].strip()
        if not text:
            continue
        fields = {}
        for item in text.split():
            name, equals, value = item.partition("=")
            if not equals:
                raise BaracudaError(f"{item!r} is not field=value, in {line.strip()!r}")
            fields[name] = read(value)
        try:
            found.append(Problem(plan, text, plan.descriptor(**fields)))
        except TypeError as error:
            raise BaracudaError(f"{error}, in {line.strip()!r}") from None
    return found


@dataclass
class Case:
    """A problem ready to time: `candidates` are calls on rotated inputs; ours is "baracuda"."""

    problem: Problem
    sku: str
    candidates: dict[str, list[Callable[[], Any]]]
    left_out: list[str]


def ready(problem: Problem, device: Device, against: Sequence[str]) -> Case:
    """Enough input sets, the plan bound to each, and the peers that there are."""
    plan, desc, cuda = problem.plan, problem.desc, device.kind == "cuda"
    first = operands(problem, device, 0)
    count = sets_of(first) if cuda else 1
    sets = [first] + [operands(problem, device, seed) for seed in range(1, count)]
    asked = PlanPreference(deterministic=False) if problem.benchmark and problem.benchmark.any_order else None
    chosen = plan.select(desc, asked, device=device if device.fake else str(device))
    args = [plan.args(**one) for one in sets]
    case = Case(problem, str(chosen.can_implement(args[0]).sku), {"baracuda": [chosen.bind(a) for a in args]}, [])
    for name in against:
        try:
            made = [_peer(name, problem, one, cuda) for one in sets]
            calls = [call for call in made if call is not None]
            for call in calls[:1]:
                call()
        except Exception as error:  # the peer cannot do it: an element, a package that is missing
            case.left_out.append(f"{name}: {type(error).__name__}: {' '.join(str(error).split())[:120]}")
            continue
        if len(calls) == len(made):
            case.candidates[name] = calls
        else:
            case.left_out.append(f"{name} has no such function")
    return case


def sets_of(operands: Mapping[str, Any]) -> int:
    """How many sets of such operands no L2 holds."""
    size = sum(int(a.nbytes) for a in _every(operands))
    return max(1, min(MOST_SETS, -(-ROTATE // max(size, 1))))


def operands(problem: Problem, device: Device, seed: int, also: Sequence[str] | None = None) -> Arrays:
    """Random operands of a call, and outputs for it: those that it needs and those of `also`."""
    plan, desc, one = problem.plan, problem.desc, problem.benchmark
    if also is None:
        every = [s.name for s in arrays_of(plan.args) if s.role == "out"] if plan.direction == "backward" else []
        also = one.also if one is not None else (*every, "weight")  # a gradient that is not wanted costs nothing
    put = _onto(device)
    made: Arrays = {}
    if one is not None and one.make is not None:
        made = _made(one, desc, put)
    plain = plan.complete.__func__ is Plan.complete.__func__  # type: ignore[attr-defined]
    whole = None if plain else fill(plan, desc, np.random.default_rng(seed), {}, smooth=True, usual=True).arrays
    for spec in arrays_of(plan.args):
        if spec.name in made or not spec.serves(desc) or not (spec.required(desc) or spec.name in also):
            continue
        if whole is not None and spec.reads:
            made[spec.name] = _each(put, whole[spec.name])
            continue
        drawn = [_contents(spec, desc, shape, device, seed, put) for shape in shapes_of(spec, desc)]
        made[spec.name] = drawn if spec.many else drawn[0]
    for spec in scalars_of(plan.args):
        if spec.name not in made and default_of(plan, spec) in (dataclasses.MISSING, None):
            made[spec.name] = 1 if spec.integer else 0.5
    known = {s.name for s in arrays_of(plan.args) if s.serves(desc)} | {s.name for s in scalars_of(plan.args)}
    return {name: value for name, value in made.items() if name in known}


def _contents(spec: Operand, desc: Any, shape: tuple[int, ...], device: Device, seed: int, put: Any) -> Any:
    """Floats are standard normal, integers within their bounds, outputs are empty."""
    element, rng = spec.elements(desc)[0], np.random.default_rng(seed)
    if callable(spec.values):
        return put(np.asarray(spec.values(rng, desc, shape)).reshape(shape).astype(element.carrier))
    xp = import_module("cupy") if device.kind == "cuda" else np
    if spec.role == "out":
        return xp.empty(shape, element.carrier)
    if element.is_float and element.bits >= 8:
        normal = xp.random.default_rng(seed).standard_normal(shape, dtype=np.float32)
        cast = import_module("baracuda_py").cast
        return normal if element is ElementKind.F32 else cast(normal, element)
    if element.is_complex:
        draw = xp.random.default_rng(seed).standard_normal
        return (draw(shape) + 1j * draw(shape)).astype(element.carrier)
    low, high = spec.values if isinstance(spec.values, tuple) else (0, 2 if element is ElementKind.BOOL else 100)
    low, high = (getattr(desc, v) if isinstance(v, str) else v for v in (low, high))
    return xp.random.default_rng(seed).integers(low, max(high, low + 1), shape).astype(element.carrier)


def _made(one: Benchmark, desc: Any, put: Any) -> Arrays:
    """What the benchmark makes with torch, as arrays; nothing where torch is not installed."""
    try:
        torch = import_module("torch")
    except ImportError:
        return {}
    assert one.make is not None
    return {name: _each(lambda t: put(_from_torch(t)), value) for name, value in one.make(torch, desc).items()}


def _from_torch(value: Any) -> Any:
    if not hasattr(value, "data_ptr"):
        return value
    kind, plain = ElementKind.of(value.dtype), value.detach().cpu()
    if kind.dtype.isbuiltin == 1:
        return plain.numpy()
    torch = import_module("torch")
    return plain.view(getattr(torch, f"int{kind.bits}")).numpy().view(kind.dtype)


def _onto(device: Device) -> Callable[[Any], Any]:
    """What puts a NumPy array on the device."""
    if device.kind != "cuda":
        return lambda value: value
    cupy = import_module("cupy")
    return lambda value: cupy.asarray(value) if isinstance(value, np.ndarray) else value


def _each(act: Callable[[Any], Any], value: Any) -> Any:
    return [act(one) for one in value] if isinstance(value, list) else None if value is None else act(value)


def _every(arrays: Mapping[str, Any]) -> list[Any]:
    values = [one for value in arrays.values() for one in (value if isinstance(value, list) else [value])]
    return [one for one in values if hasattr(one, "nbytes")]


def _peer(name: str, problem: Problem, arrays: Arrays, cuda: bool) -> Callable[[], Any] | None:
    """A call of the same problem in another package, or None where it has no such function."""
    plan, desc = problem.plan, problem.desc
    if name in ("numpy", "cupy"):
        host = {key: _each(_to_host, value) for key, value in arrays.items()} if name == "numpy" and cuda else arrays
        return in_arrays(import_module(name), plan, desc, host)
    if name not in ("torch", "torch.compile"):
        raise BaracudaError(f"--against takes torch, torch.compile, cupy and numpy, got {name!r}")
    if not has_torch(plan):
        return None
    torch = import_module("torch")
    tensors = {key: _each(lambda a: _tensor(torch, a), value) for key, value in arrays.items()}
    wanted = frozenset(s.name for s in arrays_of(plan.args) if s.role == "out" and arrays.get(s.name) is not None)
    build = torch.compile if name == "torch.compile" else lambda function: function
    call = in_torch(plan, desc, tensors, wanted, build)
    return None if call() is None else call


def _to_host(value: Any) -> Any:
    return value.get() if hasattr(value, "get") else value


def _tensor(torch: Any, value: Any) -> Any:
    """An array as a tensor over the same memory."""
    if not hasattr(value, "dtype") or isinstance(value, np.generic):
        return value
    kind = ElementKind.of(value.dtype)
    if kind.dtype.isbuiltin == 1:
        return torch.from_dlpack(value) if not isinstance(value, np.ndarray) else torch.from_numpy(value)
    plain = value.view(f"int{kind.bits}")
    made = torch.from_dlpack(plain) if not isinstance(value, np.ndarray) else torch.from_numpy(plain)
    return made.view(getattr(torch, str(kind)))
