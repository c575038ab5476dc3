"""long_convolution: sums term by term, bits beside the batch, layouts, gradients, other lengths, what is refused."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.ops.fft.long_convolution import LongConvolutionPlan
from baracuda_py.ops.fft.long_convolution_backward import LongConvolutionBackwardPlan
from baracuda_py.ops.signal import long_convolutions
from baracuda_py.testing.places import call

GRADIENTS = ("dx", "dfilter", "dskip", "dpre_gate", "dpost_gate")


def by_terms(x: Any, filter: Any, skip: Any = None, pre: Any = None, post: Any = None, circular: bool = False) -> Any:
    """numpy.convolve of each row in float64."""
    u = x.astype(float) if pre is None else x.astype(float) * pre.astype(float)
    n, y = x.shape[2], np.zeros(x.shape)
    for b, c in np.ndindex(*x.shape[:2]):
        full = np.convolve(u[b, c], filter[c].astype(float))
        y[b, c] = full[:n]
        if circular:
            y[b, c, : len(full) - n] += full[n:]
    y = y if skip is None else y + skip.astype(float)[:, None] * u
    return y if post is None else y * post.astype(float)


def operands(b: int, c: int, n: int, k: int, dtype: Any = np.float32, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    acc = np.float64 if dtype is np.float64 else np.float32
    rows = {name: rng.standard_normal((b, c, n)).astype(dtype) for name in ("x", "pre_gate", "post_gate")}
    return {**rows, "filter": rng.standard_normal((c, k)).astype(acc), "skip": rng.standard_normal(c).astype(acc)}


def want(given: dict[str, Any], circular: bool = False) -> Any:
    return by_terms(
        given["x"], given["filter"], given["skip"], given["pre_gate"], given["post_gate"], circular=circular
    )


def near(got: Any, truth: Any, bound: float) -> None:
    assert np.linalg.norm(got.astype(float) - truth) <= bound * np.linalg.norm(truth)


def emulated(given: dict[str, Any], circular: bool = False) -> Any:
    b, c, n = given["x"].shape
    name = str(given["x"].dtype)
    desc = LongConvolutionPlan.descriptor(
        batch=b, channels=c, length=n, taps=given["filter"].shape[1], circular=circular, element=name
    )
    return call(LongConvolutionPlan, desc, {"y"}, "emulator", None, **given)["y"]


@pytest.mark.parametrize("n, k", [(1, 1), (2, 1), (13, 13), (16, 9), (100, 77)])
def test_causal(n: int, k: int) -> None:
    given = operands(2, 3, n, k)
    near(emulated(given), want(given), 1e-6)


@pytest.mark.parametrize("n, k", [(16, 16), (64, 20)])
def test_circular(n: int, k: int) -> None:
    given = operands(2, 3, n, k)
    near(emulated(given, circular=True), want(given, circular=True), 1e-6)


@pytest.mark.parametrize("dtype, bound", [(np.float16, 1e-3), (ml_dtypes.bfloat16, 5e-3), (np.float64, 1e-14)])
def test_elements(dtype: Any, bound: float) -> None:
    """16-bit numbers are computed in float32: the bits of float32's result, rounded."""
    given = operands(2, 2, 60, 60, dtype)
    got = emulated(given)
    near(got, want(given), bound)
    if dtype is not np.float64:
        wide = {name: value.astype(np.float32) for name, value in given.items()}
        np.testing.assert_array_equal(got, emulated(wide).astype(dtype))


def test_a_row_alone_has_the_same_bits() -> None:
    """Beside other rows of a batch and of a block, by either layout; whatever stands in its neighbours."""
    given = operands(5, 3, 33, 20)
    whole = emulated(given)
    for b in (0, 2, 4):
        alone = {name: value if value.shape[0] != 5 else value[b : b + 1] for name, value in given.items()}
        np.testing.assert_array_equal(emulated(alone)[0], whole[b])
    last = {
        name: value if value.ndim < 3 else np.ascontiguousarray(value.swapaxes(1, 2)).swapaxes(1, 2)
        for name, value in given.items()
    }
    np.testing.assert_array_equal(emulated(last), whole)
    given["x"][1, 1, 4] = np.nan
    poisoned = emulated(given)
    assert np.isnan(poisoned[1, 1]).all()
    poisoned[1, 1] = whole[1, 1]
    np.testing.assert_array_equal(poisoned, whole)


def test_an_impulse() -> None:
    """A filter that delays by all but one step: what wraps around stays out of the result."""
    x = np.arange(64, dtype=np.float32).reshape(1, 2, 32)
    impulse = np.zeros((2, 32), np.float32)
    impulse[:, 31] = 1
    y = bc.long_convolution(x, impulse)
    np.testing.assert_allclose(y[0, :, :31], 0, atol=1e-5)
    np.testing.assert_allclose(y[0, :, 31], x[0, :, 0], atol=1e-5)


@pytest.mark.parametrize("circular", [False, True])
def test_gradients_of_one_launch(circular: bool) -> None:
    """Against differences of the formula term by term, which is linear in each operand: exact up to rounding."""
    b, c, n, k = 2, 2, 32, 20
    given = operands(b, c, n, k, np.float64)
    dy = np.random.default_rng(9).standard_normal((b, c, n))
    desc = LongConvolutionBackwardPlan.descriptor(
        batch=b, channels=c, length=n, taps=k, circular=circular, element="float64"
    )
    got = call(LongConvolutionBackwardPlan, desc, set(GRADIENTS), "emulator", None, dy=dy, **given)
    for name in GRADIENTS:
        operand = name[1:]
        way = np.random.default_rng(3).standard_normal(given[operand].shape)
        moved = given | {operand: given[operand] + way}
        slope = (dy * (want(moved, circular) - want(given, circular))).sum()
        np.testing.assert_allclose((got[name] * way).sum(), slope, rtol=1e-10)


@pytest.mark.parametrize("wanted", [("dpre_gate",), ("dskip", "dx")])
def test_some_gradients(wanted: Any) -> None:
    """Each alone has the bits that it has beside the others."""
    given = operands(3, 2, 17, 9)
    dy = np.random.default_rng(9).standard_normal((3, 2, 17)).astype(np.float32)
    desc = LongConvolutionBackwardPlan.descriptor(batch=3, channels=2, length=17, taps=9, element="float32")
    whole = call(LongConvolutionBackwardPlan, desc, set(GRADIENTS), "emulator", None, dy=dy, **given)
    some = call(LongConvolutionBackwardPlan, desc, set(wanted), "emulator", None, dy=dy, **given)
    assert set(some) == set(wanted)
    for name in wanted:
        np.testing.assert_array_equal(some[name], whole[name])


@pytest.mark.parametrize("case", [(40, 40, True), (33, 12, True), (24, 50, False), (20, 20, False)])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_other_lengths(case: Any, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """By rfft and irfft: the same numbers."""
    n, k, circular = case
    monkeypatch.setattr(long_convolutions, "in_one_launch", lambda *given: False)
    given = operands(2, 3, n, k, dtype)
    got = bc.long_convolution(**given, circular=circular)
    assert got.dtype == dtype
    near(got, want(given, circular), 1e-6 if dtype is np.float32 else 1e-3)
    out = np.empty_like(given["x"])
    assert bc.long_convolution(**given, circular=circular, out=out) is out
    np.testing.assert_array_equal(out, got)
    bare = bc.long_convolution(given["x"], given["filter"], circular=circular)
    near(bare, by_terms(given["x"], given["filter"], circular=circular), 1e-6 if dtype is np.float32 else 1e-3)


def test_longer_than_a_block_holds() -> None:
    given = operands(1, 1, 16385, 5)
    near(bc.long_convolution(**given), want(given), 1e-6)
    with pytest.raises(bc.UnsupportedError, match="rfft and irfft"):
        LongConvolutionPlan.descriptor(batch=1, channels=1, length=16385, taps=5, element="float32")
    with pytest.raises(bc.UnsupportedError, match="powers of two from 16"):
        LongConvolutionPlan.descriptor(batch=1, channels=1, length=24, taps=5, circular=True, element="float32")


@pytest.mark.parametrize(
    "change, words",
    [
        ({"x": np.zeros((2, 4), np.float32)}, r"x must have shape \[batch, channels, length\]"),
        ({"filter": np.zeros((2, 4), np.float32)}, "3 channels"),
        ({"skip": np.zeros(2, np.float32)}, "skip must have shape"),
        ({"pre_gate": np.zeros((2, 3, 7), np.float32)}, "pre_gate must have x's shape"),
        ({"filter": np.zeros((3, 4), np.float16)}, "filter must hold float32"),
        ({"filter": np.zeros((3, 9), np.float32), "circular": True}, "at most as many taps"),
    ],
)
def test_refused(change: Any, words: str) -> None:
    with pytest.raises(bc.InvalidProblemError, match=words):
        bc.long_convolution(**(operands(2, 3, 8, 4) | change))
