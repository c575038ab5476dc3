"""Convolutions by their names in torch and JAX, beside theirs; gradients, layouts, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py import InvalidProblemError

torch = pytest.importorskip("torch")
bt = pytest.importorskip("baracuda_py.torch")

F = torch.nn.functional


def drawn(*shape: int, seed: int = 0, dtype: type = np.float64) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


EXTENTS = (7, 6, 5)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"stride": 2, "padding": 1},
        {"padding": "same", "dilation": 2},
        {"padding": "valid"},
        {"stride": 3, "padding": 2, "dilation": 2, "groups": 2},
    ],
)
@pytest.mark.parametrize("batched", [True, False])
def test_forward_and_gradients_are_torchs(rank: int, given: dict, batched: bool) -> None:
    groups = given.get("groups", 1)
    x = drawn(*((2,) if batched else ()), 4, *EXTENTS[:rank])
    w, b = drawn(6, 4 // groups, *(2, 3, 2)[:rank], seed=1), drawn(6, seed=2)
    ours, theirs = ([torch.tensor(a, requires_grad=True) for a in (x, w, b)] for _ in range(2))
    got = getattr(bt, f"conv{rank}d")(*ours, **given)
    wanted = getattr(F, f"conv{rank}d")(*theirs, **given)
    torch.testing.assert_close(got, wanted)
    np.testing.assert_allclose(getattr(bc, f"conv{rank}d")(x, w, b, **given), wanted.detach().numpy(), atol=1e-12)
    slope = torch.randn_like(wanted)
    got.backward(slope), wanted.backward(slope)
    for a, c in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a.grad, c.grad)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"stride": 2, "padding": 1, "output_padding": 1},
        {"stride": 3, "padding": 1, "dilation": 2, "groups": 2, "output_padding": 2},
        {"dilation": 3, "output_padding": 2, "padding": 4},
    ],
)
def test_transposed_is_torchs(rank: int, given: dict) -> None:
    x = drawn(2, 4, *EXTENTS[:rank])
    w, b = drawn(4, 6 // given.get("groups", 1), *(2, 3, 2)[:rank], seed=1), None
    b = drawn(w.shape[1] * given.get("groups", 1), seed=2)
    ours, theirs = ([torch.tensor(a, requires_grad=True) for a in (x, w, b)] for _ in range(2))
    got = getattr(bt, f"conv_transpose{rank}d")(*ours, **given)
    wanted = getattr(F, f"conv_transpose{rank}d")(*theirs, **given)
    torch.testing.assert_close(got, wanted)
    slope = torch.randn_like(wanted)
    got.backward(slope), wanted.backward(slope)
    for a, c in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a.grad, c.grad)


def test_convolution_and_tbc_are_torchs() -> None:
    x, w, b = (torch.tensor(a) for a in (drawn(2, 4, 7, 6), drawn(4, 3, 2, 3, seed=1), drawn(3, seed=2)))
    more = ([2, 1], [1, 0], [1, 2], True, [1, 0], 1)
    got = bc.convolution(x.numpy(), w.numpy(), b.numpy(), *more)
    np.testing.assert_allclose(got, torch.convolution(x, w, b, *more).numpy(), atol=1e-12)
    more = ([2, 1], [1, 0], [1, 2], False, [0, 0], 1)
    w = w.transpose(0, 1)
    got = bc.convolution(x.numpy(), w.numpy(), None, *more)
    np.testing.assert_allclose(got, torch.convolution(x, w, None, *more).numpy(), atol=1e-12)
    x, w = (torch.tensor(a) for a in (drawn(7, 2, 4), drawn(3, 4, 3, seed=1)))
    out = np.empty((9, 2, 3))
    got = bc.conv_tbc(x.numpy(), w.numpy(), b.numpy(), 2, out=out)
    assert got is out
    np.testing.assert_allclose(got, torch.conv_tbc(x, w, b, 2).numpy(), atol=1e-12)


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh", "silu"])
def test_activation_has_its_gradient(activation: str) -> None:
    x, w, b = drawn(2, 4, 6, 5), drawn(3, 4, 2, 2, seed=1), drawn(3, seed=2)
    ours, theirs = ([torch.tensor(a, requires_grad=True) for a in (x, w, b)] for _ in range(2))
    act = {"gelu_tanh": lambda x: F.gelu(x, approximate="tanh")}.get(activation) or getattr(F, activation)
    got, wanted = bt.conv2d(*ours, padding=1, activation=activation), act(F.conv2d(*theirs, padding=1))
    torch.testing.assert_close(got, wanted)
    got.square().sum().backward(), wanted.square().sum().backward()
    for a, c in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a.grad, c.grad)


def test_channels_last_gives_channels_last() -> None:
    x = torch.tensor(drawn(2, 4, 6, 5)).contiguous(memory_format=torch.channels_last)
    y = bt.conv2d(x, torch.tensor(drawn(3, 4, 2, 2)))
    assert y.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(y, F.conv2d(x, torch.tensor(drawn(3, 4, 2, 2))))


def test_same_bits_alone_and_in_a_batch() -> None:
    x, w = drawn(5, 8, 9, 9, dtype=np.float32), drawn(7, 8, 3, 3, seed=1, dtype=np.float32)
    invariant = bc.PlanPreference(batch_invariant=True)
    whole = bc.conv2d(x, w, padding=1, preference=invariant)
    for n in range(5):
        np.testing.assert_array_equal(bc.conv2d(x[n : n + 1], w, padding=1, preference=invariant)[0], whole[n])


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"padding": -1}, "padding"),
        ({"padding": "SAME"}, "padding"),
        ({"padding": "same", "stride": 2}, "padding"),
        ({"stride": 0}, "stride"),
        ({"dilation": 0}, "dilation"),
        ({"dilation": 9}, "weight"),
        ({"groups": 3}, "groups"),
        ({"groups": 0}, "groups"),
        ({"stride": (1, 2, 3)}, "stride"),
    ],
)
def test_what_is_refused(given: dict, named: str) -> None:
    with pytest.raises(InvalidProblemError, match=named):
        bc.conv2d(drawn(2, 4, 5, 5), drawn(6, 4, 3, 3), **given)


def test_shapes_that_are_refused() -> None:
    x, w = drawn(2, 4, 5, 5), drawn(6, 4, 3, 3)
    for a, b, bias in (
        (x[0, 0], w, None),
        (x, w[0], None),
        (x[:, :3], w, None),
        (x, w, drawn(5)),
        (x[:, :, :2], w, None),
    ):
        with pytest.raises(InvalidProblemError):
            bc.conv2d(a, b, bias)
    with pytest.raises(InvalidProblemError, match="output_padding"):
        bc.conv_transpose2d(x, drawn(4, 6, 3, 3), output_padding=1)
    with pytest.raises(InvalidProblemError, match="less padding"):
        bc.conv_transpose2d(x[:, :, :1], drawn(4, 6, 1, 1), padding=1)


def test_nothing_of_a_batch_and_of_channels() -> None:
    assert bc.conv2d(drawn(0, 4, 5, 5), drawn(6, 4, 3, 3)).shape == (0, 6, 3, 3)
    y = bc.conv2d(drawn(2, 0, 5, 5), drawn(6, 0, 3, 3), np.arange(6.0))
    np.testing.assert_array_equal(y, np.broadcast_to(np.arange(6.0)[:, None, None], (2, 6, 3, 3)))
    x, w = (torch.zeros(s, dtype=torch.float64, requires_grad=True) for s in ((0, 4, 5, 5), (6, 4, 3, 3)))
    bt.conv2d(x, w).sum().backward()
    assert w.grad is not None and not w.grad.any() and x.grad.shape == x.shape
