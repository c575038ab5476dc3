"""Functions from formulas: what a call takes, elements, layouts, errors, tracing, pickling, threads."""

from __future__ import annotations

import gc
import pickle
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py import expressions
from baracuda_py.core import memo
from baracuda_py.core.element import ElementKind
from baracuda_py.expressions.forward import plan_of
from baracuda_py.testing import CHECKS, emulated, exercise
from baracuda_py.testing.gradients import check_gradients
from baracuda_py.testing.launches import check_launches
from baracuda_py.testing.places import call

E = ElementKind
RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((3, 5)).astype(np.float32), RNG.standard_normal((3, 5)).astype(np.float32)


def test_a_call_takes_names_in_their_order_or_by_keyword_and_defaults() -> None:
    f = bc.elementwise("silu(x) * y + alpha", alpha=1.0)
    wanted = bc.silu(X) * Y + 1
    for got in (f(X, Y), f(X, Y, 1), f(X, y=Y), f(alpha=1.0, y=Y, x=X), f(X, Y, np.float32(1)), f(X, Y, np.array(1.0))):
        np.testing.assert_allclose(got, wanted, rtol=1e-6)
    out = X.copy()
    assert f(out, Y, out=out) is out
    np.testing.assert_allclose(out, wanted, rtol=1e-6)


def test_names_with_a_default_come_last() -> None:
    assert bc.elementwise("beta * x + y", beta=2.0).inputs == ("x", "y", "beta")
    assert bc.reduce("sum(n * x) * a + y", n=3).inputs == ("x", "a", "y", "n")
    assert bc.reduce("sum(n * x) * a + y", n=3)(np.ones(4), 2.0, 1.0) == 25


def test_operands_broadcast_and_may_be_views() -> None:
    f = bc.elementwise("a * b - c")
    got = f(X[:, ::2], Y[0, ::2], X[:, :1])
    wide = X.astype(np.float64)
    np.testing.assert_array_equal(got, (wide[:, ::2] * Y[0, ::2] - wide[:, :1]).astype(np.float32))
    assert f(X[:, :0], 1, 2).shape == (3, 0)
    assert f(np.ones(()), 3, 4.0).shape == ()


def test_several_outputs() -> None:
    y, z = bc.elementwise("y = a * b; z = y > 0")(X, Y)
    np.testing.assert_array_equal(y, X * Y)
    assert z.dtype == np.bool_ and (z == (X * Y > 0)).all()
    low, high = np.empty_like(X), np.empty_like(X)
    bc.elementwise("minimum(a, b), maximum(a, b)")(X, Y, out=(low, high))
    assert (low == np.minimum(X, Y)).all() and (high == np.maximum(X, Y)).all()


@pytest.mark.parametrize(
    ("text", "elements", "result"),
    [
        ("x + 1", (E.U8,), E.U8), ("x * 0.5", (E.BF16,), E.BF16), ("x * 0.5", (E.I32,), E.F32),
        ("x + y", (E.BF16, E.F16), E.F32), ("x + y", (E.I8, E.U8), E.I16), ("x + y", (E.I64, E.F16), E.F16),
        ("x + y", (E.BOOL, E.I8), E.I8), ("x + 1", (E.BOOL,), E.I64), ("x > y", (E.F32, E.I8), E.BOOL),
        ("where(x > 0, 1.0, 0.0)", (E.F64,), E.F32), ("where(x > 0, 1, 0) * x", (E.F64,), E.F64),
        ("float16(x) + 1", (E.F64,), E.F16), ("~x", (E.BOOL,), E.BOOL), ("x & 3", (E.I16,), E.I16),
        ("x == 1", (E.U8,), E.BOOL), ("not x", (E.F32,), E.BOOL), ("x // 2", (E.I32,), E.I32),
    ],
)  # fmt: skip
def test_elements_promote_as_in_torch(text: str, elements: tuple[ElementKind, ...], result: ElementKind) -> None:
    f = bc.elementwise(text)
    desc = f.plan().descriptor
    others = {f"{n}_element": e for n, e in zip(f.inputs[1:], elements[1:], strict=True)}
    assert desc(shape=(2,), element=elements[0], **others).program.results == (result,)


@pytest.mark.parametrize(
    ("text", "operands", "said", "at"),
    [
        ("1 + exp(i)", {"i": np.int32}, "float32(i)", "exp(i)"),
        ("i / j", {"i": np.int8, "j": np.int8}, "a // b", "i / j"),
        ("m - m", {"m": np.bool_}, "int32(m)", "m - m"), ("i + 300", {"i": np.uint8}, "300 is no uint8", "300"),
        ("u + i", {"u": np.uint64, "i": np.int8}, "no common integer", "u + i"),
        ("x & 1", {"x": np.float32}, "for integers and bool", "x & 1"), ("-m", {"m": np.bool_}, "neg of bool", "-m"),
        ("isnan(i)", {"i": np.int64}, "isnan of int64", "isnan(i)"),
    ],
)  # fmt: skip
def test_elements_without_a_meaning_are_refused_at_the_character(text: str, operands: dict, said: str, at: str) -> None:
    with pytest.raises(bc.ExpressionError) as raised:
        bc.elementwise(text)(**{name: np.ones(3, dtype) for name, dtype in operands.items()})
    line, carets = str(raised.value).splitlines()[-2:]
    start = carets.index("^")
    assert said in str(raised.value) and line[start : start + carets.count("^")] == at


def test_wrong_calls_name_what_is_wrong() -> None:
    f = bc.elementwise("silu(x) * y + alpha", alpha=1.0)
    for wrong, said in (
        (lambda: f(X), "needs y"), (lambda: f(X, Y, beta=1), "'beta'"), (lambda: f(X, Y, 1, 2), "takes 3 operands"),
        (lambda: f(1, 2, 3), "needs an array"), (lambda: f(X, Y[:, :3]), "do not broadcast"),
        (lambda: f(X, Y, x=X), "twice"),
        (lambda: f(X, "a"), "y must be an array"), (lambda: f(X, Y, out=np.ones((3, 5))), "result must be float32"),
        (lambda: bc.elementwise("x + 1", y=3), "'y'"), (lambda: bc.elementwise("x + a", a="b"), "must be a number"),
    ):  # fmt: skip
        with pytest.raises(bc.InvalidProblemError) as raised:
            wrong()
        assert said in str(raised.value)


# -- what is computed ----------------------------------------------------------------------------------------------


def test_halves_are_rounded_once_at_the_end() -> None:
    x, y = X.astype(ml_dtypes.bfloat16), Y.astype(ml_dtypes.bfloat16)
    got = bc.elementwise("x * y + x - x * y")(x, y)
    np.testing.assert_array_equal(got, x)  # rounded in between, the difference would show
    rounded = bc.elementwise("bfloat16(bfloat16(x * y) + x) - bfloat16(x * y)")(x, y)
    assert (rounded != x).any()


def test_numbers_are_computed_in_float64_and_rounded_where_they_meet_an_operand() -> None:
    f = bc.elementwise("x * (1 - beta)")
    ones = np.ones(4, np.float32)
    assert (f(ones, 0.999) == np.float32(1 - 0.999)).all()
    assert (bc.elementwise("x * 0.1")(ones.astype(np.float64)) == 0.1).all()
    assert (bc.elementwise("i + n")(np.zeros(3, np.int64), 2**53 + 1) == 2**53 + 1).all()


def test_integers_wrap_in_their_own_width() -> None:
    i = np.arange(-128, 128).astype(np.int8)
    np.testing.assert_array_equal(bc.elementwise("(i + i) // 2")(i), ((i + i) // 2).astype(np.int8))
    np.testing.assert_array_equal(bc.elementwise("(i * i > 0) & (i < 5)")(i), (i * i > 0) & (i < 5))
    assert (bc.elementwise("i // 0")(i) == 0).all()


# -- from Python functions -----------------------------------------------------------------------------------------


def test_a_python_function_and_its_text_are_one_formula() -> None:
    def f(x, y, *, alpha=0.5):  # type: ignore[no-untyped-def]
        return bc.silu(x) * y + expressions.where(x > y, bc.maximum(x, 0.0), alpha) - np.tanh(y) / abs(x)

    traced = bc.elementwise(f)
    text = bc.elementwise("silu(x) * y + where(x > y, maximum(x, 0.0), alpha) - tanh(y) / abs(x)", alpha=0.5)
    assert [tree for _, tree in traced.formula.outputs] == [tree for _, tree in text.formula.outputs]
    np.testing.assert_array_equal(traced(X, Y), text(X, Y))
    assert bc.elementwise(lambda x, y: {"low": x - y, "high": x + y}).outputs == ("low", "high")
    assert bc.elementwise(lambda x: (x, bc.cast(x, "float16"), x.astype("int8"))).text == (
        "result0 = x\nresult1 = float16(x)\nresult2 = int8(x)"
    )


def test_torch_functions_of_symbols_are_ours() -> None:
    torch = pytest.importorskip("torch")
    f = bc.elementwise(lambda x, y: torch.nn.functional.silu(x) * torch.clamp(y, min=0) + torch.where(x > y, x, 0.0))
    assert f.text == "silu(x) * clamp_min(y, 0) + where(x > y, x, 0.0)"


def test_formulas_of_formulas() -> None:
    gate = bc.elementwise("silu(a) * b")
    f = bc.elementwise(lambda x, y: gate(x, y) + gate(y, 2.0))
    assert f.text == "silu(x) * y + silu(y) * 2.0"


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda x: x if x > 0 else -x, "where(condition, a, b)"), (lambda *x: x[0], "fixed number"),
        (lambda x: bc.rms_norm(x, x), "rms_norm"), (lambda x: [*x], "cannot be unpacked"), (lambda x: None, "NoneType"),
        (lambda x: (), "needs an output"), (lambda out: out, "another name"), (lambda x: np.add.reduce(x), "numpy.add"),
        (lambda x: x + X, "symbols and numbers"), (lambda x: {"x": x}, "name of an operand"),
    ],
)  # fmt: skip
def test_functions_that_are_no_formulas(function: object, said: str) -> None:
    with pytest.raises((bc.ExpressionError, TypeError)) as raised:
        bc.elementwise(function)  # type: ignore[arg-type]
    assert said in str(raised.value) or isinstance(raised.value, TypeError)


# -- plans ---------------------------------------------------------------------------------------------------------


def test_a_formula_has_a_plan_with_all_that_plans_have() -> None:
    f = bc.elementwise("silu(x) * y + alpha")
    plan = f.plan(alpha=float)
    assert plan is f.plan(alpha=float) and plan is bc.elementwise("silu(x) * y + alpha").plan(alpha=float)
    desc = plan.descriptor(shape=(3, 5), element="float32")
    chosen = plan.select(desc, device="cpu")
    args = plan.args(x=X, y=Y, alpha=2.0, result=np.empty_like(X))
    assert chosen.can_implement(args) and chosen.sku == pickle.loads(pickle.dumps(chosen)).sku
    chosen.run(args)
    np.testing.assert_array_equal(args.result, f(X, Y, 2.0))
    verdict = chosen.can_implement(plan.args(x=X, y=Y, alpha=2.0, result=X[:, :2]))
    assert not verdict and "result" in verdict.reason
    assert plan.__name__ not in bc.core.plan.PLANS  # type: ignore[attr-defined]
    assert pickle.loads(pickle.dumps(desc)) == desc and pickle.loads(pickle.dumps(args)).alpha == 2.0


def test_names_do_not_make_a_kernel_but_roles_do() -> None:
    first, second = bc.elementwise("silu(x) * y").plan(), bc.elementwise("silu(gate) * up").plan()
    assert first is not second and first.op == second.op
    units = [next(p.variants[0].units(p.op, E.F16, p.kinds[2]))[0] for p in (first, second)]
    assert units[0] == units[1]
    assert bc.elementwise("x * y").plan(y=float).op != bc.elementwise("x * y").plan(y=int).op


def test_sku_and_guarantee_say_what_a_formula_promises() -> None:
    def error(text: str, element: str) -> bc.ErrorBound:  # type: ignore[name-defined]
        plan = bc.elementwise(text).plan()
        return plan.select(plan.descriptor(shape=(2,), element=element), device="cpu").precision_guarantee.error

    assert str(error("where(x > y, -x, abs(y))", "float64")) == "exact"
    assert str(error("silu(x)", "bfloat16")) == str(
        bc.UnaryPlan.select(
            bc.UnaryDescriptor(kind="silu", shape=(2,), element="bfloat16"), device="cpu"
        ).precision_guarantee.error
    )
    assert isinstance(error("silu(x) * y", "float32"), bc.Relative)


def test_a_functor_is_text_for_other_kernels() -> None:
    text = bc.elementwise("silu(x) * y + alpha * n").functor("Score", x="bfloat16", y="float64", alpha=float, n=int)
    assert "struct Score {" in text and "void operator()(float x0, double x1, double& y0) const" in text
    assert "p.s0()" in text and "p.s1()" in text
    with pytest.raises(bc.ExpressionError, match="exp of int32"):
        bc.elementwise("exp(x)").functor("F", x="int32")


def test_threads_share_one_plan() -> None:
    def made(i: int) -> tuple[object, np.ndarray]:
        f = bc.elementwise("x * 3 + y")
        return f.plan(), f(X, Y)

    f = bc.elementwise("x * 3 + y")
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(made, range(32)))
    assert len({id(plan) for plan, _ in results}) == 1
    assert all((y == f(X, Y)).all() for _, y in results)


FORMULAS = (
    ("silu(x) * y + alpha", {"alpha": float}), ("where(m, x, 0) if x > n else -x", {"n": int}),
    ("y = a * b; z = float16(y + 1); w = exp(y) > 2", {}), ("i // 3 % 5 & j | 1", {}),
    ("s = alpha * sigmoid(x); t = s * beta ** step - n * x", {"alpha": float, "beta": float, "step": int, "n": int}),
)  # fmt: skip


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize(("text", "roles"), FORMULAS, ids=[text for text, _ in FORMULAS])
def test_formulas_pass_the_checks_of_all_ops(text: str, roles: dict, check: object) -> None:
    f = bc.elementwise(text)
    plan = f.plan(**roles)
    if check is check_gradients and not f.smooth:
        return
    if getattr(check, "applies", lambda plan: True)(plan):
        exercise(plan, check, examples=2)  # type: ignore[arg-type]


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(("text", "roles"), FORMULAS, ids=[text for text, _ in FORMULAS])
def test_kernels_of_formulas_compute_them(text: str, roles: dict) -> None:
    exercise(bc.elementwise(text).plan(**roles), emulated, examples=3, seeded=False)


COMPOSED = (
    ("silu(x) * y", lambda b: b("mul", b("silu", "x"), "y")),
    ("gelu(x) + tanh(y) / exp(x)", lambda b: b("add", b("gelu", "x"), b("div", b("tanh", "y"), b("exp", "x")))),
    ("maximum(x, y) ** 2 - log1p(abs(y))",
     lambda b: b("sub", b("square", b("maximum", "x", "y")), b("log1p", b("abs", "y")))),
    ("softplus(x) % y", lambda b: b("remainder", b("softplus", "x"), "y")),
)  # fmt: skip


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("element", ["float32", "float64"])
@pytest.mark.parametrize(("text", "composed"), COMPOSED, ids=[text for text, _ in COMPOSED])
def test_a_formula_has_the_bits_of_the_built_ins_composed(text: str, composed: object, element: str) -> None:
    arrays = {name: (4 * RNG.standard_normal(513)).astype(element) for name in ("x", "y")}

    def built_in(kind: str, *operands: object) -> np.ndarray:
        given = [arrays[one] if isinstance(one, str) else one for one in operands]
        plan, names = (bc.UnaryPlan, "x") if len(given) == 1 else (bc.BinaryPlan, "ab")
        desc = plan.descriptor(kind=kind, shape=(513,), element=element)
        return call(plan, desc, ("y",), "emulator", **dict(zip(names, given, strict=True)))["y"]

    plan = bc.elementwise(text).plan()
    desc = plan.descriptor(shape=(513,), element=element)
    got = call(plan, desc, ("result",), "emulator", **arrays)["result"]
    assert got.tobytes() == composed(built_in).tobytes()  # type: ignore[operator]


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("kind", ["silu", "gelu", "sin", "log", "erfc", "softplus"])
@pytest.mark.parametrize("element", ["bfloat16", "float16"])
def test_a_built_in_as_a_formula_is_the_built_in(kind: str, element: str) -> None:
    x = (4 * RNG.standard_normal(513)).astype(np.float32).astype(E.of(element).dtype)
    plan = bc.elementwise(f"{kind}(x)").plan()
    got = call(plan, plan.descriptor(shape=(513,), element=element), ("result",), "emulator", x=x)["result"]
    desc = bc.UnaryDescriptor(kind=kind, shape=(513,), element=element)
    assert got.tobytes() == call(bc.UnaryPlan, desc, ("y",), "emulator", x=x)["y"].tobytes()


def test_plans_are_found_by_what_they_are_made_of() -> None:
    f = bc.elementwise("x + y")
    assert plan_of(f.formula, ("array", "array")) is f.plan()


def test_what_a_function_has_served_is_forgotten_with_it() -> None:
    """Formulas that are made and dropped leave nothing behind in the functional layer."""
    x = np.ones(3, np.float32)
    gc.collect()
    before = len(memo._known)
    kept = [bc.elementwise(f"x * {i} + 0.125") for i in range(4)]
    for f in kept:
        f(x), f.vjp(x, x)
    assert len(memo._known) == before + 8
    del f, kept
    gc.collect()
    assert len(memo._known) == before


@pytest.mark.parametrize(
    "name", ["low", "alignment", "prepared", "ordinal", "runner", "args", "memory", "at", "p_x", "k_x", "s_x", "v_x"]
)
def test_a_number_may_have_a_name_that_launches_use_themselves(name: str) -> None:
    exercise(bc.elementwise(f"x * {name} + {name}").plan(**{name: int}), check_launches, examples=4)
