"""Reductions of formulas: what they compute, their two spellings, errors, checks and kernels."""

from __future__ import annotations

import pickle

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.expressions.reduce_gradients import SURROGATES
from baracuda_py.testing import CHECKS, emulated, exercise

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((4, 3, 6)).astype(np.float32), RNG.standard_normal(6).astype(np.float32)
WIDE = X.astype(np.float64)


def test_a_formula_calls_its_reduction_or_is_told_it() -> None:
    rms = bc.reduce("sqrt(mean(x * x) + eps)", axis=-1, eps=1e-6)
    np.testing.assert_allclose(rms(X), np.sqrt((WIDE**2).mean(-1) + 1e-6), rtol=1e-6)
    same = bc.reduce("x * x", "mean", then="sqrt(mean + eps)", axis=-1)
    np.testing.assert_array_equal(rms(X), same(X, 1e-6))
    np.testing.assert_array_equal(rms(X, eps=0.5), same(X, eps=0.5))
    np.testing.assert_allclose(bc.reduce(lambda x, y: x * y, "sum", axis=-1)(X, Y), WIDE @ Y, rtol=1e-5)


@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2), ()])
@pytest.mark.parametrize("keepdims", [False, True])
def test_axes_are_numpys(axis: object, keepdims: bool) -> None:
    got = bc.reduce("amax(abs(x) - y)", axis=axis, keepdims=keepdims)(X, Y)
    wanted = np.max(np.abs(WIDE) - Y, axis=axis, keepdims=keepdims)  # type: ignore[call-overload]
    np.testing.assert_allclose(got, wanted, rtol=1e-6)
    assert got.shape == wanted.shape


def test_results_have_the_elements_of_their_kinds() -> None:
    i = np.arange(10).astype(np.int8)
    assert bc.reduce("sum(i * 2)")(i).dtype == np.int64
    assert bc.reduce("argmax(-i)")(i) == 0 and bc.reduce("any(i > 8)")(i) and not bc.reduce("any(i > 9)")(i)
    assert bc.reduce("count_nonzero(i % 2 == 1)")(i) == 5
    assert bc.reduce("not any(i > 8)")(i).dtype == np.bool_
    assert bc.reduce("max(x)")(X) == X.max()
    np.testing.assert_allclose(bc.reduce("var(x)", axis=0, correction=0)(X), WIDE.var(0), rtol=1e-5)


def test_halves_are_reduced_in_float32_and_rounded_after_the_last_formula() -> None:
    x = np.full(4096, 1.001, np.float32).astype(ml_dtypes.bfloat16)
    exact = 4096 * float(x[0]) - 4100
    assert bc.reduce("sum(x) - 4100")(x) == np.float64(exact).astype(ml_dtypes.bfloat16)


def test_of_no_elements_the_result_is_that_of_the_kind() -> None:
    assert bc.reduce("sum(x) + 1", axis=-1)(X[..., :0]).tolist() == [[1.0] * 3] * 4
    assert bc.reduce("sum(x)", axis=0)(X[:, :0]).shape == (0, 6)


@pytest.mark.parametrize(
    ("call", "said", "at"),
    [
        (lambda: bc.reduce("sum(x) + max(x)"), "one reduction", "max(x)"), (lambda: bc.reduce("x + 1"), "got 0", None),
        (lambda: bc.reduce("x", "summ"), "did you mean sum", None),
        (lambda: bc.reduce("sum(x) * y")(X, Y), "be a number", "y"),
        (lambda: bc.reduce("x", "sum", then="x + 1"), "does not use it", "x"),
        (lambda: bc.reduce("amax(x)", axis=2)(X[..., :0]), "of no elements", None),
        (lambda: bc.reduce("sum(x)", axis=5)(X), "axis must be in", None),
        (lambda: bc.reduce("y = x; z = x", "sum"), "2 outputs", None),
        (lambda: bc.reduce("mean(i)")(np.ones(3, int)), "mean of int64", "i"),
        (lambda: bc.reduce(lambda x: x), "needs the kind", None),
        (lambda: bc.reduce("sum(sillu(x))"), "no function sillu", "sillu"),
        (lambda: bc.reduce("sum(x)")(X, Y), "takes 1", None),
        (lambda: bc.reduce("sum(x)")(X, out=np.empty(2, np.float32)), "result must have shape ()", None),
    ],
)  # fmt: skip
def test_wrong_reductions_say_what_is_wrong(call: object, said: str, at: str | None) -> None:
    with pytest.raises(bc.InvalidProblemError) as raised:
        call()  # type: ignore[operator]
    assert said in str(raised.value)
    if at is not None:
        line, carets = str(raised.value).splitlines()[-2:]
        start = carets.index("^")
        assert line[start : start + carets.count("^")] == at


def test_they_are_pickled_and_compared() -> None:
    f = bc.reduce("sqrt(mean(x * x) + eps)", axis=-1, eps=1e-6)
    assert pickle.loads(pickle.dumps(f)) == f and f != bc.reduce("mean(x)", axis=-1)
    plan = f.plan()
    assert pickle.loads(pickle.dumps(plan)) is plan
    desc = plan.descriptor(shape=(2, 3), axis=-1, element="float16")
    assert pickle.loads(pickle.dumps(desc)) == desc and desc.result_shape == (2,)


REDUCTIONS = (
    ("sqrt(mean(x * x) + eps)", {"eps": float}), ("sum(where(m, x, 0))", {}), ("argmax(x * y)", {}),
    ("not any(x * n > 2)", {"n": int}), ("var(x - y) * a + b", {"a": float, "b": float}),
)  # fmt: skip


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize(("text", "roles"), REDUCTIONS, ids=[text for text, _ in REDUCTIONS])
def test_reductions_pass_the_checks_of_all_ops(text: str, roles: dict, check: object) -> None:
    plan = bc.reduce(text).plan(**roles)
    if getattr(check, "applies", lambda plan: True)(plan):
        exercise(plan, check, examples=2)  # type: ignore[arg-type]


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(("text", "roles"), REDUCTIONS, ids=[text for text, _ in REDUCTIONS])
def test_kernels_of_reductions_compute_them(text: str, roles: dict) -> None:
    exercise(bc.reduce(text).plan(**roles), emulated, examples=3, seeded=False)


TORCH = {
    "sum": lambda torch, v, axis: v.sum(axis), "mean": lambda torch, v, axis: v.mean(axis),
    "amax": lambda torch, v, axis: v.amax(axis), "amin": lambda torch, v, axis: v.amin(axis),
    "logsumexp": lambda torch, v, axis: v.logsumexp(axis), "var": lambda torch, v, axis: v.var(axis),
    "l1_norm": lambda torch, v, axis: v.abs().sum(axis), "sum_squares": lambda torch, v, axis: (v * v).sum(axis),
    "l2_norm": lambda torch, v, axis: torch.linalg.vector_norm(v, 2, axis),
    "nansum": lambda torch, v, axis: v.nansum(axis), "nanmean": lambda torch, v, axis: v.nanmean(axis),
}  # fmt: skip


@pytest.mark.parametrize("kind", SURROGATES)
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [-1, (0, 2), (0, 1, 2)])
def test_gradients_are_those_of_torch(kind: str, keepdims: bool, axis: object) -> None:
    """Through a formula before and one after; equal extremes share."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    x, y = torch.randn(4, 5, 6, dtype=torch.float64), torch.rand(6, dtype=torch.float64) + 1
    x[0, 0, 0] = x[0, 0, 1] = 9.0
    x[1, 0, 0] = float("nan") if kind.startswith("nan") else -9.0
    y[1] = y[0]
    f = bc.reduce("x * y", kind, axis=axis, keepdims=keepdims, then=f"sqrt(abs({kind}) + eps)", eps=0.5)
    a, b = x.clone().requires_grad_(), y.clone().requires_grad_()
    result = torch.sqrt(TORCH[kind](torch, a * b, axis).abs() + 0.5)
    dy = torch.randn_like(result)
    wanted = torch.autograd.grad(result, (a, b), dy)
    found = f.vjp(dy.reshape(f(x, y).shape), x, y)
    for got, want in zip(found, wanted, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-10, equal_nan=True)


def test_gradients_of_halves_and_of_chosen_operands() -> None:
    x = X.astype(ml_dtypes.bfloat16)
    dx = bc.reduce("mean(x * x)", axis=-1).vjp(np.ones((4, 3), ml_dtypes.bfloat16), x)
    np.testing.assert_allclose(dx.astype(float), x.astype(float) / 3, rtol=1e-2)
    assert dx.dtype == x.dtype
    dy = bc.reduce("sum(x * y)", axis=-1).vjp(np.ones((4, 3), np.float32), X, Y, wrt="y")
    np.testing.assert_allclose(dy, WIDE.sum((0, 1)), rtol=1e-5)
    mask = X > 0
    (dx,) = [bc.reduce("nanmean(where(m, x, nan))", axis=-1).vjp(np.ones((4, 3), np.float32), mask, X)]
    np.testing.assert_allclose(dx, mask / np.maximum(mask.sum(-1, keepdims=True), 1), rtol=1e-5)
    with pytest.raises(bc.InvalidProblemError, match="argmax has no gradient"):
        bc.reduce("argmax(x)").vjp(1.0, X)
