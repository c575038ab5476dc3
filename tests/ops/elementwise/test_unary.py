"""unary and its backward: special values by PyTorch's rules, known values, slopes against differences, layouts."""

import functools
import math

import numpy as np
import pytest

from everywhere import coefficients, own

import baracuda_py as bc
from baracuda_py.core.element import ElementKind
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError
from baracuda_py.ops.elementwise import unary, unary_backward
from baracuda_py.ops.elementwise.special import erf, erfc
from baracuda_py.ops.elementwise.unary_kinds import DIFFERENTIABLE, UnaryKind

NAN, INF = math.nan, math.inf


def same(got, wanted):
    np.testing.assert_array_equal(np.asarray(got, np.float64), np.asarray(wanted, np.float64))


@pytest.mark.parametrize(
    ("name", "x", "y"),
    [
        ("sign", [NAN, -0.0, -2, 3], [0, 0, -1, 1]),
        ("relu", [NAN, -1, 2, -INF, INF], [NAN, 0, 2, 0, INF]),
        ("relu6", [NAN, -1, 7, 3], [NAN, 0, 6, 3]),
        ("round", [0.5, 1.5, 2.5, -0.5], [0, 2, 2, 0]),
        ("trunc", [-1.5, 1.5], [-1, 1]),
        ("silu", [-INF, INF], [NAN, INF]),
        ("gelu", [-INF, INF], [NAN, INF]),
        ("gelu_tanh", [-INF, INF], [NAN, INF]),
        ("mish", [-INF, INF], [NAN, INF]),
        ("hardswish", [-4, 4, 0], [0, 4, 0]),
        ("hardsigmoid", [-3, 3, 0], [0, 1, 0.5]),
        ("logit", [0, 1, 0.5, 2], [-INF, INF, 0, NAN]),
        ("sigmoid", [-INF, INF, 0], [0, 1, 0.5]),
        ("softplus", [-INF, INF], [0, INF]),
        ("hardshrink", [-0.5, 0.5, 0.6, NAN], [0, 0, np.float32(0.6), NAN]),
        ("softshrink", [0.5, 1.5, -1.5, NAN], [0, 1, -1, NAN]),
        ("leaky_relu", [-1, 2], [np.float32(-0.01), 2]),
        ("log1p", [-1, 0, -2], [-INF, 0, NAN]),
    ],
)
def test_special_values(name, x, y):
    same(getattr(unary, name)(np.array(x, np.float32)), y)


def test_values_are_those_of_the_math_module():
    x = np.linspace(-3, 3, 61)
    for name, function in {
        "exp": math.exp, "expm1": math.expm1, "tanh": math.tanh, "erf": math.erf, "erfc": math.erfc, "sin": math.sin,
        "gelu": lambda v: v / 2 * (1 + math.erf(v / math.sqrt(2))),
        "silu": lambda v: v / (1 + math.exp(-v)),
        "mish": lambda v: v * math.tanh(math.log1p(math.exp(v))),
        "gelu_tanh": lambda v: v / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3))),
        "selu": lambda v: 1.0507009873554805 * (v if v > 0 else 1.6732632423543772 * math.expm1(v)),
        "softplus": lambda v: math.log1p(math.exp(v)),
    }.items():  # fmt: skip
        wanted = [function(v) for v in x]
        np.testing.assert_allclose(getattr(unary, name)(x), wanted, rtol=2e-14, atol=1e-15, err_msg=name)


def test_erf_in_every_dtype():
    x = np.linspace(-6, 6, 241)
    for dtype, loose in ((np.float32, 4e-7), (np.float64, 5e-16), (np.longdouble, 5e-16)):
        assert erf(x.astype(dtype)).dtype == erfc(x.astype(dtype)).dtype == dtype
        there = x.astype(dtype).astype(np.float64)
        np.testing.assert_allclose(erf(x.astype(dtype)).astype(float), [math.erf(v) for v in there], rtol=loose)
        np.testing.assert_allclose(erfc(x.astype(dtype)).astype(float), [math.erfc(v) for v in there], rtol=3 * loose)
    same(erf(np.array([NAN, INF, -INF])), [NAN, 1, -1])


@pytest.mark.parametrize("kind", DIFFERENTIABLE, ids=lambda kind: kind.value)
def test_slopes_are_differences_of_the_forward(kind):
    x = np.array([-2.7, -1.3, -0.7, -0.2, 0.13, 0.4, 0.8, 1.7, 3.3, 6.4], np.longdouble)
    given = [np.longdouble(c) for c in coefficients(kind, ElementKind.F64)]
    h = np.longdouble(1e-6)
    with np.errstate(all="ignore"):
        low, high = kind.row.formula(x - h, *given), kind.row.formula(x + h, *given)
        slope = np.broadcast_to(kind.row.gradient(np.ones_like(x), x, *given), x.shape)
    inside = np.isfinite(low) & np.isfinite(high)
    assert inside.sum() >= 2
    wanted = ((high - low) / (2 * h))[inside].astype(float)
    np.testing.assert_allclose(slope[inside].astype(float), wanted, rtol=1e-8, atol=1e-9)


def test_backward_passes_nothing_through_a_closed_gate():
    dy, x = np.array([NAN, INF, 3, 5], np.float32), np.array([-1, -1, 2, NAN], np.float32)
    same(unary_backward.relu_backward(dy, x), [0, 0, 3, 5])
    same(unary_backward.hardsigmoid_backward(dy, np.full(4, 4, np.float32)), [0, 0, 0, 0])


def test_a_coefficient_belongs_to_its_kind():
    same(unary.elu(np.array([-1.0]), alpha=2), [2 * math.expm1(-1)])
    with pytest.raises(InvalidProblemError, match="exp has no coefficient; alpha must be None"):
        unary.UnaryDescriptor(kind="exp", shape=(1,), alpha=1, element="float32")
    with pytest.raises(InvalidProblemError, match="derivative of floor"):
        unary_backward.UnaryBackwardDescriptor(kind="floor", shape=(1,), element="float32")


def test_integers():
    x = np.array([-128, -3, 0, 127], np.int8)
    same(unary.neg(x), [-128, 3, 0, -127])
    same(unary.abs(x), [-128, 3, 0, 127])
    same(unary.square(x), [0, 9, 0, 1])
    with pytest.raises(UnsupportedError, match="exp of int32"):
        unary.exp(np.arange(3, dtype=np.int32))


def test_strided_and_in_place():
    x = np.linspace(-2, 2, 48).reshape(4, 12).astype(np.float32)
    same(unary.silu(x.T), unary.silu(np.ascontiguousarray(x.T)))
    same(unary.silu(x[::-1, ::3]), unary.silu(x)[::-1, ::3])
    wanted = unary.silu(x)
    same(unary.silu(x, out=x), wanted)


def test_every_kind_has_a_function_under_each_of_its_names():
    for kind in UnaryKind:
        for name in kind.names:
            assert getattr(bc, name) is getattr(unary, name) is getattr(unary, kind.value)
        assert getattr(unary, kind.value).fixed["kind"] is kind
    for kind in DIFFERENTIABLE:
        assert getattr(unary_backward, f"{kind.value}_backward").fixed["kind"] is kind


@pytest.mark.gpu
def test_all_half_inputs_in_every_layout():
    import cupy

    bits = np.arange(65536, dtype=np.uint16)
    x = cupy.asarray(bits.view(np.float16))
    padded = cupy.empty((256, 257), np.float16)
    padded[:, :256] = x.reshape(256, 256)
    for kind in UnaryKind:
        if ElementKind.F16 not in kind.row.elements:
            continue
        function = functools.partial(getattr(unary, kind.value), **own(kind))
        dense = function(x)
        for view in (x[1:], x.reshape(256, 256).T, padded[:, :256], x[::2]):
            got = function(view)
            base = {65535: dense[1:], 32768: dense[::2]}.get(view.size)
            if base is None:
                base = dense.reshape(256, 256).T if view.strides[0] == 2 else dense.reshape(256, 256)
            word = np.dtype(f"u{got.itemsize}")
            assert bool((got.view(word) == base.view(word)).all()), kind
