"""Scans: one association whatever the layout, sums against exact ones."""

import math
from fractions import Fraction

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.element import ElementKind, cast
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError
from baracuda_py.core.tensor import TensorRef, dense_strides
from baracuda_py.ops.scan.scan import ScanDescriptor, ScanPlan
from baracuda_py.ops.scan.scan_extreme import ScanExtremeDescriptor, ScanExtremePlan
from baracuda_py.ops.scan.scan_kinds import ScanExtremeKind, ScanKind
from baracuda_py.testing.emulator import emulated_device, emulating
from baracuda_py.testing.layouts import aligned_bytes

F16, F32, F64 = ElementKind.F16, ElementKind.F32, ElementKind.F64
KINDS = (ScanKind.CUMSUM, ScanKind.CUMPROD, ScanKind.LOGCUMSUMEXP, ScanExtremeKind.CUMMAX)


def in_memory(values: np.ndarray, strides: tuple[int, ...], start: int = 0) -> np.ndarray:
    """A view of these values with these strides (elements), `start` elements past a 256-byte boundary."""
    reach = start + sum((n - 1) * s for n, s in zip(values.shape, strides, strict=True)) + 1
    buffer = aligned_bytes(reach * values.itemsize)
    steps = [s * values.itemsize for s in strides]
    held = np.ndarray(values.shape, values.dtype, buffer.data, start * values.itemsize, steps)
    held[...] = values
    return held


def scanned(
    kind, x: np.ndarray, axis: int, sms=None, inplace=False, **attributes
) -> tuple[list[np.ndarray], list[str]]:
    """The outputs by the kernels on the emulator, and which of them ran."""
    element = ElementKind.of(x.dtype)
    extreme = isinstance(kind, ScanExtremeKind)
    plan, descriptor = (ScanExtremePlan, ScanExtremeDescriptor) if extreme else (ScanPlan, ScanDescriptor)
    desc = descriptor(kind=kind, shape=x.shape, axis=axis, element=element, **attributes)
    kinds = [element, ElementKind.I64] if extreme else [desc.result]
    outs = [in_memory(np.full(x.shape, 77, k.dtype), dense_strides(x.shape)) for k in kinds]
    if inplace:
        outs[0] = x
    refs = [
        TensorRef(o.ctypes.data, o.shape, tuple(s // o.itemsize for s in o.strides), k)
        for o, k in zip(outs, kinds, strict=True)
    ]
    given = TensorRef(x.ctypes.data, x.shape, tuple(s // x.itemsize for s in x.strides), element)
    chosen = plan.select(desc, device=emulated_device(9.0, sms))
    args = plan.args(x=given, **dict(zip(("y", "indices"), refs, strict=False)))
    steps = chosen.plan_layout(args)[1].steps
    with emulating(1):
        chosen.run(args)
    return outs, [s.kernel + "".join(f"_{v}" for v in s.axes.values()) for s in steps]


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.value)
def test_a_row_has_the_same_bits_however_it_is_reached(kind):
    used = set()
    for element, n, across in ((F32, 96, 9), (F64, 2100, 6), (F16, 1100, 20), (F64, 8200, 0)):
        rng = np.random.default_rng(n)
        row = cast(rng.standard_normal(n) * 0.1 + 1, element)
        rows = np.stack([row, cast(rng.standard_normal(n), element)])
        columns = np.stack([row] * 2 + [cast(rng.standard_normal(n), element)] * (across - 2)).T
        for reverse in (False, True) if n < 2100 else (False,):

            def take(x, axis, sms=None, reverse=reverse, n=n):
                outs, names = scanned(kind, x, axis, sms=sms, reverse=reverse)
                used.update(names)
                return [np.moveaxis(y, axis, -1).reshape(-1, n)[0].tobytes() for y in outs]

            wanted = take(in_memory(rows, (n, 1)), 1)
            assert take(in_memory(row, (1,)), 0) == wanted
            if n == 1100:  # rows enough for a warp each
                assert take(in_memory(np.stack([row] * 17), (n, 1)), 1, sms=1) == wanted
            assert take(in_memory(row, (2,), 1), 0) == wanted
            if across:
                assert take(in_memory(columns, (across, 1)), 0) == wanted
    assert used == {
        "rows_True_False", "rows_True_True", "rows_False_False", "rows_False_True", "block_True", "block_False",
        "neighbours_False", "neighbours_True", "clear", "carries",
    }, used  # fmt: skip


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("kind", [ScanKind.CUMSUM, ScanExtremeKind.CUMMIN], ids=lambda kind: kind.value)
def test_in_place(kind):
    used = set()
    for shape, axis, step in (((3, 100), 1, 1), ((2, 3000), 1, 1), ((1, 9000), 1, 2), ((2100, 5), 0, 1)):
        x = np.random.default_rng(7).standard_normal(shape)
        strides = tuple(s * step for s in dense_strides(shape))
        wanted, _ = scanned(kind, in_memory(x, strides), axis)
        (y, *_), names = scanned(kind, in_memory(x, strides), axis, inplace=True)
        used.update(name.partition("_")[0] for name in names)
        np.testing.assert_array_equal(y, wanted[0])
    assert used == {"rows", "block", "neighbours", "clear", "carries"}


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("element", [F32, F64], ids=str)
@pytest.mark.parametrize("exclusive", [False, True])
def test_sums_of_every_magnitude_against_exact_ones(element, exclusive):
    n = 700
    info = np.finfo(element.dtype)
    rng = np.random.default_rng(n)
    x = np.ldexp(rng.uniform(-1, 1, n), rng.integers(info.minexp, info.maxexp - 16, n)).astype(element.dtype)
    (y,), _ = scanned(ScanKind.CUMSUM, in_memory(x, (1,)), 0, exclusive=exclusive)
    for i in range(n):
        exact = math.fsum(map(float, x[: i + (not exclusive)]))
        size = math.fsum(abs(float(v)) for v in x[: i + 1])
        carried = 2.0**-50 if element is F32 else 2.0**-95  # what the carried digits leave of the sum of sizes
        rounding = 0.51 * float(np.spacing(element.dtype.type(abs(exact))))
        assert abs(float(y[i]) - exact) <= rounding + carried * size


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("element", [F32, F64], ids=str)
@pytest.mark.parametrize("axis", [0, 1])
def test_products_of_factors_of_all_sizes_against_exact_ones(element, axis):
    """Products of parts leave the range of double, and those of prefixes come back into that of the element."""
    n, bits = 600, element.limits.digits
    rng = np.random.default_rng(5)
    powers = rng.uniform(0, -element.limits.min_exponent, (n // 60, 30))
    powers = np.concatenate([powers, -rng.permuted(powers, axis=1)], axis=1).ravel()  # far up, and back again
    x = cast(rng.choice((-1, 1), n) * np.exp2(powers), element)
    columns = np.repeat(x[:, None], 16, 1)
    given = in_memory(columns, (16, 1)) if axis == 0 else in_memory(np.ascontiguousarray(columns.T), (n, 1))
    (y,), _ = scanned(ScanKind.CUMPROD, given, axis)
    found = np.moveaxis(y, axis, -1)
    assert (found == found[0]).all()
    truth, inside = Fraction(1), 0
    for value, got in zip(x, found[0], strict=True):
        truth *= Fraction(float(value))
        if abs(truth) >= Fraction(element.limits.max):
            assert abs(got) >= element.limits.max
            continue
        inside += 1
        size = max(abs(truth), Fraction(2) ** element.limits.min_exponent)
        ulp = Fraction(2) ** (math.frexp(float(size))[1] - 1 - bits)
        assert abs(Fraction(float(got)) - truth) <= Fraction(0.76) * ulp, (float(got), float(truth))
    assert inside > 20


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("element", [ElementKind.I8, ElementKind.I64, ElementKind.U64], ids=str)
def test_integers_wrap(element):
    rng = np.random.default_rng(1)
    x = rng.integers(element.limits.min, element.limits.max, 300, element.dtype, endpoint=True)
    for kind, step in ((ScanKind.CUMSUM, int.__add__), (ScanKind.CUMPROD, int.__mul__)):
        (y,), _ = scanned(kind, in_memory(x, (1,)), 0)
        total = 0 if kind is ScanKind.CUMSUM else 1
        for got, v in zip(y, x, strict=True):
            total = step(total, int(v)) % 2**64
            assert int(got) % 2**64 == total


def running(x: list[float], wins) -> tuple[list[float], list[int]]:
    """The extreme of each prefix and the last place that holds it; a NaN wins for good, at its last place."""
    values, places = [], []
    best, at = x[0], 0
    for i, v in enumerate(x):
        if math.isnan(v) or (not math.isnan(best) and wins(v, best)):
            best, at = v, i
        values.append(best)
        places.append(at)
    return values, places


@pytest.mark.usefixtures("emulation")
def test_extremes_keep_the_last_of_equals_and_nan():
    rng = np.random.default_rng(2)
    x = rng.integers(-3, 4, (3, 500)).astype(np.float32)
    x[1, [200, 300]] = np.nan
    x[2] = -np.inf
    for name, kind, wins in (
        ("cummax", ScanExtremeKind.CUMMAX, float.__ge__),
        ("cummin", ScanExtremeKind.CUMMIN, float.__le__),
    ):
        wanted, at = (np.array(t) for t in zip(*(running(row.tolist(), wins) for row in x), strict=True))
        (values, places), _ = scanned(kind, in_memory(x, (500, 1)), 1)
        for v, i in ((values, places), getattr(bc, name)(x, axis=1)):
            np.testing.assert_array_equal(v, wanted)
            np.testing.assert_array_equal(i, at)
        turned = np.ascontiguousarray(x[:, ::-1])
        (values, places), _ = scanned(kind, in_memory(turned, (500, 1)), 1, reverse=True)
        np.testing.assert_array_equal(values[:, ::-1], wanted)
        np.testing.assert_array_equal(499 - places[:, ::-1], at)


def test_exclusive_prefixes_begin_with_those_of_nothing():
    x = np.array([2.0, 3.0, 4.0])
    assert bc.cumsum(x, exclusive=True).tolist() == [0, 2, 5]
    assert bc.cumprod(x, exclusive=True, reverse=True).tolist() == [12, 4, 1]
    assert bc.logcumsumexp(x, exclusive=True)[0] == -np.inf
    assert bc.cumsum(np.array([True, True, False])).dtype == np.int64


@pytest.mark.usefixtures("emulation")
def test_sums_of_exponentials_keep_infinities_apart():
    x = np.array([-np.inf, -np.inf, 1.0, 3e38, np.inf, -np.inf, np.nan, 1.0], np.float32)
    (y,), _ = scanned(ScanKind.LOGCUMSUMEXP, in_memory(x, (1,)), 0)
    np.testing.assert_array_equal(y, np.array([-np.inf, -np.inf, 1, 3e38, np.inf, np.inf, np.nan, np.nan], np.float32))


def test_what_is_refused():
    with pytest.raises(InvalidProblemError, match=r"\[-2, 1\]"):
        bc.cumsum(np.ones((2, 2)), axis=2)
    with pytest.raises(UnsupportedError, match="cast to a float"):
        bc.logcumsumexp(np.ones(3, np.int64))
