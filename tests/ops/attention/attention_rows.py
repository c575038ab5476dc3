"""Attention's rows on the emulator or on a GPU, and attention written out to compare them with."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from baracuda_py import ArchSku, PlanPreference
from baracuda_py.core.args import arrays_of
from baracuda_py.core.element import ElementKind, cast
from baracuda_py.core.plan import Plan
from baracuda_py.testing import emulated_device, operands
from baracuda_py.testing.draw import Case
from baracuda_py.testing.emulator import emulating
from baracuda_py.testing.recording import pointer_view

WHERE = ["emulator", pytest.param("gpu", marks=pytest.mark.gpu)]


class Row(NamedTuple):
    """A row of a plan's table, by what chooses it."""

    cc: float
    any_order: bool = False


WGMMA, WGMMA_ANY, MMA, MMA_ANY, SIMT = Row(9.0), Row(9.0, True), Row(8.0), Row(8.0, True), Row(8.0)
TENSOR_CORES = {"wgmma": WGMMA, "wgmma_any": WGMMA_ANY, "mma": MMA, "mma_any": MMA_ANY}
ANY = {"simt": SIMT} | TENSOR_CORES


def run(where: str, plan: type[Plan], desc: Any, arrays: dict[str, Any], wanted: set[str], row: Row) -> dict[str, Any]:
    """What a row gives for float64 operands, which are rounded to their elements; outputs as float64."""
    preference = PlanPreference(deterministic=not row.any_order, max_arch=ArchSku.SM80 if row.cc == 8.0 else None)
    absent = dict.fromkeys(spec.name for spec in arrays_of(plan.args))
    case = Case(plan, desc, absent | arrays, frozenset(wanted))
    if where == "gpu":
        from baracuda_py.testing.gpu import OnDevice

        device = OnDevice(operands(case))
        plan.select(desc, preference).run(device.args())
        written = device.written()
    else:
        ready = operands(case)
        with emulating() as emulator:
            plan.select(desc, preference, device=emulated_device(row.cc)).run(ready.args(pointer_view))
            assert not (emulator.overrun() or ready.damage())
        written = {(spec.name, i): np.array(one.view) for spec, i, one in ready.items() if spec.writes}
    return {name: value.astype(np.float64) for (name, _), value in written.items()}


def rounded(element: str, *arrays: np.ndarray) -> list[np.ndarray]:
    """Float64 arrays as an op stores them."""
    return [cast(x, ElementKind.of(element)) for x in arrays]


class Straight(NamedTuple):
    """softmax(scale q kᵀ + bias) v and its gradients by the softmax's Jacobian, without a saved lse."""

    y: np.ndarray
    p: np.ndarray
    dq: np.ndarray
    dk: np.ndarray
    dv: np.ndarray


def straight(
    q: Any, k: Any, v: Any, dy: Any, scale: float, bias: Any = 0.0, seen: Any = True, acc: Any = np.longdouble
) -> Straight:
    """[..., rows, d] of as many heads, in more than float64, the scores as `acc` holds them: a bias may absorb q k."""
    q, k, v, dy = (np.asarray(x).astype(np.longdouble) for x in (q, k, v, dy))
    s = (scale * (q @ k.swapaxes(-1, -2)) + np.asarray(bias).astype(np.longdouble)).astype(acc).astype(np.longdouble)
    s = np.where(seen, s, -np.inf)
    top = s.max(axis=-1, keepdims=True)
    p = np.exp(s - np.where(top == -np.inf, 0, top))
    total = p.sum(axis=-1, keepdims=True)
    p = p / np.where(total == 0, 1, total)
    dp = dy @ v.swapaxes(-1, -2)
    ds = p * (dp - (p * dp).sum(axis=-1, keepdims=True))
    made = (p @ v, p, scale * (ds @ k), scale * (ds.swapaxes(-1, -2) @ q), p.swapaxes(-1, -2) @ dy)
    return Straight(*(x.astype(np.float64) for x in made))
