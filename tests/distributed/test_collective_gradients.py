"""Gradients over ranks in torch against those of the same sums written in one process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc

torch = pytest.importorskip("torch")
D = bc.distributed
RANKS = 3
PAIRS = [(0, 2), (2, 1)]
COUNTS = np.array([[1, 2, 3], [0, 4, 2], [3, 3, 0]])


def _pieces(xs: Any, axis: int) -> Any:
    return [x.chunk(RANKS, axis) for x in xs]


ZERO = torch.zeros
CASES: dict[str, tuple[Any, Any]] = {  # a rank's call, and all ranks' results from all ranks' x
    "all_reduce": (lambda x, c: D.all_reduce(x, c), lambda xs: [sum(xs)] * RANKS),
    "all_reduce mean": (lambda x, c: D.all_reduce(x, c, "mean"), lambda xs: [sum(xs) / RANKS] * RANKS),
    "reduce_scatter": (
        lambda x, c: D.reduce_scatter(x, c, "sum", 1), lambda xs: [sum(p[r] for p in _pieces(xs, 1)) for r in range(3)]
    ),
    "reduce_scatter mean": (
        lambda x, c: D.reduce_scatter(x, c, "mean"),
        lambda xs: [sum(p[r] for p in _pieces(xs, 0)) / 3 for r in range(3)],
    ),
    "all_gather": (lambda x, c: D.all_gather(x, c, -1), lambda xs: [torch.cat(xs, -1)] * RANKS),
    "broadcast": (lambda x, c: D.broadcast(x, c, 1), lambda xs: [xs[1] + 0 * xs[r] for r in range(3)]),
    "all_to_all": (
        lambda x, c: D.all_to_all(x, c, 0, 1),
        lambda xs: [torch.cat([p[r] for p in _pieces(xs, 0)], 1) for r in range(3)],
    ),
    "all_to_all_v": (
        lambda x, c: D.all_to_all_v(x, COUNTS[c.rank], COUNTS[:, c.rank], c),
        lambda xs: [torch.cat([x.split(COUNTS[s].tolist())[r] for s, x in enumerate(xs)]) for r in range(3)],
    ),
    "permute": (lambda x, c: D.permute(x, c, PAIRS), lambda xs: [0 * xs[0], xs[2], xs[0]]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_gradients(name: str) -> None:
    call, want = CASES[name]
    gen = torch.Generator().manual_seed(5)
    xs = [torch.randn(6, 3, generator=gen, dtype=torch.float64, requires_grad=True) for _ in range(RANKS)]
    wanted = want(xs)
    weights = [torch.randn(y.shape, generator=gen, dtype=torch.float64) for y in wanted]
    loss = sum((y.tanh() * w).sum() for y, w in zip(wanted, weights, strict=True))
    first = torch.autograd.grad(loss, xs, create_graph=True, allow_unused=True, materialize_grads=True)
    second = torch.autograd.grad(sum((g**2).sum() for g in first), xs, allow_unused=True, materialize_grads=True)

    def work(comm: Any) -> Any:
        x = xs[comm.rank].detach().requires_grad_()
        y = call(x, comm)
        own = torch.autograd.grad((y.tanh() * weights[comm.rank]).sum(), x, create_graph=True)[0]
        if not own.requires_grad:  # a rank that sent nothing
            own = own + 0 * x
        return y.detach(), own.detach(), torch.autograd.grad((own**2).sum(), x)[0]

    for rank, (y, one, two) in enumerate(D.run_ranks(work, RANKS, timeout=20)):
        torch.testing.assert_close(y, wanted[rank].detach())
        torch.testing.assert_close(one, first[rank].detach())
        torch.testing.assert_close(two, second[rank])


@pytest.mark.parametrize("kind", ["bfloat16", "float16", "int64", "bool", "complex64"])
def test_tensors_come_back(kind: str) -> None:
    dtype = getattr(torch, kind)
    for y in D.run_ranks(lambda c: D.all_gather(torch.ones(2, dtype=dtype), c), 2):
        assert isinstance(y, torch.Tensor) and y.dtype is dtype and y.shape == (4,)
    out = [torch.zeros(4, dtype=dtype) for _ in range(2)]
    D.run_ranks(lambda c: D.all_gather(torch.ones(2, dtype=dtype), c, out=out[c.rank]), 2)
    assert out[0].to(torch.complex64).real.sum() == 4


NO_GRADIENT: dict[str, Any] = {
    "op max has no gradient": lambda x, c: D.all_reduce(x, c, "max"),
    "reduce has no gradient, all_reduce has": lambda x, c: D.reduce(x, c),
    "send_receive has no gradient, permute has": lambda x, c: D.send_receive(x, c, 0, 0),
    "send has no gradient": lambda x, c: D.send(x, c, 0),
    "out= takes no part in autograd": lambda x, c: D.all_reduce(x, c, out=torch.zeros(3)),
}


@pytest.mark.parametrize("said", NO_GRADIENT)
def test_what_has_no_gradient_is_refused(said: str) -> None:
    def work(comm: Any) -> None:
        x = torch.ones(3, requires_grad=True)
        with pytest.raises(bc.UnsupportedError, match=said):
            NO_GRADIENT[said](x, comm)
        with torch.no_grad():
            NO_GRADIENT[said](x, comm)

    D.run_ranks(work, 1)


def test_arrays_of_jax() -> None:
    jax = pytest.importorskip("jax")

    def work(comm: Any) -> Any:
        x = jax.numpy.arange(4, dtype=jax.numpy.bfloat16) + comm.rank
        y = D.all_reduce(x, comm)
        assert isinstance(y, jax.Array) and y.dtype == x.dtype
        for transform in (jax.jit, jax.grad, jax.vmap):
            with pytest.raises(bc.UnsupportedError, match=r"inside shard_map lax\.psum"):
                transform(lambda x: D.all_reduce(x, comm).sum())(x.astype(float))
        return y.astype(float).tolist()

    assert D.run_ranks(work, 2) == [[1.0, 3.0, 5.0, 7.0]] * 2


def test_autocast_and_compiled_functions() -> None:
    """Autocast leaves what is exchanged as it is; a graph of torch.compile ends at a collective."""

    def work(comm: Any) -> Any:
        x = torch.ones(3, requires_grad=True)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = D.all_reduce(x, comm)
        y.sum().backward()
        compiled = torch.compile(lambda x: D.all_reduce(x * 2, comm) + 1, backend="eager") if comm.rank == 0 else None
        z = compiled(torch.ones(3)) if compiled else D.all_reduce(torch.full((3,), 2.0), comm) + 1
        return y.dtype, x.grad.tolist(), z.tolist()

    assert D.run_ranks(work, 2, timeout=60) == [(torch.float32, [2.0] * 3, [5.0] * 3)] * 2
