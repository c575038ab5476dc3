"""Reductions: one tree whatever the layout, sums against exact ones, ends of ranges."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.device import fake_device
from baracuda_py.core.element import ElementKind, cast
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError
from baracuda_py.core.tensor import TensorRef, dense_strides
from baracuda_py.core.variant import Problem
from baracuda_py.core.tensor import View
from baracuda_py.ops.reduce.reduce import ReduceDescriptor, ReduceKind, ReducePlan
from baracuda_py.ops.reduce.reduce_kinds import reduce_elements
from baracuda_py.testing.emulator import emulated_device, emulating
from baracuda_py.testing.layouts import aligned_bytes

K = ReduceKind
F16, F32, F64 = ElementKind.F16, ElementKind.F32, ElementKind.F64


def in_memory(values: np.ndarray, strides: tuple[int, ...], start: int = 0) -> np.ndarray:
    """A view of these values with these strides (elements), `start` elements past a 256-byte boundary."""
    reach = start + sum((n - 1) * s for n, s in zip(values.shape, strides, strict=True)) + 1
    buffer = aligned_bytes(reach * values.itemsize)
    held = np.ndarray(
        values.shape, values.dtype, buffer.data, start * values.itemsize, [s * values.itemsize for s in strides]
    )
    held[...] = values
    return held


def reduced(kind: K, x: np.ndarray, axis, sms: int = 132, **attributes) -> tuple[np.ndarray, list[str]]:
    """y by the kernels on the emulator, and which of them ran."""
    element = ElementKind.of(x.dtype)
    desc = ReduceDescriptor(kind=kind, shape=x.shape, axis=axis, element=element, **attributes)
    plan = ReducePlan.select(desc, device=replace(emulated_device(9.0), sms=sms))
    y = np.full(desc.result_shape, 77, desc.result.dtype)
    given = TensorRef(x.ctypes.data, x.shape, tuple(s // x.itemsize for s in x.strides), element)
    args = plan.args(x=given, y=TensorRef(y.ctypes.data, y.shape, dense_strides(y.shape), desc.result))
    steps = plan.plan_layout(args)[1].steps
    with emulating(1):
        plan.run(args)
    names = [s.kernel + "".join(f"_{v}" for v in s.axes.values()) + ("_team" * (s.params["team"] > 0)) for s in steps]
    return y, names


ORDERED = (K.SUM, K.VAR, K.LOGSUMEXP, K.ARGMAX)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("kind", ORDERED, ids=lambda kind: kind.value)
def test_a_row_has_the_same_bits_however_it_is_reached(kind):
    used = set()
    for element, n, across in ((F32, 300, 12), (F16, 150, 16), (F64, 4614, 4)):
        rng = np.random.default_rng(n)
        row = cast(rng.standard_normal(n) * 0.5 + 1, element)
        others = cast(rng.standard_normal((across, n)), element)
        rows = np.concatenate([row[None], others[:1]])
        columns = np.concatenate([row[None], others[1:]]).T

        def take(x, axis, at=0, sms=132):
            y, names = reduced(kind, x, axis, sms)
            used.update(names)
            return np.ravel(y)[at].tobytes()

        wide = in_memory(rows, (n + 16, 1))
        wanted = take(wide, -1)
        assert take(in_memory(row, (1,)), None) == wanted  # alone
        assert take(wide, 1, sms=1) == wanted  # a block a row, where there are enough rows
        assert take(in_memory(rows, (n + 1, 1), 1), -1) == wanted  # no wide accesses
        assert take(in_memory(rows, (n + 1, 1), 1), -1, sms=1) == wanted
        assert take(in_memory(rows, (3 * n, 3)), -1) == wanted
        assert take(in_memory(row.reshape(n // 6, 6), (17, 1)), (0, 1)) == wanted  # two axes
        assert take(in_memory(columns, (across + 8, 1)), 0) == wanted  # along the other axis
        assert take(in_memory(columns, (across + 1, 1), 3), 0) == wanted
        assert take(in_memory(columns.reshape(n // 6, 6, across), (8 * across, across, 1)), (0, 1)) == wanted
    assert used >= {
        "rows_True", "rows_any_False", "rows_True_team", "rows_any_False_team", "columns_8", "columns_4", "columns_2",
        "columns_1", "partials",
    }, used  # fmt: skip


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("kind", [K.SUM, K.PROD, K.VAR, K.ARGMAX], ids=lambda kind: kind.value)
@pytest.mark.parametrize(("element", "n", "across"), [(F16, 150, 40), (F16, 5000, 72), (F32, 2100, 36)])
def test_every_column_is_the_row_that_it_would_be(kind, element, n, across):
    x = cast(np.random.default_rng(n).standard_normal((n, across)) * 0.25 + 1, element)
    columns, names = reduced(kind, in_memory(x, (across, 1)), 0)
    rows, _ = reduced(kind, in_memory(np.ascontiguousarray(x.T), (n, 1)), 1)
    assert names[0] == ("columns_8" if element is F16 else "columns_4")
    np.testing.assert_array_equal(columns, rows)


@pytest.mark.usefixtures("emulation")
def test_states_are_merged_again_while_there_are_many():
    x = in_memory(np.random.default_rng(0).standard_normal(512 * 260 + 5), (1,))
    y, names = reduced(K.SUM, x, None)
    assert names == ["rows_True", "partials", "partials"]
    assert abs(y - math.fsum(x)) <= 16 * np.finfo(np.float64).eps * math.fsum(np.abs(x))
    y, _ = reduced(K.ARGMAX, x, None)
    assert y == np.argmax(x)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("element", [F32, F64], ids=str)
@pytest.mark.parametrize("n", [1, 5, 1000, 3001])
def test_sums_of_every_magnitude_against_exact_ones(element, n):
    rng = np.random.default_rng(n)
    info = np.finfo(element.dtype)
    x = np.ldexp(rng.uniform(-1, 1, n), rng.integers(info.minexp, info.maxexp - 16, n)).astype(element.dtype)
    y, _ = reduced(K.SUM, in_memory(x, (1,)), None)
    depth = 2 + 8 + 5 + (12 if n > 1024 else 0)
    allowed = (depth + 1) / 2 * float(info.eps) * math.fsum(np.abs(x.astype(np.float64)))
    assert abs(float(y) - math.fsum(x.astype(np.float64))) <= allowed


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("element", [ElementKind.I8, ElementKind.I64, ElementKind.U32, ElementKind.U64], ids=str)
def test_integers_are_totalled_exactly_modulo_2_64(element):
    rng = np.random.default_rng(3)
    x = rng.integers(element.limits.min, element.limits.max, (300, 33), element.dtype, endpoint=True)
    for kind, combine in ((K.SUM, sum), (K.PROD, math.prod)):
        y, _ = reduced(kind, in_memory(x, (33, 1)), 0)
        wanted = [combine(int(v) for v in column) % 2**64 for column in x.T]
        assert [int(v) % 2**64 for v in y] == wanted
        assert y.dtype == (np.uint64 if element is ElementKind.U64 else np.int64)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("element", [F16, F32, F64], ids=str)
def test_variance_far_from_zero(element):
    """Against rationals: deviations that are small beside the mean keep their digits."""
    mean, n = {F16: 500.0, F32: 3e5, F64: 1e9}[element], 600
    x = cast(mean + np.random.default_rng(5).standard_normal(n), element)
    exact = [Fraction(float(v)) for v in x]
    middle = sum(exact) / n
    wanted = float(sum((v - middle) ** 2 for v in exact) / (n - 1))
    for axis, held in ((None, in_memory(x, (1,))), (0, in_memory(np.repeat(x[:, None], 16, 1), (16, 1)))):
        y, _ = reduced(K.VAR, held, axis)
        assert np.ravel(y)[0] == pytest.approx(
            wanted, rel=float(element.limits.eps) * (0.51 if element is not F64 else 64)
        )


@pytest.mark.usefixtures("emulation")
def test_norms_and_products_at_the_ends_of_the_range():
    for element, big, small in ((F32, 3e38, 1e-40), (F64, 1.7e308, 1e-310), (F16, 65504.0, 6e-8)):
        x = np.array([small, small, small, small], element.dtype)
        norm, _ = reduced(K.L2_NORM, in_memory(x, (1,)), None)
        assert norm == 2 * x[0]
        x = np.array([big / 2, big / 2, 0, small], element.dtype)
        norm, _ = reduced(K.L2_NORM, in_memory(x, (1,)), None)
        assert norm == pytest.approx(math.sqrt(2) * float(x[0]), rel=float(element.limits.eps))
    x = np.array([1e30, 1e30, 1e-30, 1e-30], np.float32)
    product, _ = reduced(K.PROD, in_memory(x, (1,)), None)
    assert product == np.float32(math.prod(map(float, x)))
    lse, _ = reduced(K.LOGSUMEXP, in_memory(np.array([3e38, 3e38, -3e38], np.float32), (1,)), None)
    assert lse == np.float32(3e38)


@pytest.mark.usefixtures("emulation")
def test_the_first_of_equal_extremes_and_nan():
    n = 1200
    x = np.zeros((8, n), np.float32)
    x[1, [700, 900]] = 5
    x[2, [3, 1100]] = np.nan
    x[2, 1] = np.inf
    x[3] = -np.inf
    x[4, [10, 11]] = -np.inf
    x[5] = np.arange(n)[::-1] // 100
    for kind, find in ((K.ARGMAX, np.argmax), (K.ARGMIN, np.argmin)):
        for held, axis in ((in_memory(x, (n, 1)), 1), (in_memory(x.T, (8, 1)), 0)):
            y, _ = reduced(kind, held, axis)
            np.testing.assert_array_equal(y, find(x, axis=1))
    for kind, find in ((K.AMAX, np.max), (K.AMIN, np.min)):
        y, _ = reduced(kind, in_memory(x, (n, 1)), 1)
        np.testing.assert_array_equal(y, find(x, axis=1))


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("kind", [k for k in K if not k.row.nonempty], ids=lambda kind: kind.value)
def test_of_no_elements(kind):
    x = np.empty((3, 0), np.int32 if kind in (K.XOR_SUM, K.REDUCE_OR, K.REDUCE_AND) else np.float32)
    y, _ = reduced(kind, x, 1)
    undefined = (K.MEAN, K.NANMEAN, K.VAR, K.NANVAR, K.STD, K.NANSTD, K.LOGMEANEXP)
    known = {K.PROD: 1, K.NANPROD: 1, K.ALL: True, K.LOGSUMEXP: -np.inf, K.REDUCE_AND: -1}
    wanted = known.get(kind, np.nan if kind in undefined else 0)
    np.testing.assert_array_equal(y, [wanted] * 3)
    np.testing.assert_array_equal(getattr(bc, kind.value)(x, axis=1), [wanted] * 3)


def test_what_is_refused():
    x = np.ones((3, 0, 2))
    for name in ("amax", "amin", "argmax", "argmin"):
        with pytest.raises(InvalidProblemError, match="no elements"):
            getattr(bc, name)(x, axis=1)
        assert getattr(bc, name)(x, axis=2).shape == (3, 0)
    for axis, words in ((3, r"\[-3, 2\]"), ((0, -3), "twice"), ("0", "tuple of axes"), (1.5, "tuple of axes")):
        with pytest.raises(InvalidProblemError, match=words):
            bc.sum(x, axis=axis)
    with pytest.raises(UnsupportedError, match="cast to a float"):
        bc.mean(np.ones(3, np.int32))
    with pytest.raises(InvalidProblemError, match="correction"):
        ReduceDescriptor(kind="sum", shape=(3,), correction=0, element="float32")


def _launch(shape, axes, element=F32, strides=None):
    kept = tuple(n for a, n in enumerate(shape) if a not in axes)
    x = View(0, shape, strides or dense_strides(shape), element)
    y = View(2**46, kept, dense_strides(kept), element)
    desc = ReduceDescriptor(kind="sum", shape=shape, axis=axes, element=element)
    return ReducePlan.variants[0].geometry(Problem(desc, fake_device(9.0), {"x": x, "y": y}))


@pytest.mark.parametrize(
    ("shape", "axes", "kernel"),
    [
        ((4096, 4096), (1,), "rows_True"), ((4096, 4096), (0,), "columns_4"), ((64, 512, 1024), (1,), "columns_4"),
        ((8, 16, 32, 64), (0, 2), "columns_4"), ((8, 16, 32, 64), (1, 3), "rows_True"),
        ((2**14, 2**20), (0,), "columns_4"), ((2**34,), (0,), "rows_True"), ((2**33, 2), (1,), "rows_any_False"),
    ],
)  # fmt: skip
def test_reads_are_wide_along_the_axis_that_is_contiguous(shape, axes, kernel):
    found = _launch(shape, axes)
    first = found.steps[0]
    assert kernel == first.kernel + "".join(f"_{v}" for v in first.axes.values())
    assert found.layout == "contiguous"
    states = 1
    for step in found.steps:
        assert step.params["segments"] in (-(-step.params["cols"] // 1024), -(-step.params["cols"] // 256))
        states = step.params["segments"]
    assert states == 1 or found.steps[-1].params["team"]


def test_every_kind_serves_what_its_row_says():
    for kind in K:
        for element in ElementKind:
            if element in reduce_elements(kind):
                ReduceDescriptor(kind=kind, shape=(2,), element=element)
            else:
                with pytest.raises(UnsupportedError):
                    ReduceDescriptor(kind=kind, shape=(2,), element=element)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("kind", [K.NANVAR, K.NANSTD], ids=lambda kind: kind.value)
def test_a_variance_with_an_infinity_is_nan(kind):
    """As in NumPy: only NaN is left out, and an infinity is not so far from an infinite mean."""
    x = np.array([[1, np.inf, 2], [np.nan, 3, 5], [-np.inf, -np.inf, np.nan]], np.float16)
    with np.errstate(all="ignore"):
        wanted = getattr(np, kind.value)(x.astype(float), axis=1)
    assert np.isnan(wanted[[0, 2]]).all()
    for found in (reduced(kind, x, 1, correction=0)[0], getattr(bc, kind.value)(x, axis=1, correction=0)):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("kind", [K.VAR, K.STD, K.NANVAR, K.NANSTD], ids=lambda kind: kind.value)
@pytest.mark.parametrize("dtype", [np.float64, np.longdouble, np.complex128, np.clongdouble])
def test_the_formula_of_a_variance_of_equal_numbers_is_zero(kind, dtype):
    """Also where their sum is rounded; and one that leaves the range on the way to the mean is infinite, not NaN."""
    if dtype in (np.complex128, np.clongdouble) and kind in (K.NANVAR, K.NANSTD):
        return
    x = np.broadcast_to((np.random.default_rng(3).standard_normal(8) / 3).astype(dtype), (9000, 8))
    assert not kind.row.formula(x, (0,), 0).any()
    far = np.array([1, -1], dtype) * np.finfo(dtype).max
    with np.errstate(all="ignore"):
        assert np.isposinf(kind.row.formula(far, (0,), 0))
