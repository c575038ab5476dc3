"""Buckets of gradients and ZeRO: the same parameters and states, bit for bit, on 1, 2 and 4 ranks."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py import distributed as D

torch = pytest.importorskip("torch")
nn, optim = pytest.importorskip("baracuda_py.torch.nn"), pytest.importorskip("baracuda_py.torch.optim")
BATCHES = 4
SHAPES = ((5, 7), (3,), (), (0, 2), (40, 11))


def slopes(index: int, element: Any = np.float32) -> list[Any]:
    rng = np.random.default_rng(index)
    return [np.asarray(rng.standard_normal(shape)).astype(element) for shape in SHAPES]


def in_a_tree(comm: Any) -> list[Any]:
    """This rank's share of the micro-batches' gradients: their mean."""
    each, total = BATCHES // comm.size, D.TreeSum()
    for index in range(comm.rank * each, (comm.rank + 1) * each):
        total.add(slopes(index))
    return [np.asarray(one / np.float32(each)) for one in total.result()]


@pytest.mark.parametrize("bucket_bytes", (1, 200, 1 << 20))
def test_gradients_in_buckets(bucket_bytes: int) -> None:
    def work(comm: Any) -> Any:
        held = in_a_tree(comm)
        held[4] = np.asfortranarray(held[4])  # any strides
        half = [one.astype(ml_dtypes.bfloat16) for one in slopes(comm.rank)]
        given = [*held, *half]
        made = D.all_reduce_gradients(given, comm, bucket_bytes=bucket_bytes)
        assert all(one is two for one, two in zip(made, given, strict=True))
        return held

    (alone,) = D.run_ranks(work, 1)
    for size in (2, 4):
        for made in D.run_ranks(work, size):
            assert [one.tobytes() for one in made] == [one.tobytes() for one in alone]
    want = [np.mean([slopes(i)[at] for i in range(BATCHES)], axis=0, dtype=np.float64) for at in range(len(SHAPES))]
    assert all(np.allclose(one, two, atol=1e-6) for one, two in zip(alone, want, strict=True))


def test_parameters_of_torch_stand_for_their_gradients() -> None:
    def work(comm: Any) -> Any:
        params = [torch.zeros(3, requires_grad=True), torch.zeros(2, requires_grad=True)]
        params[0].grad = torch.full((3,), float(comm.rank))
        D.all_reduce_gradients(params, comm, op="sum")
        return params

    for one, two in D.run_ranks(work, 3):
        assert one.grad.tolist() == [3.0] * 3 and two.grad is None


@pytest.mark.parametrize("mixed", (False, True))
def test_adam_by_parts(mixed: bool) -> None:
    start = slopes(9, ml_dtypes.bfloat16 if mixed else np.float32)

    def work(comm: Any) -> Any:
        params = [one.copy() for one in start]
        each = D.zero_shard_size(params, comm)
        states = [np.zeros(each, np.float32) for _ in range(2)]
        master = D.zero_shard(params, comm, element="float32") if mixed else None
        for step in (1, 2, 3):
            made = D.distributed_adam_step(
                params, in_a_tree(comm), *states, comm, lr=0.05, step=step, weight_decay=0.1, master=master
            )
        assert made == params or all(one is two for one, two in zip(made, params, strict=True))
        return params, each

    ((alone, whole),) = D.run_ranks(work, 1)
    for size in (2, 4):
        for made, each in D.run_ranks(work, size):
            assert [one.tobytes() for one in made] == [one.tobytes() for one in alone]
            assert each * size < whole + size * 64
    if not mixed:  # the step of the whole tensors
        grads, params = D.run_ranks(in_a_tree, 1)[0], [one.copy() for one in start]
        held = [[np.zeros_like(one) for one in start] for _ in range(2)]
        for step in (1, 2, 3):
            bc.adam_step(params, grads, *held, lr=0.05, step=step, weight_decay=0.1)
        assert [one.tobytes() for one in params] == [one.tobytes() for one in alone]


def test_errors() -> None:
    params, grads = slopes(0), slopes(1)
    states = [np.zeros(D.zero_shard_size(params), np.float32) for _ in range(2)]
    step = partial(D.distributed_adam_step, lr=0.1, step=1)
    for call, match in (
        (lambda: step(params, grads[:-1], *states), "grads must have the shapes of params"),
        (lambda: step(params, [*grads[:-1], grads[-1].astype(np.float16)], *states), "floats of one element"),
        (lambda: step([], [], *states), "params must have an array at least"),
        (lambda: step(params, grads, states[0][:5], states[1]), "exp_avg"),
        (lambda: step(params, grads, *states, master=states[0][:5]), "master must have shape"),
        (lambda: D.all_reduce_gradients([np.arange(3)]), "gradients must be floats"),
        (lambda: D.all_reduce_gradients(grads, bucket_bytes=0), "bucket_bytes"),
        (lambda: optim.ZeroOptimizer(lambda p: p, [torch.zeros(2)]), "optimizer_factory must make"),
        (lambda: optim.ZeroOptimizer(torch.optim.SGD, [torch.zeros(2)], reduce="max"), "reduce must be"),
    ):
        with pytest.raises(bc.InvalidProblemError, match=match):
            call()
    with pytest.raises(D.MismatchError):
        D.run_ranks(lambda comm: D.all_reduce_gradients(grads[: 1 + comm.rank], comm), 2)


MAKERS = {
    "adamw": lambda p: optim.AdamW(p, lr=1e-2), "adam8bit": lambda p: optim.Adam8bit(p, lr=1e-2),
    "lamb": lambda p: optim.LAMB(p, lr=1e-2), "adafactor": lambda p: optim.Adafactor(p, lr=1e-2),
    "muon": lambda p: optim.Muon([q for q in p if q.ndim == 2], lr=1e-2),
    "torch nadam": lambda p: torch.optim.NAdam(p, lr=1e-2),
}  # fmt: skip


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return list(a) == list(b) and all(equal(a[name], b[name]) for name in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    return bool(a == b)


def trained(comm: Any, start: Any, maker: Any, steps: int, saved: Any, max_norm: Any) -> tuple[Any, Any, int]:
    """Weights, the optimizer's dictionary, and how many parameters this rank has states of."""
    model, total = copy.deepcopy(start), D.TreeSum()
    gen = torch.Generator().manual_seed(2)
    x, y = torch.randn(BATCHES, 4, 8, generator=gen), torch.randn(BATCHES, 4, 6, generator=gen)
    optimizer = optim.ZeroOptimizer(maker, model.parameters(), comm, bucket_bytes=300)
    if saved is not None:
        model.load_state_dict(saved[0])
        optimizer.load_state_dict(saved[1])
    each, params = BATCHES // comm.size, list(model.parameters())
    for _ in range(steps):
        for at in range(comm.rank * each, (comm.rank + 1) * each):
            total.add(torch.autograd.grad((model(x[at]) - y[at]).square().mean(), params))
        for p, slope in zip(params, total.result(), strict=True):
            p.grad = slope / each
        optimizer.step(max_norm=max_norm)
        optimizer.zero_grad()
    assert all(p.grad is None for group in optimizer.param_groups for p in group["params"])
    return model.state_dict(), optimizer.state_dict(), len(optimizer.state)


@pytest.mark.parametrize("name", MAKERS)
def test_any_optimizer_and_its_states_at_another_number_of_ranks(name: str) -> None:
    torch.manual_seed(0)
    start = torch.nn.Sequential(nn.Linear(8, 12, activation="gelu"), nn.LayerNorm(12), nn.Linear(12, 6))
    run = partial(D.run_ranks, trained)
    ((weights, states, count),) = run(1, start, MAKERS[name], 2, None, 0.3)
    ((after, *_),) = run(1, start, MAKERS[name], 3, None, 0.3)
    for size in (2, 4):
        made = run(size, start, MAKERS[name], 2, None, 0.3)
        assert all(equal(one[:2], (weights, states)) for one in made)
        assert sum(one[2] for one in made) == count and max(one[2] for one in made) < count
        again = run({2: 4, 4: 2}[size], start, MAKERS[name], 1, made[1][:2], 0.3)
        assert all(equal(one[0], after) for one in again)
    plain = MAKERS[name](list(copy.deepcopy(start).parameters()))  # takes the dictionary as its own
    plain.load_state_dict(states)
    assert equal(plain.state_dict()["state"], states["state"])


def test_groups_and_a_scheduler() -> None:
    def work(comm: Any) -> Any:
        a, b = torch.ones(4, requires_grad=True), torch.ones(3, requires_grad=True)
        optimizer = optim.ZeroOptimizer(partial(optim.SGD, lr=0.5), [{"params": [a], "lr": 0.25}], comm, reduce="sum")
        optimizer.add_param_group({"params": [b]})
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        for _ in range(2):
            (a.sum() + b.sum()).backward()
            optimizer.step(lambda: None)
            schedule.step()
            optimizer.zero_grad()
        return a.tolist(), b.tolist(), {optimizer.owner(a), optimizer.owner(b)}

    for a, b, owners in D.run_ranks(work, 2):  # the sum over ranks is 2
        assert a == [1 - 2 * (0.25 + 0.125)] * 4 and b == [1 - 2 * (0.5 + 0.25)] * 3 and owners == {0, 1}
