"""repeat_interleave by numbers and by counts, and one_hot: as torch and NumPy have them."""

from __future__ import annotations

import numpy as np
import pytest

import baracuda_py as bc

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_by_a_number(axis: int | None) -> None:
    pytest.importorskip("baracuda_py.torch")
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    want, got = torch.repeat_interleave(x, 3, axis), bc.repeat_interleave(x, 3, axis)
    assert torch.equal(got, want)
    dy = torch.randn_like(want)
    (expected,), (found,) = torch.autograd.grad(want, x, dy), torch.autograd.grad(got, x, dy)
    assert torch.allclose(found, expected, rtol=1e-14)
    assert np.array_equal(bc.repeat(x.detach().numpy(), 2, axis), np.repeat(x.detach().numpy(), 2, axis))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_by_counts(dtype: torch.dtype) -> None:
    pytest.importorskip("baracuda_py.torch")
    x = torch.randn(2, 5, dtype=torch.float64, requires_grad=True)
    counts = torch.tensor([2, 0, 1, 0, 4], dtype=dtype)
    want, got = torch.repeat_interleave(x, counts, 1), bc.repeat_interleave(x, counts, 1, total=7)
    assert torch.equal(got, want)
    dy = torch.randn_like(want)
    (expected,), (found,) = torch.autograd.grad(want, x, dy), torch.autograd.grad(got, x, dy)
    assert torch.allclose(found, expected, rtol=1e-14)
    longer = bc.repeat_interleave(x.detach(), counts, 1, total=9)
    assert torch.equal(longer[:, :7], want) and not longer[:, 7:].any()
    assert torch.equal(bc.repeat_interleave(x.detach(), counts, 1, total=3), want[:, :3])


def test_one_hot() -> None:
    index = torch.tensor([[0, 2], [1, 3]])
    assert torch.equal(bc.one_hot(index, 4), torch.nn.functional.one_hot(index, 4))
    first = bc.one_hot(index, 4, axis=0, element="float32")
    assert torch.equal(first, torch.nn.functional.one_hot(index, 4).movedim(-1, 0).float())
    outside = bc.one_hot(np.array([-1, 4, 0], np.int32), 4, on=5, off=-2, element="int8")
    assert np.array_equal(outside, [[-2] * 4, [-2] * 4, [5, -2, -2, -2]])


def test_wrong_calls() -> None:
    x = np.ones((2, 3), np.float32)
    for call, says in (
        (lambda: bc.repeat_interleave(x, np.array([1, 2, 3]), 1), "total must say"),
        (lambda: bc.repeat_interleave(x, np.array([1, 2]), 1, total=3), "3 integers"),
        (lambda: bc.repeat_interleave(x, -1, 1), "repeats must be an integer >= 0"),
        (lambda: bc.one_hot(x, 3), "index"),
        (lambda: bc.one_hot(np.array([1]), 3, axis=5), "axis"),
    ):
        with pytest.raises(bc.BaracudaError, match=says):
            call()
