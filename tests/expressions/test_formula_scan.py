"""Scans of formulas: what they compute, their two spellings, recurrences, gradients, errors, checks and kernels."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.preference import PlanPreference
from baracuda_py.expressions.affine import affine
from baracuda_py.expressions.parse import parse
from baracuda_py.expressions.show import shown
from baracuda_py.expressions.signature import Signature
from baracuda_py.testing import CHECKS, emulate, emulated, exercise
from baracuda_py.testing.draw import fill
from baracuda_py.testing.emulator import emulated_device
from baracuda_py.testing.operands import operands

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((4, 3, 40)), RNG.standard_normal(40) + 2


def test_a_formula_calls_its_scan_or_is_told_it() -> None:
    energy = bc.scan("sqrt(cumsum(x * x) + eps)", eps=1e-6)
    wanted = np.sqrt(np.cumsum(X * X, -1) + 1e-6)
    np.testing.assert_allclose(energy(X), wanted, rtol=1e-14)
    same = bc.scan("x * x", "cumsum", then="sqrt(cumsum + eps)")
    np.testing.assert_array_equal(energy(X), same(X, 1e-6))
    np.testing.assert_allclose(bc.scan(lambda x, y: x * y, "cumsum", axis=0)(X, Y), np.cumsum(X * Y, 0), rtol=1e-13)
    np.testing.assert_allclose(bc.scan("cumulative_prod(y / 2)")(Y), np.cumprod(Y / 2), rtol=1e-13)
    np.testing.assert_array_equal(bc.scan("cummax(-x)")(X), np.maximum.accumulate(-X, -1))
    np.testing.assert_array_equal(bc.scan("cumsum(i % 3)")(np.arange(9, dtype=np.int8)), np.cumsum(np.arange(9) % 3))


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("exclusive", [False, True])
def test_options_are_those_of_the_scan(axis: int, reverse: bool, exclusive: bool) -> None:
    got = bc.scan("x * y", "cumsum", axis=axis, reverse=reverse, exclusive=exclusive)(X, Y)
    wanted = bc.cumsum(X * Y, axis=axis, reverse=reverse, exclusive=exclusive)
    np.testing.assert_allclose(got, wanted, rtol=1e-13, atol=1e-13)


def test_halves_are_rounded_after_the_last_formula() -> None:
    x = np.full(4096, 1.001, np.float32).astype(ml_dtypes.bfloat16)
    exact = np.arange(1, 4097) * float(x[0]) - 2000
    np.testing.assert_array_equal(bc.scan("cumsum(x) - 2000")(x), exact.astype(ml_dtypes.bfloat16))


def test_a_stream_goes_on_from_its_carry() -> None:
    f = bc.scan("gamma * h + x", "recurrence", gamma=0.9)
    whole = f(X)
    first, carry = f(X[..., :17], return_carry=True)
    second, last = f(X[..., 17:], initial=carry, return_carry=True)
    np.testing.assert_allclose(np.concatenate([first, second], -1), whole, rtol=1e-13)
    np.testing.assert_array_equal(last, second[..., -1])
    top = bc.scan("cummax(x)")
    np.testing.assert_array_equal(top(X, initial=np.full((4, 3), 5.0)), np.full_like(X, 5.0))


@pytest.mark.parametrize(
    ("text", "linear"),
    [
        ("gamma * h + x", "term = x; factor = gamma"), ("h + a * (x - h)", "term = a * x; factor = 1 + a * -1"),
        ("where(m, 0, g) * h + x", "term = x; factor = where(m, 0, g)"), ("x", "term = x; factor = 0"),
        ("where(m, x, lerp(h, x, w))", "term = where(m, x, w * x); factor = where(m, 0, 1 - w)"),
        ("-h / 2 + fma(a, h, x)", "term = x; factor = -0.5 + a"),
    ],
)  # fmt: skip
def test_a_recurrence_is_taken_apart(text: str, linear: str) -> None:
    assert shown(affine(parse(text), "h").outputs)[0].replace("\n", "; ") == linear


def test_recurrences_are_step_by_step() -> None:
    done = RNG.random(X.shape) < 0.1
    returns = bc.scan("where(done, 0, gamma) * h + x", "recurrence", reverse=True, gamma=0.99)
    average = bc.scan(lambda h, x, alpha: h + alpha * (x - h), "recurrence", then="h * 2")
    run, mean = np.zeros(X.shape[:-1]), np.zeros(X.shape[:-1])
    wanted, means = np.empty_like(X), np.empty_like(X)
    for t in range(X.shape[-1]):
        back = X.shape[-1] - 1 - t
        run = wanted[..., back] = np.where(done[..., back], 0, 0.99) * run + X[..., back]
        mean = mean + 0.25 * (X[..., t] - mean)
        means[..., t] = 2 * mean
    np.testing.assert_allclose(returns(done, X), wanted, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(average(X, alpha=0.25), means, rtol=1e-12, atol=1e-13)


TORCH: dict[str, Callable[[Any, Any], Any]] = {
    "cumsum": lambda torch, v: v.cumsum(-1), "cumprod": lambda torch, v: v.cumprod(-1),
    "logcumsumexp": lambda torch, v: torch.logcumsumexp(v, -1), "cummax": lambda torch, v: torch.cummax(v, -1).values,
    "cummin": lambda torch, v: torch.cummin(v, -1).values, "nancumsum": lambda torch, v: torch.nan_to_num(v).cumsum(-1),
    "nancumprod": lambda torch, v: torch.where(v.isnan(), 1.0, v).cumprod(-1),
}  # fmt: skip


@pytest.mark.parametrize("kind", TORCH)
@pytest.mark.parametrize("then", ["{0}", "tanh({0}) * n"])
def test_gradients_are_those_of_torch(kind: str, then: str) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    x, y = torch.randn(3, 30, dtype=torch.float64), torch.rand(30, dtype=torch.float64) + 0.5
    x[0, 3] = float("nan") if kind.startswith("nan") else 0.0
    a, b = x.clone().requires_grad_(), y.clone().requires_grad_()
    value = TORCH[kind](torch, a * b)
    result = value if then == "{0}" else torch.tanh(value) * 2.0
    dy = torch.randn_like(result)
    wanted = torch.autograd.grad(result, (a, b), dy)
    f = bc.scan("x * y", kind, then=then.format(kind))
    got = f.vjp(dy, x, y, *([2.0] if "n" in f.inputs else []))
    for one, other in zip(got, wanted, strict=True):
        keep = ~(torch.isnan(other) | torch.isnan(one))  # of a NaN itself
        torch.testing.assert_close(one[keep], other[keep], rtol=1e-9, atol=1e-11)
    only = f.vjp(dy, x, y, *([2.0] if "n" in f.inputs else []), wrt="x")
    assert torch.equal(torch.nan_to_num(only), torch.nan_to_num(got[0]))


@pytest.mark.parametrize("reverse", [False, True])
def test_gradients_of_recurrences_are_those_of_torch(reverse: bool) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    x, w = torch.randn(3, 20, dtype=torch.float64), torch.rand(3, 20, dtype=torch.float64)
    first = torch.randn(3, dtype=torch.float64)
    a, b = x.clone().requires_grad_(), w.clone().requires_grad_()
    h, states = first, []
    for t in reversed(range(20)) if reverse else range(20):
        h = h + b[:, t] * (a[:, t] - h)
        states.append(h)
    result = torch.stack(states[::-1] if reverse else states, -1)
    dy = torch.randn_like(result)
    f = bc.scan("h + w * (x - h)", "recurrence", reverse=reverse)
    torch.testing.assert_close(f(w, x, initial=first), result.detach())
    for one, other in zip(f.vjp(dy, w, x, initial=first), torch.autograd.grad(result, (b, a), dy), strict=True):
        torch.testing.assert_close(one, other)


def test_gradients_of_halves_are_of_their_own_element() -> None:
    x = X.astype(ml_dtypes.bfloat16)
    f = bc.scan("sqrt(cumsum(x * x) + eps)", eps=1e-3)
    dx = f.vjp(np.ones_like(x), x)
    wide = f.vjp(np.ones(x.shape), x.astype(np.float64))
    assert dx.dtype == x.dtype
    np.testing.assert_allclose(dx.astype(np.float64), wide, rtol=2**-8, atol=2e-3)


@pytest.mark.parametrize(
    ("call", "said", "at"),
    [
        (lambda: bc.scan("cumsum(x) + cummax(x)"), "one scan", "cummax(x)"), (lambda: bc.scan("x + 1"), "got 0", None),
        (lambda: bc.scan("x", "cumsom"), "did you mean cumsum", None), (lambda: bc.scan("x"), "got 0", None),
        (lambda: bc.scan("cumsum(x) * y")(X, Y), "outside the scan", "y"), (lambda: bc.scan(lambda x: x), "kind", None),
        (lambda: bc.scan("x", "cumsum", then="x + 1"), "does not use it", "x"),
        (lambda: bc.scan("x * h * h", "recurrence"), "linear in h", "x * h * h"),
        (lambda: bc.scan("floor(h) + x", "recurrence"), "linear in h", "floor(h)"),
        (lambda: bc.scan("x / h", "recurrence"), "linear in h", "x / h"),
        (lambda: bc.scan("cumsum(x)", axis=5)(X), "axis must be in", None),
        (lambda: bc.scan("cummax(x)", exclusive=True)(X), "inclusive", None),
        (lambda: bc.scan("a + b + c + d + e", "cumsum")(X, X, X, X, X), "at most 4 arrays", None),
        (lambda: bc.scan("cumsum(x * axis)"), "a word of scans", "axis"),
        (lambda: bc.scan("logcumsumexp(i)")(np.ones(3, int)), "logcumsumexp of int64", "i"),
        (lambda: bc.scan("cumsum(x)")(X, initial=np.ones(3)), "initial must have shape (4, 3)", None),
        (lambda: bc.scan("cumsum(x)").vjp(X, X, wrt="y"), "wrt names 'y'", None),
        (lambda: bc.scan("cummax(x)").vjp(X, X, initial=X[..., 0]), "no gradient here", None),
    ],
)  # fmt: skip
def test_wrong_scans_say_what_is_wrong(call: Callable[[], Any], said: str, at: str | None) -> None:
    with pytest.raises(bc.BaracudaError) as raised:
        call()
    assert said in str(raised.value)
    if at is not None:
        line, carets = str(raised.value).splitlines()[-2:]
        start = carets.index("^")
        assert line[start : start + carets.count("^")] == at


def test_they_are_pickled_and_compared() -> None:
    f = bc.scan("sqrt(cumsum(x * x) + eps)", eps=1e-6)
    assert pickle.loads(pickle.dumps(f)) == f != bc.scan("cumsum(x)")
    plan = f.plan()
    assert pickle.loads(pickle.dumps(plan)) is plan
    desc = plan.descriptor(shape=(2, 3), element="float16")
    assert pickle.loads(pickle.dumps(desc)) == desc and desc.kept_shape == (2,)


SCANS: tuple[tuple[str, str | None, dict[str, Any]], ...] = (
    ("sqrt(cumsum(x * x) + eps)", None, {"eps": float}), ("where(m, x, 0) * y", "cumprod", {}),
    ("logcumsumexp(x - y)", None, {}), ("cummax(x * n)", None, {"n": int}), ("nancumsum(where(m, x, nan))", None, {}),
    ("where(done, 0, gamma) * h + x", "recurrence", {"gamma": float}), ("cumsum(i % 5 + j)", None, {}),
    ("float64(cumsum(x * y + z - w))", None, {}),
)  # fmt: skip


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize(("text", "kind", "roles"), SCANS, ids=[text for text, _, _ in SCANS])
def test_scans_pass_the_checks_of_all_ops(text: str, kind: str | None, roles: dict[str, Any], check: object) -> None:
    plan = bc.scan(text, kind).plan(**roles)
    if getattr(check, "applies", lambda plan: True)(plan):
        exercise(plan, check, examples=2)  # type: ignore[arg-type]


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(("text", "kind", "roles"), SCANS, ids=[text for text, _, _ in SCANS])
def test_kernels_of_scans_compute_them(text: str, kind: str | None, roles: dict[str, Any]) -> None:
    exercise(bc.scan(text, kind).plan(**roles), emulated, examples=2, seeded=False)


RETURNS = bc.scan("where(done, 0, gamma) * h + x", "recurrence").plan(gamma=float)
MIXED = bc.scan("float64(cumsum(x * y + z - w))").plan()
TOP, BOTTOM = (bc.scan(f"{kind}(x * n)").plan(n=int) for kind in ("cummax", "cummin"))
COLUMNS: tuple[tuple[type[bc.Plan], str, tuple[int, int]], ...] = (
    (MIXED, "float32 bool float32 float32", (300, 33)), (MIXED, "bool float32 bool float32", (300, 32)),
    (MIXED, "float32 bfloat16 float32 float32", (1100, 33)), (MIXED, "bfloat16 float32 float32 float32", (40, 33)),
    (MIXED, "int8 float64 float16 bool", (300, 34)), (MIXED, "float64 int8 float16 bool", (300, 34)),
    (RETURNS, "float16 float64", (40, 33)), (RETURNS, "bool float32", (1100, 36)), (RETURNS, "bool float16", (300, 40)),
    (RETURNS, "uint8 float64", (4200, 8)), (TOP, "uint8", (4200, 8)), (TOP, "uint8", (300, 33)),
    (BOTTOM, "int8", (300, 36)), (TOP, "int16", (300, 33)), (BOTTOM, "uint32", (40, 33)),
)  # fmt: skip


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("plan", "elements", "shape"), COLUMNS)
def test_columns_of_mixed_elements(
    plan: Any, elements: str, shape: tuple[int, int], reverse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows side by side, of operands of several sizes: every column, from any initial; the same bits as if they were
    apart."""
    kind = Signature(tuple(map(bc.ElementKind, elements.split())))
    names = [f"{name}_element" for name in plan.shape.arrays[1:]]
    facts = dict(zip(["element", *names], kind.elements, strict=True))
    desc = plan.descriptor(shape=shape, axis=0, reverse=reverse, **facts)
    case = fill(plan, desc, np.random.default_rng(0), kind=kind)
    found = []
    for beside in (True, False):
        if not beside:
            monkeypatch.setattr("baracuda_py.schedules.scan._beside", lambda *args: False)
        ready = operands(case)
        emulate(plan(desc, PlanPreference(), emulated_device(9.0)), ready)
        found.append([one.view.tobytes() for spec, _, one in ready.items() if spec.writes])
    assert found[0] == found[1]
