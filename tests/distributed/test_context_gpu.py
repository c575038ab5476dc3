"""Sequences and experts over ranks on a GPU: ranks are threads that share it, and hand arrays on through the host.

The kernels are those of every step on several GPUs, and the bits over numbers of ranks are theirs. What NCCL carries is
in the last test, which takes two GPUs.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.device import driver_device_count
from baracuda_py.distributed import (
    collectives,
    context_states,
    expert_parallel,
    ring,
    ring_gradient,
    run_ranks,
    sequence_shards,
    ulysses,
)  # fmt: skip

pytestmark = pytest.mark.gpu
HEADS, KV_HEADS, LENGTH, D = 8, 2, 2048, 128
FACTS = {"is_causal": True, "window_left": 1500}


@pytest.fixture
def staged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Collectives on arrays of the device, by way of the host."""
    import cupy as cp

    def through_host(function: Any) -> Any:
        def call(x: Any, *given: Any, **facts: Any) -> Any:
            made = function(cp.asnumpy(x), *given, **{n: v for n, v in facts.items() if n != "stream"})
            return None if made is None else cp.asarray(made)

        return call

    for module in (context_states, expert_parallel, ring, ring_gradient, sequence_shards, ulysses):
        for name in ("all_gather", "all_reduce", "all_to_all", "all_to_all_v", "broadcast", "receive", "send_receive"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, through_host(getattr(collectives, name)))
        if hasattr(module, "send"):
            monkeypatch.setattr(module, "send", lambda x, *given, **facts: collectives.send(cp.asnumpy(x), *given))


def draw(shapes: dict[str, tuple[int, ...]], dtype: Any) -> dict[str, Any]:
    """Normal numbers on the device, rounded to bfloat16 where that is asked for, in torch, which CuPy has not."""
    torch = sys.modules.get("torch") or pytest.importorskip("torch")
    made = torch.Generator("cuda").manual_seed(0)
    return {
        name: torch.randn(shape, device="cuda", generator=made).to(getattr(torch, dtype))
        for name, shape in shapes.items()
    }


def by_hand(q: Any, k: Any, v: Any, dy: Any) -> list[Any]:
    """y and the gradients of causal attention in a window, in float64 by the formula, by torch's autograd."""
    import torch

    leaf = [x.double().requires_grad_() for x in (q, k, v)]
    wide = [x.repeat_interleave(HEADS // KV_HEADS, 1) for x in leaf[1:]]
    i, j = torch.arange(LENGTH, device="cuda")[:, None], torch.arange(LENGTH, device="cuda")
    s = (leaf[0] @ wide[0].mT / D**0.5).masked_fill((j > i) | (j < i - 1500), -torch.inf)
    y = s.softmax(-1) @ wide[1]
    y.backward(dy.double())
    return [y.detach(), *(one.grad for one in leaf)]


def attention_operands(dtype: str = "bfloat16") -> dict[str, Any]:
    shapes = {"q": (1, HEADS, LENGTH, D), "k": (1, KV_HEADS, LENGTH, D), "v": (1, KV_HEADS, LENGTH, D)}
    return draw(shapes | {"dy": (1, HEADS, LENGTH, D)}, dtype)


def test_one_rank_in_blocks_is_attention_forward_and_backward() -> None:
    x = attention_operands()
    want = by_hand(**x)

    def work(comm: Any, blocks: Any) -> Any:
        leaf = [x[n].detach().requires_grad_() for n in ("q", "k", "v")]
        y = bc.distributed.ring_attention(*leaf, comm, **FACTS, blocks=blocks)
        y.backward(x["dy"])
        return [y.detach(), *(one.grad for one in leaf)]

    for blocks in (None, 16):
        for got, wanted in zip(run_ranks(work, 1, blocks)[0], want, strict=True):
            assert ((got.double() - wanted).norm() / wanted.norm()).item() < 0.01
            assert (got.double() - wanted).abs().max().item() < 0.02 * wanted.abs().max().item()


def cupy_of(x: Any) -> Any:
    """float16 as CuPy has it."""
    import cupy as cp

    return cp.from_dlpack(x.half())


@pytest.mark.usefixtures("staged")
def test_the_bits_of_a_ring_do_not_depend_on_the_ranks() -> None:
    import cupy as cp

    x = {name: cupy_of(one) for name, one in attention_operands("float16").items()}
    found = []
    for size, layout in ((1, "contiguous"), (2, "zigzag"), (4, "contiguous"), (8, "zigzag")):

        def work(comm: Any, layout: str = layout) -> Any:
            own = {n: bc.distributed.shard_sequence(a, comm, layout=layout) for n, a in x.items()}
            three, facts = [own[n] for n in ("q", "k", "v")], {**FACTS, "layout": layout, "blocks": 16}
            y, lse = bc.distributed.ring_attention(*three, comm, return_lse=True, **facts)
            grads = bc.distributed.ring_attention_backward(*three, y, lse, own["dy"], comm, **facts)
            return [bc.distributed.gather_sequence(one, comm, layout=layout) for one in (y, lse, *grads)]

        found.append(run_ranks(work, size)[-1])
    for other in found[1:]:
        for got, want in zip(other, found[0], strict=True):
            assert bool(cp.array_equal(got, want))


@pytest.mark.usefixtures("staged")
def test_heads_by_all_to_all_have_the_bits_of_one_rank() -> None:
    import cupy as cp

    x = {name: cupy_of(one) for name, one in attention_operands("float16").items()}
    want = bc.flash_sdpa(x["q"], x["k"], x["v"], **FACTS)

    def work(comm: Any) -> Any:
        own = [bc.distributed.shard_sequence(x[n], comm, layout="contiguous") for n in ("q", "k", "v")]
        return bc.distributed.ulysses_attention(*own, comm, **FACTS)

    assert bool(cp.array_equal(cp.concatenate(run_ranks(work, 4), 2), want))


@pytest.mark.usefixtures("staged")
def test_experts_have_the_bits_of_one_rank() -> None:
    import cupy as cp

    tokens, experts, d, f = 1000, 16, 512, 256
    shapes = {"x": (tokens, d), "gate_up": (experts, 2 * f, d), "down": (experts, d, f), "logits": (tokens, experts)}
    x = {name: cupy_of(one / 8) for name, one in draw(shapes, "float32").items()}
    weights, indices = bc.moe_router(x.pop("logits"), k=4, normalize=True)
    want = bc.moe(x["x"], indices, weights, x["gate_up"], x["down"])

    def work(comm: Any) -> Any:
        own = slice(comm.rank * tokens // comm.size, (comm.rank + 1) * tokens // comm.size)
        mine = slice(comm.rank * experts // comm.size, (comm.rank + 1) * experts // comm.size)
        given = (x["x"][own], indices[own], weights[own], x["gate_up"][mine], x["down"][mine])
        return bc.distributed.expert_parallel_moe(*given, comm)

    for size in (1, 2, 8):
        assert bool(cp.array_equal(cp.concatenate(run_ranks(work, size)), want))


@pytest.mark.usefixtures("staged")
@pytest.mark.parametrize("kind", ["scalar", "scalar_delta"])
def test_recurrences_in_turn_have_the_bits_of_one_rank(kind: str) -> None:
    import cupy as cp

    shape = (1, 1024, 4, 64)
    made = {name: cupy_of(one) for name, one in draw(dict.fromkeys("qkv", shape), "float32").items()}
    gates = draw({"g": shape[:3], "beta": shape[:3]}, "float32")
    x = made | {"g": -cp.abs(cp.from_dlpack(gates["g"]))}
    facts: dict[str, Any] = {"kind": kind, "use_qk_l2norm": True}
    if kind == "scalar_delta":
        x["beta"] = cp.clip(cp.abs(cp.from_dlpack(gates["beta"])), 0, 1)

    def work(comm: Any, method: Any) -> Any:
        own = {n: bc.distributed.shard_sequence(a, comm, axis=1, layout="contiguous") for n, a in x.items()}
        return bc.distributed.context_linear_attention(**own, comm=comm, method=method, **facts)

    want = run_ranks(work, 1, "sequential")[0]
    assert bool(cp.array_equal(cp.concatenate(run_ranks(work, 4, "sequential"), 1), want))
    if kind == "scalar":
        got = cp.concatenate(run_ranks(work, 4, "prefix"), 1).astype(np.float64)
        assert float(cp.abs(got - want).max()) < 0.01 * float(cp.abs(want).max())


def ring_over_nccl(link: Any) -> list[tuple[Any, Any, bool]]:
    """(result, what one rank gives, whether the bits are the same)."""
    import cupy as cp

    rng = cp.random.default_rng(0)
    shapes = ((1, HEADS, LENGTH, D), (1, KV_HEADS, LENGTH, D), (1, KV_HEADS, LENGTH, D), (1, HEADS, LENGTH, D))
    x = [rng.standard_normal(shape, dtype=cp.float32).astype(cp.float16) for shape in shapes]
    *three, dy = (bc.distributed.shard_sequence(one, link) for one in x)
    y, lse = bc.distributed.ring_attention(*three, link, return_lse=True, **FACTS)
    grads = bc.distributed.ring_attention_backward(*three, y, lse, dy, link, **FACTS)
    whole = [bc.distributed.gather_sequence(one, link) for one in (y, lse, *grads)]
    made, sums = bc.flash_sdpa(*x[:3], **FACTS, return_lse=True)
    want = (made, sums, *bc.flash_sdpa_backward(*x[:3], made, sums, x[3], **FACTS))
    own = [bc.distributed.shard_sequence(one, link, layout="contiguous") for one in x[:3]]
    heads = bc.distributed.ulysses_attention(*own, link, **FACTS)
    heads = bc.distributed.gather_sequence(heads, link, layout="contiguous")
    return [*((a, b, False) for a, b in zip(whole, want, strict=True)), (heads, made, True)]


def experts_and_states_over_nccl(link: Any) -> list[tuple[Any, Any, bool]]:
    """The same of experts, of which some ranks' are chosen by nobody, and of states handed on and by prefix."""
    import cupy as cp

    rng = cp.random.default_rng(1)

    def own(x: Any, axis: int = 0) -> Any:
        return bc.distributed.shard_sequence(x, link, axis=axis, layout="contiguous")

    x, gate_up, down = (
        (rng.standard_normal(shape, dtype=cp.float32) / 8).astype(cp.float16)
        for shape in ((512, 256), (8, 512, 256), (8, 256, 256))
    )
    made = []
    for experts in (8, 2):
        indices = rng.integers(0, experts, (512, 2)).astype(cp.int32)
        weights = rng.random((512, 2), dtype=cp.float32)
        y = bc.distributed.expert_parallel_moe(own(x), own(indices), own(weights), own(gate_up), own(down), link)
        want = bc.moe(x, indices, weights, gate_up, down)
        made.append((bc.distributed.gather_sequence(y, link, axis=0, layout="contiguous"), want, True))
    q, k, v = (rng.standard_normal((1, 1024, 4, 64), dtype=cp.float32).astype(cp.float16) / 8 for _ in range(3))
    g = -rng.random((1, 1024, 4), dtype=cp.float32)
    for method in ("sequential", "prefix"):
        steps = [own(one, 1) for one in (q, k, v, g)]
        y = bc.distributed.context_linear_attention(*steps[:3], link, kind="scalar", g=steps[3], method=method)
        y = bc.distributed.gather_sequence(y, link, axis=1, layout="contiguous")
        made.append((y, bc.simple_gla(q, k, v, g), False))
    return made


def over_nccl(comm: Any, directory: str, function: Any) -> list[tuple[float, bool, bool]]:
    """On as many GPUs as ranks: of each result the difference, over the largest, whether there is any, and may be."""
    import cupy as cp

    with cp.cuda.Device(comm.rank):
        facts = {"rank": comm.rank, "size": comm.size, "engine": "nccl"}
        with bc.distributed.communicator(directory, **facts) as link:
            found = []
            for got, want, same in function(link):
                far = cp.abs(got.astype(cp.float32) - want.astype(cp.float32)).max() / cp.abs(want).max()
                found.append((float(far), bool(cp.array_equal(got, want)), same))
            return found


@pytest.mark.skipif(driver_device_count() < 2, reason="takes two GPUs")
@pytest.mark.parametrize("function", [ring_over_nccl, experts_and_states_over_nccl])
def test_ranks_of_their_own_gpus(function: Any, tmp_path: Any) -> None:
    for size in (2, 4)[: 1 + (driver_device_count() >= 4)]:
        place = tmp_path / str(size)
        place.mkdir()
        for found in run_ranks(over_nccl, size, str(place), function, engine="processes"):
            assert all(far < 0.01 and (equal or not same) for far, equal, same in found), found
