"""im2col and col2im: as torch's unfold and fold, and each the other's gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc

torch = pytest.importorskip("torch")
F = torch.nn.functional
CASES: tuple[dict[str, Any], ...] = (
    {"kernel_size": 2}, {"kernel_size": (3, 2), "padding": (1, 0), "stride": (2, 1)},
    {"kernel_size": 2, "dilation": (1, 2), "padding": 2, "stride": 3}, {"kernel_size": (1, 5), "padding": 1},
)  # fmt: skip


@pytest.mark.parametrize("facts", CASES)
def test_they_are_torchs(facts: dict[str, Any]) -> None:
    pytest.importorskip("baracuda_py.torch")
    x = torch.randn(2, 3, 6, 5, dtype=torch.float64, requires_grad=True)
    padding = facts.get("padding", 0)
    ours = facts | {"padding": [(p, p) for p in padding] if isinstance(padding, tuple) else padding}
    want, got = F.unfold(x, **facts), bc.im2col(x, **ours)
    assert torch.equal(got, want)
    assert torch.equal(bc.im2col(x[0], **ours), want[0])
    dy = torch.randn_like(want)
    (expected,), (found,) = torch.autograd.grad(want, x, dy), torch.autograd.grad(got, x, dy)
    assert torch.allclose(found, expected, rtol=1e-13, atol=1e-15)
    columns = dy.requires_grad_()
    want, got = F.fold(columns, (6, 5), **facts), bc.col2im(columns, (6, 5), **ours)
    assert torch.allclose(got, want, rtol=1e-13, atol=1e-15)
    dx = torch.randn_like(want)
    (expected,), (found,) = torch.autograd.grad(want, columns, dx), torch.autograd.grad(got, columns, dx)
    assert torch.equal(found, expected)


def test_one_and_three_axes() -> None:
    x = np.arange(12.0).reshape(1, 2, 6)
    got = bc.im2col(x, (3,), stride=2)
    assert np.array_equal(got[0, :3, 1], [2, 3, 4]) and got.shape == (1, 6, 2)
    y = np.ones((1, 8, 8))
    full = bc.col2im(y, (3, 3, 3), (2, 2, 2))
    corner = np.array([1, 2, 1])
    assert np.array_equal(full[0, 0], corner[:, None, None] * corner[:, None] * corner)


def test_wrong_calls() -> None:
    x = np.ones((1, 2, 4, 4), np.float32)
    for call, says in (
        (lambda: bc.im2col(x[0, 0], 2), "spatial axes"),
        (lambda: bc.col2im(x[0], (4, 4), 3), "windows"),
        (lambda: bc.im2col(x, 0), "kernel_size"),
        (lambda: bc.col2im(np.ones((1, 4, 8), np.float32), (4, 4), 2), "must have shape"),
    ):
        with pytest.raises(bc.InvalidProblemError, match=says):
            call()
