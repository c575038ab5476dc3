"""What a first call waits for: every op, from an empty cache, in a process of its own.

    python benchmarks/first_call.py [OP …] [--jobs N] [--csv [FILE]]       # on this GPU
    python benchmarks/first_call.py [OP …] --arch sm_90a [--csv FILE]      # without one: select and compile only

A problem is one that the page draws, without operands that may be absent, for one element of each size, and for each
of the usual head_dims where an op has one. `first` is the time of `select` and of the first `run` to its end: NVRTC is
loaded, the kernels are compiled side by side, loaded, run. `cached` is the same in a new process that finds them on
disk. CuPy and the CUDA context are ready before. Rows are sorted by `first`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import checkout  # noqa: F401
from record import RESULTS, slug, write

HEAD_DIMS = (64, 128, 256)
LIMIT = 1.0  # seconds that a first call may take


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ops", nargs="*", help="substrings of op names (default: all)")
    parser.add_argument(
        "--element", help="problems of this element alone, such as bfloat16 (default: one of each size)"
    )
    parser.add_argument("--jobs", type=int, default=1, help="problems measured at a time; each wants four cores")
    parser.add_argument("--arch", help="compile for this target on a machine without a GPU, such as sm_90a")
    parser.add_argument("--csv", nargs="?", const="", help="write the rows here; without FILE, to the GPU's results")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure(options.arch, **json.loads(options.child))))
        return 0
    rows: list[dict[str, Any]] = []
    with ThreadPoolExecutor(options.jobs) as jobs:
        for row in jobs.map(lambda one: cold_and_cached(one, options.arch), problems(options.ops, options.element)):
            if row is not None:
                rows.append(row)
                write(path_of(options.csv, row["machine"]), sorted(rows, key=lambda row: -row["first"]))
                print(f"{len(rows):4} {shown(row)}", file=sys.stderr, flush=True)
    rows.sort(key=lambda row: -row["first"])
    print(f"{'op':<44} {'element':<9} {'d':>3} {'first':>6} {'cached':>6} s   units: seconds each")
    print("\n".join(map(shown, rows)))
    slow = sum(row["first"] > LIMIT for row in rows)
    print(f"{len(rows)} problems on {rows[0]['machine'] if rows else 'nothing'}, {slow} of them over {LIMIT:g} s")
    return 0


def problems(names: list[str], element: str | None = None) -> Iterator[dict[str, Any]]:
    """A plan's problems: its first kind, one element a size or that named, and each head_dim where it has one."""
    from baracuda_py.core import registry

    for plan in registry.plans().values():
        if names and not any(name in plan.op for name in names):
            continue
        kind = next(iter(plan.kinds), None) if plan.kinds else None
        served = [e for v in plan.variants if v.source for e in v.elements_for(kind) if v.serves(kind, e)]
        served = [e for e in served if element in (None, str(e))]
        fields = {field.name for field in dataclasses.fields(plan.descriptor)}
        for one in {e.itemsize: str(e) for e in reversed(served)}.values():
            for d in HEAD_DIMS if fields & {"d_k", "head_dim"} else (0,):
                yield {"plan": plan.__name__, "kind": None if kind is None else kind.value, "element": one, "d": d}


def cold_and_cached(problem: dict[str, Any], arch: str | None) -> dict[str, Any] | None:
    """A row, from two processes on one cache directory that was empty; None where the op has no such problem."""
    with tempfile.TemporaryDirectory(prefix="baracuda-first-") as folder:
        command = [sys.executable, __file__, "--child", json.dumps(problem), *(["--arch", arch] if arch else [])]
        environment = {**os.environ, "BARACUDA_CACHE_DIR": folder}
        found = []
        for _ in range(2):
            done = subprocess.run(command, env=environment, capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(f"{problem}: {done.stderr}")
            found.append(json.loads(done.stdout))
    cold, cached = found
    return cold and {**cold, "cached": cached["first"]}


def measure(arch: str | None, plan: str, kind: str | None, element: str, d: int) -> dict[str, Any] | None:
    """Import, select and first run of a problem in this process."""
    if arch is None:
        import cupy

        cupy.zeros(1).sum()  # the context, and CuPy's own first call
        machine = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    else:
        machine = f"compile only, {arch}"
    start = time.perf_counter()
    import baracuda_py  # noqa: F401

    imported = time.perf_counter() - start
    from baracuda_py.core import registry
    from baracuda_py.core.args import arrays_of
    from baracuda_py.core.device import fake_device
    from baracuda_py.core.element import ElementKind
    from baracuda_py.core.errors import BaracudaError
    from baracuda_py.jit.compiler import compile_all
    from baracuda_py.jit.launch import Wanted, install_fake
    from baracuda_py.testing.draw import SeededDraw, fill
    from baracuda_py.testing.gpu import OnDevice
    from baracuda_py.testing.operands import operands
    from baracuda_py.testing.recording import Recorder, pointer_view

    class Compiling(Recorder):
        """Stands for a GPU: what is to be loaded is compiled."""

        def load(self, device: Any, wanted: Any) -> list[Any]:
            compile_all([kernel.unit for kernel in wanted], device.target)
            return super().load(device, [Wanted(*kernel) for kernel in wanted])

    units: list[tuple[str, float]] = []
    handler = logging.Handler()
    handler.emit = lambda record: units.append((record.args[0], record.args[-1]))  # type: ignore[method-assign, index, misc]
    logger = logging.getLogger("baracuda_py.jit")
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)

    chosen = registry.plan(plan)

    def drawn(seed: int, whole: bool) -> Any:
        """Operands of a problem that has work, else None; `whole`: with those that may be absent."""
        draw = SeededDraw(seed, ElementKind(element), _kind(chosen, kind))
        desc = chosen.case(draw)
        present = {spec.name: whole for spec in arrays_of(chosen.args) if spec.optional and spec.reads}
        try:
            sizes = {name: d for name in ("d_k", "d_v", "head_dim") if d and hasattr(desc, name)}
            found = operands(fill(chosen, dataclasses.replace(desc, **sizes), draw.seed(), present, kind=draw.kind))
            runs = bool(chosen.select(found.case.desc, device="cpu").can_implement(found.args()))
        except BaracudaError:
            return None
        return found if runs and all(one.view.size for _, _, one in found.items()) else None

    tries = ((seed, whole) for whole in (False, True) for seed in range(100))
    ready = next((found for seed, whole in tries if (found := drawn(seed, whole)) is not None), None)
    if ready is None:
        return None
    desc = ready.case.desc
    if arch is None:
        args = OnDevice(ready).args()
        device: Any = 0
    else:
        install_fake(Compiling())
        args = ready.args(pointer_view)
        digits = arch.removeprefix("sm_").rstrip("af")
        device = fake_device((int(digits[:-1]), int(digits[-1])))
    start = time.perf_counter()
    try:
        made = chosen.select(desc, device=device)
    except BaracudaError:
        return None
    selected = time.perf_counter() - start
    verdict = made.can_implement(args)
    if not verdict:
        return None
    made.run(args)
    if arch is None:
        cupy.cuda.get_current_stream().synchronize()
    return {
        "op": chosen.op if kind is None else f"{chosen.op}[{kind}]",
        "element": element,
        "d": d or "",
        "machine": machine,
        "import": round(imported, 3),
        "select": round(selected, 4),
        "first": round(time.perf_counter() - start, 3),
        "cached": 0.0,
        "kernels": len(units),
        "units": "; ".join(f"{name} {seconds:.2f}" for name, seconds in sorted(units, key=lambda unit: -unit[1])),
        "sku": str(verdict.sku),
    }


def _kind(plan: Any, value: str | None) -> Any:
    return next(kind for kind in plan.kinds if kind.value == value) if value is not None else None


def path_of(named: str | None, machine: str) -> Path | None:
    """Where rows go: nowhere, the file named, or the results of the GPU."""
    if named is None:
        return None
    return Path(named) if named else RESULTS / f"{slug(machine.replace(',', ''))}_first_call.csv"


def shown(row: dict[str, Any]) -> str:
    """A row as the table prints it."""
    times = f"{row['first']:6.2f} {row['cached']:6.3f}"
    return f"{row['op']:<44} {row['element']:<9} {row['d']!s:>3} {times}     {row['units']}"


if __name__ == "__main__":
    raise SystemExit(main())
