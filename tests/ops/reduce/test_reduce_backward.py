"""Gradients of reductions: ties, zeros, infinities and NaN; the same bits however x lies; several axes and results."""

import math

import numpy as np
import pytest
from run_emulated import laid_out, run

import baracuda_py as bc
from baracuda_py.core.element import FLOATS, ElementKind, cast
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.ops.reduce.reduce_backward import ReduceBackwardDescriptor, ReduceBackwardPlan
from baracuda_py.ops.reduce.reduce_gradients import GRADIENT
from baracuda_py.ops.reduce.reduce_kinds import ReduceKind
from baracuda_py.ops.reduce.reduce_pair import ReducePairKind
from baracuda_py.ops.reduce.reduce_pair_backward import ReducePairBackwardDescriptor, ReducePairBackwardPlan

K, P = ReduceKind, ReducePairKind
F16, BF16, F32, F64 = ElementKind.F16, ElementKind.BF16, ElementKind.F32, ElementKind.F64
NAN, INF = math.nan, math.inf


def gradient(kind: K, x: np.ndarray, dy: np.ndarray, axis=None, y=None, dx=None, **options) -> np.ndarray:
    """dx by the kernels."""
    slope = GRADIENT[kind]
    desc = ReduceBackwardDescriptor(kind=kind, shape=x.shape, axis=axis, element=ElementKind.of(x.dtype), **options)
    given = {"dy": dy, "x": x if slope.x else None, "y": y if slope.y else None}
    return run(ReduceBackwardPlan, desc, **given, **({} if dx is None else {"dx": dx}))["dx"]


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(
    ("kind", "x", "dy", "wanted", "options"),
    [
        (K.AMAX, [1, 3, 3, 2], 6, [0, 3, 3, 0], {}), (K.AMAX, [1, NAN, 3, NAN], 6, [0, 3, 0, 3], {}),
        (K.AMAX, [-INF, -INF], 1, [0.5, 0.5], {}), (K.AMIN, [0.0, -0.0, 1], 4, [2, 2, 0], {}),
        (K.NANMAX, [NAN, 3, 3, -1], 1, [0, 0.5, 0.5, 0], {}), (K.NANMAX, [NAN, NAN], 1, [0, 0], {}),
        (K.NANMIN, [NAN, INF, INF], 1, [0, 0.5, 0.5], {}), (K.MAX_NORM, [-2, 2, 1, 0], 1, [-0.5, 0.5, 0, 0], {}),
        (K.MAX_NORM, [0, 0], 1, [0, 0], {}), (K.MAX_NORM, [1, NAN], 1, [0, 0], {}),
        (K.MIN_NORM, [-2, 3, 0.5], 2, [0, 0, 2], {}), (K.PTP, [1, 3, 3, -1], 2, [0, 1, 1, -2], {}),
        (K.PTP, [5, 5], 2, [0, 0], {}),
        (K.PROD, [2, 3, 4], 1, [12, 8, 6], {}), (K.PROD, [0, 3, 4], 2, [24, 0, 0], {}),
        (K.PROD, [0, 3, 0], 1, [0, 0, 0], {}), (K.PROD, [1, INF, 2], 1, [INF, 2, INF], {}),
        (K.PROD, [0, INF, 2], 1, [INF, 0, NAN], {}), (K.PROD, [-INF, INF, 2], 1, [INF, -INF, -INF], {}),
        (K.PROD, [1, NAN, 2], 1, [NAN, 2, NAN], {}), (K.PROD, [0, NAN, 2], 1, [NAN, 0, NAN], {}),
        (K.PROD, [-3], 5, [5], {}), (K.PROD, [-2, 3, -4], -1, [12, -8, 6], {}),
        (K.NANPROD, [NAN, 3, 4], 1, [0, 4, 3], {}), (K.NANPROD, [NAN, 0, 4], 1, [0, 4, 0], {}),
        (K.NANSUM, [NAN, 1], 3, [0, 3], {}), (K.NANMEAN, [NAN, 1, 2], 3, [0, 1.5, 1.5], {}),
        (K.NANMEAN, [NAN, NAN], 1, [NAN, NAN], {}), (K.L1_NORM, [-2, 0, 3, -0.0], 2, [-2, 0, 2, 0], {}),
        (K.L2_NORM, [3, 4], 5, [3, 4], {}), (K.L2_NORM, [0, 0], 5, [0, 0], {}), (K.L2_NORM, [1, INF], 1, [0, NAN], {}),
        (K.P_NORM, [0, 0], 1, [0, 0], {"p": 3.0}), (K.P_NORM, [0, 2], 1, [0, 1], {"p": 3.0}),
        (K.P_NORM, [0, -4], 1, [0, -1], {"p": 0.5}), (K.P_NORM, [0, 4], 1, [0, 0], {"p": -1.0}),
        (K.P_NORM, [4, INF], 1, [1, 0], {"p": -1.0}), (K.SUM_SQUARES, [3, -1], 2, [12, -4], {}),
        (K.VAR, [1, 3], 1, [-2, 2], {}), (K.VAR, [1, 3], 1, [-1, 1], {"correction": 0}), (K.VAR, [3], 1, [NAN], {}),
        (K.VAR, [3, 4], 1, [1, -1], {"correction": 3}), (K.STD, [3, 3, 3], 1, [0, 0, 0], {}),
        (K.STD, [1, 3], 1, [-0.5, 0.5], {"correction": 0}), (K.NANVAR, [NAN, 1, 3], 1, [0, -2, 2], {}),
        (K.LOGSUMEXP, [-INF, 0], 1, [0, 1], {}), (K.LOGSUMEXP, [-INF, -INF], 1, [NAN, NAN], {}),
        (K.LOGMEANEXP, [5, 5], 1, [0.5, 0.5], {}), (K.SUM, [1, 2], 3, [3, 3], {}), (K.MEAN, [1, 2], 3, [1.5, 1.5], {}),
    ],
)  # fmt: skip
def test_known_gradients(kind, x, dy, wanted, options):
    """PyTorch's, but that of prod, where an infinity does not hide the product of the others, and of NaN among x."""
    for element in (F32, F64):
        held, given = np.array(x, element.dtype), np.array(dy, element.dtype)
        y = getattr(bc, kind.value)(held, **options)
        np.testing.assert_array_equal(gradient(kind, laid_out(held), given, y=np.array(y), **options), wanted)
        saved = {"y": y} if GRADIENT[kind].y else {}
        given = {"dy": given, **({"x": held} if GRADIENT[kind].x else {"shape": held.shape}), **saved}
        np.testing.assert_array_equal(getattr(bc, f"{kind.value}_backward")(**given, **options), wanted)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("kind", [K.VAR, K.STD, K.NANVAR, K.NANSTD, K.PROD, K.NANPROD])
@pytest.mark.parametrize("strides", [(20, 1, 5), (1, 8, 2), (21, 4, 1), (50, 1, 10)])
def test_statistics_are_found_in_every_order_of_axes(kind, strides):
    """They are wider than one access, and lie apart where the kept axes of x lie in another order."""
    x = np.random.default_rng(0).standard_normal((2, 5, 4))
    dy = np.random.default_rng(1).standard_normal((5, 4))
    y = np.asarray(getattr(bc, kind.value)(x, axis=0)) if GRADIENT[kind].y else None
    dense, turned = (gradient(kind, laid_out(x, one), dy, y=y, axis=(0,)) for one in (None, strides))
    assert np.isfinite(dense).all()
    np.testing.assert_array_equal(turned, dense)


@pytest.mark.usefixtures("emulation")
def test_a_product_of_others_without_overflow_on_the_way():
    """600 factors of magnitudes up to 1e30 whose product is near 1, and with a zero or an infinity among them."""
    rng = np.random.default_rng(0)
    big = np.ldexp(rng.uniform(1, 2, 300), rng.integers(60, 100, 300)).astype(np.float32)
    x = rng.permutation(np.concatenate([big, (1 / big).astype(np.float32)]))
    logs = np.log2(np.abs(x.astype(np.longdouble)))
    for special in (None, 0.0, INF):
        held = x.copy()
        if special is not None:
            held[5] = special
        found = gradient(K.PROD, laid_out(held), np.array(2, np.float32)).astype(np.float64)
        if special is None:
            np.testing.assert_allclose(found, 2 * np.exp2(logs.sum() - logs).astype(np.float64), rtol=1e-6)
        else:
            others = 2 * np.exp2(np.delete(logs, 5).sum())
            assert found[5] == pytest.approx(float(others), rel=1e-6)
            rest = np.delete(found, 5)
            assert (rest == 0).all() if special == 0 else np.isinf(rest).all()


KINDS = (K.SUM, K.AMAX, K.PROD, K.LOGSUMEXP, K.STD, K.NANMEAN)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.value)
@pytest.mark.parametrize("element", [F16, F64], ids=str)
def test_dx_has_the_same_bits_however_operands_lie(kind, element):
    """x, dy and dx dense, transposed, apart and not aligned; reduced axes innermost, outermost, in the middle."""
    rng = np.random.default_rng(1)
    shape = (3, 48, 32)
    x = cast(rng.standard_normal(shape) * 0.25 + 1, element)
    x[1] = x[0]
    for axis in ((2,), (0,), (1,), (0, 2), ()):
        kept = tuple(n for a, n in enumerate(shape) if a not in axis)
        dy = cast(rng.standard_normal(kept), element)
        y = np.array(getattr(bc, kind.value)(x, axis=axis, **({"correction": 0} if kind is K.STD else {})))
        options = {"axis": axis, "y": laid_out(y), **({"correction": 0} if kind is K.STD else {})}
        wanted = gradient(kind, laid_out(x), laid_out(dy), **options).tobytes()
        turned = (1, 3, 144)
        far = (48 * 40 * 2, 80, 2)
        empty = np.zeros(shape, element.dtype)
        for strides, start in ((turned, 0), (far, 1), ((48 * 36, 36, 1), 0), ((48 * 33, 33, 1), 1)):
            dx = laid_out(empty, strides, start)
            found = gradient(kind, laid_out(x, strides), laid_out(dy, None, 1), dx=dx, **options)
            assert np.ascontiguousarray(found).tobytes() == wanted
        repeated = np.broadcast_to(laid_out(x[:1]), (2, 48, 32))  # x with a stride of 0
        if 0 not in axis:
            given = {**options, "y": laid_out(y[:2])}
            whole = gradient(kind, laid_out(x[:2]), laid_out(dy[:2]), **given)
            assert gradient(kind, repeated, laid_out(dy[:2]), **given).tobytes() == whole.tobytes()


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("axis", [(1,), (0,), (0, 2), (0, 1, 2)])
def test_the_gradient_of_an_extreme_goes_to_its_place(axis):
    x = np.random.default_rng(2).standard_normal((4, 6, 40)).astype(np.float32)
    values, indices = bc.max_with_index(x, axis=axis)
    dy = np.random.default_rng(3).standard_normal(np.shape(values)).astype(np.float32)
    desc = ReducePairBackwardDescriptor(kind="max_with_index", shape=x.shape, axis=axis, element=F32)
    for strides in (None, (1, 4, 24), (500, 80, 2)):
        dx = laid_out(np.zeros_like(x), strides)
        given = {"dy": laid_out(dy), "z": laid_out(np.array(indices)), "dx": dx}
        found = run(ReducePairBackwardPlan, desc, dz=None, x=None, y=None, **given)["dx"]
        np.testing.assert_array_equal(found, np.where(x == np.expand_dims(values, axis), np.expand_dims(dy, axis), 0))
    outside = np.full(np.shape(indices), 10**12)
    given = {"dy": laid_out(dy), "z": laid_out(outside)}
    assert not run(ReducePairBackwardPlan, desc, dz=None, x=None, y=None, **given)["dx"].any()


@pytest.mark.usefixtures("emulation")
def test_both_gradients_of_two_results():
    x = np.array([[1, 4, 4, 0], [2, 2, 2, 2]], np.float32)
    dy, dz = np.array([2, 4], np.float32), np.array([6, 8], np.float32)
    desc = ReducePairBackwardDescriptor(kind="aminmax", shape=x.shape, axis=1, element=F32)
    found = run(ReducePairBackwardPlan, desc, dy=dy, dz=dz, x=laid_out(x), y=None, z=None)["dx"]
    np.testing.assert_array_equal(found, [[0, 3, 3, 2], [3, 3, 3, 3]])
    desc = ReducePairBackwardDescriptor(kind="var_mean", shape=x.shape, axis=1, correction=0, element=F32)
    found = run(ReducePairBackwardPlan, desc, dy=dy, dz=dz, x=laid_out(x), y=None, z=None)["dx"]
    centred = x - x.mean(1, keepdims=True)
    np.testing.assert_allclose(found, dy[:, None] * centred / 2 + dz[:, None] / 4, rtol=1e-6)


def test_kinds_without_a_gradient_say_so():
    for kind in set(K) - set(GRADIENT):
        with pytest.raises(InvalidProblemError, match="fill dx with 0"):
            ReduceBackwardDescriptor(kind=kind, shape=(3,), element="float32")
    with pytest.raises(InvalidProblemError, match="order 0"):
        bc.norm_backward(np.float64(1), np.ones(3), np.float64(3), 0)
    with pytest.raises(InvalidProblemError, match="no elements"):
        ReduceBackwardDescriptor(kind="amax", shape=(0,), element="float32")


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("p", [0.5, 1.5, 0.75])
def test_a_power_of_a_quotient_below_the_range(p, sign):
    """x / y is subnormal or 0 where its power, times dy, is an ordinary number."""
    x = np.array([sign * 5e-324, 1e3, 2e3, 4e-310])
    y = np.array(np.sum(np.abs(x).astype(np.longdouble) ** p) ** (1 / np.longdouble(p)), np.float64)
    dy = np.array(3e-200 if p < 1 else 3.0)
    wanted = (dy * np.sign(x) * (np.abs(x).astype(np.longdouble) / y) ** np.longdouble(p - 1)).astype(np.float64)
    assert np.isfinite(wanted).all()
    assert wanted.all()
    for dx in (gradient(K.P_NORM, laid_out(x), dy, p=p), bc.p_norm_backward(dy, x, p=p)):
        np.testing.assert_allclose(dx, wanted, rtol=2e-15)
    z = laid_out(x + 0j)
    desc = ReduceBackwardDescriptor(kind=K.P_NORM, shape=x.shape, p=p, element=ElementKind.C128)
    np.testing.assert_allclose(run(ReduceBackwardPlan, desc, dy=dy, x=z, y=None)["dx"].real, wanted, rtol=2e-15)


@pytest.mark.usefixtures("emulation")
def test_an_infinite_gradient_of_a_norm_stays_infinite_however_small_the_power():
    x, inf = np.array([1e-308, -1e-308, 2, 0]), np.array(INF)
    for dx in (gradient(K.P_NORM, laid_out(x), inf, p=3.0), bc.p_norm_backward(inf, x, p=3.0)):
        np.testing.assert_array_equal(dx, [INF, -INF, INF, 0])


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("element", [F16, F32, F64], ids=str)
@pytest.mark.parametrize("kind", [K.VAR, K.STD, K.NANVAR, K.NANSTD], ids=lambda kind: kind.value)
def test_an_infinite_gradient_has_no_sign_where_deviations_cancel(kind, element):
    half = np.random.default_rng(0).standard_normal((60, 3)).astype(element.dtype)
    x = np.concatenate([half, np.zeros((60, 1), element.dtype), -half[:, ::-1]], -1)
    largest = element.limits.max
    x[0], x[1] = [largest, -largest, 3, 0, 0, 0, 2], [0, 0, 0, 0, 0, element.limits.tiny, 0]
    dy, y = np.full(60, INF, element.dtype), np.ones(60, element.dtype)
    dx = gradient(kind, laid_out(x), dy, axis=1, y=y)
    np.testing.assert_array_equal(np.isnan(dx[2:]), np.broadcast_to(np.arange(7) == 3, (58, 7)))
    np.testing.assert_array_equal(np.sign(dx[2:][~np.isnan(dx[2:])]), np.sign(x[2:][x[2:] != 0]))
    given = {"y": y} if GRADIENT[kind].y else {}
    np.testing.assert_array_equal(dx, getattr(bc, f"{kind.value}_backward")(dy, x, axis=1, **given))


def test_products_on_the_way_stay_in_range():
    x = np.array([1e-300, 1e-300, 1e300, 1e300, -2.0])
    np.testing.assert_allclose(bc.prod_backward(np.array(1.0), x), [-2e300, -2e300, -2e-300, -2e-300, 1], rtol=1e-14)
    x = np.full(60, 1e-30)
    np.testing.assert_array_equal(bc.prod_backward(np.array(INF), x), np.full(60, INF))
    np.testing.assert_array_equal(bc.prod_backward(np.array(0.0), 1 / x), np.zeros(60))
    np.testing.assert_allclose(bc.prod_backward(np.array(1e-300), np.full(11, 1e31)), np.full(11, 1e10), rtol=1e-13)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("kind", [K.LOGSUMEXP, K.LOGMEANEXP], ids=lambda kind: kind.value)
@pytest.mark.parametrize("element", FLOATS, ids=str)
def test_shares_of_exponentials_far_from_zero(kind, element):
    """y of such rows is rounded by more than the elements are apart; rows sum to dy."""
    far = np.array([0, 1000, -3000] if element is not F64 else [0, 1e12, -1e15])[:, None]
    x = (far + np.array([[0, 0, -0.5, -1.5, 0.75]]) * np.maximum(1, np.abs(far) / 100)).astype(element.dtype)
    if element is F16:
        x[2] = -2000
    dy = np.array([1, -2, 3], element.dtype)
    wide = x.astype(np.float64)
    share = np.exp(wide - wide.max(1, keepdims=True))
    wanted = dy.astype(np.float64)[:, None] * share / share.sum(1, keepdims=True)
    rtol = {2: 2.0**-7, 4: 1e-6, 8: 1e-14}[element.itemsize]
    for found in (
        gradient(kind, laid_out(x), dy, axis=(1,)), gradient(kind, laid_out(x.T), dy, axis=(0,)).T,
        getattr(bc, f"{kind.value}_backward")(dy, x, axis=1),
    ):  # fmt: skip
        np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=rtol, atol=1e-7)


def test_bfloat16s_logsumexp_of_equal_elements_is_shared_equally():
    torch = pytest.importorskip("torch")
    bct = pytest.importorskip("baracuda_py.torch")
    x = torch.full((2, 2), 1000.0, dtype=torch.bfloat16, requires_grad=True)
    bct.logsumexp(x, axis=1).sum().backward()
    assert x.grad.tolist() == [[0.5, 0.5], [0.5, 0.5]]


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("order", [3.0, 40.0, -25.0])
@pytest.mark.parametrize("element", [F16, BF16, F32], ids=str)
def test_a_high_power_of_a_norm_is_not_of_its_rounding(order, element):
    x = np.array([[1.003, -1, 0.99, 1.011], [7, 6.9, -7.1, 6.8]]).astype(element.dtype)
    dy = np.array([1, -2], element.dtype)
    wide = np.abs(x.astype(np.longdouble))
    y = (wide**order).sum(1, keepdims=True) ** (1 / np.longdouble(order))
    wanted = (dy.astype(float)[:, None] * np.sign(x.astype(float)) * (wide / y) ** (order - 1)).astype(float)
    rtol = {F16: 2.0**-10, BF16: 2.0**-7, F32: 1e-6}[element]
    for found in (
        gradient(K.P_NORM, laid_out(x), dy, axis=(1,), p=order), bc.norm_backward(dy, x, None, order, axis=1),
        gradient(K.P_NORM, laid_out(np.ascontiguousarray(x.T)), dy, axis=(0,), p=order).T,
    ):  # fmt: skip
        np.testing.assert_allclose(found.astype(float), wanted, rtol=rtol)
