"""pool: NumPy's windows in float64, torch, layouts × tiles × strides pairwise on the emulator, errors."""

from __future__ import annotations

import numpy as np
import pytest
import sliding_truth as truth

import baracuda_py as bc
from baracuda_py.core.element import ElementKind
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError
from baracuda_py.ops.pooling.pool import PoolDescriptor, PoolKind, PoolPlan
from baracuda_py.ops.pooling.pool_backward import PoolBackwardDescriptor, PoolBackwardPlan
from baracuda_py.testing import emulator
from baracuda_py.testing.draw import fill
from baracuda_py.testing.emulated import emulate
from baracuda_py.testing.layouts import Placement, lay_out
from baracuda_py.testing.operands import operands
from baracuda_py.testing.places import call

RNG = np.random.default_rng(3)
SHAPES = [  # spatial shape, kernel_size, stride, padding, dilation, ceil_mode
    ((13,), (3,), (2,), (1,), (1,), False),
    ((13,), (4,), (3,), (2,), (2,), True),
    ((11, 17), (3, 2), (2, 1), (1, 0), (1, 3), False),
    ((9, 16), (2, 5), (3, 2), (0, 2), (2, 1), True),
    ((5, 6, 7), (2, 3, 3), (1, 2, 3), (1, 1, 0), (1, 1, 2), True),
    ((1, 1), (3, 3), (1, 1), (1, 1), (1, 1), False),
]


def pooled(kind, x, shape, **more):
    kernel, stride, padding, dilation, ceil = shape[1:]
    desc = PoolDescriptor(
        kind=kind, shape=x.shape, spatial_rank=len(kernel), kernel_size=kernel, stride=stride, padding=padding,
        dilation=dilation, ceil_mode=ceil, element=x.dtype, **more,
    )  # fmt: skip
    y = np.empty(desc.out_shape, x.dtype)
    PoolPlan.select(desc, device="cpu")(x=x, y=y)
    return y, desc.windows.out_extent[3 - len(kernel) :]


@pytest.mark.parametrize("shape", SHAPES)
def test_numpy_windows(shape):
    x = RNG.standard_normal((2, 3, *shape[0]))
    for array in (x, (9 * x).astype(np.int16)):
        y, out = pooled("max", array, shape)
        np.testing.assert_array_equal(y, truth.max_pool(array, *shape[1:5], out))
    for include_pad in (True, False):
        y, out = pooled("avg", x, shape, count_include_pad=include_pad)
        np.testing.assert_allclose(y, truth.avg_pool(x, *shape[1:5], out, include_pad), rtol=1e-12, atol=1e-14)
    y, out = pooled("avg", x, shape, divisor_override=-5)
    np.testing.assert_allclose(y, truth.avg_pool(x, *shape[1:5], out, True, -5), rtol=1e-12, atol=1e-14)
    for p in (1.0, 2.0, 3.5):
        y, out = pooled("lp", x, shape, norm_type=p)
        np.testing.assert_allclose(y, truth.lp_pool(x, *shape[1:5], out, p), rtol=1e-12)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("ceil_mode", [False, True])
def test_as_torch(rank, ceil_mode):
    torch = pytest.importorskip("torch")
    from torch.nn import functional as F

    x = RNG.standard_normal((2, 3, *(11, 8, 9)[:rank]))
    x[0, 0, ..., 1] = x[0, 0, ..., 2]  # ties
    t = torch.tensor(x, requires_grad=True)
    for kernel, stride, padding, dilation in ((2, None, 0, 1), (3, 2, 1, 1), (3, 1, 1, 2), (2, 3, 1, 2), (1, 2, 0, 1)):
        torch_max = getattr(F, f"max_pool{rank}d")
        wanted, place = torch_max(t, kernel, stride, padding, dilation, ceil_mode, return_indices=True)
        y, indices = getattr(bc, f"max_pool{rank}d")(
            x, kernel_size=kernel, stride=stride, padding=padding, dilation=dilation, ceil_mode=ceil_mode,
            return_indices=True,
        )  # fmt: skip
        np.testing.assert_array_equal(y, wanted.detach())
        np.testing.assert_array_equal(indices, place)
        dy = RNG.standard_normal(y.shape)
        (grad,) = torch.autograd.grad(wanted, t, torch.tensor(dy))
        facts = {"shape": x.shape, "spatial_rank": rank, "kernel_size": kernel, "stride": stride, "padding": padding}
        facts |= {"dilation": dilation, "ceil_mode": ceil_mode}
        got = bc.pool_backward(dy, indices=indices, kind="max", **facts)
        np.testing.assert_allclose(got, grad, atol=1e-13)
        if dilation > 1 or padding > kernel // 2:
            continue
        for include_pad, divisor in ((True, None), (False, None), (True, 7)):
            more = {} if rank == 1 else {"divisor_override": divisor}
            mean = getattr(F, f"avg_pool{rank}d")(t, kernel, stride, padding, ceil_mode, include_pad, **more)
            more["count_include_pad"] = include_pad
            y = getattr(bc, f"avg_pool{rank}d")(
                x, kernel_size=kernel, stride=stride, padding=padding, ceil_mode=ceil_mode, **more
            )
            np.testing.assert_allclose(y, mean.detach(), rtol=1e-12, atol=1e-14)
            dy = RNG.standard_normal(y.shape)
            (grad,) = torch.autograd.grad(mean, t, torch.tensor(dy))
            got = bc.pool_backward(dy, kind="avg", **facts, **more)
            np.testing.assert_allclose(got, grad, atol=1e-13)


@pytest.mark.parametrize("shape", [(2, 8, 9, 7), (3, 1, 8, 8), (2, 8, 2, 2), (1, 5, 9, 1), (1, 1, 4, 4)], ids=str)
def test_outputs_lie_in_memory_as_torchs_do(shape):
    torch = pytest.importorskip("torch")
    for form in (torch.contiguous_format, torch.channels_last):
        x = torch.randn(shape).contiguous(memory_format=form)
        wanted, places = torch.nn.functional.max_pool2d(x, (2, 1), return_indices=True)
        got, indices = bc.max_pool2d(x, kernel_size=(2, 1), return_indices=True)
        assert (got.stride(), indices.stride()) == (wanted.stride(), places.stride())
        assert torch.equal(got, wanted) and torch.equal(indices, places)
        y = bc.max_pool2d(x.numpy(), kernel_size=(2, 1))
        assert y.strides == tuple(4 * n for n in wanted.stride())


def test_outputs_follow_channels_last_volumes_and_gradients():
    x = np.moveaxis(RNG.standard_normal((2, 4, 6, 8, 5)), -1, 1)
    y = bc.avg_pool3d(x, kernel_size=2)
    assert y.shape == (2, 5, 2, 3, 4) and np.moveaxis(y, 1, -1).flags.c_contiguous
    np.testing.assert_array_equal(y, bc.avg_pool3d(np.ascontiguousarray(x), kernel_size=2))
    dx = bc.pool_backward(y, kind="avg", shape=x.shape, spatial_rank=3, kernel_size=2)
    assert np.moveaxis(dx, 1, -1).flags.c_contiguous
    rows = bc.avg_pool1d(np.moveaxis(x[0, 0], -1, 0), kernel_size=2)
    assert rows.flags.c_contiguous


@pytest.mark.parametrize("rank", [1, 2])
def test_lp_as_torch(rank):
    torch = pytest.importorskip("torch")
    x = np.abs(RNG.standard_normal((2, 3, *(12, 9)[:rank])))
    t = torch.tensor(x, requires_grad=True)
    for p, kernel, stride in ((2.0, 3, 2), (3.0, 2, None), (1.0, 3, 3), (2.5, 3, 1)):
        wanted = getattr(torch.nn.functional, f"lp_pool{rank}d")(t, p, kernel, stride)
        y = getattr(bc, f"lp_pool{rank}d")(x, kernel_size=kernel, stride=stride, norm_type=p)
        np.testing.assert_allclose(y, wanted.detach(), rtol=1e-12)
        dy = RNG.standard_normal(y.shape)
        (grad,) = torch.autograd.grad(wanted, t, torch.tensor(dy))
        got = bc.pool_backward(
            dy, x=x, y=y, kind="lp", spatial_rank=rank, kernel_size=kernel, stride=stride, norm_type=p
        )
        np.testing.assert_allclose(got, grad, atol=1e-12)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_adaptive_as_torch(rank):
    torch = pytest.importorskip("torch")
    from torch.nn import functional as F

    x = RNG.standard_normal((2, 3, *(11, 7, 5)[:rank]))
    t = torch.tensor(x, requires_grad=True)
    for size in (1, 3, 5, 13):  # more parts than elements, too
        mean = getattr(F, f"adaptive_avg_pool{rank}d")(t, size)
        y = getattr(bc, f"adaptive_avg_pool{rank}d")(x, output_size=size)
        np.testing.assert_allclose(y, mean.detach(), rtol=1e-12, atol=1e-14)
        dy = RNG.standard_normal(y.shape)
        (grad,) = torch.autograd.grad(mean, t, torch.tensor(dy))
        got = bc.pool_backward(dy, kind="avg", shape=x.shape, spatial_rank=rank, output_size=size)
        np.testing.assert_allclose(got, grad, atol=1e-13)
        wanted, place = getattr(F, f"adaptive_max_pool{rank}d")(t, size, return_indices=True)
        y, indices = getattr(bc, f"adaptive_max_pool{rank}d")(x, output_size=size, return_indices=True)
        np.testing.assert_array_equal(y, wanted.detach())
        np.testing.assert_array_equal(indices, place)


def test_nan_and_infinities_as_torch():
    torch = pytest.importorskip("torch")
    x = np.full((1, 4, 4), -np.inf, np.float32)
    x[0, 1, 1] = x[0, 0, 1] = np.nan
    x[0, 2:, 2:] = np.inf
    y, indices = bc.max_pool2d(x, kernel_size=2, return_indices=True)
    wanted, place = torch.nn.functional.max_pool2d(torch.tensor(x), 2, return_indices=True)
    np.testing.assert_array_equal(y, wanted)
    np.testing.assert_array_equal(indices, place)  # of two NaN the second; of equals the first, -inf included


def test_a_window_without_an_element():
    """Dilation steps over the one element there is: the window's positions are -2 and 2."""
    y, indices = bc.max_pool1d(np.ones((1, 1), np.float32), kernel_size=2, dilation=4, padding=2, return_indices=True)
    np.testing.assert_array_equal(y, [[-np.inf]])
    np.testing.assert_array_equal(indices, [[-1]])
    dx = bc.pool_backward(
        y, indices=indices, kind="max", shape=(1, 1), spatial_rank=1, kernel_size=2, dilation=4, padding=2
    )
    np.testing.assert_array_equal(dx, [[0]])
    integers = bc.max_pool1d(np.ones((1, 1), np.int8), kernel_size=2, dilation=4, padding=2)
    np.testing.assert_array_equal(integers, [[-128]])


def test_norms_of_large_and_small_elements():
    """A p-norm whose powers would overflow, or vanish, in float32."""
    for size in (1e30, 1e-30):
        x = (size * np.arange(1, 5, dtype=np.float64)).astype(np.float32)
        y = bc.lp_pool1d(x, kernel_size=4, norm_type=3.0)
        np.testing.assert_allclose(y, [size * 100 ** (1 / 3)], rtol=1e-6)


def test_batches_of_no_element():
    assert bc.max_pool2d(np.ones((0, 3, 4, 4)), kernel_size=2).shape == (0, 3, 2, 2)
    assert bc.pool_backward(np.ones((2, 0, 2)), kind="avg", shape=(2, 0, 4), spatial_rank=1, kernel_size=2).shape == (
        2,
        0,
        4,
    )


@pytest.mark.parametrize(
    ("facts", "match"),
    [
        ({"kernel_size": 3, "padding": 2}, "padding must be at most half a window, got padding 2"),
        ({"kernel_size": 9}, "shape must hold a window"),
        ({"kernel_size": (2, 2, 2)}, "kernel_size must be an integer or one for each of the 2 axes"),
        ({"kernel_size": 0}, r"kernel_size must be an integer in \[1,"),
        ({"kernel_size": 2, "stride": (1, 0)}, "stride"),
        ({"kernel_size": 2, "output_size": 2}, "kernel_size or output_size"),
        ({}, "kernel_size or output_size"),
        ({"output_size": 2, "stride": 2}, "output_size fixes"),
        ({"kernel_size": 2, "norm_type": 2.0}, "norm_type is for lp"),
        ({"kernel_size": 2, "divisor_override": 2}, "for avg"),
        ({"kernel_size": 2, "spatial_rank": 4}, "spatial_rank"),
        ({"kernel_size": 2, "shape": (4,)}, "spatial axes"),
        ({"kernel_size": 2, "shape": (3, 0, 4)}, "shape must hold a window"),
    ],
)
def test_refused(facts, match):
    with pytest.raises(InvalidProblemError, match=match):
        PoolDescriptor(**{"kind": "max", "shape": (3, 8, 8), "spatial_rank": 2, "element": "float32"} | facts)


def test_refused_operands():
    x = np.ones((3, 8), np.float32)
    with pytest.raises(UnsupportedError, match="int32 is not for avg"):
        bc.avg_pool1d(x.astype(np.int32), kernel_size=2)
    desc = PoolDescriptor(kind="avg", shape=(3, 8), spatial_rank=1, kernel_size=2, element="float32")
    y, indices = np.empty((3, 4), np.float32), np.empty((3, 4), np.int64)
    with pytest.raises(InvalidProblemError, match="indices is not for avg"):
        PoolPlan.select(desc, device="cpu")(x=x, y=y, indices=indices)
    with pytest.raises(TypeError, match="return_indices"):
        bc.avg_pool1d(x, kernel_size=2, return_indices=True)
    with pytest.raises(InvalidProblemError, match="indices is required"):
        bc.pool_backward(y, kind="max", shape=(3, 8), spatial_rank=1, kernel_size=2)


# ---- kernels: layout of x × layout of y × whole or partial tiles × alignment × element × windows ---------------------

LAYOUTS = {
    "dense": Placement(),
    "channels_last": Placement(order=(0, 2, 3, 1)),
    "padded": Placement(pads=(0, 0, 0, 3)),
    "reversed": Placement(flips=(False, False, True, True)),
    "step": Placement(steps=(1, 1, 1, 2)),
    "offset": Placement(offset=1),
    "swapped": Placement(order=(1, 0, 3, 2)),
}
PAIRS = [
    ("dense", "dense"), ("channels_last", "channels_last"), ("channels_last", "dense"), ("dense", "channels_last"),
    ("padded", "step"), ("reversed", "offset"), ("step", "dense"), ("offset", "padded"), ("swapped", "swapped"),
]  # fmt: skip


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("layouts", PAIRS, ids="-".join)
def test_layouts_emulated(layouts):
    windows = [
        ((8, 32), {"kernel_size": 3, "stride": 2, "padding": 1}),
        ((5, 150), {"kernel_size": (2, 3), "stride": 1, "ceil_mode": True}),  # two tiles a row, the last one partial
        ((7, 16), {"output_size": (3, 5)}),
        ((9, 9), {"kernel_size": 3, "dilation": 2, "padding": 1, "stride": (2, 4)}),
    ]
    for n, (spatial, facts) in enumerate(windows):
        kind = (PoolKind.MAX, PoolKind.AVG, PoolKind.LP, PoolKind.MAX)[(n + PAIRS.index(layouts)) % 4]
        kinds = (ElementKind.BF16, ElementKind.F32, ElementKind.F64, ElementKind.F16)
        desc = PoolDescriptor(
            kind=kind, shape=(2, 8, *spatial), spatial_rank=2, element=kinds[(n + PAIRS.index(layouts) // 2) % 4],
            norm_type=3.0 if kind is PoolKind.LP else None, **facts,
        )  # fmt: skip
        ready = operands(fill(PoolPlan, desc, np.random.default_rng(n), kind=kind))
        for name, layout in zip(("x", "y", "indices"), (*layouts, layouts[1]), strict=True):
            if (laid := ready.laid[name]) is not None:
                ready.laid[name] = lay_out(laid.view, LAYOUTS[layout], 0xFF if name != "x" else None)
        emulate(PoolPlan.select(desc, device=emulator.emulated_device(9.0)), ready)


@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize("channels_last", [False, True])
def test_windows_beyond_32_bits(kind, channels_last, place):
    """Padding makes a window of 2^30 places of three elements."""
    x = RNG.standard_normal((3, 8)).astype(np.float32)
    facts = {"shape": (8, 3) if channels_last else (3, 8), "spatial_rank": 1, "kernel_size": 2**30, "stride": 2}
    facts |= {"padding": 2**29, "element": "float32", "kind": kind}
    if kind == "avg":
        facts["count_include_pad"] = False
    x = np.ascontiguousarray(x.T) if channels_last else x
    extent = x.shape[1]
    desc = PoolDescriptor(**facts)
    assert desc.out_shape == (len(x), extent // 2 + 1)
    got = call(PoolPlan, desc, ["y"], place, x=x)["y"]
    one = x.max(1) if kind == "max" else x.mean(1)
    np.testing.assert_allclose(got, np.broadcast_to(one[:, None], got.shape), rtol=1e-6)
    dy = np.ones(desc.out_shape, np.float32)
    indices = np.broadcast_to(x.argmax(1)[:, None], dy.shape) if kind == "max" else None
    back = PoolBackwardDescriptor(**facts)
    dx = call(PoolBackwardPlan, back, ["dx"], place, dy=dy, indices=indices)["dx"]
    count = desc.out_shape[1]
    slopes = (np.arange(extent) == x.argmax(1)[:, None]) * count if kind == "max" else count / extent
    np.testing.assert_allclose(dx, np.broadcast_to(slopes, x.shape), rtol=1e-6)


def launched(x, y, **facts):
    from baracuda_py.testing.recording import pointer_view

    desc = PoolDescriptor(kind="max", shape=x.shape, spatial_rank=2, element=x.dtype, **facts)
    plan = PoolPlan.select(desc, device=emulator.emulated_device(9.0))
    _, geometry, _ = plan.plan_layout(PoolPlan.args(x=pointer_view(x), y=pointer_view(y)))
    step = geometry.steps[0]
    return step.kernel, step.axes["VEC"]


def test_which_kernel_runs():
    x, y = np.zeros((2, 16, 8, 8), np.float16), np.zeros((2, 16, 4, 4), np.float16)
    last = [np.ascontiguousarray(a.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2) for a in (x, y)]
    assert launched(x, y, kernel_size=2) == ("tile", 8)
    assert launched(*last, kernel_size=2) == ("points", 8)
    assert launched(last[0], y, kernel_size=2) == ("points", 8)
    assert launched(x[..., ::2], y[..., :2, :2], kernel_size=(4, 2)) == ("points", 1)
    assert launched(x[..., 1:], y[..., :3], kernel_size=2) == ("tile", 1)


def test_checked_run_names_the_indices(monkeypatch):
    monkeypatch.setenv("BARACUDA_CHECK", "1")
    facts = {"kind": "max", "spatial_rank": 1, "kernel_size": 2}
    dy, indices = np.ones((1, 3), np.float32), np.array([[1, 2, 5]])
    dx = bc.pool_backward(dy, indices=indices, shape=(1, 6), **facts)
    np.testing.assert_array_equal(dx, [[0, 1, 1, 0, 0, 1]])
    for wrong in ([1, 4, 5], [-1, 2, 5], [1, 2, 6]):
        with pytest.raises(InvalidProblemError, match="must name a place of its window"):
            bc.pool_backward(dy, indices=np.array([wrong]), shape=(1, 6), **facts)


def test_gradient_of_a_norm_at_zero(place):
    """0 times the gradient that comes in, which is NaN of one that is not finite."""
    desc = bc.PoolBackwardPlan.descriptor(
        kind="lp", shape=(1, 1, 6), spatial_rank=1, kernel_size=2, norm_type=3.0, element="float32"
    )
    x, y = np.array([[[0.0, 1.0, 0.0, 1.0, 0.0, 1.0]]]), np.ones((1, 1, 3))
    dx = call(bc.PoolBackwardPlan, desc, ("dx",), place, dy=np.array([[[2.0, np.nan, -np.inf]]]), x=x, y=y)["dx"]
    assert dx[0, 0, 0] == 0 and np.isnan(dx[0, 0, [2, 4]]).all() and dx[0, 0, 1] == 2
