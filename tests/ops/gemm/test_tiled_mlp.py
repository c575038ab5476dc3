"""tiled_mlp against the function of all rows at once."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc


@pytest.mark.parametrize("chunks", (None, 1, 3, 7, 50))
@pytest.mark.parametrize("shape", ((7, 3), (2, 11, 4), (2, 0, 4)))
def test_parts_are_the_whole(chunks: Any, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    seen: list[int] = []

    def function(part: Any) -> Any:
        seen.append(part.shape[-2])
        return bc.matmul(bc.silu(part), np.ones((shape[-1], 5), np.float32))

    y = bc.tiled_mlp(function, x, chunks=chunks)
    assert sum(seen) == shape[-2] and len(seen) <= max(chunks or shape[-2], 1)
    np.testing.assert_allclose(y, function(x), rtol=1e-6)


@pytest.mark.parametrize("chunks", (None, 1, 4))
def test_torchs_gradients_and_what_is_kept(chunks: Any) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(1)
    mlp = torch.nn.Sequential(torch.nn.Linear(3, 64), torch.nn.SiLU(), torch.nn.Linear(64, 5)).double()
    x = torch.randn(2, 10, 3, dtype=torch.float64, requires_grad=True)
    dy = torch.randn(2, 10, 5, dtype=torch.float64)
    kept: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
        y = bc.tiled_mlp(mlp, x, chunks=chunks)
    assert max(kept, default=0) <= x.numel()  # nothing 64 wide
    found = torch.autograd.grad(y, [x, *mlp.parameters()], dy)
    want = torch.autograd.grad(mlp(x), [x, *mlp.parameters()], dy)
    for ours, theirs in zip(found, want, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_torchs_random_numbers_are_the_same_again() -> None:
    torch = pytest.importorskip("torch")
    x = torch.ones(1, 12, 4, requires_grad=True)
    y = bc.tiled_mlp(lambda part: torch.nn.functional.dropout(part, 0.5), x, chunks=3)
    (dx,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(dx, y.detach())


@pytest.mark.parametrize("axis", (-2, 0))
@pytest.mark.parametrize("chunks", (1, 3, 4, 12))
def test_jaxs_gradients(chunks: int, axis: int) -> None:
    jax = pytest.importorskip("jax")
    rng = np.random.default_rng(2)
    x, w = (jax.numpy.asarray(rng.standard_normal(s), "float32") for s in ((4, 11, 3), (3, 5)))

    def total(w: Any, x: Any, tiled: bool) -> Any:
        f = lambda part: jax.numpy.sin(part @ w)  # noqa: E731
        y = bc.tiled_mlp(f, x, chunks=chunks, axis=axis) if tiled else f(x)
        return (y * y.shape[-1]).sum(), y

    for made in (lambda g: g, jax.jit):
        grads = [made(jax.grad(functools.partial(total, tiled=tiled), (0, 1), has_aux=True)) for tiled in (True, False)]
        (found, y), (want, z) = (grad(w, x) for grad in grads)
        np.testing.assert_allclose(y, z, rtol=1e-5, atol=1e-6)
        for ours, theirs in zip(found, want, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_what_is_refused() -> None:
    x = np.ones((4, 2), np.float32)
    with pytest.raises(bc.InvalidProblemError, match="function must be callable, got 3"):
        bc.tiled_mlp(3, x)  # type: ignore[arg-type]
    with pytest.raises(bc.InvalidProblemError, match="function must keep the 2 rows of axis 0"):
        bc.tiled_mlp(lambda part: part[:1], x, chunks=2)
    with pytest.raises(bc.InvalidProblemError, match="rows, features"):
        bc.tiled_mlp(lambda part: part, x[0])
    with pytest.raises(bc.InvalidProblemError, match="chunks"):
        bc.tiled_mlp(lambda part: part, x, chunks=0)
