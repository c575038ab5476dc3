"""Formulas as epilogues of convolutions: bits beside built-in epilogues, codes that saturate, kernels, gradients."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.element import ElementKind
from baracuda_py.testing import CHECKS, emulated, exercise
from baracuda_py.testing.emulator import emulated_device, emulating
from baracuda_py.testing.recording import pointer_view

RNG = np.random.default_rng(0)


def drawn(*shape: int, dtype: Any = np.float64) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


GIVEN = {"stride": (2, 1), "padding": (1, (0, 2)), "dilation": (1, 2), "groups": 2}


def test_it_is_conv_nds() -> None:
    x, w, bias = drawn(2, 6, 9, 7), drawn(8, 3, 3, 2), drawn(8)
    sums = bc.conv_nd(x, w, **GIVEN)
    r = drawn(*sums.shape)
    f = bc.conv_formula("relu(x + bias) * s + r")
    want = np.maximum(sums + bias[:, None, None], 0) * 0.5 + r
    np.testing.assert_array_equal(f(x, w, bias=bias, r=r, s=0.5, **GIVEN), want)
    np.testing.assert_array_equal(f(x, w, bias=bias[:, None, None], r=r, s=np.array(0.5), **GIVEN), want)
    np.testing.assert_array_equal(f(x[0], w, bias=bias, r=r[0], s=0.5, **GIVEN), want[0])
    assert f(x, w, bias=bias, r=r, s=0.5, **GIVEN, out=r) is r
    np.testing.assert_array_equal(r, want)
    assert bc.conv_formula("relu(x + bias) * s + r") is f


@pytest.mark.parametrize("out", ["int8", "uint8", "float8_e4m3fn", "float8_e5m2"])
def test_codes_saturate(out: str) -> None:
    x, w = drawn(1, 3, 5, 5, dtype=np.float32), drawn(4, 3, 3, 3, dtype=np.float32)
    x[0, 0, 0, 0] = np.nan
    scale = np.array([1e-3, 0.02, 0.05, 1.0], np.float32)
    got = bc.conv_formula("x / scale + 0.0")(x, w, scale=scale, out_element=out)
    with np.errstate(invalid="ignore"):
        want = bc.conv_nd(x.astype(float), w.astype(float)) / scale[:, None, None]
    if out.startswith("float8"):
        top = float(ml_dtypes.finfo(out).max)
        want = np.clip(want, -top, top).astype(np.float32).astype(out).astype(float)
        got = np.asarray(got).view(out).astype(float)
    else:
        limits = np.iinfo(out)
        want = np.rint(np.clip(np.where(np.isnan(want), 0, want), limits.min, limits.max))
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda x, w: bc.conv_formula("y * 2"), "no x"),
        (lambda x, w: bc.conv_formula("x * stride"), "stride is a word"),
        (lambda x, w: bc.conv_formula("x + r")(x, w), "needs r"),
        (lambda x, w: bc.conv_formula("x + r")(x, w, r=np.ones((3, 3))), "broadcast to"),
        (lambda x, w: bc.conv_formula("x > 0")(x, w), "a convolution's formula gives floats"),
        (lambda x, w: bc.conv_formula("x")(x, w, out_element="int8"), "out_element must be"),
        (lambda x, w: bc.conv_formula("x")(x, w, out_element="int64"), "out_element must be"),
        (lambda x, w: bc.conv_formula("x * r").vjp(x, x, w, r=2.0, wrt="r"), "a number"),
        (lambda x, w: bc.conv_formula("elu(-1.0, x)").vjp(np.ones((1, 4, 4, 4)), x, w), "no derivative of elu"),
    ],
)
def test_wrong_calls_say_what_is_wrong(call: Callable[..., Any], said: str) -> None:
    with pytest.raises(bc.BaracudaError) as raised:
        call(np.ones((1, 3, 5, 5)), np.ones((4, 3, 2, 2)))
    assert said in str(raised.value)


@pytest.mark.parametrize("transposed", [False, True])
def test_gradients_are_torchs(transposed: bool) -> None:
    torch = pytest.importorskip("torch")
    x, w, bias = drawn(2, 6, 6, 5), drawn(*((6, 4, 3, 2) if transposed else (8, 3, 3, 2))), drawn(8)
    more: dict[str, Any] = {"padding": 1, "groups": 2} | ({"transposed": True} if transposed else {"stride": (2, 1)})
    r = drawn(*bc.conv_nd(x, w, **more).shape[1:])
    f = bc.conv_formula("silu(x + bias) * s + tanh(r)")
    leaves = [torch.tensor(a, requires_grad=True) for a in (x, w, bias, r)]
    if transposed:
        sums = torch.nn.functional.conv_transpose2d(leaves[0], leaves[1], None, 1, (1, 0), 0, 2)
    else:
        sums = torch.nn.functional.conv2d(leaves[0], leaves[1], None, (2, 1), 1, 1, 2)
    y = torch.nn.functional.silu(sums + leaves[2][:, None, None]) * 0.3 + torch.tanh(leaves[3])
    dy = drawn(*y.shape)
    wanted = torch.autograd.grad(y, leaves, torch.tensor(dy))
    made = f.vjp(dy, x, w, bias=bias, r=r, s=0.3, **more)
    for one, other in zip(made, wanted, strict=True):
        assert one.shape == tuple(other.shape)
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-12)
    db, dw = f.vjp(dy, x, w, bias=bias, r=r, s=0.3, **more, wrt=("bias", "w"))
    np.testing.assert_array_equal(db, made[2]), np.testing.assert_array_equal(dw, made[1])
    np.testing.assert_array_equal(f.vjp(dy, x, w, bias=bias, r=r, s=0.3, **more, wrt="x"), made[0])


# -- kernels -------------------------------------------------------------------------------------------------------


def last(array: np.ndarray) -> np.ndarray:
    """The same numbers, channels last."""
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(array, 1, -1)), -1, 1)


def on_row(plan: Any, row: str, desc: Any, numbers: dict[str, Any], **arrays: np.ndarray) -> np.ndarray:
    """y as an emulated row computes it; arrays holds it too."""
    with emulating() as emulator:
        chosen = plan(desc, bc.PlanPreference(), emulated_device(9.0, 132))
        chosen.rows = tuple(one for one in chosen.rows if one.name == row)
        args = plan.args(**{name: pointer_view(x) for name, x in arrays.items()}, **numbers)
        verdict = chosen.can_implement(args)
        assert verdict, verdict
        chosen.run(args)
        assert not emulator.overrun()
    return arrays["y"]


ROWS = (
    ("wgmma", "bfloat16", 2), ("mma", "float16", 2), ("mma_tf32", "float32", 1), ("simt", "float32", 1),
    ("simt", "bfloat16", 16), ("simt", "float64", 3),
)  # fmt: skip


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("inner", [True, False])
@pytest.mark.parametrize(("row", "name", "groups"), ROWS)
def test_every_row_has_the_bits_of_the_built_in(row: str, name: str, groups: int, inner: bool) -> None:
    kind = ElementKind.of(name)
    own = 1 if groups == 16 else 16
    given: dict[str, Any] = {"shape": (2, groups * own, 5, 6), "filter_shape": (groups * own, own, 3, 3),
                             "padding": 1, "groups": groups, "element": kind,
                             "math_precision": "tf32" if row == "mma_tf32" else "element"}  # fmt: skip
    desc = bc.ConvDescriptor(**given, activation="relu")
    lay = last if inner else np.ascontiguousarray
    x, w = lay(drawn(*desc.shape, dtype=kind.dtype)), lay(drawn(*desc.filter_shape, dtype=kind.dtype))
    bias, r = drawn(desc.out_channels, dtype=kind.dtype), lay(drawn(*desc.out_shape, dtype=kind.dtype))
    y = lay(np.zeros(desc.out_shape, kind.dtype))
    want = on_row(bc.ConvPlan, row, desc, {}, x=x, w=w, bias=bias, z=r, y=y.copy("K")).copy("K")
    plan: Any = bc.conv_formula("relu(x + bias + r)").plan()
    arrays = {"x": x, "w": w, "bias": bias[:, None, None], "r": r}
    got = on_row(plan, row, plan.descriptor(**given), {}, **arrays, y=y.copy("K"))
    assert np.count_nonzero(want) > want.size // 4
    np.testing.assert_array_equal(got.astype(float), want.astype(float))
    if kind is not ElementKind.F64:  # codes of the same sums
        for out in ("int8", "float8_e4m3fn"):
            to = ElementKind.of(out)
            codes: Any = bc.conv_formula("(x + bias + r) * s").plan(s=float)
            made = codes.descriptor(**given, out_element=to, r_element=kind)
            q = on_row(codes, row, made, {"s": 30.0}, **arrays, y=lay(np.zeros(desc.out_shape, to.carrier)))
            single = on_row(codes, row, codes.descriptor(**given, out_element=kind.acc), {"s": 30.0}, **arrays,
                            y=lay(np.zeros(desc.out_shape, kind.acc.dtype)))  # fmt: skip
            if to is ElementKind.I8:
                np.testing.assert_array_equal(q, np.clip(np.rint(single), -128, 127))
            else:
                clipped = np.clip(single, -448, 448).astype(ml_dtypes.float8_e4m3fn)
                np.testing.assert_array_equal(q, clipped.view(np.uint8))


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("inner", [True, False])
@pytest.mark.parametrize(
    ("row", "name", "groups"), [*ROWS[:2], ("mma_tf32", "float32", 1), ("simt", "bfloat16", 16), ("simt", "float64", 3)]
)
@pytest.mark.parametrize(("spread", "kernel"), [((2, 3), (2, 3)), ((2, 3), (3, 2)), ((9, 8), (1, 1))])
def test_spread_inputs(row: str, name: str, groups: int, inner: bool, spread: Any, kernel: Any) -> None:
    """Blocks of phases, phases of which some see nothing, and more than 64 of those, written to one of the operands."""
    if spread[0] > 3 and (row, groups) not in (("simt", 3), ("mma", 2)):
        pytest.skip("many phases in two rows alone")
    kind, own = ElementKind.of(name), 1 if groups == 16 else 16
    given: dict[str, Any] = {"shape": (2, groups * own, 3, 2), "filter_shape": (groups * own, own, *kernel),
                             "padding": ((1, 0), (2, 1)), "input_dilation": spread, "transposed": True,
                             "groups": groups, "element": kind,
                             "math_precision": "tf32" if row == "mma_tf32" else "element"}  # fmt: skip
    desc = bc.ConvDescriptor(**given, activation="relu")
    lay = last if inner else np.ascontiguousarray
    x, w = lay(drawn(*desc.shape, dtype=kind.dtype)), lay(drawn(*desc.filter_shape, dtype=kind.dtype))
    bias, r = drawn(desc.out_channels, dtype=kind.dtype), lay(drawn(*desc.out_shape, dtype=kind.dtype))
    y = lay(np.zeros(desc.out_shape, kind.dtype))
    want = on_row(bc.ConvPlan, row, desc, {}, x=x, w=w, bias=bias, z=r, y=y.copy("K")).copy("K")
    plan: Any = bc.conv_formula("relu(x + bias + r)").plan()
    arrays = {"x": x, "w": w, "bias": bias[:, None, None], "r": r}
    single = on_row(plan, row, plan.descriptor(**given, out_element=kind.acc), {}, **arrays,
                    y=lay(np.zeros(desc.out_shape, kind.acc.dtype))).copy("K")  # fmt: skip
    if kind is not ElementKind.F64:
        codes = on_row(plan, row, plan.descriptor(**given, out_element="uint8"), {}, **arrays,
                       y=lay(np.zeros(desc.out_shape, np.uint8)))  # fmt: skip
        np.testing.assert_array_equal(codes, np.clip(np.rint(single), 0, 255))
    got = on_row(plan, row, plan.descriptor(**given), {}, **arrays, y=r)
    assert np.count_nonzero(want) > want.size // 4
    np.testing.assert_array_equal(got.astype(float), want.astype(float))
    np.testing.assert_array_equal(single.astype(kind.dtype).astype(float), want.astype(float))


CHECKED: dict[str, tuple[str, dict[str, Any]]] = {
    "gate": ("silu(x + bias) * gate * s", {"s": float}), "plain": ("relu(x)", {}),
}  # fmt: skip


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", CHECKED)
def test_they_pass_the_checks_of_all_ops(name: str, check: object) -> None:
    text, roles = CHECKED[name]
    plan = bc.conv_formula(text).plan(**roles)
    if getattr(check, "applies", lambda plan: True)(plan):
        exercise(plan, check, examples=1)  # type: ignore[arg-type]


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("name", CHECKED)
def test_kernels_compute_them(name: str) -> None:
    text, roles = CHECKED[name]
    exercise(bc.conv_formula(text).plan(**roles), emulated, examples=2, seeded=False)


def test_they_are_pickled_and_compared() -> None:
    f = bc.conv_formula("silu(x + bias) * s", s=2.0)
    assert pickle.loads(pickle.dumps(f)) == f != bc.conv_formula("silu(x + bias) * s")
    plan: Any = f.plan()
    desc = plan.descriptor(shape=(1, 8, 4, 4), filter_shape=(8, 8, 3, 3), element="bfloat16")
    assert pickle.loads(pickle.dumps(desc)) == desc and pickle.loads(pickle.dumps(plan)) is plan


@pytest.mark.parametrize("form", ["conv_formula", "conv2d", "compiled"])
def test_autograd_records_them(form: str) -> None:
    """A residual block, bias and activation in one launch, in torch's graph."""
    torch = pytest.importorskip("torch")
    bt = pytest.importorskip("baracuda_py.torch")
    text, leaves = "relu(x + bias + r) * s", []
    for shape in ((2, 4, 6, 5), (6, 4, 3, 3), (6,), (2, 6, 6, 5)):
        leaves.append(torch.tensor(drawn(*shape), requires_grad=True))
    x, w, bias, r = leaves
    f = bc.conv_formula(text)

    def ours(x: Any, w: Any, bias: Any, r: Any) -> Any:
        if form == "conv2d":
            return bt.conv2d(x, w, bias, padding=1, epilogue=text, r=r, s=0.5)
        return f(x, w, bias=bias, r=r, s=0.5, padding=1)

    function = torch.compile(ours, fullgraph=True, backend="aot_eager") if form == "compiled" else ours
    got = function(x, w, bias, r)
    want = torch.relu(torch.nn.functional.conv2d(x, w, bias, padding=1) + r) * 0.5
    torch.testing.assert_close(got, want)
    dy = torch.randn_like(want)
    for one, other in zip(
        torch.autograd.grad(got, leaves, dy), torch.autograd.grad(want, leaves, dy, retain_graph=True), strict=True
    ):
        torch.testing.assert_close(one, other)
    (only,) = torch.autograd.grad(ours(x.detach(), w, bias.detach(), r.detach()).sum(), [w])
    torch.testing.assert_close(only, torch.autograd.grad(want.sum(), [w])[0])


def test_codes_have_no_gradient_and_are_refused() -> None:
    torch = pytest.importorskip("torch")
    x, w = torch.ones(1, 3, 4, 4, requires_grad=True), torch.ones(4, 3, 2, 2)
    for out in ("int8", "float8_e4m3fn"):
        with pytest.raises(bc.UnsupportedError, match="no gradient"):
            bc.conv_formula("silu(x)")(x, w, out_element=out)
    assert bc.conv_formula("silu(x)")(x.detach(), w, out_element="int8").dtype is torch.int8


def test_jax_differentiates_them() -> None:
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        x, w, bias = (jax.numpy.asarray(drawn(*s)) for s in ((2, 4, 6, 5), (6, 4, 3, 3), (6,)))
        f = bc.conv_formula("silu(x + bias)")

        def theirs(x: Any, w: Any, bias: Any) -> Any:
            sums = jax.lax.conv_general_dilated(x, w, (1, 1), [(1, 1), (1, 1)])
            return (jax.nn.silu(sums + bias[:, None, None]) ** 2).sum()

        got = jax.grad(lambda x, w, bias: (f(x, w, bias=bias, padding=1) ** 2).sum(), (0, 1, 2))(x, w, bias)
        for one, other in zip(got, jax.grad(theirs, (0, 1, 2))(x, w, bias), strict=True):
            np.testing.assert_allclose(one, other, atol=1e-10)
