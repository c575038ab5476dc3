"""causal_conv1d: against torch's convolution in float64, packed against alone, continued and decoded against whole."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core import InvalidProblemError

torch = pytest.importorskip("torch")
bct = pytest.importorskip("baracuda_py.torch")
F = torch.nn.functional


def made(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape)


def by_torch(x: Any, weight: Any, bias: Any, initial: Any = None, silu: bool = False) -> Any:
    kept = weight.shape[1] - 1
    seen = F.pad(x, (kept, 0)) if initial is None else torch.cat((initial, x), -1)
    z = F.conv1d(seen, weight[:, None], bias, groups=x.shape[1])
    return F.silu(z) if silu else z


@pytest.mark.parametrize("width", [2, 3, 4, 7, 8])
@pytest.mark.parametrize("activation", [None, "silu", "swish"])
def test_is_torchs_padded_convolution(width: int, activation: str | None) -> None:
    x, w, b = made(2, 5, 19), made(5, width), made(5)
    y = bc.causal_conv1d(x, w, b, activation=activation)
    wanted = by_torch(*map(torch.tensor, (x, w, b)), silu=activation is not None)
    np.testing.assert_allclose(y, wanted.numpy(), rtol=1e-12, atol=1e-12)
    last = bc.causal_conv1d(x.swapaxes(1, 2), w, b, activation=activation, layout="bld")
    np.testing.assert_array_equal(last.swapaxes(1, 2), y)


@pytest.mark.parametrize("lengths", [(5, 0, 1, 9), (1, 1, 1), (16,), ()])
def test_packed_is_each_alone(lengths: tuple[int, ...]) -> None:
    total, n = sum(lengths) + 2, len(lengths)
    x, w, b, initial = made(1, 3, total), made(3, 4), made(3), made(n, 3, 3)
    bounds = np.cumsum([0, *lengths]).astype(np.int64)
    y, final = bc.causal_conv1d(
        x, w, b, cu_seqlens=bounds, initial_states=initial, return_final_states=True, activation="silu"
    )
    for s, (start, end) in enumerate(pairwise(bounds)):
        alone, last = bc.causal_conv1d(
            x[..., start:end], w, b, initial_states=initial[s : s + 1], return_final_states=True, activation="silu"
        )
        np.testing.assert_array_equal(y[..., start:end], alone)
        np.testing.assert_array_equal(final[s : s + 1], last)
    np.testing.assert_array_equal(y[..., bounds[-1] :], 0)


def test_seq_idx_ends_windows() -> None:
    x, w = made(2, 3, 11), made(3, 4)
    idx = np.array([[0, 0, 0, 1, 1, 2, 2, 2, 2, -1, -1], [5] * 11], np.int32)
    y = bc.causal_conv1d(x, w, seq_idx=idx)
    for start, end in ((0, 3), (3, 5), (5, 9)):
        np.testing.assert_array_equal(y[:1, :, start:end], bc.causal_conv1d(x[:1, :, start:end], w))
    np.testing.assert_array_equal(y[0, :, 9:], 0)
    np.testing.assert_array_equal(y[1:], bc.causal_conv1d(x[1:], w))
    one = bc.causal_conv1d(x[..., :1], w, seq_idx=idx[:, :1])
    np.testing.assert_array_equal(one, y[..., :1])


def test_chunks_and_tokens_continue() -> None:
    x, w, b = made(2, 4, 23), made(4, 4), made(4)
    whole, final = bc.causal_conv1d(x, w, b, return_final_states=True, activation="silu")
    state, parts = None, []
    for start, end in ((0, 1), (1, 2), (2, 13), (13, 13), (13, 23)):
        y, state = bc.causal_conv1d(
            x[..., start:end], w, b, initial_states=state, return_final_states=True, activation="silu"
        )
        parts.append(y)
    np.testing.assert_array_equal(np.concatenate(parts, -1), whole)
    np.testing.assert_array_equal(state, final)
    slots, at = np.full((5, 4, 5), 7.0), np.array([3, 1], np.int32)
    slots[at] = 0
    parts, t = [], 0
    for count in (1, 3, 2, 1):
        y, kept = bc.causal_conv1d_update(
            x[..., t : t + count], slots, w, b, conv_state_indices=at, activation="silu",
            return_intermediate_states=True,
        )  # fmt: skip
        parts.append(y)
        np.testing.assert_array_equal(kept[:, -1], slots[at])
        t += count
    np.testing.assert_array_equal(np.concatenate(parts, -1), whole[..., :7])
    np.testing.assert_array_equal(slots[at], x[..., 2:7])
    np.testing.assert_array_equal(slots[[0, 2, 4]], 7)


def test_rollback_takes_the_state_after_the_last_accepted_token() -> None:
    x, w = made(1, 2, 6), made(2, 3)
    state = np.zeros((1, 2, 2))
    _, kept = bc.causal_conv1d_update(x[..., :4], state, w, return_intermediate_states=True)
    state[:] = kept[:, 1]  # two of four were accepted
    y = bc.causal_conv1d_update(x[..., 2], state, w)
    np.testing.assert_array_equal(y, bc.causal_conv1d(x, w)[..., 2])


def test_a_slot_that_is_none_is_skipped() -> None:
    x, w, state = made(3, 2), made(2, 2), made(2, 2, 1)
    before = state.copy()
    y = bc.causal_conv1d_update(x, state, w, conv_state_indices=np.array([-1, 0, 2]))
    np.testing.assert_array_equal(y[[0, 2]], 0)
    np.testing.assert_array_equal(state[1], before[1])
    assert (state[0] == x[1][:, None]).all()


@pytest.mark.parametrize("layout", ["bld", "bdl"])
def test_gated_tokens_continue_in_the_bits_of_the_sequence(layout: str) -> None:
    def turned(a: Any) -> Any:
        return a.swapaxes(1, 2) if layout == "bld" else a

    b, c, x = (turned(made(2, 5, 9, seed=n)) for n in range(3))
    w, bias = made(5, 3), made(5)
    whole = turned(bc.gated_short_conv(b, c, x, w, bias, layout=layout))
    product = turned(b * x)
    slots, at = np.full((4, 5, 4), 7.0), np.array([2, 0])
    slots[at] = 0
    for start, end in ((0, 1), (1, 4), (4, 4), (4, 9)):
        piece = [turned(turned(a)[..., start:end]) for a in (b, c, x)]
        out = np.empty_like(piece[2])
        y, kept = bc.gated_short_conv_update(
            *piece, slots, w, bias, conv_state_indices=at, return_intermediate_states=True, layout=layout,
            out=(out, np.empty((2, end - start, 5, 4))),
        )  # fmt: skip
        assert y is out
        np.testing.assert_array_equal(turned(y), whole[..., start:end])
        if end > start:
            np.testing.assert_array_equal(kept[:, -1], slots[at])
    np.testing.assert_array_equal(slots[at], product[..., 5:])
    assert (slots[[1, 3]] == 7).all()


def test_a_gated_token_and_a_slot_that_is_none() -> None:
    parts = made(3, 12)  # one projection of three tokens, whose parts are strided
    b, c, x = parts[:, :4], parts[:, 4:8], parts[:, 8:]
    w, state = made(4, 3), made(2, 4, 2)
    before = state.copy()
    y = bc.gated_short_conv_update(b, c, x, state, w, conv_state_indices=np.array([1, -1, 2]))
    seen = np.concatenate([before[1], (b * x)[0][:, None]], -1)
    np.testing.assert_allclose(y[0], c[0] * (w * seen).sum(-1), rtol=1e-13)
    np.testing.assert_array_equal(y[1:], 0)
    np.testing.assert_array_equal(state, [before[0], seen[:, 1:]])
    for name, gates in (("b", (b[:2], c)), ("c", (b, c[:, :3]))):
        with pytest.raises(InvalidProblemError, match=f"{name} must"):
            bc.gated_short_conv_update(*gates, x, state, w)
    with pytest.raises(InvalidProblemError, match="layout"):
        bc.gated_short_conv_update(b, c, x, state, w, layout="ldb")


def test_gradients_are_torchs() -> None:
    x, w, b, initial = (
        torch.tensor(a, requires_grad=True) for a in (made(2, 3, 9), made(3, 4), made(3), made(2, 3, 3))
    )

    y, final = bct.causal_conv1d(x, w, b, initial_states=initial, return_final_states=True, activation="silu")
    dy, dfinal = torch.tensor(made(2, 3, 9, seed=1)), torch.tensor(made(2, 3, 3, seed=1))
    got = torch.autograd.grad((y, final), (x, w, b, initial), (dy, dfinal))
    z = by_torch(x, w, b, initial, silu=True)
    wanted = torch.autograd.grad((z, torch.cat((initial, x), -1)[..., -3:]), (x, w, b, initial), (dy, dfinal))
    for a, c in zip(got, wanted, strict=True):
        torch.testing.assert_close(a, c, rtol=1e-12, atol=1e-12)


def test_nan_stays_in_its_windows() -> None:
    x, w = made(1, 2, 12), np.zeros((2, 3))
    x[0, 0, 4] = np.nan
    y = bc.causal_conv1d(x, w, initial_states=np.full((1, 2, 2), np.nan))
    assert np.isnan(y[0, :, :2]).all() and np.isnan(y[0, 0, 4:7]).all() and np.isfinite(y[0, 0, 2:4]).all()
    assert np.isfinite(y[0, 0, 7:]).all() and np.isfinite(y[0, 1, 2:]).all()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"weight": made(4, 9)}, "width"),
        ({"activation": "relu"}, "activation"),
        ({"layout": "dbl"}, "layout"),
        ({"seq_idx": np.zeros((2, 5), np.int32)}, "seq_idx"),
        ({"cu_seqlens": np.array([0, 6])}, "batch of 1"),
        ({"initial_states": made(2, 4, 2)}, "initial_states"),
        ({"x": made(4, 6)}, "three axes"),
    ],
)
def test_bad_input_is_named(change: dict[str, Any], said: str) -> None:
    given: dict[str, Any] = {"x": made(2, 4, 6), "weight": made(4, 4)} | change
    with pytest.raises(InvalidProblemError, match=said):
        bc.causal_conv1d(**given)
