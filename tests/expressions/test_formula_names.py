"""What operands and outputs of formulas are called: any name works, or is refused as a word of every function."""

from __future__ import annotations

import keyword
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.testing import emulated, exercise
from baracuda_py.testing.launches import check_launches

X = np.linspace(0.5, 2, 6, dtype=np.float32).reshape(2, 3)
WIDE = X.astype(np.float64)
WORDS = ("out", "stream", "preference", "element", "shape", "workspace", "layout", "wrt", "wanted")
NAMES = (
    # Python's and those of the code that is generated for calls and launches
    "self", "cls", "type", "args", "runner", "desc", "KIND", "RAW", "ARGS", "CACHE", "SELF", "NEW", "key", "entry",
    "made", "symbol", "unknown", "p", "x_element", "operand0", "operand1", "tuple", "getattr", "isinstance", "list",
    "p_x", "k_x", "make_result", "return_x", "joint", "recipe", "stream_", "error", "one", "memory", "direct", "call",
    # of C++ and of device code
    "int", "double", "register", "template", "auto", "struct", "x0", "y0", "s0", "v0", "u0", "Formula", "math",
    "threadIdx",
    # of formulas themselves: cotangents, gradients, surrogates
    "grad_x", "grad_grad_x", "result", "result_", "r_", "c_", "n_", "r", "v", "term", "factor", "dy", "kind",
    "axis", "formula", "seed", "offset", "name", "plan", "store", "match", "_0", "_x", "Σ", "_type_x", "_dflt_x", "np",
    "value", "blockDim", "asm", "n", "i",
)  # fmt: skip


def other(name: str) -> str:
    return "x" if name != "x" else "z"


def close(got: Any, wanted: Any) -> None:
    np.testing.assert_allclose(np.asarray(got, np.float64), np.asarray(wanted) * np.ones(np.shape(got)), rtol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_a_number_may_have_any_name(name: str) -> None:
    x = other(name)
    f = bc.elementwise(f"{x} * {name} + {name}")
    for got in (f(X, 1.5), f(X, **{name: 1.5}), f(**{x: X, name: np.float32(1.5)})):
        close(got, WIDE * 1.5 + 1.5)
    close(f.vjp(X, X, 1.5), WIDE * 1.5)
    close(f.vjp(X, **{x: X, name: 1.5}), WIDE * 1.5)
    close(bc.elementwise(f"{x} * {name}", **{name: 3.0})(X), WIDE * 3)


@pytest.mark.parametrize("name", NAMES)
def test_an_array_may_have_any_name(name: str) -> None:
    x = other(name)
    f = bc.elementwise(f"{name} * {x}")
    close(f(**{name: X, x: X + 1}), WIDE * (WIDE + 1))
    for got, wanted in zip(f.vjp(X, X, X + 1), (WIDE * (WIDE + 1), WIDE * WIDE), strict=True):
        close(got, wanted)
    close(f.vjp(X, X, X + 1, wrt=name), WIDE * (WIDE + 1))
    traced = bc.elementwise(eval(f"lambda {name}, {x}: {name} * {x} + 1"))
    close(traced(X, X), WIDE * WIDE + 1)


@pytest.mark.parametrize("name", NAMES)
def test_a_plan_takes_operands_by_their_names(name: str) -> None:
    f = bc.elementwise(f"{name} * {other(name)}")
    plan, (result,) = f.plan(), f.outputs
    chosen = plan.select(plan.descriptor(shape=(2, 3), element="float32"), device="cpu")
    given = {name: X, other(name): X, result: np.empty_like(X)}
    chosen(**given)
    close(given[result], WIDE * WIDE)
    args = plan.args(**given)
    assert chosen.can_implement(args) and getattr(pickle.loads(pickle.dumps(args)), name).shape == (2, 3)
    verdict = chosen.can_implement(plan.args(**{**given, name: X[:, :2]}))
    assert not verdict and verdict.reason.startswith(f"{name} must")


@pytest.mark.parametrize("name", NAMES)
def test_reductions_scans_and_products_take_any_name(name: str) -> None:
    x = other(name)
    f = bc.reduce(f"sum({x} * {name}) * w_", axis=-1)
    close(f(X, X, 2.0), 2 * (WIDE * WIDE).sum(-1))
    close(f.vjp(np.ones(2, np.float32), X, X, 2.0)[0], 2 * WIDE)
    f = bc.reduce(f"sum({x}) * {name}", axis=-1)
    close(f(**{x: X, name: 2.0}), 2 * WIDE.sum(-1))
    f = bc.reduce(f"amax({name} + {x})", axis=-1)
    close(f.vjp(np.ones(2, np.float32), X, X)[0], [0, 0, 1])
    if name != "axis":
        f = bc.scan(f"cumsum({x}) * {name}")
        close(f(X, 2.0), 2 * WIDE.cumsum(-1))
        close(f(return_carry=True, **{x: X, name: 2.0})[1], WIDE.sum(-1))
        close(bc.scan(f"{name} * h + {x}", "recurrence").vjp(X, X, 0 * X)[0].shape, (2, 3))
    a, b = np.ones((2, 4), np.float32), np.ones((4, 3), np.float32)
    if name not in ("self", "dy", "n"):  # words of products
        close(bc.product(f"x * {name} + {name}")(a, b, **{name: X}), 5 * WIDE)


def outcome(make: Callable[[], Any]) -> str:
    """Nothing where it works, what it says where the name is refused."""
    try:
        make()
    except bc.ExpressionError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", NAMES)
def test_attention_takes_any_name_or_says_that_it_is_its_word(name: str) -> None:
    q, table = np.ones((1, 1, 4, 8), np.float32), np.ones((4, 4), np.float32)

    def number() -> None:
        f = bc.attention(f"s * {name}")
        assert f(q, q, q, **{name: 2.0}).shape == q.shape and len(f.vjp(q, q, q, q, **{name: 2.0})) == 3

    def of_table() -> None:
        f = bc.attention(f"s + {name}[q, k]")
        close(f(q, q, q, **{name: table}), 1)
        assert f.vjp(q, q, q, q, wrt=name, **{name: table}).shape == (4, 4)

    for made in (number, of_table):
        assert not (said := outcome(made)) or f"{name} is a word of attention; give the operand another name" in said


@pytest.mark.parametrize("name", NAMES)
def test_an_output_may_have_any_name(name: str) -> None:
    x = other(name)
    f = bc.elementwise(eval(f"lambda {x}: {{{name!r}: {x} * 2, 'z_': {x} + 1}}"))
    first, second = np.empty_like(X), np.empty_like(X)
    f(X, out={name: first, "z_": second})
    close(first, 2 * WIDE)
    close(second, WIDE + 1)
    close(f.vjp(X, None, X), 2 * WIDE)


@pytest.mark.parametrize("name", [*WORDS, "__init__", "__0"])
def test_words_of_every_function_are_refused_as_such(name: str) -> None:
    for make in (
        lambda: bc.elementwise(f"x * {name}"), lambda: bc.elementwise(f"{name} = x; y = x"),
        lambda: bc.elementwise(eval(f"lambda x, {name}: x * {name}")), lambda: bc.elementwise(lambda x: {name: x}),
        lambda: bc.reduce(f"sum(x * {name})"), lambda: bc.scan(f"cumsum(x * {name})"),
        lambda: bc.product(f"x * {name}"), lambda: bc.attention(f"s * {name}"),
    ):  # fmt: skip
        with pytest.raises(bc.ExpressionError, match="is a word of every function here; give the operand another name"):
            make()


@pytest.mark.parametrize("name", keyword.kwlist)
def test_outputs_that_are_words_of_python_are_refused(name: str) -> None:
    with pytest.raises(bc.ExpressionError, match=f"{name} is a word of Python"):
        bc.elementwise(lambda x: {name: x, "y": x + 1})


def test_a_reduction_is_told_from_an_operand_of_its_kind() -> None:
    f = bc.scan("cumulative_sum(x) * cumsum")
    close(f(X, 3.0), 3 * WIDE.cumsum(-1))


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("name", ["self", "runner", "RAW", "x_element", "p", "int"])
def test_launches_take_any_name(name: str) -> None:
    exercise(bc.elementwise(f"x * {name} + {name}").plan(**{name: int}), check_launches, examples=2)
    plan = bc.elementwise(f"x * {name}").plan()
    for one in (plan, plan.vjp.plan):  # type: ignore[union-attr]
        exercise(one, emulated, examples=1, seeded=False)


def test_torch_and_jax_take_any_name() -> None:
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    for name in ("self", "x_element", "type", "Tensor", "int", "op", "func", "seed", "Σ"):
        f, x = bc.elementwise(f"x * {name}"), torch.from_numpy(X).requires_grad_()
        f(x, torch.from_numpy(X)).sum().backward()
        close(x.grad, WIDE)
        of = bc.elementwise(f"x * {name} + {name}")
        x.grad = None
        of(x, 1.5).sum().backward()
        close(x.grad, 1.5)
        total = bc.reduce(f"sum(x * {name})")
        close(jax.grad(lambda a, f=total: f(a, X))(jax.numpy.asarray(X)), WIDE)
        close(jax.jit(lambda a, b, f=f, name=name: f(**{"x": a, name: b}))(X, X), WIDE * WIDE)
