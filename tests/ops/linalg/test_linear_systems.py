"""LU factors, triangular and general systems: hard matrices, layouts, singular ones, gradients as torch's."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core import PlanPreference
from baracuda_py.core.errors import InvalidProblemError, SingularMatrixError, UnsupportedError
from baracuda_py.ops.linalg.lu_functions import ZERO_PIVOT
from baracuda_py.ops.linalg.parts import refuse_singular
from baracuda_py.ops.linalg.lu_factor import LuFactorPlan
from baracuda_py.ops.linalg.lu_permutation import LuPermutationPlan
from baracuda_py.ops.linalg.triangular_solve import TriangularSolvePlan
from baracuda_py.testing.draw import fill
from baracuda_py.testing.emulated import emulate
from baracuda_py.testing.emulator import emulated_device
from baracuda_py.testing.layouts import Placement, lay_out
from baracuda_py.testing.operands import operands
from baracuda_py.testing.places import call

ROWS = Placement("permuted", order=(0, 1, 2), pads=(0, 3, 0))
COLUMNS = Placement("permuted", order=(0, 2, 1), pads=(0, 0, 1))
LOOSE = Placement("permuted", order=(1, 2, 0))  # the batch is the dense axis: no matrix is one for a library
LAYOUTS = (Placement(), ROWS, COLUMNS, LOOSE)


def hard(n: int, element: str) -> dict[str, np.ndarray]:
    """Matrices that tell a right pivoting from a wrong one."""
    rng = np.random.default_rng(n)
    a = rng.standard_normal((n, n)) + (1j * rng.standard_normal((n, n)) if element.startswith("c") else 0)
    scales = 10.0 ** np.linspace(-6, 6, n)
    tiny = a.copy()
    tiny[0, 0] = 1e-12  # wrong without an exchange of rows
    near = a.copy()
    near[-1] = near[0] + 1e-6 * near[-1]
    growth = np.eye(n) - np.tril(np.ones((n, n)), -1)
    growth[:, -1] = 1  # Wilkinson's: U grows by 2 in each column
    made = {
        "random": a, "graded rows": a * scales[:, None], "graded columns": a * scales, "small pivot": tiny,
        "nearly singular": near, "growth": growth, "permuted": np.eye(n)[rng.permutation(n)] * (1 + np.arange(n)),
    }  # fmt: skip
    return {name: x.astype(element) for name, x in made.items()}


@pytest.mark.parametrize("element", ["float32", "float64", "complex64", "complex128"])
def test_hard_matrices(element: str, place: str) -> None:
    """Factors and pivots are exact for matrices within roundings of those given, though no reference is so near."""
    n = 12
    cases = hard(n, element)
    stack = np.stack(list(cases.values()))
    desc = LuFactorPlan.descriptor(batch_shape=(len(cases),), m=n, n=n, element=element)
    got = call(LuFactorPlan, desc, {"lu", "pivots", "info"}, place, a=stack)
    wide = "complex128" if element.startswith("c") else "float64"
    held = {"a": stack.astype(wide), "lu": got["lu"].astype(wide), "pivots": got["pivots"]}
    assert not got["info"].any()
    assert (LuFactorPlan.residual(desc, "lu", **held) <= 2 * np.finfo(element).eps).all()
    assert (np.abs(np.tril(held["lu"], -1)) <= 1.5).all(), "a multiplier beyond 1: no partial pivoting"


@pytest.mark.parametrize("element", ["float64", "complex128"])
def test_systems_of_hard_matrices(element: str) -> None:
    """‖A x - b‖ is of roundings of ‖A‖ ‖x‖, however badly conditioned A is, rows of any scale included."""
    rng = np.random.default_rng(1)
    for name, a in hard(12, element).items():
        b = rng.standard_normal((12, 3)).astype(element)
        x = bc.solve(a, b)
        growth = 2.0**12 if name == "growth" else 40
        off = np.abs(a @ x - b).max(-1)
        assert (off <= growth * np.finfo(element).eps * (np.abs(a) @ np.abs(x)).max(-1)).all(), name


def test_known_factors(place: str) -> None:
    desc = LuFactorPlan.descriptor(m=2, n=3, element="float64")
    a = np.array([[1.0, 2, 3], [4, 4, 8]])
    got = call(LuFactorPlan, desc, {"lu", "pivots", "info"}, place, a=a)
    np.testing.assert_array_equal(got["lu"], [[4, 4, 8], [0.25, 1, 1]])
    assert got["pivots"].tolist() == [2, 2] and got["info"] == 0


def test_singular_matrices_tell_the_column(place: str) -> None:
    a = np.stack([np.eye(3), np.zeros((3, 3)), np.diag([1.0, 2, 0]), np.diag([1.0, 0, 3])])
    desc = LuFactorPlan.descriptor(batch_shape=(4,), m=3, n=3, element="float32")
    assert call(LuFactorPlan, desc, {"lu", "pivots", "info"}, place, a=a)["info"].tolist() == [0, 1, 3, 2]


def test_nothing(place: str) -> None:
    for shape in ((2, 0, 0), (2, 0, 3), (2, 3, 0), (0, 3, 3)):
        desc = LuFactorPlan.descriptor(batch_shape=shape[:1], m=shape[1], n=shape[2], element="float32")
        got = call(LuFactorPlan, desc, {"lu", "pivots", "info"}, place, a=np.zeros(shape))
        assert got["lu"].shape == shape and got["info"].tolist() == [0] * shape[0]
        assert got["pivots"].shape == (shape[0], min(shape[1:]))
    assert bc.det(np.zeros((2, 0, 0))).tolist() == [1, 1]
    sign, size = bc.slogdet(np.zeros((0, 0)))
    assert (float(sign), float(size)) == (1, 0)
    assert bc.solve(np.zeros((0, 0)), np.zeros((0, 2))).shape == (0, 2)
    assert bc.inv(np.zeros((3, 0, 0))).shape == (3, 0, 0)
    assert bc.solve(np.full((1, 1), 2.0), np.ones(1)).tolist() == [0.5]


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("element", ["float32", "complex64"])
@pytest.mark.parametrize("upper", [False, True])
def test_layouts_of_triangular_systems(element: str, upper: bool) -> None:
    """Every layout of a and x, from the left and the right of the library, conjugates, unit diagonals; NaN beyond."""
    for unit, conjugate in itertools.product((False, True), repeat=2):
        desc = TriangularSolvePlan.descriptor(
            batch_shape=(3,), n=5, k=4, upper=upper, unit=unit, conjugate=conjugate, element=element
        )
        for number, (of_a, of_x) in enumerate(itertools.product(LAYOUTS, repeat=2)):
            ready = operands(fill(TriangularSolvePlan, desc, np.random.default_rng(number)))
            ready.laid["a"] = lay_out(ready.case.arrays["a"], of_a, None)
            ready.laid["x"] = lay_out(np.empty((3, 5, 4), element), of_x, 0xFF)
            emulate(TriangularSolvePlan(desc, PlanPreference(), emulated_device(9.0)), ready)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("element", ["float64", "complex64"])
@pytest.mark.parametrize("shape", [(5, 5), (7, 3), (3, 6)])
def test_layouts_of_factors(element: str, shape: tuple[int, int]) -> None:
    """Matrices by columns are factored in place, others in the workspace; pivots of any stride."""
    m, n = shape
    desc = LuFactorPlan.descriptor(batch_shape=(3,), m=m, n=n, element=element)
    for number, (of_a, of_lu) in enumerate(itertools.product(LAYOUTS, repeat=2)):
        ready = operands(fill(LuFactorPlan, desc, np.random.default_rng(number)))
        ready.laid["a"] = lay_out(ready.case.arrays["a"], of_a, None)
        ready.laid["lu"] = lay_out(np.empty((3, m, n), element), of_lu, 0xFF)
        if number % 2:
            apart = Placement("permuted", order=(1, 0))
            ready.laid["pivots"] = lay_out(np.empty((3, min(m, n)), np.int32), apart, 0xFF)
        emulate(LuFactorPlan(desc, PlanPreference(), emulated_device(9.0)), ready)


@pytest.mark.parametrize("upper", [False, True])
def test_one_triangle_is_read(upper: bool, place: str) -> None:
    a = np.where(np.tri(4, dtype=bool).T if upper else np.tri(4, dtype=bool), np.arange(1.0, 17).reshape(4, 4), np.nan)
    np.fill_diagonal(a, np.nan)
    desc = TriangularSolvePlan.descriptor(n=4, k=2, upper=upper, unit=True, element="float64")
    got = call(TriangularSolvePlan, desc, {"x"}, place, a=a, b=np.ones((4, 2)))["x"]
    assert np.isfinite(got).all()
    np.testing.assert_allclose(np.nan_to_num(a) @ got + got, 1)


def test_order_of_rows(place: str) -> None:
    """Known swaps, their inverse, JAX's numbers, and pivots that name no row."""
    pivots = np.array([[3, 3, 3], [1, 2, 3], [9, -1, 0]], np.int32)
    for facts, want in (
        ({}, [[2, 0, 1, 3], [0, 1, 2, 3], [0, 1, 2, 3]]),
        ({"inverse": True}, [[1, 2, 0, 3], [0, 1, 2, 3], [0, 1, 2, 3]]),
        ({"first": 0}, [[3, 0, 1, 2], [1, 2, 3, 0], [2, 1, 0, 3]]),
    ):
        desc = LuPermutationPlan.descriptor(batch_shape=(3,), count=3, rows=4, element="int32", **facts)
        got = call(LuPermutationPlan, desc, {"permutation"}, place, pivots=pivots)["permutation"]
        assert got.tolist() == want, facts


def test_order_of_rows_is_jaxs() -> None:
    jax = pytest.importorskip("jax")
    a = np.random.default_rng(2).standard_normal((3, 5, 5)).astype(np.float32)
    lu, pivots, order = jax.lax.linalg.lu(a)
    made = bc.lu_pivots_to_permutation(np.asarray(pivots), 5, first=0)
    np.testing.assert_array_equal(made, order)
    ours, swaps = bc.lu_factor(a)
    np.testing.assert_allclose(ours, lu, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(swaps, np.asarray(pivots) + 1)


def test_singular_matrices_are_told_where_the_host_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy's arrays: an error that NumPy's users catch. Other packages': infinities, NaN, unless checks are on."""
    a = np.stack([np.eye(2), np.ones((2, 2))])
    for function in (bc.inv, bc.inverse, lambda x: bc.solve(x, np.ones(2)), lambda x: bc.cholesky(-x)):
        with pytest.raises(np.linalg.LinAlgError) as caught:
            function(a)
        assert isinstance(caught.value, SingularMatrixError) and "of the batch" in str(caught.value)
    assert bc.inv_ex(a)[1].tolist() == [0, 2] and bc.solve_ex(a, np.ones(2))[1].tolist() == [0, 2]
    assert bc.det(a).tolist() == [1, 0]
    assert bc.slogdet(a)[1].tolist() == [0, -np.inf] and bc.logdet(a)[1] == -np.inf
    torch = pytest.importorskip("torch")
    held = torch.tensor(a)
    assert not torch.isfinite(bc.inv(held)[1]).all() and torch.isfinite(bc.inv(held)[0]).all()
    assert torch.isnan(bc.cholesky(-held)).all() and torch.isfinite(bc.cholesky(held + torch.eye(2))).all()
    monkeypatch.setenv("BARACUDA_CHECK", "1")
    with pytest.raises(SingularMatrixError, match=r"solve: U.2, 2. is exactly 0"):
        bc.solve(held, torch.ones(2, dtype=held.dtype))


def test_singular_matrices_of_a_device_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """What tells of them is read by `get`: CuPy's arrays become NumPy's in no other way."""
    cupy = pytest.importorskip("cupy")
    held = np.array([0, 2], np.int32)

    class OnDevice(cupy.ndarray):  # type: ignore[misc]
        def get(self) -> Any:
            return held

    OnDevice.__module__ = "cupy"
    memory = cupy.cuda.UnownedMemory(held.ctypes.data, held.nbytes, held, 0)
    info = OnDevice(held.shape, held.dtype, cupy.cuda.MemoryPointer(memory, 0))
    refuse_singular("inv", info, ZERO_PIVOT)
    monkeypatch.setenv("BARACUDA_CHECK", "1")
    with pytest.raises(SingularMatrixError, match=r"inv: U.2, 2. is exactly 0, .* at .1,. of the batch"):
        refuse_singular("inv", info, ZERO_PIVOT)


def test_refusals() -> None:
    a, b = np.eye(3), np.ones((3, 2))
    for function in (bc.inv, bc.det, bc.slogdet, bc.lu, bc.cholesky):
        with pytest.raises(UnsupportedError, match=r"write cast\(a, 'float32'\)"):
            function(a.astype(np.float16))
    for wrong in (lambda: bc.inv(b), lambda: bc.det(b), lambda: bc.solve(a, np.ones((2, 2))),
                  lambda: bc.solve(a, np.ones((3, 2)), left=False), lambda: bc.lu_solve(a, np.ones(2, np.int32), b),
                  lambda: bc.solve_triangular(a, b, upper=True, trans="x"), lambda: bc.cho_solve(a, b),
                  lambda: bc.tensorinv(np.ones((2, 3))), lambda: bc.tensorsolve(a, np.ones(2)),
                  lambda: bc.solve(np.ones((2, 3, 3)), np.ones((4, 3, 1))),
                  lambda: bc.lu_pivots_to_permutation(np.ones(4, np.int32), 3, first=1)):  # fmt: skip
        with pytest.raises(InvalidProblemError):
            wrong()


def test_values_are_scipys() -> None:
    linalg = pytest.importorskip("scipy.linalg")
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((4, 4)), rng.standard_normal((4, 2))
    spd = a @ a.T + np.eye(4)
    for got, want in zip(bc.lu(a), linalg.lu(a), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-12)
    c = bc.cho_factor(spd)
    np.testing.assert_allclose(bc.cho_solve(c, b[:, 0]), linalg.cho_solve(linalg.cho_factor(spd), b[:, 0]), rtol=1e-9)
    for trans, lower in itertools.product((0, 1, 2), (False, True)):
        want = linalg.solve_triangular(a, b, trans=trans, lower=lower)
        np.testing.assert_allclose(bc.solve_triangular(a, b, upper=not lower, trans=trans), want, rtol=1e-8)
    out = np.empty((4, 2))
    assert bc.linalg.solve(a, b, out=out) is out
    np.testing.assert_allclose(out, linalg.solve(a, b), rtol=1e-8)


def test_the_namespace() -> None:
    assert bc.linalg.solve is bc.solve and bc.linalg.vector_norm is bc.vector_norm
    assert {"solve", "lu_factor", "det", "cholesky", "toeplitz"} <= set(dir(bc.linalg))
    assert all(getattr(bc.linalg, name) is getattr(bc, name) for name in bc.linalg.__all__ if name != "norm")
    with pytest.raises(AttributeError, match="did you mean slogdet"):
        bc.linalg.slogdett  # noqa: B018
