"""linear_cross_entropy against probabilities: torch's cross_entropy of whole logits in float64, and its autograd."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError
from tests.steps_emulated import by_kernels

RNG = np.random.default_rng(8)
X, W, B, C = (RNG.standard_normal(s) for s in ((10, 6), (9, 6), (9,), (9,)))
C = np.exp(C)
Q = RNG.dirichlet(np.ones(9), 10)
Q[3], Q[4, ::2] = np.eye(9)[4], 0
ALL = {f"return_{name}": True for name in ("dx", "dweight", "dbias")}
TERMS: list[dict[str, Any]] = [{}, {"label_smoothing": 0.2}, {"softcap": 2.0, "z_loss": 0.05, "label_smoothing": 0.1}]


def whole(x: Any, w: Any, q: Any, b: Any, c: Any, reduction: str, terms: dict[str, Any]) -> Any:
    torch = pytest.importorskip("torch")
    z = torch.nn.functional.linear(x, w, b)
    z = terms["softcap"] * torch.tanh(z / terms["softcap"]) if terms.get("softcap") else z
    loss = torch.nn.functional.cross_entropy(
        z, q, c, label_smoothing=terms.get("label_smoothing", 0.0), reduction="none"
    )
    loss = loss + terms.get("z_loss", 0) * torch.logsumexp(z, -1) ** 2
    return loss if reduction == "none" else loss.mean() if reduction == "mean" else loss.sum()


@pytest.mark.parametrize("chunk", [0, 1, 3, 10, 64])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("terms", TERMS)
@pytest.mark.parametrize("bare", [False, True])
def test_against_torch(chunk: int, reduction: str, terms: dict[str, Any], bare: bool) -> None:
    torch = pytest.importorskip("torch")
    x, w, q, b, c = (torch.from_numpy(v.copy()) for v in (X, W, Q, B, C))
    leaves = [v.requires_grad_() for v in ((x, w) if bare else (x, w, b))]
    b, c = (None, None) if bare else (b, c)
    want = whole(x, w, q, b, c, reduction, terms)
    slopes = torch.autograd.grad(want.sum(), leaves)
    given = (None, None) if bare else (B, C)
    made = bc.linear_cross_entropy(X, W, Q, *given, reduction=reduction, chunk=chunk, **terms, **ALL)
    assert len(made) == 1 + len(leaves) and made[0].shape == want.shape
    for one, other in zip(made, (want, *slopes), strict=True):
        np.testing.assert_allclose(one, other.detach(), rtol=1e-10, atol=1e-13)
    np.testing.assert_array_equal(
        bc.linear_cross_entropy(X, W, Q, *given, reduction=reduction, chunk=chunk, **terms), made[0]
    )


@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_autograd(reduction: str) -> None:
    """Of more axes, with a cotangent; probabilities and class weights have no gradient."""
    torch = pytest.importorskip("torch")
    import baracuda_py.torch as bt

    x, w, q, b, c = (torch.from_numpy(v.copy()) for v in (X.reshape(2, 5, 6), W, Q.reshape(2, 5, 9), B, C))
    leaves = [v.requires_grad_() for v in (x, w, b)]
    loss = bt.linear_cross_entropy(x, w, q, b, c, reduction=reduction, chunk=4)
    want = whole(x.reshape(10, 6), w, q.reshape(10, 9), b, c, reduction, {}).reshape(loss.shape)
    torch.testing.assert_close(loss, want, rtol=1e-12, atol=0)
    way = torch.randn_like(loss)
    for one, other in zip(torch.autograd.grad(loss, leaves, way), torch.autograd.grad(want, leaves, way), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-13)
    with pytest.raises(UnsupportedError, match="requires grad"):
        bt.linear_cross_entropy(x, w, q, b, c, return_dx=True)
    for place in (2, 4):
        given = [v.detach().requires_grad_(i == place) for i, v in enumerate((x, w, q, b, c))]
        with pytest.raises(UnsupportedError, match=r"requires grad|no gradient"):
            bt.linear_cross_entropy(*given)


def test_in_jax() -> None:
    jax = pytest.importorskip("jax")
    x, w, q = (jax.numpy.asarray(v, np.float32) for v in (X, W, Q))

    def loss(x: Any, w: Any) -> Any:
        return bc.linear_cross_entropy(x, w, q, chunk=4)

    made, (dx, dweight) = jax.jit(jax.value_and_grad(loss, (0, 1)))(x, w)
    want = bc.linear_cross_entropy(X, W, Q, return_dx=True, return_dweight=True)
    for one, other in zip((made, dx, dweight), want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_narrow_elements(dtype: Any) -> None:
    """Gradients of chunks are summed in float32: as many small chunks as rows change them by a rounding."""
    x, w, q = (v.astype(dtype) for v in (X, W, Q))
    made = bc.linear_cross_entropy(x, w, q, B.astype(dtype), chunk=1, **ALL)
    want = bc.linear_cross_entropy(*(v.astype(float) for v in (x, w, q, B.astype(dtype))), **ALL)
    assert [str(one.dtype) for one in made] == ["float32", *[str(np.dtype(dtype))] * 3]
    unit = 2.0**-23 if dtype is np.float32 else float(ml_dtypes.finfo(dtype).eps)
    for one, other in zip(made, want, strict=True):
        np.testing.assert_allclose(one.astype(float), other, atol=8 * unit * abs(other).max())


def test_views_and_out() -> None:
    x, w, q = X[::-1], np.asfortranarray(W), np.repeat(Q, 2, 1)[::-1, ::2]
    want = bc.linear_cross_entropy(X, W, Q, B, chunk=3, **ALL)
    made = bc.linear_cross_entropy(x, w, q, B, chunk=3, **ALL)
    np.testing.assert_allclose(made[1][::-1], want[1], rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(made[2], want[2], rtol=1e-11, atol=1e-14)
    out = [np.zeros(()), np.zeros((10, 6)), np.zeros((9, 6)), np.zeros(9)]
    given = bc.linear_cross_entropy(X, W, Q, B, chunk=3, **ALL, out=out)
    for one, other, exact in zip(given, out, want, strict=True):
        assert one is other
        np.testing.assert_array_equal(one, exact)
    rows = np.zeros(10)
    assert bc.linear_cross_entropy(X, W, Q, reduction="none", chunk=3, out=rows) is rows and rows.all()


def test_no_rows() -> None:
    empty = X[:0], W, Q[:0]
    loss, dweight = bc.linear_cross_entropy(*empty, return_dweight=True)
    assert np.isnan(loss) and not dweight.any()
    assert bc.linear_cross_entropy(*empty, reduction="sum") == 0
    assert bc.linear_cross_entropy(*empty, reduction="none").shape == (0,)


def test_one_row_without_leading_axes() -> None:
    loss, dx = bc.linear_cross_entropy(X[0], W, Q[0], reduction="none", return_dx=True)
    assert loss.shape == () and dx.shape == (6,)
    rows = bc.linear_cross_entropy(X, W, Q, reduction="none")
    np.testing.assert_allclose(loss, rows[0], rtol=1e-12)


SOFT = "targets are probabilities"
BAD = {
    r"probabilities must have shape \(10, 9\)": lambda: bc.linear_cross_entropy(X, W, Q[:, :8]),
    "probabilities must hold float64 as x does": lambda: bc.linear_cross_entropy(X, W, Q.astype(np.float32)),
    r"x must be \[\*, hidden\]": lambda: bc.linear_cross_entropy(X[:, :5], W, Q),
    r"bias must have shape \(9,\)": lambda: bc.linear_cross_entropy(X, W, Q, B[:8]),
    "chunk must be": lambda: bc.linear_cross_entropy(X, W, Q, chunk=-1),
    "reduction must be one of": lambda: bc.linear_cross_entropy(X, W, Q, reduction="batchmean"),
    f"{SOFT}, with which ignore_index": lambda: bc.linear_cross_entropy(X, W, Q, ignore_index=0),
    f"{SOFT}, with which class_start": lambda: bc.linear_cross_entropy(X, W, Q, class_start=0),
    f"{SOFT}, with which return_lse": lambda: bc.linear_cross_entropy(X, W, Q, return_lse=True),
    "label_smoothing must": lambda: bc.linear_cross_entropy(X, W, Q, label_smoothing=1.5),
    r"dloss must have shape \(\)": lambda: bc.linear_cross_entropy_of_probabilities_backward(np.ones(10), X, W, Q),
    "out= is for x of two axes": lambda: bc.linear_cross_entropy(X[None], W, Q[None], out=np.zeros(())),
}


@pytest.mark.parametrize("said", BAD)
def test_bad_input_is_refused(said: str) -> None:
    with pytest.raises(InvalidProblemError, match=said):
        BAD[said]()


@pytest.mark.parametrize("element", ["float32", "bfloat16"])
def test_on_the_emulator(element: str) -> None:
    """Chunks of rows by their kernels, the last one shorter: against torch in float64 of the values that are held."""
    torch = pytest.importorskip("torch")
    held = [v.astype(element) for v in (X, W, Q, B, C)]
    with by_kernels() as launched:
        made = bc.linear_cross_entropy(*held, reduction="mean", chunk=4, **TERMS[2], **ALL)
    said = " ".join(launched)
    assert said.count("cross_entropy_terms_backward_probabilities") == 3 and said.count("bc_gemm") == 9
    x, w, q, b, c = (torch.from_numpy(v.astype(np.float64)) for v in held)
    leaves = [v.requires_grad_() for v in (x, w, b)]
    want = whole(x, w, q, b, c, "mean", TERMS[2])
    fine = {"rtol": 1e-5, "atol": 1e-6} if element == "float32" else {"rtol": 2e-2, "atol": 2e-3}
    for one, other in zip(made, (want, *torch.autograd.grad(want, leaves)), strict=True):
        np.testing.assert_allclose(np.asarray(one, np.float64), other.detach(), **fine)
