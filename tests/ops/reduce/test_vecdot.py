"""Reductions of a map of several operands: one tree whatever the layout, operands that broadcast, gradients."""

from dataclasses import replace

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.element import ElementKind, cast
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.core.tensor import TensorRef
from baracuda_py.ops.reduce.vecdot import VecdotBackwardDescriptor, VecdotBackwardPlan, VecdotDescriptor, VecdotPlan
from baracuda_py.testing.emulator import emulated_device, emulating
from baracuda_py.testing.layouts import aligned_bytes

F16, BF16, F32, F64, I8 = (getattr(ElementKind, name) for name in ("F16", "BF16", "F32", "F64", "I8"))


def held(values: np.ndarray, strides: tuple[int, ...], start: int = 0) -> np.ndarray:
    """A view of these values with these strides (elements, 0 where they repeat), `start` past a 256-byte boundary."""
    reach = start + sum((n - 1) * s for n, s in zip(values.shape, strides, strict=True)) + 1
    buffer = aligned_bytes(reach * values.itemsize)
    made = np.ndarray(
        values.shape, values.dtype, buffer.data, start * values.itemsize, [s * values.itemsize for s in strides]
    )
    made[...] = values
    return made


def _ref(x: np.ndarray, element: ElementKind) -> TensorRef:
    return TensorRef(x.ctypes.data, x.shape, tuple(s // x.itemsize for s in x.strides), element)


def dotted(a: np.ndarray, b: np.ndarray, axis, sms: int = 132) -> tuple[np.ndarray, list[str]]:
    """y by the kernels on the emulator, and which of them ran."""
    element = ElementKind.of(a.dtype)
    shape = np.broadcast_shapes(a.shape, b.shape)
    desc = VecdotDescriptor(shape=shape, axis=axis, element=element)
    plan = VecdotPlan.select(desc, device=replace(emulated_device(9.0), sms=sms))
    y = np.full(desc.result_shape, 77, desc.result.dtype)
    args = plan.args(a=_ref(a, element), b=_ref(b, element), y=_ref(y, desc.result))
    steps = plan.plan_layout(args)[1].steps
    with emulating(1):
        plan.run(args)
    names = [s.kernel + "".join(f"_{v}" for v in s.axes.values()) + ("_team" * (s.params["team"] > 0)) for s in steps]
    return y, names


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

    wide = held(rows, (n + 16, 1))
    wanted = take(held(row, (1,)), held(other, (1,)), None)
    assert take(wide, held(other, (1,)), -1) == wanted  # b broadcast along rows
    assert take(wide, held(other, (1,)), -1, sms=1) == wanted
    assert take(held(other, (1,)), wide, -1) == wanted
    assert take(wide, held(other, (1,), 1), -1) == wanted  # b is not aligned
    assert take(wide, held(other, (3,)), -1, sms=1) == wanted  # nor dense
    assert take(held(rows, (n + 1, 1), 1), held(other, (1,)), -1) == wanted
    assert take(held(rows.T, (across, 1)), held(other[:, None], (1, 1)), 0) == wanted  # down columns, b one a row
    assert take(held(rows.T, (across + 1, 1), 1), held(other[:, None], (2, 1)), 0) == wanted
    both = np.repeat(other[:, None], across, 1)
    assert take(held(rows.T, (across, 1)), held(both, (across, 1)), 0) == wanted
    assert take(held(rows.T, (across, 1)), held(both, (1, n)), 0) == wanted  # one lies by rows, one by columns
    folded = held(rows.reshape(across, n // 6, 6), (n + n // 6 * 2, 8, 1))
    assert take(folded, held(other.reshape(n // 6, 6), (6, 1)), (1, 2)) == wanted
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
    plan = VecdotBackwardPlan.select(desc, device=emulated_device(9.0))
    with emulating(1):
        plan.run(plan.args(dy=_ref(dy, F32), a=_ref(a, F32), b=_ref(b, F32), da=_ref(da, F32), db=_ref(db, F32)))
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
