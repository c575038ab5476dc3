"""Which instances of a kernel may spill: all, none, or those that `where` names."""

from __future__ import annotations

import pytest

from baracuda_py.core import ElementKind, Kernel, Params, where

F16, F32, F64 = ElementKind.F16, ElementKind.F32, ElementKind.F64
PARAMS = Params("P", x="ptr")


def test_all_or_none() -> None:
    assert not Kernel("k", "k<{T}>", PARAMS).may_spill(F16, {})
    assert Kernel("k", "k<{T}>", PARAMS, spills=True).may_spill(F16, {"D": 64})


@pytest.mark.parametrize(
    ("some", "spill"),
    [
        (where(WIDE=True), {(e, True, d) for e in (F16, F32) for d in (64, 128)}),
        (where(element=F16), {(F16, w, d) for w in (True, False) for d in (64, 128)}),
        (where(element=F32, D=128), {(F32, w, 128) for w in (True, False)}),
        (where(element=(F32, F64), WIDE=False, D=(32, 64)), {(F32, False, 64)}),
        (where(element=F16, D=64) | where(WIDE=True, D=128),
         {(F16, True, 64), (F16, False, 64), (F16, True, 128), (F32, True, 128)}),
        (where(D=512), set()),
    ],
)  # fmt: skip
def test_those_that_are_named(some: object, spill: set[tuple[ElementKind, bool, int]]) -> None:
    kernel = Kernel("k", "k<{T}, {WIDE}, {D}>", PARAMS, {"WIDE": (True, False), "D": (64, 128)}, spills=some)  # type: ignore[arg-type]
    found = {
        (e, w, d)
        for e in (F16, F32)
        for w in (True, False)
        for d in (64, 128)
        if kernel.may_spill(e, {"WIDE": w, "D": d})
    }
    assert found == spill


def test_an_axis_that_the_kernel_has_not() -> None:
    with pytest.raises(KeyError, match="HEADS"):
        Kernel("k", "k<{T}>", PARAMS, spills=where(HEADS=4)).may_spill(F16, {"D": 64})
