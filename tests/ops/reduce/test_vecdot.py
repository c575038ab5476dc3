"""Reductions of a map of several operands: one tree whatever the layout, operands that broadcast, gradients."""

from typing import Any

import numpy as np
import pytest
from run_emulated import laid_out, run

import baracuda_py as bc
from baracuda_py.core.element import ElementKind, cast
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.ops.reduce.average import (
    AverageBackwardDescriptor, AverageBackwardPlan, AverageDescriptor, AveragePlan,
)  # fmt: skip
from baracuda_py.ops.reduce.vecdot import VecdotBackwardDescriptor, VecdotBackwardPlan, VecdotDescriptor, VecdotPlan

F16, BF16, F32, F64, I8 = (getattr(ElementKind, name) for name in ("F16", "BF16", "F32", "F64", "I8"))


def dotted(a: np.ndarray, b: np.ndarray, axis, sms: int = 132) -> tuple[np.ndarray, list[str]]:
    """y by the kernels on the emulator, and which of them ran."""
    element = ElementKind.of(a.dtype)
    desc = VecdotDescriptor(shape=np.broadcast_shapes(a.shape, b.shape), axis=axis, element=element)
    ran: list[Any] = []
    y = run(VecdotPlan, desc, sms, ran, a=a, b=b)["y"]
    return y, [s.kernel + "".join(f"_{v}" for v in s.axes.values()) + ("_team" * (s.params["team"] > 0)) for s in ran]


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
def test_totals_of_integers_wrap_in_64_bits(dtype: str) -> None:
    """Those of Python, in int64 or (of uint64) uint64; of 64-bit elements NumPy's own."""
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    a, b = np.random.default_rng(5).integers(low, high, (2, 3, 41), dtype, endpoint=True)
    a[0], b[0] = high, low or high  # the largest products there are
    total = np.dtype("uint64" if dtype == "uint64" else "int64")
    wanted = [sum(int(x) * int(y) for x, y in zip(*rows, strict=True)) % 2**64 for rows in zip(a, b, strict=True)]
    for y in (dotted(a, b, -1)[0], bc.vecdot(a, b)):
        assert y.dtype == total and [int(n) % 2**64 for n in y] == wanted
    if dtype.endswith("64"):
        np.testing.assert_array_equal(bc.vecdot(a, b), np.vecdot(a, b), strict=True)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(("element", "n", "across"), [(F32, 300, 12), (BF16, 150, 16), (F64, 4614, 4), (I8, 96, 32)])
def test_a_row_has_the_same_bits_however_its_operands_lie(element, n, across):
    rng = np.random.default_rng(n)

    def drawn(*shape: int) -> np.ndarray:
        if element is I8:
            return rng.integers(-128, 127, shape, np.int8, endpoint=True)
        return cast(rng.standard_normal(shape), element)

    row, other, rest = drawn(n), drawn(n), drawn(across - 1, n)
    rows = np.concatenate([row[None], rest])
    used = set()

    def take(a, b, axis, sms=132):
        y, names = dotted(a, b, axis, sms)
        used.update(names)
        return np.ravel(y)[0].tobytes()

    wide = laid_out(rows, (n + 16, 1))
    wanted = take(laid_out(row, (1,)), laid_out(other, (1,)), None)
    assert take(wide, laid_out(other, (1,)), -1) == wanted  # b broadcast along rows
    assert take(wide, laid_out(other, (1,)), -1, sms=1) == wanted
    assert take(laid_out(other, (1,)), wide, -1) == wanted
    assert take(wide, laid_out(other, (1,), 1), -1) == wanted  # b is not aligned
    assert take(wide, laid_out(other, (3,)), -1, sms=1) == wanted  # nor dense
    assert take(laid_out(rows, (n + 1, 1), 1), laid_out(other, (1,)), -1) == wanted
    assert (
        take(laid_out(rows.T, (across, 1)), laid_out(other[:, None], (1, 1)), 0) == wanted
    )  # down columns, b one a row
    assert take(laid_out(rows.T, (across + 1, 1), 1), laid_out(other[:, None], (2, 1)), 0) == wanted
    both = np.repeat(other[:, None], across, 1)
    assert take(laid_out(rows.T, (across, 1)), laid_out(both, (across, 1)), 0) == wanted
    assert take(laid_out(rows.T, (across, 1)), laid_out(both, (1, n)), 0) == wanted  # one lies by rows, one by columns
    folded = laid_out(rows.reshape(across, n // 6, 6), (n + n // 6 * 2, 8, 1))
    assert take(folded, laid_out(other.reshape(n // 6, 6), (6, 1)), (1, 2)) == wanted
    if element is not I8:
        assert used >= {"rows_True", "rows_any_False", f"columns_{2 if element is F64 else 4}", "columns_1"}, used


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("element", [F16, F32, F64], ids=str)
@pytest.mark.parametrize("sms", [1, 132])
def test_operands_that_stay_where_they_are(element, sms):
    """Strides of 0 along kept axes, reduced axes, some of several and all of them."""
    rng = np.random.default_rng(0)
    shape = (3, 40, 64)
    for a_shape, b_shape in ((shape, (64,)), (shape, (40, 1)), ((3, 1, 1), shape), ((40, 64), (3, 1, 1)),
                             ((1, 1, 64), (40, 1)), ((1,), (3, 40, 64))):  # fmt: skip
        a, b = (cast(rng.standard_normal(s), element) for s in (a_shape, b_shape))
        for axis in ((), (0,), (1,), (2,), (0, 2), (1, 2), None):
            a0, b0 = np.broadcast_to(a, np.broadcast_shapes(a_shape, b_shape)), b
            y, _ = dotted(a, b, axis, sms)
            product = a0.astype(np.float64) * b0.astype(np.float64)
            axes = tuple(range(product.ndim)) if axis is None else axis
            truth, size = product.sum(axis=axes), np.abs(product).sum(axis=axes)
            step = np.maximum(np.abs(truth) * element.limits.eps, element.limits.tiny)  # subnormals lie evenly
            allowed = 57 * element.acc.limits.eps * size + step
            assert (np.abs(y.astype(np.float64) - truth) <= allowed).all()


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(
    ("a_shape", "b_shape"), [((5, 48), (48,)), ((5, 1, 48), (7, 48)), ((1, 48), (5, 1)), ((48,), ())]
)
def test_gradients_are_summed_over_the_axes_that_broadcast(a_shape, b_shape):
    rng = np.random.default_rng(1)
    shape = np.broadcast_shapes(a_shape, b_shape)
    desc = VecdotBackwardDescriptor(shape=shape, axis=-1, element=F32)
    dy, a, b = (rng.integers(-8, 9, s).astype(np.float32) for s in (desc.result_shape, a_shape, b_shape))
    da, db = np.full(a_shape, 77, np.float32), np.full(b_shape, 77, np.float32)
    run(VecdotBackwardPlan, desc, dy=dy, a=a, b=b, da=da, db=db)
    wanted = bc.vecdot_backward(dy, a, b)
    np.testing.assert_array_equal(da, wanted[0])
    np.testing.assert_array_equal(db, wanted[1])


def test_dot_takes_two_vectors():
    a, b = np.arange(5, dtype=np.float32), np.ones(5, np.float32)
    assert bc.dot(a, b) == 10
    assert bc.vecdot(np.full(3, 100, np.int8), np.full(3, 100, np.int8)) == 30000
    for bad in (np.ones(4, np.float32), np.ones((5, 1), np.float32)):
        with pytest.raises(InvalidProblemError, match="two vectors"):
            bc.dot(a, bad)
    with pytest.raises(InvalidProblemError, match="broadcast"):
        bc.vecdot(a, np.ones(4, np.float32))


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("shape", [(40,), (5, 40), (5, 1), (1, 40), ()])
def test_averages_and_their_gradients(shape):
    """Weights of every shape that broadcasts."""
    rng = np.random.default_rng(0)
    x = rng.integers(-9, 9, (5, 40)).astype(np.float32)
    weights = np.asarray(rng.integers(1, 9, shape), np.float32)
    desc = AverageDescriptor(shape=x.shape, axis=1, element=F32)
    made = run(AveragePlan, desc, x=laid_out(x), weights=laid_out(weights))
    whole = np.broadcast_to(weights, x.shape)
    np.testing.assert_array_equal(made["z"], whole.sum(1))
    np.testing.assert_allclose(made["y"], np.average(x, 1, whole), rtol=1e-6, atol=1e-6)
    dy = rng.integers(-4, 5, 5).astype(np.float32)
    given = {"dy": laid_out(dy), "x": laid_out(x), "weights": laid_out(weights), **made}
    found = run(AverageBackwardPlan, AverageBackwardDescriptor(shape=x.shape, axis=1, element=F32), **given)
    wide = {name: value.astype(np.float64) for name, value in given.items()}
    slope = wide["dy"][:, None] / wide["z"][:, None]
    np.testing.assert_allclose(found["dx"], slope * whole, rtol=1e-6)
    each = bc.sum_to_size(slope * (x - wide["y"][:, None]), shape)
    np.testing.assert_allclose(found["dweights"], each, rtol=1e-5, atol=1e-5)


def test_average_is_numpys():
    x = np.arange(12.0).reshape(3, 4)
    np.testing.assert_array_equal(bc.average(x, axis=0), np.average(x, 0))
    np.testing.assert_allclose(bc.average(x, np.array([1.0, 2, 3]), axis=0), np.average(x, 0, [1, 2, 3]))
    found = bc.average(x, np.arange(4.0), axis=-1, returned=True, keepdims=True)
    for ours, theirs in zip(found, np.average(x, 1, np.arange(4.0), returned=True, keepdims=True), strict=True):
        np.testing.assert_allclose(ours, theirs)
    assert np.isnan(bc.average(np.zeros(3), np.zeros(3)))
    with pytest.raises(InvalidProblemError, match="returned"):
        bc.average(x, returned=True)
