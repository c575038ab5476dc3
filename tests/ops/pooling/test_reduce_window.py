"""Windows combined by sum, product and extremes: known values, JAX's paddings, gradients, refusals."""

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.ops.pooling.reduce_window import ReduceWindowPlan
from baracuda_py.ops.pooling.reduce_window_backward import ReduceWindowBackwardPlan
from baracuda_py.testing.places import call

INF = np.inf


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("sum", [1, 3, 5, 7, 9, 5]), ("prod", [1, 2, 6, 12, 20, 5]), ("max", [1, 2, 3, 4, 5, 5]),
        ("min", [1, 1, 2, 3, 4, 5]),
    ],
)  # fmt: skip
def test_known_values(kind, wanted, place):
    x = np.array([1, 2, 3, 4, 5])
    for element in ("float32", "int8", "uint8", "int64"):
        desc = ReduceWindowPlan.descriptor(
            kind=kind, shape=(5,), spatial_rank=1, kernel_size=2, padding=((1, 1),), element=element
        )
        np.testing.assert_array_equal(call(ReduceWindowPlan, desc, ("y",), place, x=x)["y"], wanted)


def test_integers_wrap(place):
    x = np.array([100, 100, -128, 127, -1], np.int8)
    desc = ReduceWindowPlan.descriptor(kind="sum", shape=(5,), spatial_rank=1, kernel_size=2, element="int8")
    np.testing.assert_array_equal(call(ReduceWindowPlan, desc, ("y",), place, x=x)["y"], [-56, -28, -1, 126])
    desc = ReduceWindowPlan.descriptor(kind="prod", shape=(2,), spatial_rank=1, kernel_size=2, element="int64")
    x = np.array([2**62, 6])
    assert call(ReduceWindowPlan, desc, ("y",), place, x=x)["y"] == np.int64(-(2**63))


def test_windows_of_padding_alone_change_nothing(place):
    x = np.array([7.0])
    for kind, wanted in {"sum": [0, 7, 0], "prod": [1, 7, 1], "max": [-INF, 7, -INF], "min": [INF, 7, INF]}.items():
        desc = ReduceWindowPlan.descriptor(
            kind=kind, shape=(1,), spatial_rank=1, kernel_size=1, padding=((1, 1),), element="float64"
        )
        np.testing.assert_array_equal(call(ReduceWindowPlan, desc, ("y",), place, x=x)["y"], wanted)


def test_nan_and_the_first_of_equal_elements(place):
    x = np.array([3.0, 3.0, np.nan, 1.0])
    desc = ReduceWindowPlan.descriptor(kind="max", shape=(4,), spatial_rank=1, kernel_size=2, element="float64")
    found = call(ReduceWindowPlan, desc, ("y", "indices"), place, x=x, indices=np.empty(3, np.int64))
    np.testing.assert_array_equal(found["y"], [3, np.nan, np.nan])
    np.testing.assert_array_equal(found["indices"], [0, 2, 2])


def test_gradients_are_differences(place):
    rng = np.random.default_rng(3)
    x, facts = rng.standard_normal((2, 7, 6)), {"spatial_rank": 2, "kernel_size": (3, 2), "stride": (2, 1)}
    facts |= {"padding": ((2, 0), (1, 2)), "dilation": (1, 2), "shape": x.shape, "element": "float64"}
    for kind in ("sum", "max", "min"):
        forward = ReduceWindowPlan.descriptor(kind=kind, **facts)
        wanted = {"y"} | ({"indices"} if kind != "sum" else set())
        first = call(ReduceWindowPlan, forward, wanted, "numpy", x=x, indices=np.empty(forward.out_shape, np.int64))
        dy = rng.standard_normal(first["y"].shape)
        backward = ReduceWindowBackwardPlan.descriptor(kind=kind, **facts)
        dx = call(ReduceWindowBackwardPlan, backward, ("dx",), place, dy=dy, indices=first.get("indices"))["dx"]
        step = 1e-6 * rng.standard_normal(x.shape)
        ahead, behind = (call(ReduceWindowPlan, forward, ("y",), "numpy", x=x + s * step)["y"] for s in (1, -1))
        finite = np.isfinite(first["y"])
        change = ((ahead - behind)[finite] * dy[finite]).sum() / 2
        np.testing.assert_allclose((dx * step).sum(), change, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("padding", ["VALID", "SAME", "SAME_LOWER", ((0, 1), (2, 0), (1, 1), (0, 0))])
def test_against_jax(padding):
    jax = pytest.importorskip("jax")
    x = np.random.default_rng(4).standard_normal((4, 5, 6, 3)).astype(np.float32)
    window, strides, dilation = (3, 2, 2, 1), (2, 1, 3, 1), (1, 2, 1, 1)
    lax = jax.lax
    for kind, join, start in (("sum", lax.add, 0), ("prod", lax.mul, 1), ("max", lax.max, -INF), ("min", lax.min, INF)):
        wanted = lax.reduce_window(x, np.float32(start), join, window, strides, padding, None, dilation)
        got = bc.reduce_window(
            x, kind, window_dimensions=window, window_strides=strides, padding=padding, window_dilation=dilation
        )
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def test_refusals():
    x = np.ones((2, 3, 4, 5), np.float32)
    for match, given in {
        "three axes at most": {"window_dimensions": (2, 2, 2, 2)},
        "one for each axis": {"window_dimensions": (2, 2)},
        "padding must be": {"window_dimensions": (1, 1, 2, 2), "padding": "FULL"},
        "padding must have 4 pairs": {"window_dimensions": (1, 1, 2, 2), "padding": ((0, 0),)},
    }.items():
        with pytest.raises(bc.InvalidProblemError, match=match):
            bc.reduce_window(x, "sum", **given)
    with pytest.raises(bc.InvalidProblemError, match="kind must be one of"):
        bc.reduce_window(x, "mean", window_dimensions=(1, 1, 2, 2))
    with pytest.raises(bc.InvalidProblemError, match="no gradient"):
        ReduceWindowBackwardPlan.descriptor(kind="prod", shape=(4,), spatial_rank=1, kernel_size=2, element="float32")
    assert bc.reduce_window(x, window_dimensions=(1, 1, 9, 1)).shape == (2, 3, 0, 5)


def test_torch_differentiates():
    torch = pytest.importorskip("torch")
    x = torch.randn(2, 5, 3, dtype=torch.float64, requires_grad=True)
    for kind in ("sum", "max", "min"):
        assert torch.autograd.gradcheck(
            lambda x, kind=kind: bc.reduce_window(x, kind, window_dimensions=(1, 2, 2), padding="SAME"), (x,)
        )
