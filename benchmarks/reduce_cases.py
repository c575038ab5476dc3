"""Benchmarked reductions and scans: rows, columns, middle axes, few long rows, everything to one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from cases import Case, case, make

import baracuda_py as bc

_SHAPES: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((16384, 8192), (1,)), ((65536, 2048), (1,)), ((1 << 20, 128), (1,)), ((2048, 50257), (1,)),
    ((8192, 16384), (0,)), ((1 << 20, 128), (0,)), ((64, 1024, 2048), (1,)), ((4, 1 << 25), (1,)), ((1 << 27,), (0,)),
)  # fmt: skip
_KINDS: dict[str, Callable[..., Any]] = {
    "sum": torch.sum, "amax": torch.amax, "argmax": lambda x, dim: torch.argmax(x, dim[0]), "var": torch.var,
    "logsumexp": torch.logsumexp, "l2_norm": lambda x, dim: torch.linalg.vector_norm(x, 2, dim),
}  # fmt: skip


def _reduce(kind: str, shape: tuple[int, ...], axis: tuple[int, ...], dtype: torch.dtype, compiled: bool) -> Case:
    desc = bc.ReduceDescriptor(kind=kind, shape=shape, axis=axis, element=dtype)

    def arrays() -> dict[str, Any]:
        x = torch.randn(shape, device="cuda", dtype=dtype)
        return {"x": x, "y": torch.empty(desc.result_shape, device="cuda", dtype=_torch(desc.result))}

    def peer(a: dict[str, Any]) -> Any:
        return _KINDS[kind](a["x"], dim=axis)

    name = f"{kind} {'x'.join(map(str, shape))} axis {','.join(map(str, axis))}"
    peers = {"compiled": {"torch.compile": peer}} if compiled else {}
    return make(bc.ReducePlan, desc, arrays, ("y",), name, {"torch": peer}, nbytes=bc.ReducePlan.bytes(desc), **peers)


def _torch(element: bc.ElementKind) -> torch.dtype:
    found = getattr(torch, str(element))
    assert isinstance(found, torch.dtype)
    return found


def _scan(name: str, shape: tuple[int, ...], axis: int, dtype: torch.dtype) -> Case:
    extreme = name in ("cummax", "cummin")
    plan: Any = bc.ScanExtremePlan if extreme else bc.ScanPlan
    desc = plan.descriptor(kind=name, shape=shape, axis=axis, element=dtype)

    def arrays() -> dict[str, Any]:
        x = torch.randn(shape, device="cuda", dtype=dtype)
        made = {"x": x, "y": torch.empty_like(x)}
        return made | ({"indices": torch.empty(shape, device="cuda", dtype=torch.int64)} if extreme else {})

    def peer(a: dict[str, Any]) -> Any:
        return getattr(torch, name)(a["x"], dim=axis)

    outputs = ("y", "indices") if extreme else ("y",)
    label = f"{name} {'x'.join(map(str, shape))} axis {axis}"
    return make(plan, desc, arrays, outputs, label, {"torch": peer}, nbytes=plan.bytes(desc), target="0.90")


for _dtype in (torch.float32, torch.bfloat16):
    for _shape, _axis in _SHAPES:
        case("reduce")(lambda compiled, s=_shape, a=_axis, d=_dtype: _reduce("sum", s, a, d, compiled))
    for _kind in _KINDS:
        if _kind != "sum":
            for _shape, _axis in (_SHAPES[0], _SHAPES[4]):
                case("reduce")(lambda compiled, k=_kind, s=_shape, a=_axis, d=_dtype: _reduce(k, s, a, d, compiled))
    for _name in ("cumsum", "cummax", "logcumsumexp"):
        for _shape, _place in (((65536, 2048), 1), ((2048, 65536), 0), ((64, 1 << 20), 1)):
            case("scan")(lambda compiled, n=_name, s=_shape, a=_place, d=_dtype: _scan(n, s, a, d))
