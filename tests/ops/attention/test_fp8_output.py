"""fp8 outputs of attention: y of each function times a scale, cast; errors; torch's gradients are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bc

RNG = np.random.default_rng(3)
BF16, E4M3, E5M2 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2


def made(*shape: int, element: Any = BF16) -> np.ndarray:
    return RNG.standard_normal(shape).astype(element)


Q, K, V = made(2, 4, 5, 8), made(2, 2, 7, 8), made(2, 2, 7, 6)
ROWS, KEYS, VALUES = made(9, 4, 8), made(12, 2, 8), made(12, 2, 6)
CACHE_K, CACHE_V = made(6, 2, 4, 8), made(6, 2, 4, 6)
ENDS, KEY_ENDS = np.array([0, 5, 9], np.int32), np.array([0, 7, 12], np.int32)
PAGES: dict[str, Any] = {
    "page_table": np.array([[0, 2], [5, 1]], np.int32), "lengths": np.array([7, 5], np.int32)
}  # fmt: skip
TOKEN = made(2, 4, 8)
FUNCTIONS: dict[str, tuple[Callable[..., Any], int]] = {  # and y's axis of heads
    "flash_sdpa": (lambda **o: bc.flash_sdpa(Q, K, V, is_causal=True, **o), 1),
    "flash_sdpa bshd": (
        lambda **o: bc.flash_sdpa(*(np.swapaxes(x, 1, 2) for x in (Q, K, V)), layout="bshd", softcap=2.0, **o), 2
    ),
    "flash_sdpa of formulas": (lambda **o: bc.flash_sdpa(Q, K, V, mask="k <= q + n", score="s * 2", n=2, **o), 1),
    "flash_sdpa by head": (lambda **o: bc.flash_sdpa(Q, K, V, window_left=(1, None, 2, 3), **o), 1),
    "flash_sdpa_varlen": (lambda **o: bc.flash_sdpa_varlen(ROWS, KEYS, VALUES, ENDS, KEY_ENDS, **o), 1),
    "batch_ragged_prefill": (lambda **o: bc.batch_ragged_prefill(ROWS, KEYS, VALUES, ENDS, KEY_ENDS, **o), 1),
    "batch_paged_prefill": (lambda **o: bc.batch_paged_prefill(ROWS, CACHE_K, CACHE_V, ENDS, **PAGES, **o), 1),
    "batch_paged_extend": (lambda **o: bc.batch_paged_extend(ROWS, CACHE_K, CACHE_V, ENDS, **PAGES, **o), 1),
    "batch_paged_decode": (lambda **o: bc.batch_paged_decode(TOKEN, CACHE_K, CACHE_V, **PAGES, **o), 1),
    "flash_decoding": (lambda **o: bc.flash_decoding(TOKEN, K, V, **o), 1),
}  # fmt: skip


def wanted(y: np.ndarray, scale: Any, kind: Any) -> np.ndarray:
    largest = float(ml_dtypes.finfo(kind).max)
    return np.clip(y.astype(np.float32) * np.float32(scale), -largest, largest).astype(kind)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_they_are_y_times_the_scale_cast(name: str) -> None:
    f, axis = FUNCTIONS[name]
    y, lse = f(return_lse=True)
    for kind, scale in ((E4M3, 3.0), (E4M3, np.array(-0.75, np.float32)), (E5M2, np.array([1e5], np.float32))):
        got, other = f(out_element=kind, out_scale=scale, return_lse=True)
        assert np.asarray(got).view(kind).tobytes() == wanted(y, scale, kind).tobytes()
        np.testing.assert_array_equal(other, lse)
    scales = np.array([0.5, 2.0, 1024.0, 0.25], np.float32)  # powers of two multiply exactly
    by_head = scales.reshape([4 if a == axis else 1 for a in range(y.ndim)])
    got = f(out_element="float8_e4m3fn", out_scale=scales)
    assert got.view(E4M3).tobytes() == wanted(y, by_head, E4M3).tobytes()
    out, at = np.full(y.shape, 7, np.uint8), np.full(lse.shape, 7, np.float32)
    assert f(out_element=E4M3, out=out) is out
    assert out.tobytes() == wanted(y, 1, E4M3).tobytes()
    f(out_element=E5M2, out_scale=scales, return_lse=True, out=(out, at))
    assert out.tobytes() == wanted(y, by_head, E5M2).tobytes()
    np.testing.assert_array_equal(at, lse)


def test_nan_and_infinities() -> None:
    v = V.copy()
    v[0, :, 3, 0], v[1, :, :, 1] = np.nan, np.inf
    got = np.asarray(bc.flash_sdpa(Q, K, v, out_element=E4M3)).view(E4M3).astype(np.float32)
    assert np.isnan(got[0, ..., 0]).all() and (got[1, ..., 1] == 448).all() and not np.isnan(got[0, ..., 1:]).any()


def test_results_behind_lse_stay() -> None:
    y, lse, weights = bc.flash_decoding(TOKEN, K, V, return_lse=True, return_weights=True)
    got = bc.flash_decoding(TOKEN, K, V, return_lse=True, return_weights=True, out_element=E4M3, out_scale=2.0)
    assert len(got) == 3 and np.asarray(got[0]).tobytes() == wanted(y, 2, E4M3).tobytes()
    np.testing.assert_array_equal(got[2], weights)
    np.testing.assert_array_equal(got[1], lse)


def test_no_rows() -> None:
    assert bc.flash_sdpa(Q[:, :, :0], K, V, out_element=E4M3).shape == (2, 4, 0, 6)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"out_scale": 2.0}, "out_scale goes with an out_element"),
        ({"out_element": "float16"}, "out_element must be float8_e4m3fn or float8_e5m2"),
        ({"out_element": E4M3, "out_scale": np.ones(3, np.float32)}, r"\(4,\), one for each head, got"),
        ({"out_element": E4M3, "out_scale": np.ones(4)}, "float64"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_refused(name: str, given: dict[str, Any], said: str) -> None:
    with pytest.raises((bc.InvalidProblemError, bc.UnsupportedError), match=said):
        FUNCTIONS[name][0](**given)


def test_float64_is_refused() -> None:
    with pytest.raises(bc.UnsupportedError, match="got float8_e4m3fn and float64"):
        bc.flash_sdpa(*(x.astype(np.float64) for x in (Q, K, V)), out_element=E4M3)


def test_torch_has_no_gradient_of_them() -> None:
    torch = pytest.importorskip("torch")
    q, k, v = (torch.tensor(x.astype(np.float32)) for x in (Q, K, V))
    y = bc.flash_sdpa(q, k, v, out_element="float8_e4m3fn", out_scale=torch.tensor(0.5))
    assert y.dtype is torch.float8_e4m3fn
    torch.testing.assert_close(y.float(), bc.flash_sdpa(q, k, v) / 2, rtol=0.07, atol=0.01)
    with pytest.raises(bc.UnsupportedError, match="has no gradient, and q, k or v requires grad"):
        bc.flash_sdpa(q, k.requires_grad_(), v, out_element="float8_e4m3fn")
    with torch.no_grad():
        bc.flash_sdpa(q, k, v, out_element="float8_e4m3fn")


def test_jax_takes_them() -> None:
    jax = pytest.importorskip("jax")
    q, k, v = (jax.numpy.asarray(x.astype(np.float32)) for x in (Q, K, V))
    f = jax.jit(lambda q, k, v: bc.flash_sdpa(q, k, v, out_element="float8_e4m3fn", out_scale=2.0))
    want = bc.flash_sdpa(*(np.asarray(x) for x in (q, k, v)), out_element="float8_e4m3fn", out_scale=2.0)
    assert np.asarray(f(q, k, v)).tobytes() == np.asarray(want).tobytes()
