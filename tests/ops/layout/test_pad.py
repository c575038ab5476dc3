"""pad, roll and their gradients: as torch, NumPy and JAX have them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.ops.layout.pad import PadDescriptor, PadPlan, source
from baracuda_py.ops.layout.pad_backward import PadBackwardDescriptor, PadBackwardPlan
from baracuda_py.schedules.pad import MODES
from baracuda_py.testing.places import call

torch = pytest.importorskip("torch")
RNG = np.random.default_rng(3)
NUMPY = {"constant": {}, "reflect": {}, "symmetric": {}, "edge": {}, "wrap": {}}
WIDTHS = (((0, 0), (0, 0)), ((1, 2), (0, 0)), ((3, 0), (2, 5)), ((9, 11), (13, 4)))


@pytest.mark.parametrize("mode", NUMPY)
@pytest.mark.parametrize("widths", WIDTHS)
def test_it_is_numpys(mode: str, widths: Any) -> None:
    for shape in ((3, 4), (1, 2), (4, 1)):
        for dtype in (np.float32, np.int16, np.bool_, np.complex128):
            x = (np.arange(shape[0] * shape[1]).reshape(shape) * 7 % 5).astype(dtype)
            want = np.pad(x, widths, mode=mode)
            got = bc.pad(x, widths, mode)
            assert got.dtype == want.dtype and np.array_equal(got, want), (shape, dtype)


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("pad", [(1, 2), (2, 1, 3, 0), (0, -1, 2, 2), (-1, -2), (-2, 1, 1, -1)])
def test_it_is_torchs(mode: str, pad: tuple[int, ...]) -> None:
    pytest.importorskip("baracuda_py.torch")
    x = torch.randn(2, 3, 5, 6, dtype=torch.float64, requires_grad=True)
    inner = x if len(pad) == 4 or mode == "constant" else x[0]
    want = torch.nn.functional.pad(inner, pad, mode=mode)
    got = bc.pad(inner, pad, mode)
    assert torch.equal(got, want)
    dy = torch.randn_like(want)
    (expected,), (found,) = torch.autograd.grad(want, x, dy), torch.autograd.grad(got, x, dy)
    assert torch.allclose(found, expected, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("mode", ["reflect", "symmetric", "replicate", "circular"])
@pytest.mark.parametrize("widths", [((5, 7), (4, 0)), ((-1, 4), (0, 9)), ((0, 0), (-2, 2))])
def test_gradients_of_long_paddings(mode: str, widths: Any) -> None:
    x = np.arange(1.0, 13.0).reshape(3, 4)
    desc = bc.PadDescriptor(shape=x.shape, padding=widths, mode=mode, element="float64")
    y = np.empty(desc.out_shape)
    bc.PadPlan.select(desc, device="cpu")(x=x, y=y)
    dy = np.random.default_rng(3).integers(-9, 9, y.shape).astype(np.float64)
    dx = bc.pad_backward(dy, shape=x.shape, padding=widths, mode=mode)
    want = np.zeros(13)
    np.add.at(want, y.astype(int).ravel(), dy.ravel())  # each value tells the element it was
    assert np.array_equal(dx.ravel(), want[1:])


def test_values() -> None:
    x = np.ones((2, 3), np.float32)
    assert np.array_equal(bc.pad(x, 1, value=-np.inf), np.pad(x, 1, constant_values=-np.inf))
    assert np.array_equal(bc.pad(x.astype(np.int64), (1, 0), value=2**60 + 1)[0], [2**60 + 1, 1, 1, 1])
    assert np.array_equal(bc.pad(x.astype(np.complex64), (0, 1), value=1 - 2j)[:, -1], [1 - 2j] * 2)
    assert np.array_equal(bc.pad(np.zeros((0, 2)), ((1, 1), (0, 0)), value=3.0), np.full((2, 2), 3.0))
    eight = bc.cast(x, "float8_e4m3fn")
    assert np.array_equal(bc.pad(eight, (1, 0), value=2.0)[:, 0], bc.cast(2 * x[:, :1], "float8_e4m3fn")[:, 0]) or (
        eight.dtype == np.uint8
    )


def test_lax() -> None:
    jax = pytest.importorskip("jax")
    x = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
    for config in (
        ((1, 2, 0), (0, 1, 2)),
        ((-1, 0, 1), (2, -3, 1)),
        ((0, -9, 3), (1, 1, 0)),
        ((-2, -2, 1), (-3, 0, 2)),
    ):
        want = np.asarray(jax.lax.pad(x, np.float32(7), config))
        assert np.array_equal(bc.pad_in_dim(x, 7, config), want), config
        dy = np.random.default_rng(1).standard_normal(want.shape)
        _, pull = jax.vjp(lambda v, c=config: jax.lax.pad(v, np.float32(7), c), x)
        (expected,) = pull(dy.astype(np.float32))
        facts = {"shape": x.shape, "padding": [c[:2] for c in config], "interior": [c[2] for c in config]}
        assert np.array_equal(bc.pad_backward(dy.astype(np.float32), **facts), np.asarray(expected)), config


@pytest.mark.parametrize(("shifts", "axis"), [(1, 0), (-2, 1), (7, None), ((1, 2), (0, 1)), ((1, 1), (0, 0)), (0, 1)])
def test_roll(shifts: Any, axis: Any) -> None:
    pytest.importorskip("baracuda_py.torch")
    x = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    want, got = torch.roll(x, shifts, axis), bc.roll(x, shifts, axis)
    assert torch.equal(got, want)
    dy = torch.randn_like(want)
    (expected,), (found,) = torch.autograd.grad(want, x, dy), torch.autograd.grad(got, x, dy)
    assert torch.equal(found, expected)


def test_wrong_calls() -> None:
    x = np.ones((2, 3), np.float32)
    for wrong, says in (
        (lambda: bc.pad(x, (1, 2, 3)), "two numbers for each axis"),
        (lambda: bc.pad(x, (0, -4)), "takes more than the 3 elements of axis 1"),
        (lambda: bc.pad(x, 1, "mean"), "mode must be one of"),
        (lambda: bc.pad(np.ones((2, 0)), 1, "reflect"), "no elements to pad with"),
        (lambda: bc.pad(x, 1, value="0"), "value must be a number"),
        (lambda: bc.roll(x, (1, 2), 0), "as many"),
        (lambda: bc.pad_in_dim(x, 0, ((1, 2), (0, 0))), "before, after, between"),
    ):
        with pytest.raises(bc.InvalidProblemError, match=says):
            wrong()
    with pytest.raises(bc.UnsupportedError, match="give its real part"):
        bc.pad(x, 1, value=1j)


PADDINGS = [((0, 0), (1, 1), (1, 1)), ((0, 0), (2, 0), (0, 3)), ((1, 0), (-1, 2), (3, -2)), ((0, 0), (0, 0), (-3, -1))]


@pytest.mark.parametrize("padding", PADDINGS, ids=str)
@pytest.mark.parametrize("mode", MODES)
def test_rows_that_no_piece_divides(mode, padding, place):
    """Rows of 37 elements: pieces within a row, at its end and across two, and gradients read once or twice."""
    shape = (3, 11, 37)
    x = RNG.integers(-99, 99, shape).astype(np.float16)
    desc = PadDescriptor(shape=shape, padding=padding, mode=mode, value=7.0, element="float16")
    y = call(PadPlan, desc, ["y"], place, x=x)["y"]
    wanted = np.array(x)
    for axis in range(3):
        index, held = source(desc, axis)
        kept = held.reshape(-1, *(1,) * (2 - axis))
        wanted = np.where(kept, np.take(wanted, index, axis), np.float16(7))
    np.testing.assert_array_equal(y, wanted)
    dy = RNG.integers(-9, 9, desc.out_shape).astype(np.float32)
    back = PadBackwardDescriptor(shape=shape, padding=padding, mode=mode, element="float32")
    dx = call(PadBackwardPlan, back, ["dx"], place, dy=dy)["dx"]
    total = dy
    for axis, n in enumerate(shape):
        index, held = source(desc, axis)
        part = np.zeros((n, *total.shape[:axis], *total.shape[axis + 1 :]), np.float32)
        np.add.at(part, index[held], np.moveaxis(total, axis, 0)[held])
        total = np.moveaxis(part, 0, axis)
    np.testing.assert_array_equal(dx, total)
