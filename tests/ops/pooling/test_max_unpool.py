"""max_unpool against torch's, with its gradients, and the pools that give indices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError

SPATIAL = {1: (8,), 2: (6, 8), 3: (4, 6, 8)}


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize(("kernel", "stride", "padding"), [(2, None, 0), (3, 2, 1), (2, 3, 0)])
@pytest.mark.parametrize("lead", [(2,), (2, 3)])
def test_it_is_that_of_torch(rank: int, kernel: int, stride: int | None, padding: int, lead: tuple[int, ...]) -> None:
    torch = pytest.importorskip("torch")
    import baracuda_py.torch as bt

    x = torch.randn(*lead, *SPATIAL[rank], dtype=torch.float64, requires_grad=True)
    pool = getattr(torch.nn.functional, f"max_pool{rank}d")
    kept, indices = pool(x, kernel, stride, padding, return_indices=True)
    ours = getattr(bt, f"max_pool{rank}d_with_indices")(x, kernel_size=kernel, stride=stride, padding=padding)
    assert torch.equal(ours[0], kept) and torch.equal(ours[1], indices)
    for size in (SPATIAL[rank], None) if stride is None else (SPATIAL[rank],):
        y = getattr(bt, f"max_unpool{rank}d")(kept, indices, kernel, stride, padding, size)
        want = getattr(torch.nn.functional, f"max_unpool{rank}d")(kept, indices, kernel, stride, padding, size)
        assert torch.equal(y, want)
        if kernel > (stride or kernel):
            continue  # of numbers that are one place's torch gives the gradient to all, which is none of the function
        way = torch.randn_like(want)
        gradients = [torch.autograd.grad(one, x, way, retain_graph=True)[0] for one in (y, want)]
        torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_adaptive_pools_give_indices(rank: int) -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, *SPATIAL[rank]))
    y, indices = getattr(bc, f"adaptive_max_pool{rank}d_with_indices")(x, output_size=3)
    want = getattr(bc, f"adaptive_max_pool{rank}d")(x, output_size=3, return_indices=True)
    np.testing.assert_array_equal(y, want[0])
    np.testing.assert_array_equal(indices, want[1])


def test_views_out_and_indices_outside() -> None:
    x, at = np.arange(12.0).reshape(3, 4), np.array([[0, 2, 4, 99], [1, 3, -9, 7], [6, 5, 4, 3]])
    out = np.full((3, 8), 9.0)
    assert bc.max_unpool1d(x, at, 2, out=out) is out
    want = np.zeros((3, 8))
    for row, column in np.ndindex(3, 4):
        if 0 <= at[row, column] < 8:
            want[row, at[row, column]] = x[row, column]
    np.testing.assert_array_equal(out, want)
    np.testing.assert_array_equal(bc.max_unpool1d(x[:, ::-1], at[:, ::-1], 2), want)


X, AT = np.ones((2, 3, 4)), np.zeros((2, 3, 4), np.int64)
BAD: dict[str, Any] = {
    "indices must have the shape of x": lambda: bc.max_unpool1d(X, AT[:1], 2),
    "x must be .*3 spatial axes": lambda: bc.max_unpool3d(X, AT, 2),
    "kernel_size must be a number": lambda: bc.max_unpool2d(X, AT, (2, 0)),
    "output_size must be 2 numbers": lambda: bc.max_unpool2d(X, AT, 2, output_size=(6, 11)),
    "give less padding": lambda: bc.max_unpool1d(X, AT, 1, padding=9),
    "out must have": lambda: bc.max_unpool1d(X, AT, 2, out=X),
}


@pytest.mark.parametrize("said", BAD)
def test_bad_input_is_refused(said: str) -> None:
    with pytest.raises(InvalidProblemError, match=said):
        BAD[said]()
