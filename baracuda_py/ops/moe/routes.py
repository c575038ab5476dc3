"""Which plans of sm_90a `moe` goes by, where they take all operands: of few tokens and of many, with the same bits."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from ...core import BaracudaError, ElementKind, Plan, PlanPreference, Problem, View
from ...core.args import arrays_of
from ...core.arrays import Reading, read
from ...core.element import HALVES
from ...core.tensor import dense_strides
from ..gemm.grouped_gather_gemm import GroupedGatherGemmDescriptor, GroupedGatherGemmPlan
from .decode import MoeDecodeDescriptor, MoeDecodePlan


def streams(activation: str, preference: Any, given: Mapping[str, Any]) -> bool:
    """Whether a mixture of these operands of `moe_decode`, by name, goes by its row of sm_90a."""
    found = _readings(preference, given, ("indices", "weights"))
    if found is None:
        return False
    x, gate = found["x"], found["gate"]
    tokens, d = x.shape
    experts, f, _ = gate.shape
    desc = MoeDecodeDescriptor(
        tokens=tokens, k=found["indices"].shape[1] or 1, experts=experts, d=d, f=f, d_out=found["down"].shape[1],
        activation=activation, element=x.element,
    )  # fmt: skip
    made = {"y": ((tokens, desc.d_out), x.element)}
    return _takes(MoeDecodePlan, "stream", desc, x.device, preference, _views(found), _made(made))


def gathers(total: int, activation: str, preference: Any, given: Mapping[str, Any]) -> bool:
    """Whether the first product of these operands of `grouped_gather_gemm` goes by its row of sm_90a."""
    found = _readings(preference, given, ())
    if found is None:
        return False
    x, b = found["x"], found["b"]
    desc = GroupedGatherGemmDescriptor(
        sources=x.shape[0], k=x.shape[1], total=total, groups=b.shape[0], n=b.shape[2], activation=activation,
        element=x.element,
    )  # fmt: skip
    index = ElementKind.I64
    made = {"rows": ((total,), index), "offsets": ((desc.groups,), index), "y": ((total, desc.n), x.element)}
    return _takes(GroupedGatherGemmPlan, "wgmma", desc, x.device, preference, _views(found), _made(made))


def layouts(arrays: tuple[Any, ...], preference: Any) -> tuple[Any, ...] | None:
    """What of operands on a GPU decides which way they go, None where that is not told from how they lie alone.

    Calls with the same one go the same way, so that checks and choices of plans are made for the first of them.
    """
    if not isinstance(preference, (PlanPreference, type(None))):
        return None
    found: list[Any] = [preference]
    try:
        for array in arrays:
            if array is None:
                found.append(None)
                continue
            ptr, shape, strides, element, device, _, _, traced = read(array, "x")
            if traced or device < 0:
                return None
            found.append((ptr % 16, shape, strides, element, device))
    except BaracudaError:  # the call that reads it says what is wrong
        return None
    return tuple(found)


def _readings(preference: Any, given: Mapping[str, Any], others: tuple[str, ...]) -> dict[str, Any] | None:
    """The operands as they lie on one GPU, all but `others` of x's element, of 16 bits; None where they do not."""
    if not isinstance(preference, (PlanPreference, type(None))) or getattr(preference, "max_workspace_bytes", None):
        return None
    some = {name: read(one, name) for name, one in given.items() if one is not None}
    x = some["x"]
    floats = [one for name, one in some.items() if name not in others]
    if x.device < 0 or x.element not in HALVES or any(one.traced or one.device != x.device for one in some.values()):
        return None
    found: dict[str, Any] = {**dict.fromkeys(given), **some}
    return found if all(one.element is x.element for one in floats) else None


def _views(found: Mapping[str, Reading | None]) -> tuple[tuple[str, View | None], ...]:
    """Of a place in memory only what alignment says."""
    return tuple(
        (name, None if one is None else View(one.ptr % 16, tuple(one.shape), tuple(one.strides), one.element))
        for name, one in found.items()
    )


def _made(arrays: Mapping[str, tuple[tuple[int, ...], ElementKind]]) -> tuple[tuple[str, View], ...]:
    """Arrays that will be made, which are dense."""
    return tuple((name, View(0, shape, dense_strides(shape), kind)) for name, (shape, kind) in arrays.items())


@lru_cache(maxsize=1024)
def _takes(
    plan: type[Plan], row: str, desc: Any, device: int, preference: Any, given: tuple[tuple[str, Any], ...],
    made: tuple[tuple[str, Any], ...],
) -> bool:  # fmt: skip
    """Whether that row, the plan's first, takes the operands, in rows that the plans of more tokens read as well."""
    widths = (desc.d, desc.f) if isinstance(desc, MoeDecodeDescriptor) else (desc.k,)
    if any(width % 8 for width in widths):
        return False
    try:
        chosen = plan.select(desc, preference, device=device)
    except BaracudaError:
        return False
    first = chosen.rows[0]
    views = {spec.name: None for spec in arrays_of(plan.args)} | dict(given + made)
    return first.name == row and not isinstance(first.geometry(Problem(desc, chosen.device, views)), str)
