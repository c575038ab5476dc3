"""Every page's op in torch, on the CPU, against its reference: two implementations that share nothing."""

from __future__ import annotations

import zlib
from typing import Any

import pytest

from baracuda_py.core import ElementKind, registry
from baracuda_py.core.plan import Plan
from baracuda_py.testing.draw import SeededDraw
from baracuda_py.testing.in_torch import check_torch, has_torch

torch = pytest.importorskip("torch")
F64, C128, I32, U8 = ElementKind.F64, ElementKind.C128, ElementKind.I32, ElementKind.U8
DRAWS, SERVED = 200, 5
KINDS_OF_JAX = {"lanczos3", "lanczos5"}  # which torch has not; tests/ops/image has them beside jax.image


def elements(plan: type[Plan], kind: Any) -> list[ElementKind]:
    """The widest float and complex, in which formulas can be told apart, and integers."""
    served = {e for v in plan.variants if v.kinds is None or kind in v.kinds for e in v.elements_for(kind)}
    floats = [e for e in served if e.is_float and e.itemsize > 1]
    widest = max(floats, key=lambda e: (e.itemsize, e is ElementKind.F16), default=None)
    return [e for e in (widest, C128, I32, U8) if e is not None and e in served]


ITEMS = [
    pytest.param(plan, kind, element, id=f"{name}-{'' if kind is None else getattr(kind, 'value', kind)}-{element}")
    for name, plan in registry.plans().items()
    if has_torch(plan)
    for kind in plan.kinds or (None,)
    if getattr(kind, "value", "") not in KINDS_OF_JAX
    for element in elements(plan, kind)
]


@pytest.mark.parametrize(("plan", "kind", "element"), ITEMS)
def test_reference_is_torch(plan: type[Plan], kind: Any, element: ElementKind) -> None:
    """A few problems with something in them, of those drawn; a page's torch must serve that many."""
    served, seed = 0, zlib.crc32(f"{plan.op} {kind} {element}".encode())
    for i in range(DRAWS):
        served += check_torch(plan, SeededDraw(seed + i, element, kind))
        if served == SERVED:
            return
    raise AssertionError(f"torch serves {served} of {DRAWS} problems of {plan.__name__} {kind} in {element}")


@pytest.mark.parametrize("name", ["LayerNormPlan", "FlashSdpaBackwardPlan", "KvCacheAppendPlan", "AdamStepPlan"])
def test_a_wrong_reference_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One part in a million, in one output: forward, by autograd, of stored bytes, and updated in place."""
    plan = registry.plan(name)
    right = plan.reference

    def wrong(desc: Any, **given: Any) -> Any:
        made = dict(right(desc, **given))
        last = next(reversed(made))
        made[last] = [x * (1 + 1e-6) for x in made[last]] if isinstance(made[last], list) else made[last] * (1 + 1e-6)
        return made

    monkeypatch.setattr(plan, "reference", staticmethod(wrong))
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        for seed in range(10):
            check_torch(plan, SeededDraw(seed, F64, None))
