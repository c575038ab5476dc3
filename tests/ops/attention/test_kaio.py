"""KAIO's names: matrices and batches, what they take, its own identities, outputs given."""

from __future__ import annotations

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError
from baracuda_py.ops.attention.dense import kaio
from baracuda_py.ops.attention.dense.flash_sdpa import FlashSdpaPlan

TC = ("attention_tc", "attention_tc_causal")
FLASH = ("attention_flash", "attention_flash_causal")
STATS = ("attention_flash_with_stats", "attention_flash_causal_with_stats")


def make(rng, dtype, queries=19, keys=19, d_k=16, d_v=24):
    return tuple(rng.standard_normal(shape).astype(dtype) for shape in ((queries, d_k), (keys, d_k), (keys, d_v)))


def plain(q, k, v, causal):
    """float64, y and lse."""
    q, k, v = (a.astype(np.float64) for a in (q, k, v))
    scores = q @ k.T / np.sqrt(q.shape[1])
    if causal:
        scores[np.arange(k.shape[0]) > np.arange(q.shape[0])[:, None]] = -np.inf
    weights = np.exp(scores)
    return weights @ v / weights.sum(1, keepdims=True), np.log(weights.sum(1))


@pytest.mark.parametrize("name", [*TC, *FLASH, *STATS])
@pytest.mark.parametrize("shape", [{}, {"queries": 7, "keys": 31}, {"queries": 31, "keys": 7}])
def test_matrices(name, shape):
    dtype = "float16" if name in TC else "float32"
    q, k, v = make(np.random.default_rng(0), dtype, **shape)
    want, want_lse = plain(q, k, v, "causal" in name)
    got = getattr(bc, name)(q, k, v)
    y = got[0] if name in STATS else got
    assert y.dtype == dtype
    np.testing.assert_allclose(y, want, rtol=1e-3 if name in TC else 1e-6, atol=1e-3 if name in TC else 1e-6)
    if name in STATS:
        assert got[1].shape == q.shape[:1]
        np.testing.assert_allclose(got[1], want_lse, rtol=1e-6)


@pytest.mark.parametrize("name", [*TC, *FLASH, *STATS])
def test_a_batch_of_heads_is_its_matrices(name):
    rng = np.random.default_rng(1)
    dtype = "float16" if name in TC else "float32"
    q, k, v = (rng.standard_normal((2, h, 9, 8)).astype(dtype) for h in (4, 2, 2))
    function = getattr(bc, name)
    whole = function(q, k, v)
    for b, h in np.ndindex(2, 4):
        one = function(q[b, h], k[b, h // 2], v[b, h // 2])
        for a, c in zip(whole, one, strict=True) if name in STATS else [(whole, one)]:
            np.testing.assert_array_equal(a[b, h], c)


@pytest.mark.parametrize("name", TC)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_float32_as_kaio_gives_it(name, dtype):
    """The result has float32's precision, which that of the operands could not hold."""
    q, k, v = make(np.random.default_rng(3), dtype, queries=16, keys=32)
    want, _ = plain(q, k, v, "causal" in name)
    function = getattr(bc, name)
    got = function(q, k, v, out_element="float32")
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    out = np.full((16, 24), np.nan, np.float32)
    assert function(q, k, v, out=out) is out
    np.testing.assert_array_equal(out, got)
    batch = function(q[None, None], k[None, None], v[None, None], out_element="float32")
    np.testing.assert_array_equal(batch[0, 0], got)
    with pytest.raises(UnsupportedError, match=f"{name} of {dtype} gives {dtype} or float32, not float64"):
        function(q, k, v, out_element="float64")
    with pytest.raises(UnsupportedError, match="attention_flash of float32 gives float32, not float16"):
        bc.attention_flash(*make(np.random.default_rng(3), "float32"), out_element="float16")


def test_the_first_causal_row_is_the_first_value():
    for name in (TC[1], FLASH[1]):
        q, k, v = make(np.random.default_rng(2), "float16" if name in TC else "float32")
        np.testing.assert_array_equal(getattr(bc, name)(q, k, v)[0], v[0])


def test_statistics_change_nothing_and_normalise():
    q, k, v = make(np.random.default_rng(3), "float32")
    y, lse = bc.attention_flash_with_stats(q, k, v)
    np.testing.assert_array_equal(y, bc.attention_flash(q, k, v))
    np.testing.assert_allclose(np.exp(q @ k.T / 4 - lse[:, None]).sum(1), 1, rtol=1e-5)


def test_each_name_takes_its_elements():
    rng = np.random.default_rng(4)
    with pytest.raises(UnsupportedError, match="attention_tc takes float16 or bfloat16, got float32"):
        bc.attention_tc(*make(rng, "float32"))
    with pytest.raises(UnsupportedError, match="attention_flash_causal takes float32 or float64, got float16"):
        bc.attention_flash_causal(*make(rng, "float16"))
    q, k, v = make(rng, "float32")
    with pytest.raises(InvalidProblemError, match="k must have 2 axes"):
        bc.attention_flash(q, k[None], v)


@pytest.mark.parametrize("form", [tuple, lambda o: {"y": o[0], "lse": o[1]}])
def test_outputs_given_are_returned(form):
    q, k, v = make(np.random.default_rng(5), "float32")
    want = bc.attention_flash_with_stats(q, k, v)
    out = np.empty_like(want[0]), np.empty_like(want[1])
    got = bc.attention_flash_with_stats(q, k, v, out=form(out))
    for a, b, c in zip(got, out, want, strict=True):
        assert a is b
        np.testing.assert_array_equal(a, c)
    y = np.empty_like(want[0])
    assert bc.attention_flash(q, k, v, out=y) is y
    with pytest.raises(InvalidProblemError, match="out="):
        bc.attention_flash(q, k, v, out=(y, np.empty_like(y)))


def test_strided_matrices_are_read_where_they_lie():
    q, k, v = make(np.random.default_rng(6), "float32")
    room = np.zeros((19, 3, 24), "float32")
    for i, a in enumerate((q, k, v)):
        room[:, i, : a.shape[1]] = a
    views = room[:, 0, :16], room[:, 1, :16], room[:, 2]
    np.testing.assert_array_equal(bc.attention_flash_causal(*views), bc.attention_flash_causal(q, k, v))


def test_every_entry_is_of_the_flash_plan():
    for name in (*TC, *FLASH, *STATS):
        function = getattr(kaio, name)
        assert function.plan is FlashSdpaPlan
        assert function.__name__ == name
        assert "√d_k" in function.__doc__


def test_references_to_memory_are_lifted():
    given = bc.TensorRef(1 << 20, (19, 16), (48, 1), "float16", device=0)
    lifted = kaio._lifted(given, 2, "q")
    assert (lifted.shape, lifted.strides, lifted.ptr) == ((1, 1, 19, 16), (0, 0, 48, 1), 1 << 20)
    assert lifted.element is given.element


@pytest.mark.gpu
@pytest.mark.parametrize("name", [*TC, *FLASH, *STATS])
def test_on_a_gpu(name):
    cupy = pytest.importorskip("cupy")
    dtype = "float16" if name in TC else "float32"
    arrays = make(np.random.default_rng(8), dtype, 130, 200, 64, 40)
    function = getattr(bc, name)
    got, want = function(*map(cupy.asarray, arrays)), plain(*arrays, "causal" in name)
    for a, b in zip(got if name in STATS else (got,), want, strict=False):
        np.testing.assert_allclose(a.get(), b, rtol=2e-3 if name in TC else 2e-6, atol=2e-3 if name in TC else 2e-6)
