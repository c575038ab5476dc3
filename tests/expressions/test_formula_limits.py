"""How large a formula may be: limits are said, and nothing before them is a matter of how deep Python's stack is."""

from __future__ import annotations

import copy
import pickle
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.expressions.formula import MOST_NODES, MOST_OUTPUTS
from baracuda_py.expressions.parse import parse
from baracuda_py.testing import emulated, exercise

X = np.array([0.5, 1.0, -2.0], np.float32)


def steps(count: int) -> Callable[[Any], Any]:
    """A loop of this many steps, y = y / 2 + x, whose limit is 2 x."""

    def formula(x: Any) -> Any:
        y = x
        for _ in range(count):
            y = y * 0.5 + x
        return y

    return formula


@pytest.mark.parametrize("terms", [199, 500, 1500])
def test_a_flat_sum_is_flat(terms: int) -> None:
    f = bc.elementwise(" + ".join(["x"] * terms))
    np.testing.assert_array_equal(f(X.astype(np.float64)), terms * X.astype(np.float64))
    np.testing.assert_array_equal(f.vjp(X, X), terms * X)


def test_terms_are_added_from_the_left() -> None:
    big, one = np.full(2, 2.0**53), np.ones(2)
    assert (bc.elementwise("b" + " + x" * 300)(big, one) == big).all()  # each is rounded away
    assert (bc.elementwise("x" + " + x" * 299 + " + b")(one, big) == big + 300).all()


def test_long_chains_of_names_and_of_traced_steps() -> None:
    squares = "; ".join(["a0 = x*x", *(f"a{i} = a{i - 1}*a{i - 1}" for i in range(1, 900))])
    np.testing.assert_array_equal(bc.elementwise(f"{squares}; a899")(X), [0, 1, np.inf])
    np.testing.assert_allclose(bc.elementwise(steps(500))(X), 2 * X, rtol=1e-6)
    np.testing.assert_allclose(bc.reduce(steps(500), "sum")(X), 2 * X.sum(), rtol=1e-6)
    np.testing.assert_allclose(bc.scan(steps(500), "cumsum")(X), 2 * X.cumsum(), rtol=1e-6)
    np.testing.assert_allclose(bc.elementwise(steps(300)).vjp(X, X), 2 * X, rtol=1e-6)
    q = np.ones((1, 1, 2, 8), np.float32)
    assert bc.attention(lambda s: steps(500)(s))(q, q, q).shape == q.shape
    ladder = " ".join(f"{i} if x < {i} else" for i in range(600))
    np.testing.assert_array_equal(bc.elementwise(f"{ladder} 0")(X), [1, 2, 0])


def test_long_formulas_are_copied_pickled_and_shown() -> None:
    f = bc.elementwise(steps(500))
    assert pickle.loads(pickle.dumps(f)) == f == copy.deepcopy(f)
    plan = pickle.loads(pickle.dumps(f.plan()))
    assert plan is f.plan()
    assert parse(f.text).roots == f.formula.roots


@pytest.mark.usefixtures("emulation")
def test_kernels_of_long_formulas_compute_them() -> None:
    exercise(bc.elementwise(" + ".join(["x"] * 300)).plan(), emulated, examples=1, seeded=False)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: bc.elementwise(" + ".join(["x"] * 3000)), f"at most {MOST_NODES} operations"),
        (lambda: bc.elementwise(" + ".join(["x"] * 2500)), f"at most {MOST_NODES} operations, got 2499"),
        (lambda: bc.elementwise("-" * 5000 + "x"), f"at most {MOST_NODES} operations"),
        (lambda: bc.elementwise(steps(2000)), f"at most {MOST_NODES} operations, got 4000"),
        (lambda: bc.elementwise(steps(300)).vjp(X, X, wrt="x").shape and bc.elementwise(steps(1500)), "got 3000"),
        (lambda: bc.elementwise("; ".join(f"y{i} = x + {i}" for i in range(30))), f"at most {MOST_OUTPUTS} outputs"),
        (lambda: bc.elementwise("x + " + "9" * 400), "float64"),
        (lambda: bc.elementwise("x" * 20_001), "at most 20000 characters"),
        (lambda: bc.elementwise("x + 2**2**2**30"), "beyond float64"),
        (lambda: bc.elementwise("x * 9**9**9"), "beyond float64"),
        (lambda: bc.elementwise("x * (-9)**9**9"), "beyond float64"),
    ],
)
def test_limits_are_said(make: Callable[[], Any], said: str) -> None:
    begun = time.process_time()
    with pytest.raises(bc.ExpressionError, match=r".") as raised:
        make()
    assert said in str(raised.value) and time.process_time() - begun < 5


def test_as_many_operands_as_a_formula_may_have_go_to_a_kernel() -> None:
    names = [f"x{i}" for i in range(24)]
    text = "; ".join(f"y{j} = {' + '.join(names)} + {j}" for j in range(MOST_OUTPUTS))
    made = bc.elementwise(text)(*[X] * 24)
    np.testing.assert_array_equal(made, [24 * X + j for j in range(MOST_OUTPUTS)])
