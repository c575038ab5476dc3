"""`doctor`: the environment, and one op of every family run, timed, and compared with the NumPy backend."""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np

from ..core import registry
from ..core.args import arrays_of
from ..core.device import in_use, resolve_device
from ..core.element import ElementKind, cast, decode
from ..core.plan import Plan
from ..testing.draw import SeededDraw, fill
from .explain import device_of
from .progress import Progress
from .report import environment

SAYS = "what is installed, and a smoke run of one op per family with its time"
_FIRST = {"attention": "attention.flash_sdpa", "elementwise": "elementwise.binary", "reduce": "reduce.reduce"}
_FACTS = ("baracuda_py", "python", "cupy", "driver", "devices", "nvrtc", "headers", "cache")


def options(parser: argparse.ArgumentParser) -> None:
    """The command line."""
    parser.add_argument("--device", help="cpu or cuda:N (default: CUDA where there is one)")
    parser.add_argument("--json", action="store_true")


def run(options: argparse.Namespace) -> int:
    """Print the findings; 1 where an op failed."""
    facts = {name: value for name, value in environment().items() if name in _FACTS}
    device = in_use(resolve_device(device_of(options.device)))
    facts["device"] = f"{device} ({device.name})"
    if not options.json:
        for name, value in facts.items():
            print(f"{name:<12} {'; '.join(map(str, value)) or 'none' if isinstance(value, list) else value}")
        print()
    plans = chosen()
    found = []
    with Progress(len(plans), "doctor") as step:
        for plan in plans:
            found.append(_checked(plan, device))
            step(plan.op)
    failed = sum(not one["ok"] for one in found)
    if options.json:
        print(json.dumps({**facts, "ops": found, "failed": failed}, indent=2))
        return 1 if failed else 0
    for one in found:
        said = (
            f"first {one['first_ms']:8.1f} ms, then {one['then_us']:8.1f} us  {one['sku']}"
            if one["ok"]
            else one["error"]
        )
        print(f"{'ok' if one['ok'] else 'FAILED':<7} {one['op']:<32} {said}")
    print(f"{len(plans) - failed} of {len(plans)} families work on {device}")
    return 1 if failed else 0


def _checked(plan: type[Plan], device: Any) -> dict[str, Any]:
    """What a smoke run found: whatever is broken is what the report is for."""
    try:
        return {"op": plan.op, "ok": True, **smoke(plan, device)}
    except Exception as error:
        said = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        return {"op": plan.op, "ok": False, "error": said}


def chosen() -> list[type[Plan]]:
    """One plan of every family."""
    found: dict[str, type[Plan]] = {}
    for plan in registry.plans().values():
        family = plan.op.partition(".")[0]
        if plan.direction == "forward" and (family not in found or plan.op == _FIRST.get(family)):
            found[family] = plan
    return list(found.values())


def smoke(plan: type[Plan], device: Any) -> dict[str, Any]:
    """The times of a small problem, whose result is the NumPy backend's; raises where it is not."""
    kind = next(iter(plan.kinds or (None,)))
    served = [e for v in plan.variants if v.kinds is None or kind in v.kinds for e in v.elements_for(kind)]
    element = ElementKind.F32 if ElementKind.F32 in served else served[0]
    desc, arrays, wanted = _problem(plan, element, kind)
    expected = _outputs(plan, desc, arrays, wanted, "cpu", 1)[0]
    found, first, again = _outputs(plan, desc, arrays, wanted, device, 2)
    for name, value in expected.items():
        for one, other in zip(_list(value), _list(found[name]), strict=True):
            _compare(name, one, other)
    sku = str(plan.select(desc, device=device).sku)
    return {"first_ms": round(first * 1e3, 1), "then_us": round(again * 1e6, 1), "sku": sku}


def _problem(plan: type[Plan], element: ElementKind, kind: Any) -> tuple[Any, dict[str, Any], frozenset[str]]:
    """A small problem whose outputs have elements."""
    for seed in range(64):
        desc = plan.case(SeededDraw(seed, element, kind))
        case = fill(plan, desc, np.random.default_rng(seed), smooth=True, kind=kind)
        written = [s for s in arrays_of(plan.args) if s.writes and s.required(desc)]
        if all(0 not in s.shape(desc) for s in written if not s.many) and not plan.check_values(desc, case.arrays):
            break
    required = {s.name for s in arrays_of(plan.args) if s.role == "out" and s.required(desc)}
    return desc, case.arrays, frozenset(required) or case.wanted


def _outputs(
    plan: type[Plan], desc: Any, arrays: dict[str, Any], wanted: frozenset[str], device: Any, rounds: int
) -> tuple[dict[str, Any], float, float]:
    """What the plan writes on a device, as NumPy arrays, and the seconds of the first call and of the last."""
    chosen = plan.select(desc, device=device)
    put: Any = np.array
    get: Any = np.asarray
    wait: Any = tuple  # does nothing
    if chosen.device.kind == "cuda":
        import cupy

        put, get, wait = cupy.asarray, cupy.asnumpy, cupy.cuda.Device(chosen.device.ordinal).synchronize
    times = []
    for _ in range(rounds):
        given = {n: _each(put, v) for n, v in arrays.items()}
        for spec in arrays_of(plan.args):
            if spec.role == "out" and spec.name in wanted:
                kind = spec.elements(desc)[0]
                shape = arrays[spec.like].shape if spec.like else spec.shape(desc)
                given[spec.name] = put(np.zeros(shape, kind.carrier))
        args = plan.args(**given)
        wait()
        start = time.perf_counter()
        chosen.run(args)
        wait()
        times.append(time.perf_counter() - start)
    written = [s for s in arrays_of(plan.args) if s.writes and given.get(s.name) is not None]
    found: dict[str, Any] = {s.name: _each(get, given[s.name]) for s in written}
    return found, times[0], times[-1]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _each(act: Any, value: Any) -> Any:
    if isinstance(value, list):
        return [act(one) for one in value]
    return act(value) if isinstance(value, np.ndarray) or hasattr(value, "get") else value


def _compare(name: str, expected: np.ndarray, found: np.ndarray) -> None:
    """Raise where two results differ by more than rounding does in a small problem."""
    kind = ElementKind.of(expected.dtype)
    a, b = (decode(x, kind) if kind.bits >= 8 else x for x in (expected, found))
    if not kind.is_inexact:
        if not np.array_equal(a, b):
            raise AssertionError(f"{name} differs from the NumPy backend's")
        return
    a, b = (cast(x, ElementKind.C128 if kind.is_complex else ElementKind.F64) for x in (a, b))
    both = np.isfinite(a) & np.isfinite(b)
    if not np.array_equal(np.isfinite(a), np.isfinite(b)):
        raise AssertionError(f"{name} is not finite where the NumPy backend's is, or the other way round")
    error = float(np.linalg.norm(a[both] - b[both]) / max(float(np.linalg.norm(a[both])), 1e-30))
    if error > 2e-2:
        raise AssertionError(f"{name} is off the NumPy backend's by {error:.3g} (relative norm)")
