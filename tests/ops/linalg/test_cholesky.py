"""cholesky_ex: known factors, layouts, matrices that have none, gradients; a library missing, failing, asking more."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.backends import library
from baracuda_py.backends.library import LibraryError
from baracuda_py.core import PlanPreference
from baracuda_py.core.device import fake_device
from baracuda_py.core.dispatch import dense_problem, fit
from baracuda_py.core.element import ElementKind
from baracuda_py.core.error_bound import Backward
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError, WorkspaceTooSmallError
from baracuda_py.core.tensor import TensorRef
from baracuda_py.ops.linalg.cholesky import CholeskyPlan, definite
from baracuda_py.ops.linalg.draws import ELEMENTS
from baracuda_py.ops.linalg.cholesky_backward import CholeskyBackwardPlan
from baracuda_py.testing.draw import fill
from baracuda_py.testing.emulated import emulate
from baracuda_py.testing.emulator import emulated_device, emulating
from baracuda_py.testing.libraries import HostError, HostSolver
from baracuda_py.testing.layouts import Placement, lay_out
from baracuda_py.testing.operands import operands
from baracuda_py.testing.places import call
from baracuda_py.testing.recording import pointer_view

KNOWN = np.array([[4.0, 12, -16], [12, 37, -43], [-16, -43, 98]])
FACTOR = np.array([[2.0, 0, 0], [6, 1, 0], [-8, 5, 3]])
ROWS = Placement("permuted", order=(0, 1, 2), pads=(0, 3, 0))  # three more elements in a row
COLUMNS = Placement("permuted", order=(0, 2, 1), pads=(0, 0, 1))
LOOSE = Placement("permuted", order=(1, 2, 0))  # the batch is the dense axis: no matrix is one for LAPACK
LAYOUTS = (Placement(), ROWS, COLUMNS, LOOSE)


def test_known_factor(place: str) -> None:
    desc = CholeskyPlan.descriptor(n=3, element="float64")
    got = call(CholeskyPlan, desc, {"y", "info"}, place, a=KNOWN)
    np.testing.assert_allclose(got["y"], FACTOR, rtol=1e-15)
    assert got["info"] == 0
    upper = CholeskyPlan.descriptor(n=3, upper=True, element="float64")
    np.testing.assert_allclose(call(CholeskyPlan, upper, {"y"}, place, a=KNOWN)["y"], FACTOR.T, rtol=1e-15)


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("element", ["float32", "complex128"])
def test_one_triangle_is_read(upper: bool, element: str, place: str) -> None:
    """NaN beyond it, and imaginary parts on the diagonal, count for nothing."""
    desc = CholeskyPlan.descriptor(batch_shape=(2,), n=5, upper=upper, element=element)
    a = definite(desc, np.random.default_rng(0).standard_normal((2, 5, 5)).astype(element))
    want = call(CholeskyPlan, desc, {"y"}, place, a=a)["y"]
    unread = np.tri(5, k=-1, dtype=bool) if upper else ~np.tri(5, dtype=bool)
    dirty = np.where(unread, np.nan, a)
    if a.dtype.kind == "c":
        dirty = dirty + 3j * np.eye(5)
    np.testing.assert_array_equal(call(CholeskyPlan, desc, {"y"}, place, a=dirty)["y"], want)
    beyond = np.tril(want, -1) if upper else np.triu(want, 1)
    assert not beyond.any()


def test_matrices_without_a_factor(place: str) -> None:
    """info tells the first minor that is not positive definite, of each matrix alone; NaN shows there, or in y."""
    a = np.stack([np.eye(4)] * 5)
    a[1, 0, 0], a[2, 2, 2], a[3, 1, 1], a[4, 3, 3] = -1, 0, -np.inf, np.nan
    desc = CholeskyPlan.descriptor(batch_shape=(5,), n=4, element="float64")
    made = call(CholeskyPlan, desc, {"y", "info"}, place, a=a)
    assert made["info"][:4].tolist() == [0, 1, 3, 2]
    assert made["info"][4] == 4 or np.isnan(made["y"][4, 3, 3])


def test_nothing(place: str) -> None:
    desc = CholeskyPlan.descriptor(batch_shape=(2,), n=0, element="float32")
    assert call(CholeskyPlan, desc, {"y", "info"}, place, a=np.zeros((2, 0, 0)))["info"].tolist() == [0, 0]
    none = CholeskyPlan.descriptor(batch_shape=(0,), n=3, element="float32")
    assert call(CholeskyPlan, none, {"y"}, place, a=np.zeros((0, 3, 3)))["y"].shape == (0, 3, 3)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("plan", [CholeskyPlan, CholeskyBackwardPlan], ids=lambda plan: plan.__name__)
@pytest.mark.parametrize("element", ELEMENTS, ids=str)
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("n", [3, 7, 66])
def test_layouts(plan: Any, element: ElementKind, upper: bool, n: int) -> None:
    """Every layout of every operand, factors in place in y or in the workspace; within the bound, touching no more."""
    desc = plan.descriptor(batch_shape=(3,), n=n, upper=upper, element=element)
    names = ("a", "y") if plan is CholeskyPlan else ("y", "dy", "da")
    for number, layouts in enumerate(itertools.product(LAYOUTS, repeat=2)):
        ready = operands(fill(plan, desc, np.random.default_rng(number)))
        for name, placed in zip(names[-2:], layouts, strict=True):
            held, source = ready.laid[name], ready.case.arrays.get(name)
            array = np.empty(held.view.shape, held.view.dtype) if source is None else source
            ready.laid[name] = lay_out(array, placed, None if name == "dy" or name == "a" else 0xFF)
        emulate(plan(desc, PlanPreference(), emulated_device(9.0)), ready)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("element", ELEMENTS, ids=str)
@pytest.mark.parametrize("n", [1, 2, 4, 5, 8, 9, 16, 17, 31, 32, 33, 63, 64])
def test_small_matrices(n: int, element: ElementKind) -> None:
    """Each size of a group and beside it, more matrices than a block has, over axes that do not merge; and some that
    have no factor among them, whose neighbours do not change."""
    desc = CholeskyPlan.descriptor(batch_shape=(3, 3) if n > 8 else (15, 9), n=n, element=element)
    case = fill(CholeskyPlan, desc, np.random.default_rng(n), {"info": True})
    case.arrays["a"][1, 1, -1, -1] *= -1
    ready = operands(case)
    ready.laid["a"] = lay_out(case.arrays["a"], Placement("permuted", order=(1, 0, 3, 2), pads=(1, 0, 0, 2)))
    emulate(CholeskyPlan(desc, PlanPreference(), emulated_device(9.0)), ready)
    info = ready.laid["info"].view
    assert info[1, 1] == n and info.sum() == n


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("element", ELEMENTS, ids=str)
@pytest.mark.parametrize("n", [1, 4, 5, 9, 17, 32, 64])
def test_gradients_of_small_matrices(n: int, element: ElementKind) -> None:
    desc = CholeskyBackwardPlan.descriptor(
        batch_shape=(3, 3) if n > 8 else (15, 9), n=n, upper=n % 2 == 1, element=element
    )
    emulate(
        CholeskyBackwardPlan(desc, PlanPreference(), emulated_device(8.0)),
        operands(fill(CholeskyBackwardPlan, desc, np.random.default_rng(n))),
    )


def test_geometry_without_a_library() -> None:
    """A fake device tells launches and a bound of the workspace; where y is loose, a piece for the factor besides."""
    desc = CholeskyPlan.descriptor(n=512, element="float32")
    plan = CholeskyPlan.select(desc, device=fake_device(9.0))
    dense, loose = TensorRef(1 << 20, (512, 512)), TensorRef(1 << 30, (512, 512), (2048, 2))
    sizes = [plan.workspace_size(CholeskyPlan.args(a=dense, y=y)) for y in (dense, loose)]
    assert sizes[1] - sizes[0] == 512 * 512 * 4
    assert str(plan.sku).endswith("/contiguous/sm80/cusolver")
    assert isinstance(plan.precision_guarantee.error, Backward)


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real device is refused in words that say what to install; a fake one answers all the same."""
    monkeypatch.setattr(library, "_search", lambda *of: "cusolver was not found; install it with: pip install …")
    desc, device = CholeskyPlan.descriptor(n=65, element="float32"), fake_device(9.0)
    _, row = CholeskyPlan.variants
    for one, refused in ((device, False), (replace(device, fake=False), True)):
        found = fit(row, dense_problem(CholeskyPlan, desc, one), PlanPreference())
        assert isinstance(found, str) == refused and (not refused or "pip install" in found)


@pytest.mark.usefixtures("emulation")
def test_what_the_library_asks_for_is_allocated(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than the geometry's bound, or less: so much is allocated, and a workspace that is too short is refused."""
    monkeypatch.setattr(HostSolver, "_potrf_buffer_size", lambda *given: 1 << 21)
    desc = CholeskyPlan.descriptor(n=65, element="float64")
    ready = operands(fill(CholeskyPlan, desc, np.random.default_rng(0), {"info": False}))
    plan = CholeskyPlan(desc, PlanPreference(), emulated_device(9.0))
    with emulating() as emulator:
        plan.run(ready.args(pointer_view))
        (made,) = emulator.record.allocations
        assert made.bytes.size == 256 + (16 << 20) > plan.workspace_size(ready.args(pointer_view))
        with pytest.raises(WorkspaceTooSmallError, match=str(made.bytes.size)):
            plan.run(ready.args(pointer_view), pointer_view(np.zeros(1 << 20, np.uint8)))


@pytest.mark.usefixtures("emulation")
def test_a_failed_call_is_a_typed_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*given: Any) -> None:
        raise HostError

    monkeypatch.setattr(HostSolver, "_potrf", fails)
    desc = CholeskyPlan.descriptor(n=65, element="float64")
    ready = operands(fill(CholeskyPlan, desc, np.random.default_rng(0), {"info": False}))
    with emulating(), pytest.raises(LibraryError, match="cusolverDnDpotrf failed: CUSOLVER_STATUS_"):
        CholeskyPlan(desc, PlanPreference(), emulated_device(9.0)).run(ready.args(pointer_view))


def test_the_function() -> None:
    y, info = bc.cholesky_ex(np.stack([KNOWN, -KNOWN]))
    np.testing.assert_allclose(y[0], FACTOR)
    assert info.tolist() == [0, 1] and info.dtype == np.int32
    with pytest.raises(UnsupportedError, match="float16"):
        bc.cholesky_ex(KNOWN.astype(np.float16))
    with pytest.raises(InvalidProblemError):
        bc.cholesky_ex(KNOWN[:2])


def test_gradient_of_a_product() -> None:
    """d log det A / dA = A⁻¹, through torch and JAX, where A = X Xᵀ + I."""
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    import baracuda_py.jax as bj
    import baracuda_py.torch as bct

    x = np.random.default_rng(3).standard_normal((5, 5)).astype(np.float32)
    a = x @ x.T + np.eye(5, dtype=np.float32)
    leaf = torch.tensor(a, requires_grad=True)
    bct.cholesky_ex(leaf)[0].diagonal().log().sum().mul(2).backward()
    np.testing.assert_allclose(leaf.grad, np.linalg.inv(a), rtol=1e-4, atol=1e-5)
    made = jax.grad(lambda a: 2 * jax.numpy.log(jax.numpy.diagonal(bj.cholesky_ex(a)[0])).sum())(jax.numpy.asarray(a))
    np.testing.assert_allclose(made, np.linalg.inv(a), rtol=1e-4, atol=1e-5)
