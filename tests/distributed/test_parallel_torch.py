"""Gradients of a model over ranks by torch's autograd: those of float64, and bits of one rank on 2, 4 and 8."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

import baracuda_py as bc
from baracuda_py import distributed as D

torch = pytest.importorskip("torch")
nn = pytest.importorskip("baracuda_py.torch.nn")
CLASSES, HIDDEN, INNER = 64, 48, 96
AXES = {"table": 0, "w1": 0, "b1": 0, "w2": 1, "b2": None, "head": 0, "bias": 0}
SHAPES = {
    "table": (CLASSES, HIDDEN), "w1": (INNER, HIDDEN), "b1": (INNER,), "w2": (HIDDEN, INNER), "b2": (HIDDEN,),
    "head": (CLASSES, HIDDEN), "bias": (CLASSES,),
}  # fmt: skip


@cache
def weights(dtype: Any) -> tuple[dict[str, Any], Any, Any]:
    gen = torch.Generator().manual_seed(11)
    made = {n: torch.randn(s, generator=gen) / s[-1] ** 0.5 for n, s in SHAPES.items()}
    ids, targets = (torch.randint(0, CLASSES, (8, 3), generator=gen) for _ in range(2))
    targets[2, 1] = targets[0, 0] = -100
    return {n: w.to(dtype) for n, w in made.items()}, ids, targets


def model(comm: Any, dtype: Any, fused: bool, scattered: bool) -> tuple[Any, dict[str, Any]]:
    """The loss and the gradients of this rank's shares."""
    whole, ids, targets = weights(dtype)
    p = {
        n: (w if AXES[n] is None else w.chunk(comm.size, AXES[n])[comm.rank]).clone().requires_grad_()
        for n, w in whole.items()
    }
    x = D.vocab_parallel_embedding(ids, p["table"], comm, sequence_parallel=scattered)
    h = D.column_parallel_linear(x, p["w1"], p["b1"], comm, sequence_parallel=scattered)
    y = x + D.row_parallel_linear(torch.tanh(h), p["w2"], p["b2"], comm, sequence_parallel=scattered)
    if fused:
        loss, lse = D.vocab_parallel_linear_cross_entropy(
            y, p["head"], targets, p["bias"], comm, z_loss=0.01, softcap=9.0, return_lse=True
        )
    else:
        logits = D.column_parallel_linear(y, p["head"], p["bias"], comm, sequence_parallel=scattered)
        loss, lse = D.vocab_parallel_cross_entropy(
            logits, targets, comm, label_smoothing=0.1, z_loss=0.01, return_lse=True
        )
    loss = loss + (lse * 0.01).sum()
    loss.backward()
    return loss.detach(), {n: w.grad for n, w in p.items()}


def in_float64(dtype: Any, fused: bool) -> tuple[Any, dict[str, Any]]:
    whole, ids, targets = weights(dtype)
    p = {n: w.double().clone().requires_grad_() for n, w in whole.items()}
    x = p["table"][ids]
    y = x + torch.tanh(x @ p["w1"].T + p["b1"]) @ p["w2"].T + p["b2"]
    logits = (y @ p["head"].T + p["bias"]).flatten(0, 1)
    logits = 9.0 * torch.tanh(logits / 9.0) if fused else logits
    lse, aims = logits.logsumexp(-1), targets.flatten()
    loss = torch.nn.functional.cross_entropy(logits, aims, label_smoothing=0.0 if fused else 0.1)
    loss = loss + (0.01 * lse**2)[aims != -100].mean() + (lse * 0.01).sum()
    return loss.detach(), dict(zip(p, torch.autograd.grad(loss, list(p.values())), strict=True))


@pytest.mark.parametrize("fused", (False, True))
@pytest.mark.parametrize("dtype", ("float32", "bfloat16"))
def test_gradients(dtype: str, fused: bool) -> None:
    kind, bound = getattr(torch, dtype), 2e-6 if dtype == "float32" else 2e-2
    want, slopes = in_float64(kind, fused)
    alone: Any = None
    for scattered in (False,) if fused else (False, True):
        for size in (1, 2, 4, 8):
            made = D.run_ranks(model, size, kind, fused, scattered)
            assert all(torch.equal(one[0], made[0][0]) for one in made)
            grads = {
                n: made[-1][1][n] if axis is None else torch.cat([one[1][n] for one in made], axis)
                for n, axis in AXES.items()
            }
            alone = alone or (made[0][0], grads)
            assert torch.equal(alone[0], made[0][0])
            assert [n for n in AXES if not torch.equal(alone[1][n], grads[n])] == []
    assert abs(float(alone[0]) - float(want)) <= bound * abs(float(want))
    for name, slope in slopes.items():
        assert alone[1][name].dtype == kind
        assert (alone[1][name].double() - slope).norm() <= bound * slope.norm(), name


def test_frozen_operands_and_gradients_of_gradients() -> None:
    def work(comm: Any) -> Any:
        whole, ids, _ = weights(torch.float32)
        x, w = whole["table"][ids], whole["w2"].chunk(comm.size, 1)[comm.rank].clone().requires_grad_()
        own = torch.cat([x, x], -1).chunk(comm.size, -1)[comm.rank].contiguous()
        y = D.row_parallel_linear(own, w, None, comm)
        (slope,) = torch.autograd.grad(y.square().sum(), w, create_graph=True)
        with pytest.raises((bc.UnsupportedError, RuntimeError), match=r"once|gradient|differentiable"):
            torch.autograd.grad(slope.square().sum(), w)
        with pytest.raises(bc.UnsupportedError, match="out= takes no part in autograd"):
            D.row_parallel_linear(own, w, None, comm, out=torch.empty_like(y))
        return slope.detach()

    made = [torch.cat(D.run_ranks(work, size), 1) for size in (1, 2)]
    assert torch.equal(*made)


def test_modules_have_the_shares_of_one_layer() -> None:
    torch.manual_seed(5)
    up, down = torch.nn.Linear(16, 32), torch.nn.Linear(32, 16)
    table, x = torch.nn.Embedding(24, 16), torch.randint(0, 24, (4, 3))
    parts: list[list[Any]] = [[] for _ in range(4)]  # drawn one after another: threads share torch's generator

    def work(comm: Any) -> Any:
        layers = parts[comm.rank]
        for layer, whole in zip(layers, (table, up, down), strict=True):
            layer.comm = comm
            layer.load_whole(whole)
        y = layers[2](torch.tanh(layers[1](layers[0](x))))
        losses = nn.VocabParallelCrossEntropyLoss(comm=comm, slices=4)
        loss = losses(y.chunk(comm.size, -1)[comm.rank].contiguous(), x % 16)
        fused = nn.VocabParallelLinearCrossEntropyLoss(comm=comm)(y, layers[0].weight, x)
        return y, loss, fused

    class Place:
        def __init__(self, size: int, rank: int) -> None:
            self.size, self.rank = size, rank

    for rank in range(4):
        at = Place(4, rank)
        torch.manual_seed(7)
        parts[rank] += [
            nn.VocabParallelEmbedding(24, 16, comm=at), nn.ColumnParallelLinear(16, 32, comm=at),
            nn.RowParallelLinear(32, 16, comm=at),
        ]  # fmt: skip
    torch.manual_seed(7)
    drawn = torch.nn.Embedding(24, 16), torch.nn.Linear(16, 32), torch.nn.Linear(32, 16)
    assert torch.equal(torch.cat([p[0].weight for p in parts]), drawn[0].weight)
    assert torch.equal(torch.cat([p[1].weight for p in parts]), drawn[1].weight)
    assert torch.equal(torch.cat([p[2].weight for p in parts], 1), drawn[2].weight)
    assert all(torch.equal(p[2].bias, drawn[2].bias) for p in parts)
    assert "rank 3 of 4" in repr(parts[3][1]) and "weight=(8, 16)" in repr(parts[3][1])
    with pytest.raises(bc.InvalidProblemError, match="must be one whose share is"):
        parts[0][1].load_whole(torch.nn.Linear(16, 24))
    with pytest.raises(bc.InvalidProblemError, match="the weights must be"):
        parts[0][1].load_whole({"weight": up.weight})
    with pytest.raises(bc.InvalidProblemError, match="out_features must be a multiple of the 4 ranks"):
        nn.ColumnParallelLinear(16, 30, comm=Place(4, 0))
    want = down(torch.tanh(up(table(x))))
    loss = torch.nn.functional.cross_entropy(want.flatten(0, 1), x.flatten() % 16)
    fused = torch.nn.functional.cross_entropy((want @ table.weight.T).flatten(0, 1), x.flatten())
    for one in D.run_ranks(work, 4):
        torch.testing.assert_close(one[0], want)
        torch.testing.assert_close(one[1], loss)
        torch.testing.assert_close(one[2], fused)


def test_autocast_and_compiled_functions() -> None:
    whole, ids, targets = weights(torch.float32)
    x, w = whole["table"][ids], whole["w1"].clone().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = D.column_parallel_linear(x, w, whole["b1"])
        assert y.dtype is torch.bfloat16
        loss = D.vocab_parallel_cross_entropy(y[..., :CLASSES], targets)
        assert loss.dtype is torch.float32
    loss.backward()
    assert w.grad.dtype is torch.float32
    compiled = torch.compile(lambda x: D.column_parallel_linear(2 * x, w) * 2, backend="eager")
    assert torch.equal(compiled(x), D.column_parallel_linear(2 * x, w) * 2)  # the graph ends at the call


def test_arrays_of_jax_are_refused() -> None:
    jax = pytest.importorskip("jax")
    x = jax.numpy.ones((8, 8))
    for call in (
        lambda x: D.row_parallel_linear(x, x), lambda x: D.vocab_parallel_embedding(x.astype(int), x),
        lambda x: D.vocab_parallel_cross_entropy(x, x[0].astype(int)), lambda x: D.all_reduce_gradients([x]),
    ):  # fmt: skip
        for given in (call, jax.jit(call)):
            with pytest.raises(bc.UnsupportedError, match=r"jax\.lax\.psum"):
                given(x)
