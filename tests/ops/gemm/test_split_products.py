"""split_matmul and ozaki_matmul against exact sums of fractions, within the bounds that they state."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc

SHARES = {"bf16x9": 0.0, "bf16x6": 2.0**-25, "bf16x3": 2.0**-16}


def _drawn(shape: tuple[int, ...], seed: int, spread: float, dtype: Any = np.float64) -> Any:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) * np.exp2(rng.uniform(-spread, spread, shape))).astype(dtype)


def _exact(a: Any, b: Any) -> Any:
    """The product in fractions, as far off zero as float64 tells."""
    rows = [[Fraction(float(x)) for x in row] for row in a]
    columns = [[Fraction(float(x)) for x in column] for column in b.T]
    return [[sum((x * y for x, y in zip(r, c, strict=True)), Fraction(0)) for c in columns] for r in rows]


def _errors(y: Any, exact: Any) -> Any:
    return np.array(
        [
            [float(abs(Fraction(float(v)) - w)) for v, w in zip(*rows, strict=True)]
            for rows in zip(y, exact, strict=True)
        ]
    )


@pytest.mark.parametrize("products", SHARES)
@pytest.mark.parametrize("spread", (0.0, 12.0))
@pytest.mark.parametrize(("m", "k", "n"), ((5, 37, 3), (1, 1, 1), (17, 128, 9)))
def test_parts_are_within_their_bound(products: str, spread: float, m: int, k: int, n: int) -> None:
    a, b = _drawn((m, k), 1, spread, np.float32), _drawn((k, n), 2, spread, np.float32)
    y = bc.split_matmul(a, b, products=products)
    size = np.abs(a).astype(float) @ np.abs(b).astype(float)
    assert y.dtype == np.float32
    assert (_errors(y, _exact(a, b)) <= (SHARES[products] + 9 * k * 2.0**-24) * size).all()
    np.testing.assert_array_equal(bc.matmul(a, b, math_precision=products), y)
    if products != "bf16x3":  # the NumPy backend sums in float64, and the parts are those of float32: one rounding
        assert (_errors(y, _exact(a, b)) <= (SHARES[products] + 2.0**-23) * size).all()


@pytest.mark.parametrize("slices", (1, 2, 5, 8, 9, 15))
@pytest.mark.parametrize("spread", (0.0, 30.0))
@pytest.mark.parametrize(("m", "k", "n"), ((5, 37, 3), (1, 1, 1), (7, 100, 11)))
def test_slices_are_within_their_bound(slices: int, spread: float, m: int, k: int, n: int) -> None:
    a, b = _drawn((m, k), 3, spread), _drawn((k, n), 4, spread)
    exact = _exact(a, b)
    y = bc.ozaki_matmul(a, b, slices=slices)
    largest = np.abs(a).max(1)[:, None] * np.abs(b).max(0)
    size = np.abs(np.array([[float(v) for v in row] for row in exact]))
    bound = k * (slices + 2) * 2.0 ** (2 - 7 * slices) * largest + (slices + 1) * 2.0**-53 * (size + largest)
    assert (_errors(y, exact) <= bound).all()


def test_many_terms_are_summed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    from baracuda_py.ops.gemm import split_products

    monkeypatch.setattr(split_products, "_MOST", 8 * 11)  # as if 32 bits held so few
    a, b = _drawn((3, 35), 5, 2.0), _drawn((35, 4), 6, 2.0)
    np.testing.assert_allclose(bc.ozaki_matmul(a, b), a @ b, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("name", ("split_matmul", "ozaki_matmul"))
@pytest.mark.parametrize(
    "shapes",
    (
        ((4,), (4,)), ((3, 4), (4,)), ((4,), (4, 5)), ((2, 3, 4), (4, 5)), ((2, 1, 3, 4), (6, 4, 5)), ((0, 4), (4, 5)),
        ((3, 0), (0, 5)), ((2, 3, 0), (0,)),
    ),
)  # fmt: skip
def test_numpys_shapes(name: str, shapes: Any) -> None:
    dtype = np.float32 if name == "split_matmul" else np.float64
    a, b = (_drawn(shape, i, 1.0, dtype) for i, shape in enumerate(shapes))
    y, want = getattr(bc, name)(a, b), np.matmul(a, b)
    assert y.shape == want.shape and y.dtype == dtype
    np.testing.assert_allclose(
        y, want, rtol=2e-5 if dtype == np.float32 else 1e-13, atol=1e-5 if dtype == np.float32 else 1e-13
    )
    out = np.empty(want.shape, dtype)
    assert getattr(bc, name)(a, b, out=out) is out
    np.testing.assert_array_equal(out, y)


@pytest.mark.parametrize("name", ("split_matmul", "ozaki_matmul"))
def test_infinities_and_nan_are_ieees(name: str) -> None:
    dtype = np.float32 if name == "split_matmul" else np.float64
    rng = np.random.default_rng(8)
    a, b = rng.integers(-3, 4, (40, 9)).astype(dtype), rng.integers(-3, 4, (9, 30)).astype(dtype)
    for x in (a, b):
        places = rng.random(x.shape) < 0.05
        x[places] = rng.choice(np.array([np.inf, -np.inf, np.nan], dtype), int(places.sum()))
    with np.errstate(all="ignore"):
        want = np.array([[sum((x * y for x, y in zip(r, c, strict=True)), dtype(0)) for c in b.T] for r in a])
    assert np.isinf(want).any() and np.isnan(want).any() and np.isfinite(want).any()
    np.testing.assert_array_equal(getattr(bc, name)(a, b), want)


def test_the_ends_of_the_range() -> None:
    top = np.finfo(np.float32).max
    np.testing.assert_array_equal(bc.split_matmul(np.diag([top, -top, np.float32(1e-20)]), np.eye(3, dtype=np.float32)),
                                  np.diag([top, -top, np.float32(1e-20)]))  # fmt: skip
    x = np.array([[2.0**1000, 3.0], [5e-324, 2.0**-1070]])
    np.testing.assert_allclose(bc.ozaki_matmul(x, np.eye(2)), [[2.0**1000, 0], [5e-324, 2.0**-1070]], rtol=0, atol=0)
    assert bc.ozaki_matmul(np.array([[2.0**600]]), np.array([[2.0**600]])) == np.inf


def test_gradients_are_those_of_the_product() -> None:
    torch = pytest.importorskip("torch")
    for name, dtype, rtol in (("split_matmul", torch.float32, 1e-5), ("ozaki_matmul", torch.float64, 1e-12)):
        for left, right in (((3, 4), (4, 5)), ((4,), (4, 5)), ((2, 3, 4), (4,)), ((2, 1, 3, 4), (6, 4, 5))):
            torch.manual_seed(0)
            a, b = (torch.randn(s, dtype=dtype, requires_grad=True) for s in (left, right))
            y = getattr(bc, name)(a, b)
            dy = torch.randn_like(y)
            got = torch.autograd.grad(y, (a, b), dy)
            want = torch.autograd.grad(torch.matmul(a, b), (a, b), dy)
            for x, w in zip(got, want, strict=True):
                torch.testing.assert_close(x, w, rtol=rtol, atol=rtol)


def test_what_is_refused() -> None:
    x, wide = np.ones((2, 2), np.float32), np.ones((2, 2))
    with pytest.raises(bc.InvalidProblemError, match="products must be 'bf16x9', 'bf16x6', 'bf16x3', got 'bf16x4'"):
        bc.matmul(x, x, math_precision="bf16x4")
    with pytest.raises(bc.InvalidProblemError, match="takes a and b alone"):
        bc.matmul(x, x, x, math_precision="bf16x9")
    with pytest.raises(bc.UnsupportedError, match="takes a in float32, got float64; call matmul"):
        bc.split_matmul(wide, wide)
    with pytest.raises(bc.UnsupportedError, match="takes b in float64, got float32"):
        bc.ozaki_matmul(wide, x)
    with pytest.raises(bc.InvalidProblemError, match="slices must be from 1 to 15, got 16"):
        bc.ozaki_matmul(wide, wide, slices=16)
    with pytest.raises(bc.InvalidProblemError, match="a has 2 columns and b 3 rows"):
        bc.ozaki_matmul(wide, np.ones((3, 2)))
