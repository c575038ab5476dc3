"""spsolve_triangular against dense solves, its gradients, and what it refuses."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError

S = bc.sparse
FLAGS = list(itertools.product((True, False), repeat=3))


def system(n, element, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, n)) * (rng.random((n, n)) < 0.4) + 4 * np.eye(n)
    if element.startswith("complex"):
        x = x + 1j * rng.standard_normal((n, n)) * (x != 0)
    return x.astype(element)


def triangle(x, lower, unit, turned):
    kept = np.tril(x, -int(unit)) if lower else np.triu(x, int(unit))
    kept = kept + np.eye(len(x)) if unit else kept
    return kept.T if turned else kept


@pytest.mark.parametrize("element", ["float64", "float32", "complex64", "complex128"])
@pytest.mark.parametrize(("lower", "unit", "turned"), FLAGS)
def test_it_solves(element, lower, unit, turned):
    facts = {"lower": lower, "unit_diagonal": unit, "transpose": turned}
    for n in (0, 1, 2, 17):
        x, b = system(n, element), np.random.default_rng(1).standard_normal((n, 3)).astype(element)
        a = S.dense_to_csr(x)
        y = S.spsolve_triangular(a, b, **facts)
        near = 1e-5 if y.dtype.itemsize in (4, 8) and element in ("float32", "complex64") else 1e-12
        np.testing.assert_allclose(triangle(x, lower, unit, turned) @ y, b, atol=near * 20)
        assert y.dtype == x.dtype
        alone = S.spsolve_triangular(S.csr_to_csc(a), b[:, 0], **facts)
        np.testing.assert_allclose(alone, y[:, 0], rtol=near, atol=near)
        assert S.spsolve_triangular(a, b, out=b, **facts) is b


def test_entries_in_any_order_and_several_times():
    a = S.CSR(np.array([1.0, 2.0, 1.0, 5.0, 3.0]), np.array([0, 0, 1, 9, 0]), np.array([0, 1, 5]), (2, 2))
    np.testing.assert_array_equal(S.spsolve_triangular(a, np.array([2.0, 11.0])), [2, 1])


@pytest.mark.parametrize(("lower", "unit", "turned"), FLAGS)
def test_gradients_are_those_of_differences(lower, unit, turned):
    torch = pytest.importorskip("torch")
    for element in ("float64", "complex128"):
        a = S.CSR.from_torch(torch.tensor(system(6, element)).to_sparse_csr())
        b = torch.tensor(system(6, element, 3)[:, :2]).requires_grad_()

        def solved(v, b, a=a):
            facts = {"lower": lower, "unit_diagonal": unit, "transpose": turned}
            return S.spsolve_triangular(a.with_values(v), b, **facts)

        assert torch.autograd.gradcheck(solved, (a.values.clone().requires_grad_(), b))


def test_what_does_not_fit_is_refused():
    a, b = S.dense_to_csr(system(4, "float64")), np.ones(4)
    for bad in (
        lambda: S.spsolve_triangular(a, np.ones(3)),
        lambda: S.spsolve_triangular(S.dense_to_csr(np.ones((3, 4))), b),
        lambda: S.spsolve_triangular(a, b.astype(np.float32)),
        lambda: S.spsolve_triangular(a, b, out=np.ones(3)),
        lambda: S.spsolve_triangular(a, b, lower=3),
    ):
        with pytest.raises(InvalidProblemError):
            bad()
