"""Reductions: norms of every order, what passes NaN over, two results, float32 results; known values by the kernels."""

import math

import numpy as np
import pytest
from run_emulated import laid_out, run

import baracuda_py as bc
from baracuda_py.core.element import ElementKind, cast
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError
from baracuda_py.ops.reduce.reduce import ReduceDescriptor, ReduceKind, ReducePlan
from baracuda_py.ops.reduce.reduce_pair import ReducePairDescriptor, ReducePairKind, ReducePairPlan
from baracuda_py.ops.reduce.trace import TraceDescriptor, TracePlan

K, P = ReduceKind, ReducePairKind
F16, BF16, F32, F64 = ElementKind.F16, ElementKind.BF16, ElementKind.F32, ElementKind.F64
NAN, INF = math.nan, math.inf


def reduced(kind: K, x: np.ndarray, axis=None, **options) -> np.ndarray:
    """y by the kernels."""
    desc = ReduceDescriptor(kind=kind, shape=x.shape, axis=axis, element=ElementKind.of(x.dtype), **options)
    return run(ReducePlan, desc, x=laid_out(x))["y"]


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("element", [F16, F32, F64], ids=str)
@pytest.mark.parametrize("p", [0.5, 1.5, 3.0, 30.0, -1.0, -3.5])
def test_norms_of_any_order_stay_in_range(element, p):
    """Magnitudes up to the largest and down to subnormals, none of whose powers is a number of the element."""
    rng = np.random.default_rng(3)
    limits = element.limits
    for low, high in ((0.25, 1.0), (1e-3, 1.0)):
        for scale in (limits.max, limits.tiny * 4096, 1.0):
            x = cast(rng.choice((-1, 1), 200) * rng.uniform(low, high, 200) * scale, element)
            assert (x != 0).all()
            size = np.abs(x.astype(np.longdouble))
            top = size.max() if p > 0 else size.min()
            truth = top * np.sum((size / top) ** np.longdouble(p)) ** (1 / np.longdouble(p))
            wanted = cast(truth, element)
            np.testing.assert_allclose(reduced(K.P_NORM, x, p=p), wanted, rtol=64 * limits.eps, atol=limits.tiny)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(
    ("kind", "x", "options", "wanted"),
    [
        (K.P_NORM, [0, 0, 0], {"p": 3.0}, 0), (K.P_NORM, [0, 3], {"p": -1.0}, 0), (K.P_NORM, [INF, 3], {"p": -1.0}, 3),
        (K.P_NORM, [INF, -INF], {"p": 3.0}, INF), (K.P_NORM, [INF, NAN, 1], {"p": 3.0}, NAN),
        (K.P_NORM, [NAN, 0], {"p": -2.0}, NAN), (K.P_NORM, [3, 4], {"p": 2.0}, 5),
        (K.L0_NORM, [0, -0.0, NAN, 5, -INF], {}, 3), (K.MAX_NORM, [-3, 2], {}, 3), (K.MAX_NORM, [-INF, NAN], {}, NAN),
        (K.MIN_NORM, [-3, 2, 0.5], {}, 0.5), (K.MIN_NORM, [-0.0, 2], {}, 0),
        (K.PTP, [-3, 2, 7], {}, 10), (K.PTP, [1, NAN], {}, NAN), (K.PTP, [INF, INF], {}, NAN), (K.PTP, [5], {}, 0),
        (K.NANSUM, [1, NAN, 2], {}, 3), (K.NANSUM, [NAN], {}, 0), (K.NANPROD, [NAN, 3, -2], {}, -6),
        (K.NANPROD, [NAN, NAN], {}, 1), (K.NANMEAN, [NAN, 3, -1], {}, 1), (K.NANMEAN, [NAN, NAN], {}, NAN),
        (K.NANMAX, [NAN, -3, -INF], {}, -3), (K.NANMAX, [NAN, -INF], {}, -INF), (K.NANMAX, [NAN], {}, NAN),
        (K.NANMIN, [4, NAN, 3], {}, 3), (K.NANMIN, [NAN, INF], {}, INF),
        (K.NANARGMAX, [NAN, -INF, NAN, -INF], {}, 1), (K.NANARGMAX, [NAN, 1, 3, 3], {}, 2),
        (K.NANARGMAX, [NAN, NAN], {}, -1), (K.NANARGMIN, [NAN, INF], {}, 1), (K.NANARGMIN, [5, NAN, 2], {}, 2),
        (K.NANVAR, [NAN, 1, 3], {"correction": 1}, 2), (K.NANVAR, [NAN, 1, 3], {"correction": 0}, 1),
        (K.NANVAR, [NAN, 1], {"correction": 1}, NAN),
        (K.NANSTD, [NAN, 1, 5], {"correction": 0}, 2), (K.LOGMEANEXP, [7, 7, 7], {}, 7),
        (K.LOGMEANEXP, [-INF, -INF], {}, -INF), (K.AMAX, [2, NAN], {}, NAN),
    ],
)  # fmt: skip
def test_known_values(kind, x, options, wanted):
    for element in (F16, F64):
        found = reduced(kind, np.array(x, element.dtype), **options)
        np.testing.assert_array_equal(found, np.asarray(wanted, found.dtype))
        given = np.array(x, element.dtype)
        np.testing.assert_array_equal(getattr(bc, kind.value)(given, **options), np.asarray(wanted, found.dtype))


@pytest.mark.usefixtures("emulation")
def test_integers_of_any_width():
    rng = np.random.default_rng(2)
    for dtype in (np.int8, np.uint16, np.int64, np.uint64):
        info = np.iinfo(dtype)
        x = rng.integers(info.min, info.max, (5, 300), dtype, endpoint=True)
        np.testing.assert_array_equal(reduced(K.XOR_SUM, x, 1), np.bitwise_xor.reduce(x, 1))
        for kind, combine in ((K.REDUCE_OR, np.bitwise_or), (K.REDUCE_AND, np.bitwise_and)):
            few = x | x[:, :1] if kind is K.REDUCE_AND else x & x[:, :1]  # so that bits survive
            for axis in (0, 1, None):
                np.testing.assert_array_equal(reduced(kind, few, axis), combine.reduce(few, axis))
        np.testing.assert_array_equal(reduced(K.PTP, x, 1), np.ptp(x, 1))  # wraps
        np.testing.assert_array_equal(reduced(K.AMAX, x, 0), x.max(0))
    flags = rng.integers(0, 2, (4, 33)).astype(bool)
    np.testing.assert_array_equal(reduced(K.XOR_SUM, flags, 1), flags.sum(1) % 2 == 1)
    flags[0], flags[1] = True, False
    for kind, wanted in ((K.REDUCE_OR, flags.any(1)), (K.REDUCE_AND, flags.all(1))):
        np.testing.assert_array_equal(reduced(kind, flags, 1), wanted)
    np.testing.assert_array_equal(reduced(K.REDUCE_AND, np.zeros((2, 0), bool), 1), [True, True])
    np.testing.assert_array_equal(reduced(K.REDUCE_AND, np.zeros((2, 0), np.uint8), 1), [255, 255])


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("element", [F16, BF16], ids=str)
def test_sums_in_float32_keep_what_16_bits_have_not(element):
    x = np.ones((3, 4096), element.dtype)
    x[:, 7] = 0.125
    for axis, wanted in ((1, 4095.125), (None, 3 * 4095.125), (0, None)):
        y = reduced(K.SUM, x, axis, out_element=F32)
        assert y.dtype == np.float32
        np.testing.assert_array_equal(y, x.astype(np.float32).sum(axis) if wanted is None else np.float32(wanted))
    assert reduced(K.SUM, x, 1).dtype == element.dtype
    big = np.full(3, element.limits.max, element.dtype)
    wanted = 3 * element.limits.max  # infinite in float32, too, where the exponents are as wide
    assert reduced(K.SUM, big, out_element=F32) == (INF if element is BF16 else wanted)
    assert bc.mean(big[:1], out_element="float32") == np.float32(element.limits.max)
    for name in ("amax", "var", "l0_norm"):
        with pytest.raises(UnsupportedError, match="out_element"):
            ReduceDescriptor(kind=name, shape=(3,), out_element="float32", element=element)
    with pytest.raises(UnsupportedError, match="out_element"):
        bc.sum(np.ones(3, np.float32), out_element="float32")


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("axis", [0, 1])
def test_two_results(axis):
    x = np.random.default_rng(1).standard_normal((48, 48)).astype(np.float32)
    x[3, [4, 9]] = 7
    x[[20, 30], 7] = -7
    x[11, 11] = NAN

    def found(kind, **options):
        desc = ReducePairDescriptor(kind=kind, shape=x.shape, axis=axis, element=F32, **options)
        made = run(ReducePairPlan, desc, x=laid_out(x))
        return made["y"], made["z"]

    for kind, best, place in ((P.MAX_WITH_INDEX, np.max, np.argmax), (P.MIN_WITH_INDEX, np.min, np.argmin)):
        values, indices = found(kind)
        np.testing.assert_array_equal(values, best(x, axis))
        np.testing.assert_array_equal(indices, place(x, axis))
        assert indices.dtype == np.int64
    low, high = found(P.AMINMAX, keepdims=True)
    np.testing.assert_array_equal(low, x.min(axis, keepdims=True))
    np.testing.assert_array_equal(high, x.max(axis, keepdims=True))
    std, mean = found(P.STD_MEAN, correction=0)
    np.testing.assert_allclose(std, x.astype(np.float64).std(axis), rtol=1e-7)
    np.testing.assert_allclose(mean, x.astype(np.float64).mean(axis), rtol=1e-6)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("x", [[INF, 1, 2], [1, INF, 2], [INF, INF, INF], [1, -INF, INF], [1, 2, NAN]])
def test_a_mean_of_infinities_is_that_of_their_sum(x):
    for n in (3, 300, 3000):
        held = np.resize(np.array(x, np.float32), n)
        desc = ReducePairDescriptor(kind="var_mean", shape=held.shape, element=F32)
        made = run(ReducePairPlan, desc, x=laid_out(held))
        np.testing.assert_array_equal(made["z"], math.fsum(x) if INF not in x or -INF not in x else NAN)
        assert np.isnan(made["y"])


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(("offset", "axis1", "axis2"), [(0, 0, 1), (2, 1, 2), (-3, 2, 0), (90, 0, 2), (-90, 0, 2)])
def test_trace_of_views(offset, axis1, axis2):
    x = np.random.default_rng(0).integers(-9, 9, (5, 7, 9)).astype(np.int16)
    for held in (laid_out(x), laid_out(x, (200, 20, 2), 3), laid_out(x, (1, 5, 35))):
        desc = TraceDescriptor(shape=x.shape, offset=offset, axis1=axis1, axis2=axis2, element="int16")
        made = run(TracePlan, desc, x=held)["y"]
        np.testing.assert_array_equal(made, np.trace(x, offset, axis1, axis2, dtype=np.int64))


def test_what_is_refused():
    x = np.ones((3, 4), np.float32)
    for order in ("fro", NAN, None, True):
        with pytest.raises(InvalidProblemError, match="must be a number"):
            bc.norm(x, order)
    for call, words in (
        (lambda: bc.p_norm(x, p=0), "l0_norm"), (lambda: bc.p_norm(x[:, :0], p=-1.0), "not defined"),
        (lambda: bc.max_norm(x[:0]), "no elements"), (lambda: bc.nanmax(x[:0], axis=0), "no elements"),
        (lambda: bc.trace(x, axis1=1, axis2=-1), "two axes"), (lambda: bc.sum_to_size(x, (2, 4)), "broadcast"),
        (lambda: bc.max_with_index(x[:0]), "no elements"), (lambda: bc.trace(x[0]), "axis2"),
        (lambda: ReduceDescriptor(kind="sum", shape=(3,), p=3.0, element="float32"), "no p"),
    ):  # fmt: skip
        with pytest.raises(InvalidProblemError, match=words):
            call()
    for name in ("nanmax", "nanvar", "p_norm", "var", "logmeanexp"):
        with pytest.raises(UnsupportedError, match="cast to a float"):
            getattr(bc, name)(np.ones(3, np.int32))
    with pytest.raises(UnsupportedError, match="bits of integers"):
        bc.xor_sum(x)


def test_names_of_numpy():
    x = np.arange(6.0).reshape(2, 3)
    for ours, theirs in ((bc.max, np.max), (bc.min, np.min), (bc.ptp, np.ptp), (bc.nanmean, np.nanmean)):
        np.testing.assert_array_equal(ours(x, axis=0), theirs(x, axis=0))
        np.testing.assert_array_equal(ours(x, axis=1, keepdims=True), theirs(x, axis=1)[:, None])
    np.testing.assert_array_equal(bc.sum_to_size(x, (2, 1)), x.sum(1, keepdims=True))
    np.testing.assert_array_equal(bc.sum_to_size(x, ()), x.sum())
    assert bc.trace(x) == 4 and bc.norm(x, math.inf) == 5 and bc.vector_norm(x, 0) == 5


def mean_and_spread(x: np.ndarray, **options) -> tuple[np.ndarray, np.ndarray]:
    """(variance, mean) by the kernels."""
    element = ElementKind.of(x.dtype)
    desc = ReducePairDescriptor(kind=P.VAR_MEAN, shape=x.shape, axis=None, element=element, **options)
    made = run(ReducePairPlan, desc, x=laid_out(x))
    return made["y"], made["z"]


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("n", [3, 40, 2500, 20000])
def test_a_mean_has_the_digits_of_a_sum_beside_outliers(n):
    """An element far from all others, wherever it stands, and means far off 0: errors are of the size of mean |x|."""
    rng = np.random.default_rng(n)
    eps = np.finfo(np.float64).eps
    for at in (0, 1, n // 2, n - 1):
        for size in (1e3, -1e10, 1e15):
            x = rng.standard_normal(n) + 1
            x[at] = size
            exact = x.astype(np.longdouble)
            y, z = mean_and_spread(x, correction=0)
            assert abs(z - exact.mean()) <= 8 * eps * np.abs(exact).mean()
            assert abs(y - exact.var()) <= 64 * eps * exact.var()
    far = rng.standard_normal(n) + 1e9
    y, z = mean_and_spread(far)
    exact = far.astype(np.longdouble)
    assert abs(y - exact.var(ddof=1)) <= 64 * eps * exact.var(ddof=1) and abs(z - exact.mean()) <= eps * 1e9


@pytest.mark.usefixtures("emulation")
def test_a_mean_of_large_or_infinite_elements():
    for x, wanted in (
        ([1.7e308, -1e308], 0.35e308), ([1.7e308] * 3, 1.7e308), ([INF, 1, 2], INF), ([1, -INF], -INF),
        ([INF, -INF], NAN), ([1, NAN], NAN), ([-1.5e308, 1.5e308], 0),
    ):  # fmt: skip
        _, z = mean_and_spread(np.array(x, np.float64))
        np.testing.assert_allclose(z, wanted, rtol=1e-15)
