"""flash_sdpa's score terms: each by a formula written out row by row; gradients against differences of the forward."""

from __future__ import annotations

import itertools
import math
import struct
from typing import Any

import numpy as np
import pytest

from baracuda_py.core.device import fake_device
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.core.tensor import TensorRef
from baracuda_py.ops.attention.dense.flash_sdpa import FlashSdpaDescriptor, flash_sdpa
from baracuda_py.ops.attention.dense.flash_sdpa_backward import (
    FlashSdpaBackwardArgs,
    FlashSdpaBackwardDescriptor,
    FlashSdpaBackwardPlan,
    flash_sdpa_backward,
)
from baracuda_py.ops.random.philox import philox4x32
from baracuda_py.schedules.attention.score_terms import soft_cap

B, H, Q, K, D = 2, 4, 5, 7, 8
BROADCASTS = list(itertools.product((False, True), repeat=4))  # the axes along which a mask has one element


def make(seed: int, queries: int = Q, keys: int = K, dtype: Any = np.float64) -> tuple[np.ndarray, ...]:
    """q, k and v, two query heads a key head."""
    rng = np.random.default_rng(seed)
    shapes = (B, H, queries, D), (B, H // 2, keys, D), (B, H // 2, keys, 6)
    return tuple(rng.standard_normal(shape).astype(dtype) for shape in shapes)


def one_by_one(q, k, v, score, scale=0.4, sink=None, weight=lambda b, h, i, j: 1.0):
    """y and lse, a pair at a time: score(x, b, h, i, j) of the scaled product x is a number, None where hidden."""
    y, lse = np.zeros((*q.shape[:3], v.shape[3])), np.full(q.shape[:3], -np.inf)
    for b, h, i in np.ndindex(*q.shape[:3]):
        kv = h // (q.shape[1] // k.shape[1])
        total = 0.0 if sink is None else math.exp(sink[h])
        for j in range(k.shape[2]):
            s = score(scale * float(q[b, h, i] @ k[b, kv, j]), b, h, i, j)
            if s is not None:
                total += math.exp(s)
                y[b, h, i] += math.exp(s) * weight(b, h, i, j) * v[b, kv, j]
        if total:
            y[b, h, i] /= total
            lse[b, h, i] = math.log(total)
    return y, lse


def check(got: Any, want: Any) -> None:
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("alignment", ["top_left", "bottom_right"])
@pytest.mark.parametrize(("queries", "keys"), [(5, 7), (7, 5), (1, 6), (6, 1), (4, 4)])
def test_windows(queries: int, keys: int, alignment: str) -> None:
    q, k, v = make(0, queries, keys)
    shift = keys - queries if alignment == "bottom_right" else 0
    for left, right, causal in itertools.product((None, 0, 2, 50), (None, 0, 1, 50), (False, True)):
        after = 0 if causal else right

        def score(x, b, h, i, j, left=left, after=after):
            here = i + shift
            return x if (left is None or j >= here - left) and (after is None or j <= here + after) else None

        got = flash_sdpa(
            q, k, v, scale=0.4, is_causal=causal, causal_alignment=alignment, window_left=left, window_right=right,
            return_lse=True,
        )  # fmt: skip
        check(got, one_by_one(q, k, v, score))


@pytest.mark.parametrize("left", [None, 0, 3])
@pytest.mark.parametrize("right", [None, 0, 2])
@pytest.mark.parametrize("alignment", ["top_left", "bottom_right"])
def test_pairs_counts_what_a_window_shows(left: int | None, right: int | None, alignment: str) -> None:
    for queries, keys in np.ndindex(6, 6):
        desc = FlashSdpaDescriptor(
            batch_size=1, num_heads=1, query_len=queries, key_len=keys, d_k=8, d_v=8, window_left=left,
            window_right=right, causal_alignment=alignment, element="float32",
        )  # fmt: skip
        shift = keys - queries if alignment == "bottom_right" else 0
        far = 100
        seen = sum(
            i + shift - (far if left is None else left) <= j <= i + shift + (far if right is None else right)
            for i in range(queries)
            for j in range(keys)
        )
        assert desc.pairs == seen


def test_softcap() -> None:
    q, k, v = make(1)
    got = flash_sdpa(q, k, v, scale=0.4, softcap=1.5, return_lse=True)
    check(got, one_by_one(q, k, v, lambda x, *_: 1.5 * math.tanh(x / 1.5)))


@pytest.mark.parametrize(("scale", "softcap"), [(0.125, 50.0), (-0.3, 2.0), (1.0, 4000.0), (3.0, 0.01)])
def test_polynomials_of_a_soft_cap(scale: float, softcap: float) -> None:
    made = soft_cap(scale, softcap)
    c = softcap / math.log(2)
    for name, rtol in (("near", 1.3e-4), ("far", 1.5e-4)):
        *k, most = made[name][: len(made[name]) - (name == "far")]
        x = np.linspace(-most, most, 20002)
        got = x * np.polynomial.Polynomial(k)(x * x)
        np.testing.assert_allclose(got, c * np.tanh(x * scale / softcap), rtol=rtol)


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e30, 1e300])
@pytest.mark.parametrize("softcap", [0.0, 1e-300, 1e-30, 1.0, 5e3, 1e4, 1e30, 1e300])
def test_soft_caps_of_any_size_are_float32(scale: float, softcap: float) -> None:
    made = soft_cap(scale, softcap or float(scale == 0))
    struct.pack(f"{len(flat := np.hstack(list(made.values())))}f", *flat)
    assert not np.isnan(flat).any()
    if made["near"][-1] > 0:  # weights begin at 2^8, and float16 ends at 2^16
        assert made["unit_log2"] * 0.7 * (2**-11 + 1.5e-4) < 8


@pytest.mark.parametrize("alignment", ["top_left", "bottom_right"])
@pytest.mark.parametrize("shape", [(H,), (B, H), (1, H), (B, 1), (1,), ()])
def test_slopes(shape: tuple[int, ...], alignment: str) -> None:
    q, k, v = make(2)
    slopes = np.random.default_rng(3).uniform(0, 1, shape)
    each = np.broadcast_to(slopes, (B, H))
    shift = K - Q if alignment == "bottom_right" else 0
    got = flash_sdpa(q, k, v, None, slopes, scale=0.4, causal_alignment=alignment, return_lse=True)
    check(got, one_by_one(q, k, v, lambda x, b, h, i, j: x - each[b, h] * abs(i + shift - j)))


def masks(once: tuple[bool, ...]) -> tuple[np.ndarray, np.ndarray]:
    """A boolean mask and one of numbers, some of them -inf."""
    rng = np.random.default_rng(4)
    shape = tuple(1 if one else n for one, n in zip(once, (B, H, Q, K), strict=True))
    return rng.random(shape) < 0.7, np.where(rng.random(shape) < 0.8, rng.standard_normal(shape), -np.inf)


@pytest.mark.parametrize("once", BROADCASTS)
def test_masks(once: tuple[bool, ...]) -> None:
    q, k, v = make(5)
    for mask in masks(once):
        every = np.broadcast_to(mask, (B, H, Q, K))

        def score(x, b, h, i, j, every=every):
            m = every[b, h, i, j]
            if every.dtype == bool:
                return x if m else None
            return None if m == -np.inf else x + m

        want = one_by_one(q, k, v, score)
        given = [mask] if any(n > 1 for n in mask.shape[:2]) else [mask, mask[0], mask[0, 0]]
        for form in given:
            check(flash_sdpa(q, k, v, form, scale=0.4, return_lse=True), want)


def test_a_boolean_mask_is_one_of_zeros_and_minus_infinity() -> None:
    q, k, v = make(6)
    mask, _ = masks((False,) * 4)
    want = flash_sdpa(q, k, v, mask, return_lse=True)
    for got, expected in zip(flash_sdpa(q, k, v, np.where(mask, 0, -np.inf), return_lse=True), want, strict=True):
        np.testing.assert_array_equal(got, expected)


def test_a_row_that_sees_nothing() -> None:
    q, k, v = make(7)
    mask = np.ones((Q, K), bool)
    mask[2] = False
    y, lse = flash_sdpa(q, k, v, mask, return_lse=True)
    assert not y[:, :, 2].any() and np.isneginf(lse[:, :, 2]).all()
    assert np.isfinite(lse[:, :, [0, 1, 3, 4]]).all()
    sinks = np.array([0.3, -2.0, 0.0, 5.0])
    y, lse = flash_sdpa(q, k, v, mask, None, sinks, return_lse=True)
    assert not y[:, :, 2].any()
    np.testing.assert_allclose(lse[:, :, 2], np.tile(sinks, (B, 1)), rtol=1e-15)


def test_sinks() -> None:
    q, k, v = make(8)
    sinks = np.array([0.5, -1.0, 3.0, 0.0])
    got = flash_sdpa(q, k, v, None, None, sinks, scale=0.4, return_lse=True)
    check(got, one_by_one(q, k, v, lambda x, *_: x, sink=sinks))
    none = flash_sdpa(q, k, v, None, None, np.full(H, -np.inf), scale=0.4, return_lse=True)
    check(none, flash_sdpa(q, k, v, scale=0.4, return_lse=True))


def test_hidden_keys_are_not_seen() -> None:
    q, k, v = make(9)
    mask = np.ones((Q, K), bool)
    mask[:, 3:] = False
    want = flash_sdpa(q, k[:, :, :3], v[:, :, :3], return_lse=True)
    k[:, :, 3:5], v[:, :, 3:5], v[:, :, 5:] = np.nan, np.nan, np.inf
    check(flash_sdpa(q, k, v, mask, return_lse=True), want)
    check(flash_sdpa(q, k, v, np.where(mask, 0.0, -np.inf), return_lse=True), want)


def kept(seed: int, offset: int, p: float) -> np.ndarray:
    """Whether each weight is kept, a Philox block at a time."""
    found = np.empty(B * H * Q * K, bool)
    key = seed & 0xFFFFFFFF, seed >> 32
    for e in range(found.size):
        words = philox4x32((e // 4, 0, offset & 0xFFFFFFFF, offset >> 32), key)
        found[e] = (int(words[e % 4]) >> 8) * 2.0**-24 >= p
    return found.reshape(B, H, Q, K)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout_is_that_of_the_stream(p: float) -> None:
    q, k, v = make(10)
    seed, offset = 2**40 + 3, 2**35 + 9
    keep = kept(seed, offset, p)
    got = flash_sdpa(q, k, v, scale=0.4, dropout_p=p, seed=seed, offset=offset, return_lse=True)
    check(got, one_by_one(q, k, v, lambda x, *_: x, weight=lambda *at: keep[at] / (1 - p)))


def test_dropout_leaves_the_mean_as_it_is() -> None:
    q, k, v = make(11)
    want, lse = flash_sdpa(q, k, v, return_lse=True)
    trials = [flash_sdpa(q, k, v, dropout_p=0.25, seed=1, offset=n, return_lse=True) for n in range(600)]
    found = np.stack([y for y, _ in trials])
    assert all((one == lse).all() for _, one in trials)  # the sum is that of all weights
    sigma = found.std(axis=0) / math.sqrt(len(trials))
    assert (np.abs(found.mean(axis=0) - want) < 5 * sigma + 1e-12).all()
    assert (found != want).mean() > 0.9
    share = np.mean([kept(1, n, 0.25).mean() for n in range(10)])
    assert abs(share - 0.75) < 5 * math.sqrt(0.25 * 0.75 / (10 * B * H * Q * K))


def test_dropout_of_nothing_and_of_all() -> None:
    q, k, v = make(12)
    want = flash_sdpa(q, k, v, return_lse=True)
    check(flash_sdpa(q, k, v, dropout_p=0.0, seed=5, return_lse=True), want)
    y, lse = flash_sdpa(q, k, v, dropout_p=1.0, return_lse=True)
    assert not y.any()
    np.testing.assert_array_equal(lse, want[1])


CASES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "window": ({"window_left": 1, "window_right": 2, "causal_alignment": "bottom_right"}, ()),
    "softcap": ({"softcap": 0.8, "scale": 0.7}, ()),
    "mask": ({}, ("mask",)),
    "slopes": ({"causal_alignment": "bottom_right"}, ("slopes",)),
    "sinks": ({"is_causal": True}, ("sinks",)),
    "dropout": ({"dropout_p": 0.3, "seed": 4, "offset": 2}, ()),
    "all": (
        {"window_left": 4, "window_right": 3, "softcap": 1.2, "dropout_p": 0.2, "seed": 7, "scale": -0.6},
        ("mask", "slopes", "sinks"),
    ),
}
GRADIENTS = ("dq", "dk", "dv", "dmask", "dslopes", "dsinks")


def operands(
    names: tuple[str, ...], mask: tuple[bool, ...] = (False,) * 4, slopes: tuple[int, ...] = (B, H)
) -> list[Any]:
    """q, k, v and those of mask, slopes, sinks that are named; a hidden key in every row of the mask."""
    rng = np.random.default_rng(13)
    shape = tuple(1 if one else n for one, n in zip(mask, (B, H, Q, K), strict=True))
    bias = rng.standard_normal(shape)
    if shape[3] > 1:
        bias[..., 1] = -np.inf
    every = {"mask": bias, "slopes": rng.uniform(0, 0.5, slopes), "sinks": rng.standard_normal(H)}
    return [*make(13), *(every[name] if name in names else None for name in ("mask", "slopes", "sinks"))]


def gradients(given: list[Any], facts: dict[str, Any], **how: Any) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Every gradient there is, and the dy they are for."""
    y, lse = flash_sdpa(*given, return_lse=True, **facts)
    dy = np.random.default_rng(14).standard_normal(y.shape)
    names = [g for g, x in zip(GRADIENTS, given, strict=True) if x is not None]
    flags = {f"return_{g}": g in names for g in GRADIENTS}
    got = flash_sdpa_backward(*given[:3], y, lse, dy, *given[3:], **facts, **flags, **how)
    return dict(zip(names, got, strict=True)), dy


def differences_agree(given: list[Any], facts: dict[str, Any]) -> None:
    grads, dy = gradients(given, facts)
    rng = np.random.default_rng(15)
    for n, (name, x) in enumerate(zip(GRADIENTS, given, strict=True)):
        if x is None:
            continue
        assert grads[name].shape == x.shape
        way = rng.standard_normal(x.shape)
        ends = [flash_sdpa(*given[:n], np.asarray(x + step * way), *given[n + 1 :], **facts) for step in (1e-6, -1e-6)]
        want = ((ends[0] - ends[1]) * dy).sum() / 2e-6
        np.testing.assert_allclose((grads[name] * way).sum(), want, rtol=2e-6, atol=1e-7, err_msg=name)


@pytest.mark.parametrize("case", CASES)
def test_gradients_are_differences_of_the_forward(case: str) -> None:
    facts, names = CASES[case]
    differences_agree(operands(names), facts)


@pytest.mark.parametrize("once", BROADCASTS)
def test_gradients_of_masks_that_broadcast(once: tuple[bool, ...]) -> None:
    differences_agree(operands(("mask",), once), {})
    full = operands(("mask",))
    full[3] = np.broadcast_to(operands(("mask",), once)[3], (B, H, Q, K)).copy()
    each, _ = gradients(full, {})
    got, _ = gradients(operands(("mask",), once), {})
    axes = tuple(n for n, one in enumerate(once) if one)
    np.testing.assert_allclose(got["dmask"], each["dmask"].sum(axis=axes, keepdims=True), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("shape", [(H,), (1, H), (B, 1), (1,), ()])
def test_gradients_of_slopes_that_broadcast(shape: tuple[int, ...]) -> None:
    differences_agree(operands(("slopes",), slopes=shape), {"window_left": 3})


def test_hidden_pairs_have_no_gradient() -> None:
    given = operands(("mask",))
    given[3][:, :, 2] = -np.inf
    grads, _ = gradients(given, {})
    assert not grads["dmask"][:, :, 2].any() and not grads["dmask"][..., 1].any()
    assert not grads["dq"][:, :, 2].any()
    assert not grads["dk"][:, :, 1].any() and not grads["dv"][:, :, 1].any()
    given[2][:, :, 1] = np.inf
    again, _ = gradients(given, {})
    for name, x in grads.items():
        np.testing.assert_array_equal(again[name], x)


@pytest.mark.parametrize("case", ["mask", "all"])
def test_bshd(case: str) -> None:
    facts, names = CASES[case]
    given = operands(names)
    swapped = [np.ascontiguousarray(x.swapaxes(1, 2)) for x in given[:3]]
    y, lse = flash_sdpa(*given, return_lse=True, **facts)
    got = flash_sdpa(*swapped, *given[3:], return_lse=True, layout="bshd", **facts)
    np.testing.assert_array_equal(got[0].swapaxes(1, 2), y)
    np.testing.assert_array_equal(got[1], lse)
    want, dy = gradients(given, facts)
    y, dy = (np.ascontiguousarray(a.swapaxes(1, 2)) for a in (y, dy))
    flags = {f"return_{g}": g in want for g in GRADIENTS}
    found = flash_sdpa_backward(*swapped, y, lse, dy, *given[3:], layout="bshd", **facts, **flags)
    for (name, x), one in zip(want.items(), found, strict=True):
        np.testing.assert_array_equal(one.swapaxes(1, 2) if name in ("dq", "dk", "dv") else one, x, err_msg=name)


def test_a_gradient_of_what_has_none_is_refused() -> None:
    q, k, v = make(16)
    y, lse = flash_sdpa(q, k, v, return_lse=True)
    for layout in ("bhsd", "bshd"):
        for mask in (None, np.ones((Q, K), bool)):
            with pytest.raises(InvalidProblemError, match="dmask"):
                flash_sdpa_backward(q, k, v, y, lse, y, mask, return_dmask=True, layout=layout)
        with pytest.raises(InvalidProblemError, match="dsinks"):
            flash_sdpa_backward(q, k, v, y, lse, y, return_dsinks=True, layout=layout)


@pytest.mark.parametrize("bad", [np.ones((Q, K), np.int32), np.ones((Q + 1, K)), np.ones((3, 1, Q, K))])
def test_masks_that_fit_nothing_are_refused(bad: np.ndarray) -> None:
    q, k, v = make(17)
    with pytest.raises(InvalidProblemError, match="mask"):
        flash_sdpa(q, k, v, bad)


@pytest.mark.parametrize("field", [{"softcap": -1.0}, {"dropout_p": 1.5}, {"window_left": -1}])
def test_fields_out_of_range_are_refused(field: dict[str, Any]) -> None:
    q, k, v = make(18)
    with pytest.raises(InvalidProblemError, match=next(iter(field))):
        flash_sdpa(q, k, v, **field)


def bias_steps(batch: int, mask: tuple[int, ...], length: int = 700) -> tuple[dict[str, Any], int]:
    """The step that makes dmask, and the workspace."""
    desc = FlashSdpaBackwardDescriptor(
        batch_size=batch, num_heads=2, query_len=length, key_len=length, d_k=16, d_v=16, element="float32"
    )
    plan = FlashSdpaBackwardPlan.select(desc, device=fake_device(8.6))
    shapes = dict.fromkeys(("q", "k", "v", "y", "dy"), (batch, 2, length, 16)) | {"lse": (batch, 2, length)}
    shapes |= dict.fromkeys(("mask", "dmask"), mask)
    refs = {n: TensorRef((1 + i) << 32, shape, None, "float32") for i, (n, shape) in enumerate(shapes.items())}
    args = FlashSdpaBackwardArgs(**refs)
    _, geometry, _ = plan.plan_layout(args)
    found = next(step for step in geometry.steps if step.kernel == "bias_gradient")
    return dict(found.params) | {"grid": found.grid[0]}, plan.workspace_size(args)


def test_a_gradient_with_few_tiles_is_shared_by_blocks_whatever_the_batch() -> None:
    for mask in ((1, 2, 700, 700), (1, 1, 1, 700), (1, 1, 700, 1)):
        alone, _ = bias_steps(1, mask)
        among, _ = bias_steps(9, (9, *mask[1:]))
        assert (alone["splits"], alone["each"]) == (among["splits"], among["each"]), mask
        assert among["grid"] == 9 * alone["grid"]
    step, workspace = bias_steps(3, (1, 1, 1, 1))
    assert step["grid"] == step["splits"] == 61  # 3 x 2 x 11 x 11 tiles of scores, 12 a block
    assert workspace == 2 * 16896 + 256  # rowsum(dy y), what lse lacks, and the blocks' sums
    step, workspace = bias_steps(64, (64, 2, 700, 700))
    assert step["splits"] == 1
    assert workspace == 2 * 64 * 2 * 700 * 4
