"""What this machine and this library have: the facts behind `env` and `ops`.

`environment` never raises: a broken CuPy is a line of the report.
"""

from __future__ import annotations

import ctypes
import dataclasses
import importlib
import importlib.metadata
import inspect
import platform
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .. import __version__
from ..core import config, registry
from ..core.args import Operand, arrays_of, operands_of
from ..core.device import cuda_device, driver_device_count
from ..core.element import ElementKind
from ..core.plan import Plan
from ..core.variant import Variant
from ..jit import cache, nvrtc, toolkit

_PACKAGES = (
    "numpy", "ml_dtypes", "cupy-cuda12x", "cupy-cuda13x", "cuda-bindings", "cuda-pathfinder",
    "nvidia-cuda-nvrtc-cu12", "nvidia-cuda-nvrtc", "nvidia-cuda-runtime-cu12", "nvidia-cuda-runtime",
    "nvidia-cublas-cu12", "nvidia-cublas", "nvidia-cusolver-cu12", "nvidia-cusolver", "nvidia-cufft-cu12",
    "nvidia-cufft", "nvmath-python", "torch", "jax", "numba-cuda",
)  # fmt: skip
_LIBRARY = re.compile(r"(/\S*/lib(?:cuda|cudart|nvrtc|cublas|cublasLt|cusolver|cufft|cudnn)\S*\.so\S*)$")


def environment() -> dict[str, Any]:
    """Installed packages, loaded CUDA libraries, driver, devices, NVRTC, headers, cache, settings."""
    return {
        "baracuda_py": f"{__version__} at {Path(__file__).parents[1]}",
        "python": f"{platform.python_version()} on {platform.platform()}",
        "installed": {name: version for name in _PACKAGES if (version := _version(name))},
        "cupy": _try(_cupy),
        "driver": _try(_driver),
        "devices": _try(_devices),
        "nvrtc": _try(_nvrtc),
        "headers": _try(_headers),
        "cache": _try(_cache),
        "loaded": _loaded(),
        "settings": {s.name: {"value": _plain(s.value), "set": s.is_set, "doc": s.doc} for s in config.table()},
    }


def render(facts: dict[str, Any]) -> str:
    """The report as text."""
    lines = []
    for name, value in facts.items():
        if name == "settings":
            lines.append("settings")
            lines += [f"  {k:<24} {v['value']!s:<20} {'(set) ' * v['set']}{v['doc']}" for k, v in value.items()]
        elif isinstance(value, dict):
            lines += [name, *(f"  {k:<26} {v}" for k, v in value.items())]
        elif isinstance(value, list):
            lines += [name, *(f"  {item}" for item in value)] if value else [f"{name}: none"]
        else:
            lines.append(f"{name}: {value}")
    return "\n".join(lines)


def _plain(value: Any) -> Any:
    """As JSON has it: paths are text."""
    return value if value is None or isinstance(value, (bool, int, float)) else str(value)


def _try(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except Exception as error:  # the report must come out whatever is broken
        return " ".join(f"unavailable: {type(error).__name__}: {error}".split())


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cupy() -> str:
    cupy = importlib.import_module("cupy")
    return f"{cupy.__version__}, CUDA {cupy.cuda.runtime.runtimeGetVersion()}"


def _driver() -> str:
    driver = ctypes.CDLL("libcuda.so.1")
    version = ctypes.c_int()
    status = driver.cuDriverGetVersion(ctypes.byref(version))
    if status:
        return f"cuDriverGetVersion failed: {status}"
    return f"CUDA {version.value // 1000}.{version.value % 1000 // 10}"


def _devices() -> list[str]:
    found = [cuda_device(i) for i in range(driver_device_count())]
    return [
        f"cuda:{d.ordinal} {d.name}, sm_{d.cc[0]}{d.cc[1]}, {d.sms} SMs, {d.smem // 1024} KB shared memory a block"
        for d in found
    ]


def _nvrtc() -> str:
    found = nvrtc.load()
    return f"{'.'.join(map(str, found.version))} at {toolkit.nvrtc_library()}"


def _headers() -> list[str]:
    return [str(path) for path in toolkit.include_dirs()]


def _cache() -> str:
    found = cache.stats()
    why = cache.default_cache().refusal()
    return f"{found.dir}: " + (f"not used: {why}" if why else f"{found.entries} entries, {found.bytes / 1e6:.1f} MB")


def _loaded() -> list[str]:
    """CUDA libraries mapped into this process (installed is not loaded)."""
    try:
        with open("/proc/self/maps") as maps:
            return sorted({m[1] for line in maps if (m := _LIBRARY.search(line.strip()))})
    except OSError:
        return []


def operations(names: Sequence[str] = ()) -> list[dict[str, Any]]:
    """One object per plan, all or those of families and ops: names, direction, kinds, elements, rows, guarantees."""
    chosen = [plan for name in names for plan in registry.family(name)] if names else registry.plans().values()
    return [_operation(plan) for plan in dict.fromkeys(chosen)]


def describe(plan: type[Plan]) -> str:
    """What one op is and takes, as text: its docstring, kinds, descriptor fields and operands."""
    lines = [f"{plan.op}  {plan.__name__} ({plan.descriptor.__name__}, {plan.args.__name__}), {plan.direction}"]
    lines += [f"  {line}".rstrip() for line in inspect.getdoc(plan).splitlines()]  # type: ignore[union-attr]
    if plan.kinds:
        lines += ["kinds", f"  {' '.join(kind.value for kind in plan.kinds)}"]
    lines.append("fields of the problem")
    for field in dataclasses.fields(plan.descriptor):
        default = "" if field.default is dataclasses.MISSING else f" = {field.default}"
        lines.append(f"  {field.name}{default}")
    lines.append("operands")
    roles = {"in": "input", "out": "output", "inout": "in place", "scalar": "number"}
    lines += [f"  {spec.name:<16} {roles[spec.role]:<8} {operand(spec)}" for spec in operands_of(plan.args)]
    if plan.value_policy:
        lines += ["values", f"  {plan.value_policy}"]
    return "\n".join(lines)


def operand(spec: Operand) -> str:
    """The shape and element of one operand, and what else may be said of it."""
    if spec.role == "scalar":
        return f"{'integer' if spec.integer else 'float'}, or a 0-d array on the device"
    shape = f"a list, of shapes {spec.many}" if spec.many else f"[{', '.join(spec.dims)}]"
    rule = spec.element if isinstance(spec.element, tuple) else (spec.element,)
    more = {"optional": spec.optional, "broadcasts": spec.broadcast, f"goes with {spec.needs}": spec.needs}
    return ", ".join([shape, " or ".join(map(str, rule)), *(word for word, holds in more.items() if holds)])


def _operation(plan: type[Plan]) -> dict[str, Any]:
    rows = plan.table()
    kinds = [k.value for k in plan.kinds] if plan.kinds else []
    elements = [e for e in ElementKind if any(e in _elements(plan, row) for row in rows)]
    family, _, name = plan.op.partition(".")
    return {
        "name": name,
        "family": family,
        "plan": plan.__name__,
        "descriptor": plan.descriptor.__name__,
        "args": plan.args.__name__,
        "direction": plan.direction,
        "kinds": kinds,
        "elements": [str(e) for e in elements],
        "variants": [_row(plan, row) for row in rows],
    }


def _elements(plan: type[Plan], row: Variant) -> list[ElementKind]:
    kinds = [kind for kind in plan.kinds or (None,) if row.kinds is None or kind in row.kinds]
    served = {e for kind in kinds for e in row.elements_for(kind)}
    return [e for e in ElementKind if e in served]


def _row(plan: type[Plan], row: Variant) -> dict[str, Any]:
    kind = next((k for k in (row.kinds or plan.kinds or (None,))), None)
    promises = {str(e): row.guarantee.of(e, kind) for e in _elements(plan, row)}
    return {
        "name": row.name,
        "backend": row.backend.value,
        "arch": row.design.value,
        "layout": widest_layout(plan),
        "elements": list(promises),
        "guarantee": {e: dataclasses.asdict(g) | {"error": str(g.error)} for e, g in promises.items()},
    }


def widest_layout(plan: type[Plan]) -> str:
    """The loosest layout every operand of the plan may have."""
    rules = {spec.layout for spec in arrays_of(plan.args) if not spec.optional}
    return "contiguous" if "dense" in rules else "inner_contiguous" if "inner" in rules else "strided"
