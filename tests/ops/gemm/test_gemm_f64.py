"""float64 on tensor cores: layouts and tails emulated, exact on integers, bits of a row in every tile, which row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.args import arrays_of
from baracuda_py.core.device import fake_device
from baracuda_py.testing.draw import Case, fill
from baracuda_py.testing.emulated import emulate
from baracuda_py.testing.emulator import emulated_device
from baracuda_py.testing.layouts import Placement, lay_out
from baracuda_py.testing.operands import Operands
from baracuda_py.testing.recording import pointer_view

DENSE, TURNED, STEPS = Placement(), Placement("permuted", order=(1, 0)), Placement("step", steps=(1, 2))
ODD = Placement("padded", order=(0, 1), pads=(0, 1))  # rows that start at odd multiples of 8 bytes
LARGE, SMALL = 1, 100  # multiprocessors with which tiles have 128 rows, and 64


def laid(case: Case, **places: Placement) -> Operands:
    """Operands, y of NaN; up lies as b."""
    found: dict[str, Any] = {}
    for spec in arrays_of(bc.GemmArgs):
        place = places.get("b" if spec.name == "up" else spec.name, DENSE)
        array = np.empty((case.desc.m, case.desc.n)) if spec.name == "y" else case.arrays.get(spec.name)
        found[spec.name] = None if array is None else lay_out(array, place, *(0xFF,) * (spec.name == "y"))
    return Operands(case, found)


def problem(m: int, n: int, k: int, *present: str, activation: str = "none") -> Case:
    desc = bc.GemmDescriptor(m=m, n=n, k=k, element="float64", activation=activation)
    optional = [spec.name for spec in arrays_of(bc.GemmArgs) if spec.name not in "aby"]
    return fill(bc.GemmPlan, desc, np.random.default_rng(0), {name: name in present for name in optional})


def run(ready: Operands, sms: int = SMALL) -> np.ndarray:
    """y by the row, compared with the formula; tiles as many multiprocessors give them."""
    plan = bc.GemmPlan(ready.case.desc, bc.PlanPreference(), emulated_device(8.0, sms))
    plan.rows = tuple(row for row in plan.rows if row.name == "mma_f64")
    _, geometry, _ = plan.plan_layout(ready.args(pointer_view))
    assert [step.axes["SIZE"] for step in geometry.steps] == [128 if sms == LARGE else 64]
    emulate(plan, ready)
    return np.array(ready.laid["y"].view)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("up", [False, True])
@pytest.mark.parametrize("b", [DENSE, TURNED, ODD])
@pytest.mark.parametrize(("a", "sms", "m"), [(DENSE, LARGE, 129), (TURNED, SMALL, 66), (ODD, SMALL, 9)])
def test_layouts_tiles_and_tails(a: Placement, sms: int, m: int, b: Placement, up: bool) -> None:
    case = problem(m, 66, 21, "c", "bias", "residual", *(("up",) if up else ()), activation="silu" if up else "none")
    run(laid(case, a=a, b=b, y=TURNED if b is TURNED else DENSE), sms)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("k", [0, 1, 16, 130])
def test_every_k(k: int) -> None:
    run(laid(problem(5, 3, k, "row_bias", activation="relu")))


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("sms", [SMALL, LARGE])
def test_integers_are_exact_and_alpha_0_leaves_a_and_b_out(sms: int) -> None:
    case, rng = problem(70, 65, 67, "bias"), np.random.default_rng(1)
    case.arrays |= {name: rng.integers(-(2**20), 2**20, case.arrays[name].shape) + 0.0 for name in ("a", "b", "bias")}
    case.arrays["alpha"] = 1.0
    whole = [case.arrays[name].astype(np.int64) for name in ("a", "b", "bias")]
    assert (run(laid(case), sms) == whole[0] @ whole[1] + whole[2]).all()
    case.arrays["alpha"] = 0.0
    case.arrays["a"][3] = np.nan
    assert (run(laid(case), sms) == whole[2]).all()


@pytest.mark.usefixtures("emulation")
def test_rows_have_the_bits_they_have_alone() -> None:
    """In tiles of either size, and of any layout."""
    case = problem(130, 66, 37)
    whole = run(laid(case), LARGE)
    for row in (0, 129):
        arrays = case.arrays | {"a": np.array(case.arrays["a"][row : row + 1])}
        desc = bc.GemmDescriptor(m=1, n=66, k=37, element="float64")
        alone = laid(Case(bc.GemmPlan, desc, arrays, frozenset({"y"})), b=TURNED)
        assert run(alone).tobytes() == whole[row : row + 1].tobytes()


@pytest.mark.parametrize(
    ("present", "place", "row"), [((), DENSE, "cublas"), (("bias",), DENSE, "mma_f64"), (("bias",), STEPS, "simt")]
)
def test_which_row(present: tuple[str, ...], place: Placement, row: str) -> None:
    ready = laid(problem(8, 16, 32, *present), a=place)
    taken = bc.GemmPlan.select(ready.case.desc, device=fake_device(9.0)).can_implement(ready.args(pointer_view))
    assert taken and taken.sku is not None and taken.sku.variant == row


@pytest.mark.gpu
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (130, 66, 37), (1000, 1030, 515), (64, 64, 16)])
@pytest.mark.parametrize("turned", [False, True])
def test_on_a_gpu(m: int, n: int, k: int, turned: bool) -> None:
    """Rows that start at any multiple of 8 bytes or of 16; each bit as that of one row alone."""
    cp = pytest.importorskip("cupy")
    rng = np.random.default_rng(0)
    a, b, bias = rng.standard_normal((m, k)), rng.standard_normal((k, n)), rng.standard_normal(n)
    left, right, vector = cp.asarray(a), cp.asarray(b), cp.asarray(bias)
    if turned:
        left, right = cp.ascontiguousarray(left.T).T, cp.ascontiguousarray(right.T).T
    plan = bc.GemmPlan.select(bc.GemmDescriptor(m=m, n=n, k=k, element="float64"))
    y = cp.empty((m, n))
    assert plan.can_implement(bc.GemmArgs(a=left, b=right, bias=vector, y=y)).sku.variant == "mma_f64"  # type: ignore[union-attr]
    plan(a=left, b=right, bias=vector, y=y)
    np.testing.assert_allclose(y.get(), a @ b + bias, rtol=1e-12, atol=1e-12 * max(k, 1))
    one = bc.gemm(left[:1], right, bias=vector)
    assert one.get().tobytes() == y.get()[:1].tobytes()
