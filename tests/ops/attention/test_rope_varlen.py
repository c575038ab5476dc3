"""rope_varlen: each sequence by itself, tokens of no sequence, wild bounds, tables, gradients, and what is refused."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc

RNG = np.random.default_rng(11)


def by_complex_numbers(x: Any, positions: Any, base: float, rotary: int, pairing: str) -> Any:
    """Rows [total, heads, d] as complex numbers times exp(i angle), in float64."""
    y, half = np.array(x, np.float64), rotary // 2
    turn = np.exp(1j * np.asarray(positions, float)[:, None, None] * base ** (-np.arange(half) / max(half, 1)))
    first, second = (
        (slice(0, half), slice(half, rotary)) if pairing == "half" else (slice(0, rotary, 2), slice(1, rotary, 2))
    )
    z = (y[..., first] + 1j * y[..., second]) * turn
    y[..., first], y[..., second] = z.real, z.imag
    return y


def positions_of(bounds: Any, offsets: Any, total: int) -> Any:
    """The positions, token by token."""
    found, last = np.zeros(total, np.int64), 0
    kept = []
    for bound in bounds:
        last = max(last, min(max(int(bound), 0), total))
        kept.append(last)
    for b, (start, end) in enumerate(itertools.pairwise(kept)):
        for token in range(start, end):
            found[token] = token - start + int(offsets[b])
    return found


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize("rotary", [None, 0, 6])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_every_sequence_begins_anew(pairing: str, rotary: int | None, dtype: Any) -> None:
    q, k = RNG.standard_normal((13, 3, 10)), RNG.standard_normal((13, 2, 10))
    bounds, offsets = np.array([0, 4, 4, 5, 13], dtype), np.array([7, 1, 100_000, -3], np.int32)
    options: dict[str, Any] = {"pairing": pairing, "rotary_dim": rotary, "base": 500.0}
    y, y2 = bc.rope_varlen(q, bounds, k, offsets=offsets, **options)
    positions = positions_of(bounds, offsets, 13)
    for x, made in ((q, y), (k, y2)):
        wanted = by_complex_numbers(x, positions, 500.0, 10 if rotary is None else rotary, pairing)
        np.testing.assert_allclose(made, wanted, atol=1e-10)
    np.testing.assert_array_equal(bc.rope_varlen(q, bounds, offsets=offsets, **options), y)
    one = bc.rope(q[5:].swapaxes(0, 1)[None], offset=-3, **options)[0].swapaxes(0, 1)
    np.testing.assert_array_equal(y[5:], one)


@pytest.mark.parametrize(
    "bounds", [[0], [2, 5], [0, 6, 3, 7], [-4, 2, 99, 5], [8, 1, 0], [3, 3, 3], [0, 2**62, 1], [-(2**63), 2**63 - 1]]
)
def test_bounds_that_are_none(bounds: list[int]) -> None:
    """Clamped to [0, total] and to those before them, as packed attention has it; other rows are copied."""
    x, offsets = RNG.standard_normal((8, 2, 6)), np.arange(5, 5 + len(bounds) - 1)
    positions = positions_of(bounds, offsets, 8)
    y = bc.rope_varlen(x, np.array(bounds), offsets=offsets)
    np.testing.assert_allclose(y, by_complex_numbers(x, positions, 1e4, 6, "half"), atol=1e-10)
    outside = np.setdiff1d(np.arange(8), np.flatnonzero(positions))
    np.testing.assert_array_equal(y[outside], x[outside])


@pytest.mark.parametrize("columns", [3, 6])
def test_tables_have_a_row_for_each_position(columns: int) -> None:
    x, bounds, offsets = RNG.standard_normal((7, 2, 8)), np.array([0, 3, 7], np.int32), np.array([2, 0])
    angle = np.outer(np.arange(9), 100.0 ** (-np.arange(3) / 3))
    cos, sin = (np.tile(f(angle), (1, columns // 3)) for f in (np.cos, np.sin))
    y = bc.rope_varlen(x, bounds, offsets=offsets, cos=cos, sin=sin, rotary_dim=6)
    np.testing.assert_allclose(y, by_complex_numbers(x, positions_of(bounds, offsets, 7), 100.0, 6, "half"), atol=1e-12)
    short = bc.rope_varlen(x, bounds, cos=cos[:2], sin=sin[:2], rotary_dim=6)
    assert (short[[2, 5, 6], :, :6] == 0).all() and (short[:, :, 6:] == x[:, :, 6:]).all()


@pytest.mark.parametrize("offset", [7, -3, np.int64(40), 2**31 + 5])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_a_number_is_the_offset_of_all(offset: Any, dtype: Any) -> None:
    x, bounds = RNG.standard_normal((7, 2, 8)), np.array([0, 3, 6], dtype)
    made = bc.rope_varlen(x, bounds, offsets=offset)
    np.testing.assert_array_equal(made, bc.rope_varlen(x, bounds, offsets=np.array([int(offset)] * 2)))
    np.testing.assert_array_equal(made[6], x[6])  # of no sequence


def test_frequencies_scale_and_results_in_place() -> None:
    x, k, bounds = RNG.standard_normal((7, 2, 8)), RNG.standard_normal((7, 1, 8)), np.array([0, 3, 7])
    found = bc.rope_frequencies(8, scaling={"rope_type": "linear", "factor": 4.0}, dtype="float64")
    wanted = by_complex_numbers(x, positions_of(bounds, [0, 0], 7) / 4, 1e4, 8, "half") * 0.5
    out = (x.copy(), k.copy())
    made = bc.rope_varlen(out[0], bounds, out[1], inv_freq=found.inv_freq, scale=0.5, out=out)
    assert made[0] is out[0] and made[1] is out[1]
    np.testing.assert_allclose(out[0], wanted, atol=1e-12)
    alone = np.empty((2, 7, 8)).swapaxes(0, 1)
    assert bc.rope_varlen(x, bounds, inv_freq=found.inv_freq, scale=0.5, out=alone) is alone
    np.testing.assert_array_equal(alone, out[0])


def test_the_gradient_turns_back() -> None:
    x, k, bounds, offsets = (
        RNG.standard_normal((9, 3, 8)), RNG.standard_normal((9, 2, 8)), np.array([1, 4, 8]), np.array([3, 50]),
    )  # fmt: skip
    y, y2 = bc.rope_varlen(x, bounds, k, offsets=offsets, scale=2.0)
    dx, dx2 = bc.rope_varlen_backward(y, bounds, y2, offsets=offsets, scale=0.5)
    np.testing.assert_allclose(dx, x, atol=1e-12)
    np.testing.assert_allclose(dx2, k, atol=1e-12)


@pytest.mark.parametrize("second", [True, False])
def test_autograd(second: bool) -> None:
    torch = pytest.importorskip("torch")
    x, k = (torch.tensor(RNG.standard_normal((5, n, 4)), requires_grad=True) for n in (2, 1))
    bounds, offsets = torch.tensor([1, 3, 4], dtype=torch.int32), torch.tensor([3, 50])
    inputs = (x, k) if second else (x,)

    def turned(*given: Any) -> Any:
        return bc.rope_varlen(given[0], bounds, *given[1:], offsets=offsets, pairing="interleaved", scale=1.5)

    assert torch.autograd.gradcheck(turned, inputs)
    assert torch.autograd.gradgradcheck(turned, inputs)
    dy = [torch.randn_like(one) for one in inputs]
    made = torch.autograd.grad(turned(*inputs), inputs, tuple(dy))
    wanted = bc.rope_varlen_backward(dy[0], bounds, *dy[1:], offsets=offsets, pairing="interleaved", scale=1.5)
    for one, two in zip(made, wanted if second else (wanted,), strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=0)


@pytest.mark.parametrize("total, heads, d", [(0, 2, 4), (3, 0, 4), (3, 2, 0)])
def test_nothing_to_turn(total: int, heads: int, d: int) -> None:
    x = np.zeros((total, heads, d), np.float32)
    assert bc.rope_varlen(x, np.array([0, total], np.int32)).shape == x.shape
    assert bc.rope_varlen(x, np.array([0])).shape == x.shape


X, BOUNDS = np.zeros((4, 2, 6), np.float32), np.array([0, 4], np.int32)


@pytest.mark.parametrize(
    "args, options, message",
    [
        ((X[0], BOUNDS), {}, r"x must be packed, \[total, heads, head_dim\], got shape \(2, 6\)"),
        ((X, BOUNDS, X[:2]), {}, "x2 has 2 tokens, x has 4"),
        ((X, BOUNDS.astype(float)), {}, "cu_seqlens must be int32 or int64, got float64"),
        ((X, BOUNDS[:0]), {}, r"cu_seqlens must have shape \[sequences \+ 1\], got \(0,\)"),
        ((X, BOUNDS[None]), {}, r"cu_seqlens must have shape \[sequences \+ 1\], got \(1, 2\)"),
        ((X, BOUNDS), {"offsets": BOUNDS}, r"offsets must have shape \(1,\), one a sequence of cu_seqlens, got \(2,\)"),
        ((X, BOUNDS), {"offsets": 1.5}, "offsets must be"),
        ((X, BOUNDS), {"offsets": True}, "offsets must be"),
        ((X, BOUNDS), {"offsets": 2**63}, "offsets must be"),
        ((X, BOUNDS), {"cos": X[0]}, "cos and sin go together"),
        ((X, BOUNDS), {"cos": X[0], "sin": X[0], "inv_freq": X[0, 0]}, "cos and sin replace inv_freq"),
        ((X, BOUNDS), {"cos": X, "sin": X}, r"cos must have a row for each position, \[positions, columns\]"),
        ((X, BOUNDS), {"rotary_dim": 5}, "rotary_dim must be even"),
    ],
)
def test_refusals(args: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(bc.InvalidProblemError, match=message):
        bc.rope_varlen(*args, **options)


def test_the_gradient_names_its_own_operands() -> None:
    with pytest.raises(bc.InvalidProblemError, match="dy2 has 2 tokens, dy has 4"):
        bc.rope_varlen_backward(X, BOUNDS, X[:2])
