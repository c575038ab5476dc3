"""Formulas as epilogues of matrix products: what they compute, bits beside built-in epilogues, kernels, gradients."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.element import ElementKind
from baracuda_py.testing import CHECKS, emulated, exercise
from baracuda_py.testing.emulator import emulated_device, emulating
from baracuda_py.testing.recording import pointer_view

RNG = np.random.default_rng(0)


def silu(x: Any) -> Any:
    return x / (1 + np.exp(-x))


def relu(x: Any) -> Any:
    return np.maximum(x, 0)


FORMULAS: tuple[tuple[str, Callable[..., Any]], ...] = (
    ("silu(x + bias) * gate", lambda x, bias, gate: silu(x + bias) * gate),
    ("relu(x) + r", lambda x, r: relu(x) + r),
    ("where(x > t, x * x, -t)", lambda x, t: np.where(x > t, x * x, -t)),
    ("x", lambda x: x),
    ("u = x + r; tanh(u) * r - u", lambda x, r: np.tanh(x + r) * r - (x + r)),
)


LAYOUTS = ("row", "column", "batch", "full", "one", "turned", "sliced")


def spread(shape: tuple[int, ...], m: int, n: int, which: str) -> np.ndarray:
    """An operand that broadcasts to [*shape, m, n]."""
    full = (*shape, m, n)
    shapes = {"row": (n,), "column": (m, 1), "batch": (*shape[:1], *(1,) * (len(full) - 1)), "full": full, "one": (1,)}
    if which == "turned":
        return np.swapaxes(RNG.standard_normal((*shape, n, m)), -1, -2)
    if which == "sliced":
        return RNG.standard_normal((*shape, 2 * m, n + 3))[..., ::2, 3:]
    return RNG.standard_normal(shapes[which])


@pytest.mark.parametrize("text", [text for text, _ in FORMULAS])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
@pytest.mark.parametrize("shared", [False, True])
def test_it_is_numpys(text: str, shape: tuple[int, ...], shared: bool) -> None:
    formula, (m, k, n) = dict(FORMULAS)[text], (5, 7, 9)
    f = bc.product(text)
    a = RNG.standard_normal((*shape, m, k))
    b = RNG.standard_normal((k, n) if shared else (*shape, k, n))
    for layouts in itertools.product(
        ("row", "column", "batch", "full", "one", "turned", "sliced"), repeat=len(f.inputs)
    ):
        given: dict[str, Any] = {name: spread(shape, m, n, one) for name, one in zip(f.inputs, layouts, strict=True)}
        want = formula(0.5 * (a @ b), **given)
        got = f(a, b, alpha=0.5, **given)
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-13, atol=1e-14, err_msg=str(layouts))
        np.testing.assert_array_equal(bc.matmul(a, b, epilogue=text, alpha=0.5, **given), got)


def test_a_function_of_symbols_is_the_same_formula() -> None:
    f = bc.product(lambda x, bias, scale: bc.silu(x + bias) * scale)
    assert f.inputs == ("bias", "scale") and bc.product("silu(x + bias) * scale").formula.digest == f.formula.digest
    assert bc.product("x + r") is bc.product("x + r") and bc.product(bc.elementwise("r + x")).inputs == ("r",)
    assert bc.product(lambda r, x, unused: x + r).inputs == ("r",)


def test_a_name_is_a_number_or_an_array() -> None:
    f, (a, b) = bc.product("x * s + t", s=2.0), RNG.standard_normal((2, 6, 6))
    np.testing.assert_allclose(f(a, b, t=1), a @ b * 2 + 1, rtol=1e-13)
    np.testing.assert_array_equal(f(a, b, t=np.array(1.0)), f(a, b, t=1.0))
    np.testing.assert_allclose(f(a, b, s=a, t=b[0]), a @ b * a + b[0], rtol=1e-13)
    np.testing.assert_allclose(f(a, b, s=a > 0, t=np.arange(6)), a @ b * (a > 0) + np.arange(6), rtol=1e-13)


def test_alpha_0_and_no_products_leave_the_formula_of_0() -> None:
    a, b, r = np.full((3, 2), np.nan), np.ones((2, 4)), RNG.standard_normal((3, 4))
    np.testing.assert_array_equal(bc.product("x + r")(a, b, alpha=0.0, r=r), r)
    np.testing.assert_array_equal(bc.product("x + r")(a[:, :0], b[:0], r=r), r)
    assert bc.product("x + r")(a[:0], b, r=r[:0]).shape == (0, 4)


def test_the_output_may_be_an_operand() -> None:
    a, b = RNG.standard_normal((2, 3, 4)), RNG.standard_normal((4, 5))
    r = RNG.standard_normal((2, 3, 5))
    want = bc.product("relu(x) + r")(a, b, r=r)
    assert bc.product("relu(x) + r")(a, b, r=r, out=r) is r
    np.testing.assert_array_equal(r, want)


def test_the_result_may_be_in_the_accumulators_element() -> None:
    a, b = (RNG.standard_normal(s).astype(ElementKind.BF16.dtype) for s in ((4, 8), (8, 6)))
    assert bc.product("relu(x)")(a, b).dtype == a.dtype
    whole = bc.product("relu(x)")(a, b, out_element="float32")
    np.testing.assert_allclose(whole, relu(a.astype(float) @ b.astype(float)), rtol=1e-6, atol=1e-6)


A, B = np.ones((3, 4)), np.ones((4, 5))


@pytest.mark.parametrize(
    ("call", "said", "at"),
    [
        (lambda: bc.product("sillu(x)"), "did you mean silu", "sillu"),
        (lambda: bc.product("y * 2"), "this one has no x", None),
        (lambda: bc.product("x * alpha"), "alpha is a word of products", "alpha"),
        (lambda: bc.product(lambda x, out: x * out), "out is a word of every function here", None),
        (lambda: bc.product("u = x; v = x + 1"), "one value", None),
        (lambda: bc.product("x + r", s=1), "keyword", None),
        (lambda: bc.product("x > 0")(A, B), "gives floats, got bool", "x > 0"),
        (lambda: bc.product("x + r")(A, B), "needs r", None),
        (lambda: bc.product("x + r")(A, B, r=1.0, s=2), "unexpected keyword argument 's'", None),
        (lambda: bc.product("x + r")(A, B, r=np.ones((3, 4))), "broadcast to", None),
        (lambda: bc.product("x + r")(A, B, r=np.ones((2, 3, 5))), "broadcast to", None),
        (lambda: bc.product("x")(A, A), "a has 4 columns and b 3 rows", None),
        (lambda: bc.product("x")(A[0], B), "two axes at least", None),
        (lambda: bc.product("x")(A, B, out=np.ones((3, 4))), "out must have shape", None),
        (lambda: bc.product("x")(A, B.astype(np.float32)), "float32", None),
        (lambda: bc.matmul(A, B, A, epilogue="x"), "c and beta are written into the formula", None),
        (lambda: bc.matmul(A, B, epilogue="x", math_precision="tf32"), "math_precision must be", None),
        (lambda: bc.product("x + r").vjp(A @ B, A, B, r=2.0, wrt="r"), "a number", None),
        (lambda: bc.product("x * r").vjp(A @ B, A, B, r=np.arange(5), wrt="r"), "integers", None),
        (lambda: bc.product("x + r").vjp(A @ B, A, B, r=B[0], wrt="s"), "wrt names", None),
        (lambda: bc.product("elu(-1.0, x)").vjp(A @ B, A, B), "no derivative of elu", None),
    ],
)  # fmt: skip
def test_wrong_calls_say_what_is_wrong(call: Callable[[], Any], said: str, at: str | None) -> None:
    with pytest.raises(bc.BaracudaError) as raised:
        call()
    assert said in str(raised.value)
    if at is not None:
        line, carets = str(raised.value).splitlines()[-2:]
        start = carets.index("^")
        assert line[start : start + carets.count("^")] == at


# -- gradients -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["silu(x + bias) * gate", "tanh(x * bias) + gate * x * s", "x"])
@pytest.mark.parametrize(
    ("left", "right"), [((4, 6), (6, 5)), ((2, 4, 6), (6, 5)), ((4, 6), (3, 6, 5)), ((2, 1, 4, 6), (3, 6, 5))]
)
def test_gradients_are_torchs(text: str, left: tuple[int, ...], right: tuple[int, ...]) -> None:
    torch = pytest.importorskip("torch")
    f = bc.product(text)
    shape = (A0 := np.ones(left) @ np.ones(right)).shape
    arrays: dict[str, Any] = {"bias": RNG.standard_normal(shape[-1]), "gate": RNG.standard_normal((*shape[:-1], 1))}
    arrays = {name: x for name, x in arrays.items() if name in f.inputs}
    numbers: dict[str, Any] = {"s": 0.7} if "s" in f.inputs else {}
    a, b, dy = RNG.standard_normal(left), RNG.standard_normal(right), RNG.standard_normal(A0.shape)
    leaves = {n: torch.tensor(x, requires_grad=True) for n, x in {"a": a, "b": b, **arrays}.items()}
    x = 0.3 * leaves["a"] @ leaves["b"]
    said: Any = eval(text, {"silu": torch.nn.functional.silu, "tanh": torch.tanh, "x": x, **leaves, **numbers})
    wanted = torch.autograd.grad(said, list(leaves.values()), torch.tensor(dy))
    made = f.vjp(dy, a, b, alpha=0.3, **arrays, **numbers)
    for one, other in zip(made, wanted, strict=True):
        assert one.shape == tuple(other.shape)
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-13)
    np.testing.assert_array_equal(f.vjp(dy, a, b, alpha=0.3, wrt="b", **arrays, **numbers), made[1])
    if arrays:
        dgate, da = f.vjp(dy, a, b, alpha=0.3, wrt=("gate", "a"), **arrays, **numbers)
        np.testing.assert_array_equal(da, made[0])
        np.testing.assert_array_equal(dgate, made[-1])


def test_gradients_of_16_bits_are_rounded_at_the_end() -> None:
    kind = ElementKind.BF16
    a, b, bias = (RNG.standard_normal(s).astype(kind.dtype) for s in ((3, 4, 6), (6, 5), (5,)))
    dy = RNG.standard_normal((3, 4, 5)).astype(kind.dtype)
    f = bc.product("silu(x + bias)")
    exact = f.vjp(*(x.astype(float) for x in (dy, a, b)), bias=bias.astype(float))
    for one, other in zip(f.vjp(dy, a, b, bias=bias), exact, strict=True):
        assert one.dtype == kind.dtype
        np.testing.assert_allclose(one.astype(float), other, rtol=0.02, atol=0.02 * np.abs(other).max())


# -- kernels -------------------------------------------------------------------------------------------------------

ROWS = (
    ("wgmma", "bfloat16"), ("mma", "float16"), ("mma", "bfloat16"), ("simt", "float32"), ("simt", "float64"),
    ("simt", "float16"), ("mma_split", "bfloat16"),
)  # fmt: skip
DEEP = 1040  # a k of more than one piece


def on_row(plan: type[bc.Plan], row: str, desc: Any, numbers: dict[str, Any], **arrays: np.ndarray) -> np.ndarray:
    """y as an emulated row computes it; arrays holds it too."""
    with emulating() as emulator:
        chosen = plan(desc, bc.PlanPreference(), emulated_device(9.0, 100 if row == "mma_split" else 3))
        chosen.rows = tuple(one for one in chosen.rows if one.name == row)
        args = plan.args(**{name: pointer_view(x) for name, x in arrays.items()}, **numbers)
        verdict = chosen.can_implement(args)
        assert verdict, verdict
        chosen.run(args)
        assert not emulator.overrun()
    return arrays["y"]


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(
    ("text", "builtin"),
    [("silu(x + bias)", {"activation": "silu"}), ("gelu_tanh(x + bias) + residual", {"activation": "gelu_tanh"}),
     ("relu(x + bias) + residual", {"activation": "relu"}), ("gelu(x + bias)", {"activation": "gelu"}),
     ("x + bias", {})],
)  # fmt: skip
@pytest.mark.parametrize(("row", "name"), ROWS)
def test_a_formula_of_built_ins_has_the_bits_of_the_built_in(
    row: str, name: str, text: str, builtin: dict[str, Any]
) -> None:
    kind, (m, n, k) = ElementKind.of(name), (37, 72, DEEP if row == "mma_split" else 40)
    # A curved activation of a 16-bit output is only as accurate as that: there the accumulators' bits are compared.
    out = kind if builtin.get("activation") in (None, "relu") else kind.acc
    a, b, bias = (RNG.standard_normal(s).astype(kind.dtype) for s in ((m, k), (k, n), (n,)))
    arrays = {"a": a, "b": b, "bias": bias}
    if "residual" in text:
        arrays["residual"] = RNG.standard_normal((m, n)).astype(out.dtype)
    desc = bc.GemmDescriptor(m=m, n=n, k=k, element=kind, out_element=out, **builtin)
    want = on_row(bc.GemmPlan, row, desc, {"alpha": 0.7}, **arrays, y=np.zeros((m, n), out.dtype))
    f = bc.product(text.replace("residual", "r"))
    elements = {"r_element": out} if "residual" in arrays else {}
    if "residual" in arrays:
        arrays["r"] = arrays.pop("residual")
    plan: Any = f.plan()
    made = plan.descriptor(m=m, n=n, k=k, element=kind, out_element=out, **elements)
    got = on_row(plan, row, made, {"alpha": 0.7}, **arrays, y=np.zeros((m, n), out.dtype))
    assert np.count_nonzero(want) > want.size // 3 and got.tobytes() == want.tobytes()


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("row", "name"), ROWS)
def test_every_row_reads_operands_by_their_strides(row: str, name: str, turned: bool) -> None:
    """A vector, a column, a batch of numbers, a shifted matrix and a transposed one, over partial tiles."""
    kind, (g, m, n, k) = ElementKind.of(name), (2, 70, 139, DEEP if row == "mma_split" else 24)
    a, b = (RNG.standard_normal(s).astype(kind.dtype) for s in ((g, m, k), (g, n, k)))
    b = np.swapaxes(b, 1, 2)
    given = {
        "v": RNG.standard_normal(n).astype(kind.dtype), "h": RNG.standard_normal((m, 1)).astype(np.float32),
        "e": RNG.standard_normal((g, 1, 1)).astype(kind.dtype), "w": RNG.standard_normal((m, n + 1))[:, 1:] > 0,
        "r": np.swapaxes(RNG.standard_normal((g, n, m)), 1, 2).astype(kind.dtype),
    }  # fmt: skip
    plan: Any = bc.product("where(w, x + v, h * x) * e + s * r").plan(s=float)
    elements = {f"{name}_element": ElementKind.of(x.dtype) for name, x in given.items()}
    desc = plan.descriptor(batch_shape=(g,), m=m, n=n, k=k, element=kind, **elements)
    y = np.zeros((g, n, m) if turned else (g, m, n), kind.dtype)
    y = np.swapaxes(y, 1, 2) if turned else y
    got = on_row(plan, row, desc, {"s": 0.5, "alpha": 1.5}, a=a, b=b, y=y, **given)
    whole = {name: x if x.dtype == bool else x.astype(float) for name, x in given.items()}
    x = 1.5 * (a.astype(float) @ b.astype(float))
    v, h, e, w, r = (whole[name] for name in "vhewr")
    want = np.where(w, x + v, h * x) * e + 0.5 * r
    eps = float(kind.limits.eps)
    np.testing.assert_allclose(
        got.astype(float), want, rtol=2 * eps, atol=64 * float(kind.acc.limits.eps) * np.abs(want).max()
    )


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(("row", "name"), ROWS[:1] + ROWS[2:4])
def test_kernels_write_over_an_operand(row: str, name: str) -> None:
    kind, (m, n, k) = ElementKind.of(name), (70, 136, 16)
    a, b, r = (RNG.standard_normal(s).astype(kind.dtype) for s in ((m, k), (k, n), (m, n)))
    plan: Any = bc.product("silu(x) * r").plan()
    desc = plan.descriptor(m=m, n=n, k=k, element=kind)
    want = on_row(plan, row, desc, {}, a=a, b=b, r=r, y=np.zeros((m, n), kind.dtype))
    assert on_row(plan, row, desc, {}, a=a, b=b, r=r, y=r).tobytes() == want.tobytes()


CHECKED: dict[str, tuple[str, dict[str, Any]]] = {
    "gate": ("silu(x + bias) * gate * s", {"s": float}),
    "plain": ("gelu(x)", {}),
    "choice": ("where(x > r, x, cut)", {"cut": int}),
}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", CHECKED)
def test_they_pass_the_checks_of_all_ops(name: str, check: object) -> None:
    text, roles = CHECKED[name]
    plan = bc.product(text).plan(**roles)
    if getattr(check, "applies", lambda plan: True)(plan):
        exercise(plan, check, examples=1)  # type: ignore[arg-type]


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("name", CHECKED)
def test_kernels_compute_them(name: str) -> None:
    text, roles = CHECKED[name]
    exercise(bc.product(text).plan(**roles), emulated, examples=2, seeded=False)


def test_they_are_pickled_and_compared() -> None:
    f = bc.product("silu(x + bias) * s", s=2.0)
    assert pickle.loads(pickle.dumps(f)) == f != bc.product("silu(x + bias) * s")
    plan: Any = f.plan()
    assert pickle.loads(pickle.dumps(plan)) is plan
    desc = plan.descriptor(m=3, n=8, k=16, element="bfloat16")
    assert pickle.loads(pickle.dumps(desc)) == desc
    chosen = plan.select(desc, device=bc.fake_device(9.0))
    assert chosen.sku.variant == "wgmma" and plan.shape.digest in str(chosen.sku)


def test_autograd_is_refused_and_not_cut() -> None:
    torch = pytest.importorskip("torch")
    a, b = torch.ones(3, 4, requires_grad=True), torch.ones(4, 5)
    with pytest.raises(bc.UnsupportedError, match="no gradient"):
        bc.product("silu(x)")(a, b)
    assert bc.product("silu(x)")(a.detach(), b).shape == (3, 5)
