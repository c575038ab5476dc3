"""Gradients of formulas: every rule against differences, whole formulas against torch, sums over broadcast axes."""

from __future__ import annotations

import pickle
from collections.abc import Mapping

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.element import ElementKind as E
from baracuda_py.expressions.derivatives import RULES, STEPS
from baracuda_py.expressions.derive import gradient
from baracuda_py.expressions.formula import Formula
from baracuda_py.expressions.function import Rule
from baracuda_py.expressions.functions import functions
from baracuda_py.expressions.nodes import Node, named
from baracuda_py.expressions.parse import parse
from baracuda_py.expressions.program import program_of
from baracuda_py.expressions.reference import evaluate
from baracuda_py.testing import CHECKS, emulated, exercise

# Where functions are smooth; elsewhere (-2, 2).
DOMAINS: Mapping[str, tuple[float, float]] = {
    **dict.fromkeys(("log", "log2", "log10", "sqrt", "rsqrt", "cbrt", "reciprocal", "lgamma", "pow"), (0.3, 3)),
    **dict.fromkeys(("entr", "digamma", "polygamma", "bessel_y0", "bessel_y1", "gamma", "factorial"), (0.3, 3)),
    **dict.fromkeys(("exp1", "expi", "spence", "cosine_integral"), (0.3, 3)),
    "xlogy": (0.3, 3),
    **dict.fromkeys((f"{s}modified_bessel_k{n}" for s in ("", "scaled_") for n in "01"), (0.3, 3)),
    **dict.fromkeys(("asin", "acos", "atanh", "erfinv", "log1p", "xlog1py"), (-0.8, 0.8)),
    **dict.fromkeys(("acosh",), (1.2, 3)), **dict.fromkeys(("logit", "ndtri"), (0.1, 0.9)), "tan": (-1, 1),
    **dict.fromkeys(("div", "fmod", "remainder", "copysign"), (0.6, 1.9)),
}  # fmt: skip
DIFFERENTIABLE = [name for name in RULES if name in functions()]


def derivative(formula: Formula, values: list[np.ndarray], wrt: str) -> np.ndarray:
    steps = program_of(gradient(formula, (wrt,)), dict.fromkeys((*formula.inputs, "dresult"), E.F64), {})
    return evaluate(steps, [*values, np.ones_like(values[0])], [], np.longdouble)[0]


def differences(formula: Formula, values: list[np.ndarray], wrt: str) -> np.ndarray:
    steps = program_of(formula, dict.fromkeys(formula.inputs, E.F64), {})
    at, h = formula.inputs.index(wrt), np.longdouble(1e-6)
    sides = [[v + sign * h if i == at else v for i, v in enumerate(values)] for sign in (1, -1)]
    high, low = (evaluate(steps, side, [], np.longdouble)[0] for side in sides)
    return (high - low) / (2 * h)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_every_rule_is_the_derivative(name: str) -> None:
    function, rng = functions()[name], np.random.default_rng(1)
    if function.rule is Rule.CHOICE:
        formula = parse("where(c > 0, a, b)")
    else:
        least = 1 if name == "polygamma" else function.least
        inputs = function.parameters[:least]
        rest = [Node("constant", function.defaults.get(p, 2)) for p in function.parameters[least:]]
        formula = Formula(inputs, (("result", Node("call", name, (*map(named, inputs), *rest))),))
    low, high = DOMAINS.get(name, (-2, 2))
    values = [rng.uniform(low, high, 200).astype(np.longdouble) for _ in formula.inputs]
    for i, wrt in enumerate(formula.inputs):
        if not RULES[name][1 + i] and name != "copysign":
            continue
        found, wanted = derivative(formula, values, wrt), differences(formula, values, wrt)
        close = np.abs(found - wanted) <= 1e-6 * (1 + np.abs(wanted))
        assert np.mean(close) > 0.99 if name in ("fmod", "remainder", "logit") else close.all(), (wrt, found, wanted)


def test_every_float_function_has_a_rule_or_is_a_step() -> None:
    smooth = [f.name for f in functions().values() if f.rule in (Rule.NUMBER, Rule.CHOICE) and E.F64 in f.elements]
    assert [name for name in smooth if name not in RULES and name not in STEPS] == ["airy_ai", "bernoulli_number"]
    with pytest.raises(bc.ExpressionError, match="airy_ai"):  # whose derivative is no function that formulas have
        bc.elementwise("airy_ai(x)").vjp(np.ones(3), np.ones(3))


def test_what_has_no_gradient_gives_zeros() -> None:
    x = np.linspace(-2, 2, 5)
    for text in ("floor(x) + sign(x)", "float32(int32(x))", "where(x > 0, 1.0, 2.0)"):
        assert (bc.elementwise(text).vjp(np.ones(5), x) == 0).all()


def test_equal_parts_are_shared_and_nothing_is_multiplied_by_one() -> None:
    assert gradient(parse("x * 2 + y"), ("x", "y")).text == "grad_x = dresult * 2\ngrad_y = dresult"
    assert gradient(parse("-(-x)"), ("x",)).text == "grad_x = dresult"
    shared = gradient(parse("exp(x) * y"), ("x", "y"))
    assert [node.value for node in shared.nodes].count("exp") == 1


TORCH = (
    "silu(x) * y", "tanh(x * y) / (1 + exp(-x))", "where(x > y, x * y, x - y) ** 2", "maximum(x, y) * minimum(x, 0.5)",
    "relu(x) + abs(y) + clamp(x, -1, 1)", "log1p(exp(-abs(x))) + softplus(y)", "gelu(x) * sigmoid(y)", "x ** 3 - x / y",
    "sqrt(x * x + y * y)",
)  # fmt: skip


@pytest.mark.parametrize("text", TORCH)
def test_gradients_are_those_of_torch(text: str) -> None:
    torch = pytest.importorskip("torch")
    names = {"where": torch.where, "maximum": torch.maximum, "clamp": torch.clamp,
             "abs": torch.abs, "relu": torch.relu,
             "minimum": lambda a, b: torch.minimum(a, torch.as_tensor(b, dtype=a.dtype)),
             "sqrt": torch.sqrt}  # fmt: skip
    for name in ("tanh", "exp", "log1p", "sigmoid"):
        names[name] = getattr(torch, name)
    for name in ("silu", "softplus", "gelu"):
        names[name] = getattr(torch.nn.functional, name)
    torch.manual_seed(0)
    x, y, dy = (torch.randn(3, 4, 5, dtype=torch.float64) for _ in range(3))
    y = y[:, :1]
    x[0, 0, :3] = torch.tensor([0.0, 1.0, -1.0], dtype=x.dtype)
    x.requires_grad_(), y.requires_grad_()
    wanted = torch.autograd.grad(eval(text, names, {"x": x, "y": y}), (x, y), dy)
    found = bc.elementwise(text).vjp(dy, x.detach(), y.detach())
    for got, want in zip(found, wanted, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


def test_kinks_and_ties_are_torchs() -> None:
    x = np.array([-1.0, 0.0, 1.0, np.nan])
    ones = np.ones(4)
    for text, wanted in (("relu(x)", [0, 0, 1, 1]), ("abs(x)", [-1, 0, 1, 0]), ("maximum(x, 0.0)", [0, 0.5, 1, 1])):
        np.testing.assert_array_equal(bc.elementwise(text).vjp(ones, x), wanted)
    a, b = bc.elementwise("maximum(a, b)").vjp(ones, x, x)
    np.testing.assert_array_equal(a[:3], [0.5] * 3)
    np.testing.assert_array_equal(b[:3], [0.5] * 3)


def test_broadcast_operands_have_sums() -> None:
    rng = np.random.default_rng(2)
    x, m, s, d = (
        rng.standard_normal((4, 3, 5)),
        rng.standard_normal(5),
        rng.standard_normal((3, 1)),
        rng.standard_normal((4, 3, 5)),
    )
    f = bc.elementwise("(x - m) * s")
    dx, dm, ds = f.vjp(d, x, m, s)
    np.testing.assert_allclose(dx, d * s)
    np.testing.assert_allclose(dm, (-d * s).sum((0, 1)))
    np.testing.assert_allclose(ds, (d * (x - m)).sum((0, 2))[:, None])
    assert f.vjp(d, x, m, s, wrt="m").shape == (5,)
    empty = f.vjp(d[:0], x[:0], m, s)
    assert empty[0].shape == (0, 3, 5) and (empty[1] == 0).all() and (empty[2] == 0).all()


def test_several_outputs_and_absent_cotangents() -> None:
    a, b, d = (np.random.default_rng(i).standard_normal(6) for i in range(3))
    f = bc.elementwise("y = a * b; z = exp(a)")
    da, db = f.vjp(d, d, a, b)
    np.testing.assert_allclose(da, d * b + d * np.exp(a))
    np.testing.assert_allclose(f.vjp(None, d, a, b)[0], d * np.exp(a))
    np.testing.assert_allclose(db, d * a)


def test_mixed_elements_keep_each_its_own() -> None:
    x, y, n = np.ones(4, np.float16), np.ones(4, np.float32), np.arange(4)
    dx, dy = bc.elementwise("x * y + n").vjp(np.ones(4, np.float32), x, y, n)
    assert (dx.dtype, dy.dtype) == (np.float16, np.float32)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda f, x: f.vjp(x), "needs x"), (lambda f, x: f.vjp(), "1 cotangents first"),
        (lambda f, x: f.vjp(None, x, 1.0), "a cotangent"),
        (lambda f, x: f.vjp(x, x, 1.0, wrt="a"), "0-d array of floats"),
        (lambda f, x: f.vjp(x, x, 1.0, wrt="q"), "wrt names 'q'"),
        (lambda f, x: f.vjp(x[:3], x, 1.0), "dresult must broadcast"),
        (lambda f, x: f.vjp(x, x.astype(int), 1.0), "no gradient"),
        (lambda f, x: f.vjp(x.astype(int), x, 1.0), "dresult must be a float"),
        (lambda f, x: bc.elementwise("ldexp(x, x) + fmod(dresult, x)").vjp(x, x, x), "the cotangent dresult"),
    ],
)  # fmt: skip
def test_wrong_calls_say_what_is_wrong(call: object, said: str) -> None:
    with pytest.raises(bc.InvalidProblemError) as raised:
        call(bc.elementwise("x * a"), np.ones(4))  # type: ignore[operator]
    assert said in str(raised.value)


FORMULAS = (("silu(x) * y + alpha", {"alpha": float}), ("where(m, x, 0) * s", {}), ("y = a * b; z = exp(y)", {}))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize(("text", "roles"), FORMULAS, ids=[text for text, _ in FORMULAS])
def test_gradients_pass_the_checks_of_all_ops(text: str, roles: dict, check: object) -> None:
    plan = bc.elementwise(text).plan(**roles).vjp.plan
    if getattr(check, "applies", lambda plan: True)(plan):
        exercise(plan, check, examples=2)  # type: ignore[arg-type]


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(("text", "roles"), FORMULAS, ids=[text for text, _ in FORMULAS])
def test_kernels_of_gradients_compute_them(text: str, roles: dict) -> None:
    exercise(bc.elementwise(text).plan(**roles).vjp.plan, emulated, examples=4, seeded=False)


def test_gradient_plans_are_pickled_as_what_they_are_made_of() -> None:
    plan = bc.elementwise("x * y").plan().vjp.plan
    assert pickle.loads(pickle.dumps(plan)) is plan
    desc = plan.descriptor(shape=(2,), element="float32")
    assert pickle.loads(pickle.dumps(desc)) == desc
