"""Kernels of small matrices: every size of a group and beside it, shapes, zeros, scales, NaN, what is not read."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from baracuda_py.core import PlanPreference
from baracuda_py.core.element import ElementKind
from baracuda_py.core.plan import Plan
from baracuda_py.ops.linalg.draws import ELEMENTS
from baracuda_py.ops.linalg.eigh import EighPlan
from baracuda_py.ops.linalg.ldl_factor import LdlFactorPlan
from baracuda_py.ops.linalg.lu_factor import LuFactorPlan
from baracuda_py.ops.linalg.qr import QrPlan
from baracuda_py.ops.linalg.svd import SvdPlan
from baracuda_py.ops.linalg.triangular_solve import TriangularSolvePlan
from baracuda_py.testing import Operands, emulate, emulated_device, fill, operands
from baracuda_py.testing.layouts import Placement, lay_out
from baracuda_py.testing.recording import pointer_view

pytestmark = pytest.mark.usefixtures("emulation")

SHAPES = [
    (0, 0), (0, 3), (3, 0), (1, 1), (2, 2), (4, 2), (2, 4), (3, 5), (8, 8), (9, 3), (16, 7), (17, 31), (32, 33),
    (64, 5),
]  # fmt: skip
SQUARE = [0, 1, 2, 3, 4, 5, 8, 9, 16, 17, 33]
LOOSE = Placement("permuted", order=(1, 0, 3, 2), pads=(1, 0, 0, 2))  # columns are dense, the batch does not merge


def batch(n: int) -> tuple[int, int]:
    """More matrices than a block has, where they are small."""
    return (3, 3) if n > 8 else (15, 9)


def hard(a: Any) -> None:
    """Zeros, ones, a column of zeros and one of ones among zeros, and sizes near the ends of float32's range."""
    if a.size:
        a[0, 0], a[1, 1] = 1, 0
        a[0, 1, :, 0], a[0, 2, 1:] = 0, 0
        a[2, 1] *= 1e30
        a[2, 0] *= 1e-30


def made(plan: type[Plan], present: dict[str, bool], change: Any = hard, loose: bool = False, **facts: Any) -> Operands:
    """Emulated, within its bound; what it was given and wrote."""
    desc = plan.descriptor(**facts)
    case = fill(plan, desc, np.random.default_rng(len(str(facts))), present)
    change(case.arrays["a"])
    ready = operands(case)
    if loose:
        ready.laid["a"] = lay_out(case.arrays["a"], LOOSE)
    chosen = plan(desc, PlanPreference(), emulated_device(9.0))
    assert chosen.plan_layout(ready.args(pointer_view))[0].name == "small"
    emulate(chosen, ready)
    return ready


@pytest.mark.parametrize("element", ELEMENTS, ids=str)
@pytest.mark.parametrize("n", SQUARE)
def test_eigenvalues(n: int, element: ElementKind) -> None:
    for v, upper in ((True, False), (True, True), (False, False)):
        facts: dict[str, Any] = {"batch_shape": batch(n), "n": n, "upper": upper, "element": element}
        assert not made(EighPlan, {"v": v, "info": True}, loose=upper, **facts).laid["info"].view.any()


@pytest.mark.parametrize("element", ELEMENTS, ids=str)
@pytest.mark.parametrize(("m", "n"), SHAPES)
def test_singular_values(m: int, n: int, element: ElementKind) -> None:
    for u, vh, full in (*itertools.product((True, False), (True, False), (False,)), (True, True, True)):
        facts: dict[str, Any] = {"batch_shape": batch(max(m, n)), "m": m, "n": n, "element": element}
        facts["full_matrices"] = full
        ready = made(SvdPlan, {"u": u, "vh": vh, "info": True}, loose=u and m > 1 and n > 1, **facts)
        assert not ready.laid["info"].view.any()


@pytest.mark.parametrize("element", ELEMENTS, ids=str)
@pytest.mark.parametrize("complete", [False, True])
@pytest.mark.parametrize(("m", "n"), SHAPES)
def test_qr(m: int, n: int, complete: bool, element: ElementKind) -> None:
    for q in (True, False):
        facts: dict[str, Any] = {"m": m, "n": n, "complete": complete, "element": element}
        made(QrPlan, {"q": q}, loose=q, batch_shape=batch(max(m, n)), **facts)


@pytest.mark.parametrize("element", ELEMENTS, ids=str)
@pytest.mark.parametrize(("m", "n"), SHAPES)
def test_lu(m: int, n: int, element: ElementKind) -> None:
    """A zero matrix has info 1, and a loose layout the bits of a dense one."""
    facts: dict[str, Any] = {"batch_shape": batch(max(m, n)), "m": m, "n": n, "element": element}
    dense, loose = (made(LuFactorPlan, {"info": True}, loose=loose, **facts) for loose in (False, True))
    assert dense.laid["lu"].view.tobytes() == loose.laid["lu"].view.tobytes()
    assert not min(m, n) or dense.laid["info"].view[1, 1] == 1


@pytest.mark.parametrize("element", ELEMENTS, ids=str)
@pytest.mark.parametrize("n", SQUARE)
def test_ldl(n: int, element: ElementKind) -> None:
    """A zero matrix has info 1, the upper triangle is not read, and a loose layout has the bits of a dense one."""

    def change(a: Any) -> None:
        if a.size:
            a[1, 1] = 0
            a[0, 2] *= 1e18
            a[..., ~np.tri(n, dtype=bool)] = np.nan

    for hermitian in (False, True):
        facts: dict[str, Any] = {"batch_shape": batch(n), "n": n, "hermitian": hermitian, "element": element}
        dense, loose = (made(LdlFactorPlan, {"info": True}, change, loose=loose, **facts) for loose in (False, n > 1))
        for name in ("ld", "pivots", "info"):
            assert dense.laid[name].view.tobytes() == loose.laid[name].view.tobytes()
        assert not n or dense.laid["info"].view[1, 1] == 1


@pytest.mark.parametrize("element", ELEMENTS, ids=str)
@pytest.mark.parametrize(("n", "k"), [*SHAPES, (64, 1), (40, 41), (5, 1), (8, 1), (13, 1), (16, 1), (27, 1), (32, 1)])
def test_triangular_systems(n: int, k: int, element: ElementKind) -> None:
    """The other triangle, and a diagonal of ones, are not read."""
    for upper, unit, conjugate in itertools.product((False, True), repeat=3):

        def change(a: Any, upper: bool = upper, unit: bool = unit) -> None:
            a[...] = a / 8 + 2 * np.eye(n)
            a[..., np.tri(n, k=unit - 1, dtype=bool) if upper else ~np.tri(n, k=-int(unit), dtype=bool)] = np.nan

        facts: dict[str, Any] = {"upper": upper, "unit": unit, "conjugate": conjugate, "n": n, "k": k}
        made(TriangularSolvePlan, {}, change, loose=n > 1, batch_shape=batch(max(n, k)), element=element, **facts)


@pytest.mark.parametrize("element", ELEMENTS, ids=str)
@pytest.mark.parametrize("n", [3, 7, 20, 40])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_told_of_its_matrix_alone(n: int, bad: float, element: ElementKind) -> None:
    def change(a: Any) -> None:
        a[1, 2, n - 1, 0] = bad

    facts: dict[str, Any] = {"batch_shape": (3, 3), "element": element}
    for plan, outputs in ((EighPlan, ("w", "v")), (SvdPlan, ("u", "s", "vh"))):
        sizes = {"n": n} if plan is EighPlan else {"m": n, "n": n}
        ready = made(plan, dict.fromkeys((*outputs, "info"), True), change, **sizes, **facts)
        info = ready.laid["info"].view
        assert info[1, 2] == n and info.sum() == n
        for name in outputs:
            lost = np.isnan(ready.laid[name].view)
            assert lost[1, 2].all() and lost.sum() == lost[1, 2].size


def test_equal_values_keep_orthogonal_vectors() -> None:
    """Of a unit matrix and of one of rank one the vectors that nothing fixes are orthogonal, too."""

    def change(a: Any) -> None:
        a[0], a[1] = np.eye(20), np.outer(np.arange(20), np.ones(20))

    facts: dict[str, Any] = {"batch_shape": (2,), "element": "float32"}
    ready = made(SvdPlan, dict.fromkeys(("u", "vh"), True), change, m=20, n=20, **facts)
    for u in ready.laid["u"].view:
        np.testing.assert_allclose(u.T @ u, np.eye(20), atol=1e-5)
    assert (ready.laid["s"].view[0] == 1).all() and (ready.laid["s"].view[1, 1:] < 1e-4).all()
