"""block_diag: matrices, vectors and numbers along a diagonal, as torch has them; gradients, strides, many."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc

torch = pytest.importorskip("torch")
SHAPES: list[tuple[tuple[int, ...], ...]] = [
    ((2, 3),), ((2, 3), (4, 1)), ((2,), (), (2, 3)), ((0,), (2, 3)), ((0, 2), (2, 0), (1, 1)), ((3, 16), (5, 8)),
    tuple((1 + i % 3, i % 4) for i in range(150)),
]  # fmt: skip


def arrays(shapes: Any, dtype: Any) -> list[Any]:
    rng = np.random.default_rng(0)
    return [torch.from_numpy(np.asarray(rng.integers(1, 9, s)).astype(np.float64)).to(dtype) for s in shapes]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8, torch.bool, torch.complex128])
@pytest.mark.parametrize("shapes", SHAPES)
def test_it_is_torchs(shapes: Any, dtype: Any) -> None:
    given = arrays(shapes, dtype)
    want = torch.block_diag(*given)
    got = bc.block_diag(*given)
    assert got.dtype is want.dtype and torch.equal(got, want)
    out = torch.ones((*want.shape, 2), dtype=dtype)[..., 0]
    assert bc.block_diag(*given, out=out) is out and torch.equal(out, want)
    turned = [x.t().contiguous().t() if x.dim() == 2 else x for x in given]
    assert torch.equal(bc.block_diag(*turned), want)


@pytest.mark.parametrize("shapes", [one for one in SHAPES[:-1] if all(map(all, one))])
def test_gradients(shapes: Any) -> None:
    bt: Any = pytest.importorskip("baracuda_py.torch")
    given = tuple(x.requires_grad_() for x in arrays(shapes, torch.float64))
    assert torch.autograd.gradcheck(bt.block_diag, given)


def test_packages() -> None:
    a, b = np.ones((2, 3), np.float32), np.full((1, 2), 2.0, np.float32)
    want = torch.block_diag(torch.from_numpy(a), torch.from_numpy(b)).numpy()
    assert np.array_equal(bc.block_diag(a, b), want) and np.array_equal(bc.block_diag(a[::-1], b[:, ::-1]), want)
    jax = pytest.importorskip("jax")
    got = bc.block_diag(jax.numpy.asarray(a), jax.numpy.asarray(b))
    assert isinstance(got, jax.Array) and np.array_equal(got, want)


def test_wrong_calls() -> None:
    a = np.ones((2, 3), np.float32)
    for call, kind, says in (
        (lambda: bc.block_diag(), bc.InvalidProblemError, "a matrix at least"),
        (lambda: bc.block_diag(a, a[None]), bc.InvalidProblemError, r"matrices\[1\] must be a matrix, a vector or"),
        (lambda: bc.block_diag(a, a.astype(np.float64)), bc.BaracudaError, r"matrices\[1\]"),
        (lambda: bc.block_diag(a, out=np.ones((3, 3), np.float32)), bc.InvalidProblemError, "y must have shape"),
        (lambda: bc.BlockDiagDescriptor(shapes=((2,),), element="float32"), bc.InvalidProblemError, r"shapes\[0\]"),
    ):
        with pytest.raises(kind, match=says):
            call()


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "complex128"])
@pytest.mark.parametrize("shapes", SHAPES[1:])
def test_on_a_gpu(shapes: Any, dtype: str) -> None:
    import cupy

    given = [x.numpy().astype(dtype) for x in arrays(shapes, torch.float64)]
    want = torch.block_diag(*map(torch.from_numpy, given)).numpy()
    got = bc.block_diag(*map(cupy.asarray, given))
    assert np.array_equal(got.get(), want)
    out = cupy.ones((want.shape[1], want.shape[0] + 1), dtype)[:, :-1].T
    assert bc.block_diag(*map(cupy.asarray, given), out=out) is out and np.array_equal(out.get(), want)
