"""Names and options that other libraries have for what is here: each call against NumPy's own, each alias its op."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError

RNG = np.random.default_rng(6)
X, SRC = RNG.standard_normal((3, 4)), RNG.standard_normal((2, 4))
AT = np.array([[2, 0, 2, 1], [2, 1, 0, 1]])
ALIASES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "scatter_max": ("scatter_amax", lambda f: f(X, AT, SRC, axis=0)),
    "scatter_min": ("scatter_amin", lambda f: f(X, AT, SRC, axis=0)),
    "scatter_mul": ("scatter_prod", lambda f: f(X, AT, SRC, axis=0)),
    "rng_bit_generator": ("bits", lambda f: f((3, 4), seed=7, offset=2, element="uint64")),
}


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(6)


def _subtracted() -> np.ndarray:
    y = X.copy()
    np.subtract.at(y, (AT, np.arange(4)), SRC)
    return y


def _applied() -> np.ndarray:
    y = X.copy()
    y[AT, np.arange(4)] = np.exp(X[AT, np.arange(4)])
    return y


LOGITS, CUBE = RNG.standard_normal((2, 5, 3)), np.arange(24.0).reshape(2, 3, 4)
CALLS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "scatter_sub": (lambda: bc.scatter_sub(X, AT, SRC, axis=0), _subtracted),
    "scatter_sub wraps": (
        lambda: bc.scatter_sub(np.uint8([1, 5]), np.array([0, 0]), np.uint8([2, 1]), axis=0), lambda: np.uint8([254, 5])
    ),
    "scatter_apply": (lambda: bc.scatter_apply(X, AT, bc.exp, axis=0), _applied),
    "unbind_copy": (lambda: len(bc.unbind_copy(np.ones((2, 0, 3)), 1)), lambda: 0),
    "view_as_complex": (lambda: bc.view_as_complex(np.ones((3, 0, 2))), lambda: np.ones((3, 0), complex)),
    "categorical": (
        lambda: bc.categorical(LOGITS, 1, seed=3),
        lambda: bc.categorical(np.ascontiguousarray(LOGITS.swapaxes(1, 2)), seed=3),
    ),
    "categorical of a shape": (
        lambda: bc.categorical(LOGITS, shape=(4, 2, 5), seed=3),
        lambda: bc.categorical(np.tile(LOGITS, (4, 1, 1)), seed=3).reshape(4, 2, 5),
    ),
    "categorical of one row": (
        lambda: bc.categorical(LOGITS[0, 0], shape=6, seed=3),
        lambda: bc.categorical(np.tile(LOGITS[0, 0], (6, 1)), seed=3),
    ),
    "choice": (
        lambda: bc.choice(CUBE, (2, 2), axis=1, seed=3),
        lambda: np.take(CUBE, bc.choice(3, (2, 2), seed=3), 1),
    ),
    "choice of weights": (
        lambda: bc.choice(CUBE, 2, axis=-1, p=np.array([0.0, 0, 1, 0]), seed=3), lambda: CUBE[:, :, [2, 2]]
    ),
    "logspace": (lambda: bc.logspace(0, 3, 10, element="int64"), lambda: np.logspace(0, 3, 10, dtype=int)),
    "logspace of base 2": (lambda: bc.logspace(0, 40, 41, 2.0, "int64"), lambda: 2 ** np.arange(41)),
    "logspace saturates": (lambda: bc.logspace(1, 3, 3, element="uint8"), lambda: np.uint8([10, 100, 255])),
    "logspace of out": (lambda: bc.logspace(0, 2, 3, out=np.zeros(3, np.int32)), lambda: np.int32([1, 10, 100])),
    "geomspace": (lambda: bc.geomspace(-1, -256, 9, "int16"), lambda: -(2 ** np.arange(9, dtype=np.int16))),
}  # fmt: skip


@pytest.mark.parametrize("name", ALIASES)
def test_an_alias_is_its_op(name: str) -> None:
    own, call = ALIASES[name]
    assert getattr(bc, name) is getattr(bc, own)
    np.testing.assert_array_equal(call(getattr(bc, name)), call(getattr(bc, own)))


@pytest.mark.parametrize("name", CALLS)
def test_a_call_against_numpy(name: str) -> None:
    made, want = (np.asarray(call()) for call in CALLS[name])
    assert made.shape == want.shape and made.dtype == want.dtype
    np.testing.assert_allclose(made, want, rtol=1e-14)


def test_choice_writes_what_is_given() -> None:
    out = np.zeros((2, 5, 4))
    assert bc.choice(CUBE, 5, axis=1, seed=4, out=out) is out
    np.testing.assert_array_equal(out, bc.choice(CUBE, 5, axis=1, seed=4))
    assert sorted(bc.choice(CUBE, 4, axis=2, replace=False, seed=4)[0, 0]) == [0, 1, 2, 3]


def test_nothing_is_seen_as_complex_numbers() -> None:
    """Strides of arrays without elements say nothing: NumPy's are torch's 0, and slices have others."""
    torch = pytest.importorskip("torch")
    for x in (np.ones((2, 0, 2)), np.ones((2, 0, 4))[..., ::2], np.ones((2, 2, 0)).transpose(0, 2, 1)):
        assert bc.view_as_complex(x).shape == bc.view_as_complex(torch.from_numpy(x)).shape == (2, 0)
        assert bc.view_as_complex(torch.from_numpy(x)).dtype == torch.complex128
    with pytest.raises(InvalidProblemError, match="dense last axis of 2"):
        bc.view_as_complex(np.ones((0, 3)))


def test_unbind_copy_of_nothing_writes_nothing() -> None:
    assert bc.unbind_copy(np.ones((0, 3)), out=[]) == []


BAD = {
    "tau must be above 0, got 0": lambda: bc.gumbel_softmax(X, tau=0, seed=1),
    "tau must be above 0, got -1.0": lambda: bc.gumbel_softmax(X, tau=-1.0, seed=1),
    "tau must be above 0, got nan": lambda: bc.gumbel_softmax(X, tau=float("nan"), seed=1),
    "gumbel_softmax: seed is None": lambda: bc.gumbel_softmax(X),
    "axis must be an integer in .-3, 2., got 3": lambda: bc.choice(CUBE, 2, axis=3, seed=1),
    "axis must be an integer in .-1, 0., got 1": lambda: bc.choice(3, 2, axis=1, seed=1),
    "do not broadcast together": lambda: bc.categorical(X, shape=2, seed=1),
    "axis must be an integer in .-2, 1., got 2": lambda: bc.categorical(X, 2, seed=1),
    "func must keep the shape": lambda: bc.scatter_apply(X, AT, bc.sum, axis=0),
    "alpha must be from 0 to 1": lambda: bc.smooth_quant_scales(X, X, 1.5),
    r"x and weight must be \[\*, in\]": lambda: bc.smooth_quant_scales(X, X[:, :2]),
    "k a multiple of group": lambda: bc.hqq_quantize(X, group=8),
    "kind must be one of uint8": lambda: bc.hqq_quantize(X, kind="nf4"),
    "teacher_x must have the leading axes": lambda: bc.linear_kl(CUBE, X, CUBE[0], X),
}


@pytest.mark.parametrize("said", BAD)
def test_bad_input_is_refused(said: str) -> None:
    with pytest.raises(InvalidProblemError, match=said):
        BAD[said]()


def test_unitary_matrices() -> None:
    """Rows or columns are orthonormal, and Q is that of R with a positive diagonal."""
    for n, m in ((4, 2), (2, 4), (3, 3)):
        u = bc.orthogonal(n, m, shape=5, gain=2.0, seed=3, element="complex128")
        assert u.shape == (5, n, m) and u.dtype == np.complex128
        z = bc.randn((2, 5, max(n, m), min(n, m)), seed=3, element="float64")
        z, q = z[0] + 1j * z[1], u if n >= m else u.swapaxes(1, 2)
        r = q.conj().swapaxes(1, 2) @ z / 2
        np.testing.assert_allclose(q @ r / 2, z, atol=1e-13)
        np.testing.assert_allclose(np.tril(r, -1), 0, atol=1e-13)
        diagonal = np.einsum("bii->bi", r)
        assert (diagonal.real > 0).all() and abs(diagonal.imag).max() < 1e-13
    assert bc.orthogonal(0, 3, seed=1, element="complex64").shape == (0, 3)
    out = np.zeros((3, 2), np.complex64)
    assert bc.orthogonal(3, 2, seed=1, element="complex64", out=out) is out
    np.testing.assert_allclose(out.conj().T @ out, np.eye(2), atol=1e-6)


def test_unitary_phases_are_uniform() -> None:
    """An entry of Haar's measure on U(1) is a point of the circle, each as likely: moments vanish within 5 sigma."""
    u = bc.orthogonal(1, shape=4000, seed=5, element="complex128").ravel()
    np.testing.assert_allclose(abs(u), 1)
    assert all(abs((u**k).mean()) < 5 / np.sqrt(4000) for k in (1, 2, 3))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_linear_kl_of_more_axes(reduction: str, rng: np.random.Generator) -> None:
    x, w, b = rng.standard_normal((2, 3, 5)), rng.standard_normal((9, 5)), rng.standard_normal(9)
    tx, tw, t = rng.standard_normal((2, 3, 4)), rng.standard_normal((9, 4)), np.array([[0, -100, 2], [3, 4, -100]])
    wanted = {} if reduction == "none" else {"return_dx": True, "return_dweight": True, "return_dbias": True}
    made = bc.linear_kl(x, w, tx, tw, t, b, reduction=reduction, **wanted)
    flat = bc.linear_kl(x.reshape(6, 5), w, tx.reshape(6, 4), tw, t.ravel(), b, reduction=reduction, **wanted)
    if reduction == "none":
        assert made.shape == (2, 3)
        np.testing.assert_array_equal(made.ravel(), flat)
        lp, lq = (z - np.log(np.exp(z).sum(-1, keepdims=True)) for z in (x @ w.T + b, tx @ tw.T))
        want = np.where(t >= 0, (np.exp(lq) * (lq - lp)).sum(-1), 0)
        np.testing.assert_allclose(made, want, rtol=1e-12)
        return
    assert made[1].shape == x.shape
    for one, other in zip(made, flat, strict=True):
        np.testing.assert_array_equal(one.ravel(), other.ravel())


def test_linear_kl_of_more_axes_has_the_gradient_of_rows(rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    import baracuda_py.torch as bt

    x, w, tx, tw = (torch.from_numpy(rng.standard_normal(s)) for s in ((2, 3, 5), (9, 5), (2, 3, 4), (9, 4)))
    x.requires_grad_()
    made, want = (
        torch.autograd.grad(loss, x)[0]
        for loss in (
            bt.linear_kl(x, w, tx, tw),
            torch.nn.functional.kl_div(
                torch.log_softmax(x @ w.T, -1).reshape(6, 9), torch.log_softmax(tx @ tw.T, -1).reshape(6, 9),
                reduction="batchmean", log_target=True,
            ),
        )
    )  # fmt: skip
    torch.testing.assert_close(made, want)


def test_gumbel_softmax_takes_a_temperature_of_the_device() -> None:
    x = X.astype(np.float32)
    given = bc.gumbel_softmax(x, tau=np.array(0.5, np.float32), seed=1)
    np.testing.assert_array_equal(given, bc.gumbel_softmax(x, tau=0.5, seed=1))


def test_smooth_quant_scales(rng: np.random.Generator) -> None:
    x, w = rng.standard_normal((2, 7, 6)).astype(np.float32), rng.standard_normal((5, 6)).astype(np.float32)
    x[..., 2], w[:, 3] = 0, 0
    sx, sw = abs(x).max((0, 1)).astype(float), np.maximum(abs(w).max(0).astype(float), 1e-5)
    for alpha in (0.0, 0.3, 1.0):
        want = np.maximum(sx**alpha / sw ** (1 - alpha), 1e-5)
        s = bc.smooth_quant_scales(x, w, alpha)
        assert s.dtype == np.float32
        np.testing.assert_allclose(s, want, rtol=1e-6)
        np.testing.assert_array_equal(bc.smooth_quant_scales(abs(x).max((0, 1)), w, alpha), s)


def _hqq(w: np.ndarray, top: int, group: int, iterations: int) -> tuple[np.ndarray, np.ndarray]:
    """(scales, zeros) in float64, as the paper has them: the scale multiplies, the best zero of each group is kept."""
    v = w.astype(np.float64).reshape(len(w), -1, group)
    scale = top / (v.max(-1, keepdims=True) - v.min(-1, keepdims=True))
    zero, beta = -v.min(-1, keepdims=True) * scale, 10.0
    best, least = zero, np.full(zero.shape, np.inf)
    for _ in range(iterations + 1):
        code = np.clip(np.round(v * scale + zero), 0, top)
        error = v - (code - zero) / scale
        mean = abs(error).mean(-1, keepdims=True)
        best, least = np.where(mean < least, zero, best), np.minimum(mean, least)
        with np.errstate(divide="ignore"):
            shrunk = np.sign(error) * np.maximum(abs(error) - abs(error) ** (0.7 - 1) / beta, 0)
        zero, beta = (code - (v - shrunk) * scale).mean(-1, keepdims=True), beta * 1.01
    return 1 / scale[..., 0], best[..., 0]


@pytest.mark.parametrize(("kind", "top"), [("uint4", 15), ("uint3", 7), ("uint2", 3)])
def test_hqq_zeros(kind: str, top: int) -> None:
    """Against the definition in float64, for numbers that make no codes turn by rounding errors."""
    w = (np.random.default_rng(1).standard_t(3, (8, 64)) * 0.05).astype(np.float32)
    codes, scales, zeros = bc.hqq_quantize(w, kind=kind, group=32, iterations=5)
    want_scales, want = _hqq(w, top, 32, 5)
    np.testing.assert_allclose(scales, want_scales, rtol=1e-6)
    np.testing.assert_allclose(zeros, want, atol=1e-6 * top)
    code = np.clip(np.round(w.reshape(8, 2, 32) / scales[..., None] + zeros[..., None]), 0, top)
    read = bc.block_dequantize(codes, scales, zeros, kind=kind, group=32, element="float32")
    want_read = (code - zeros[..., None]) * scales[..., None]
    np.testing.assert_allclose(read, want_read.reshape(8, 64), atol=1e-6)


@pytest.mark.parametrize("kind", ["uint8", "uint4", "uint2"])
def test_hqq_errors_are_smaller(kind: str, rng: np.random.Generator) -> None:
    """Of every group not above that without iterations, and of heavy tails smaller."""
    w = (rng.standard_t(3, (16, 128)) * 0.05).astype(np.float16)
    errors = []
    for iterations in (0, 20):
        found = bc.hqq_quantize(w, kind=kind, iterations=iterations)
        read = bc.block_dequantize(*found, kind=kind, group=64, element="float32")
        errors.append(abs(w - read).reshape(16, 2, 64).mean(-1))
    assert (errors[1] <= errors[0] * (1 + 1e-6)).all() and errors[1].mean() < 0.99 * errors[0].mean()


def test_hqq_of_equal_numbers() -> None:
    """They have a scale, zero points that float16 holds, and come back; of groups with NaN they are NaN."""
    w = np.float32([[3.25], [0], [-7e-8], [1000], [np.nan]]) * np.ones((1, 64), np.float32)
    codes, scales, zeros = bc.hqq_quantize(w, zero_element="float16")
    read = bc.block_dequantize(codes, scales, zeros, kind="uint4", element="float32")
    np.testing.assert_allclose(read[:4], w[:4], rtol=1e-3)
    assert np.isfinite(zeros[:4]).all() and np.isnan(read[4]).all()


def test_quantize_per_tensor_dynamic(rng: np.random.Generator) -> None:
    x = rng.uniform(-1, 3, (4, 6)).astype(np.float32)
    y, scale, zero = bc.quantize_per_tensor_dynamic(x, "uint8")
    np.testing.assert_allclose(scale.item(), (x.max() - x.min()) / 255, rtol=1e-6)
    assert y.dtype == np.uint8 and (y.min(), y.max()) == (0, 255)
    assert abs(bc.dequantize(y, scale, zero) - x).max() < scale


@pytest.mark.parametrize("kind", ["mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e3m2", "mxfp4", "nvfp4"])
def test_scaled_matmul(kind: str, rng: np.random.Generator) -> None:
    """Numbers of these formats are exact in bfloat16: what is left are the sums."""
    (a, sa), (b, sb) = (
        bc.block_quantize(rng.standard_normal((2, n, 64)).astype(np.float32), kind=kind) for n in (3, 5)
    )
    x, w = (bc.block_dequantize(c, s, kind=kind, element="float32").astype(float) for c, s in ((a, sa), (b, sb)))
    y = bc.scaled_matmul(a, b, sa, sb, kind=kind)
    assert y.dtype == np.float32
    bound = abs(x) @ abs(w).swapaxes(1, 2)
    assert (abs(y - x @ w.swapaxes(1, 2)) <= 2.0**-22 * bound).all()
    assert bc.scaled_matmul(a, b, sa, sb, kind=kind, out_element="bfloat16").dtype == ml_dtypes.bfloat16


@pytest.mark.parametrize("held", ["float8_e4m3fn", "float8_e5m2"])
def test_scaled_grouped_mm(held: str, rng: np.random.Generator) -> None:
    dtype = getattr(ml_dtypes, held)
    a, w = rng.standard_normal((7, 16)).astype(dtype), rng.standard_normal((2, 5, 16)).astype(dtype)
    sa, sb = rng.random(7).astype(np.float32), rng.random((2, 5)).astype(np.float32)
    ends, want, bound = np.array([3, 6]), np.zeros((7, 5)), np.zeros((7, 5))
    for g, rows in enumerate((slice(0, 3), slice(3, 6))):
        left, right = a[rows].astype(float) * sa[rows, None], w[g].astype(float) * sb[g][:, None]
        want[rows], bound[rows] = left @ right.T, abs(left) @ abs(right).T
    y = bc.scaled_grouped_mm(a, w.swapaxes(1, 2), sa, sb, ends)
    assert y.dtype == ml_dtypes.bfloat16
    assert (abs(y.astype(float) - want) <= 2.0**-7 * bound).all()
    bytes_ = a.view(np.uint8), w.view(np.uint8).swapaxes(1, 2)
    np.testing.assert_array_equal(bc.scaled_grouped_mm(*bytes_, sa, sb, ends, element=held), y)
    with pytest.raises(UnsupportedError, match="element= says it of uint8"):
        bc.scaled_grouped_mm(*bytes_, sa, sb, ends)
    dense = np.ascontiguousarray(bytes_[1])
    np.testing.assert_array_equal(bc.scaled_grouped_mm(bytes_[0], dense, sa, sb, ends, element=held), y)
    with pytest.raises(InvalidProblemError, match=r"scale_a must have shape \(7,\)"):
        bc.scaled_grouped_mm(*bytes_, sa[:3], sb, ends, element=held)
