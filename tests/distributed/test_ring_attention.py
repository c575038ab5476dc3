"""ring_attention against dense attention in float64, and its bits over numbers of ranks and layouts."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.distributed import MismatchError, run_ranks
from baracuda_py.distributed.sequence_blocks import FixedTree, Sight, blocks_of

MASKS: list[dict[str, Any]] = [
    {}, {"is_causal": True}, {"is_causal": True, "window_left": 7}, {"window_left": 3, "window_right": 20},
    {"window_left": 0, "window_right": 0, "softcap": 2.0}, {"window_left": 40, "window_right": 1, "scale": -0.4},
]  # fmt: skip
NAMES = ("y", "lse", "dq", "dk", "dv")


def draw(length: int, heads: int = 4, kv_heads: int = 2, dtype: Any = np.float64, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    shapes = {
        "q": (2, heads, length, 8), "k": (2, kv_heads, length, 8), "v": (2, kv_heads, length, 6),
        "dy": (2, heads, length, 6),
    }  # fmt: skip
    made = {name: rng.standard_normal(shape).astype(dtype) for name, shape in shapes.items()}
    acc = np.float64 if dtype == np.float64 else np.float32
    return made | {"dlse": rng.standard_normal((2, heads, length)).astype(acc)}


def dense(x: dict[str, Any], **facts: Any) -> tuple[Any, ...]:
    """y, lse and gradients of flash_sdpa on one rank."""
    y, lse = bc.flash_sdpa(x["q"], x["k"], x["v"], return_lse=True, **facts)
    grads = bc.flash_sdpa_backward(x["q"], x["k"], x["v"], y, lse, x["dy"], dlse=x["dlse"], **facts)
    return (y, lse, *grads)


def on_ranks(
    x: dict[str, Any], size: int, layout: str = "zigzag", blocks: int | None = None, **facts: Any
) -> list[Any]:
    """The same of shards, gathered."""
    of = {"layout": layout, "blocks": blocks, **facts}

    def work(comm: Any) -> list[Any]:
        own = {n: bc.distributed.shard_sequence(a, comm, layout=layout) for n, a in x.items()}
        y, lse = bc.distributed.ring_attention(own["q"], own["k"], own["v"], comm, return_lse=True, **of)
        grads = bc.distributed.ring_attention_backward(
            own["q"], own["k"], own["v"], y, lse, own["dy"], comm, own["dlse"], **of
        )
        return [bc.distributed.gather_sequence(a, comm, layout=layout) for a in (y, lse, *grads)]

    found = run_ranks(work, size)
    for other in found[1:]:
        assert all(a.tobytes() == b.tobytes() for a, b in zip(other, found[0], strict=True))
    return found[0]


def by_hand(x: dict[str, Any], left: int, right: int) -> np.ndarray:
    """Attention in float64 by its formula."""
    k, v = (np.repeat(x[n], 2, 1).astype(np.float64) for n in ("k", "v"))
    s = x["q"].astype(np.float64) @ k.swapaxes(-1, -2) / np.sqrt(8)
    i, j = np.arange(s.shape[2])[:, None], np.arange(s.shape[3])
    p = np.exp(np.where((j >= i - left) & (j <= i + right), s, -np.inf))
    return p / p.sum(-1, keepdims=True) @ v


@pytest.mark.parametrize("facts", MASKS, ids=str)
def test_every_mask_is_dense_attentions(facts: dict[str, Any]) -> None:
    x = draw(32)
    wanted = dense(x, **facts)
    first = on_ranks(x, 2, **facts)
    for name, got, want in zip(NAMES, first, wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-12, err_msg=name)
    for size, layout, blocks in (
        (1, "contiguous", 16),
        (4, "zigzag", None),
        (8, "contiguous", None),
        (8, "zigzag", 16),
    ):
        for name, got, want in zip(NAMES, on_ranks(x, size, layout, blocks, **facts), first, strict=True):
            assert got.tobytes() == want.tobytes(), (size, layout, name)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, ml_dtypes.bfloat16, np.float16], ids=lambda d: d.__name__)
def test_one_rank_has_the_bits_of_dense_attention(dtype: Any) -> None:
    x = draw(12, dtype=dtype)
    for got, want in zip(on_ranks(x, 1, is_causal=True), dense(x, is_causal=True), strict=True):
        assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize(("dtype", "bound"), [(np.float32, 2e-6), (ml_dtypes.bfloat16, 0.02)], ids=("f32", "bf16"))
def test_narrow_elements_merge_in_float32(dtype: Any, bound: float) -> None:
    x = draw(32, dtype=dtype)
    made = [on_ranks(x, size, is_causal=True) for size in (2, 4, 8)]
    np.testing.assert_allclose(made[0][0].astype(np.float64), by_hand(x, 99, 0), rtol=bound, atol=bound)
    wide = dense({n: a.astype(np.float64) for n, a in x.items()}, is_causal=True)
    for got, want in zip(made[0], wide, strict=True):
        np.testing.assert_allclose(got.astype(np.float64), want, rtol=4 * bound, atol=4 * bound)
    assert all(a.tobytes() == b.tobytes() for other in made[1:] for a, b in zip(other, made[0], strict=True))


def test_three_ranks_one_key_head_and_positions_that_see_nothing_of_a_block() -> None:
    x = draw(30, heads=3, kv_heads=1)
    for layout in ("zigzag", "contiguous"):
        for name, got, want in zip(
            NAMES, on_ranks(x, 3, layout, is_causal=True, window_left=4), dense(x, is_causal=True, window_left=4),
            strict=True,
        ):  # fmt: skip
            np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("layout", ["zigzag", "contiguous"])
def test_shards_put_together_and_their_gradients(layout: str) -> None:
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(0).standard_normal((3, 12))

    def work(comm: Any) -> Any:
        whole = torch.tensor(x, requires_grad=True)
        own = bc.distributed.shard_sequence(whole, comm, axis=-1, layout=layout)
        out = torch.empty_like(whole)
        made = bc.distributed.gather_sequence(own, comm, axis=1, layout=layout)
        with torch.no_grad():
            assert bc.distributed.gather_sequence(own, comm, axis=1, layout=layout, out=out) is out
        assert torch.equal(made, whole) and torch.equal(out, whole)
        (made * torch.tensor(x) * (comm.rank + 1)).sum().backward()
        return whole.grad.numpy()

    for size in (1, 2, 3):
        found = run_ranks(work, size)
        np.testing.assert_allclose(sum(found), x * sum(range(1, size + 1)))
        assert all((one == 0).sum() >= x.size - x.size // size for one in found)
    for words, axis in (("axis must be", 2), ("multiple of the 2 ranks", 0)):
        with pytest.raises(InvalidProblemError, match=words):
            run_ranks(lambda comm, at=axis: bc.distributed.shard_sequence(x, comm, axis=at), 2)


def test_sinks() -> None:
    x, sinks = draw(16), np.random.default_rng(3).standard_normal(4)
    facts: dict[str, Any] = {"is_causal": True, "window_left": 5, "sinks": sinks}
    y, lse = bc.flash_sdpa(x["q"], x["k"], x["v"], return_lse=True, **facts)
    given = (x["q"], x["k"], x["v"], y, lse, x["dy"])
    want = (y, lse, *bc.flash_sdpa_backward(*given, dlse=x["dlse"], **facts, return_dsinks=True))

    def work(comm: Any, layout: str) -> list[Any]:
        own = {n: bc.distributed.shard_sequence(a, comm, layout=layout) for n, a in x.items()}
        three, of = [own[n] for n in ("q", "k", "v")], {"layout": layout, **facts}
        y, lse = bc.distributed.ring_attention(*three, comm, return_lse=True, **of)
        *made, dsinks = bc.distributed.ring_attention_backward(*three, y, lse, own["dy"], comm, own["dlse"], **of)
        whole = [bc.distributed.gather_sequence(a, comm, layout=layout) for a in (y, lse, *made)]
        return [*whole, bc.distributed.all_reduce(dsinks, comm)]

    for size, layout in ((1, "zigzag"), (2, "contiguous"), (4, "zigzag")):
        for got, wanted in zip(run_ranks(work, size, layout)[0], want, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-11, atol=1e-12)
            assert size > 1 or got.tobytes() == wanted.tobytes()


def test_empty_sequences_and_batches() -> None:
    for shape in ((0, 2, 4, 8), (2, 2, 0, 8)):
        x = np.zeros(shape)
        for y, lse in run_ranks(lambda comm, x=x: bc.distributed.ring_attention(x, x, x, comm, return_lse=True), 2):
            assert y.shape == shape and lse.shape == shape[:3]


def test_gradients_of_torch_and_out() -> None:
    torch = pytest.importorskip("torch")
    x = draw(16)
    want = dense(x, is_causal=True)

    def work(comm: Any) -> list[Any]:
        own = {n: torch.tensor(bc.distributed.shard_sequence(a, comm)) for n, a in x.items()}
        leaves = [own[n].requires_grad_() for n in ("q", "k", "v")]
        y, lse = bc.distributed.ring_attention(*leaves, comm, is_causal=True, return_lse=True)
        (y * own["dy"]).sum().backward(retain_graph=True)
        (lse * own["dlse"]).sum().backward()
        outs = torch.empty_like(y), torch.empty_like(lse)
        with torch.no_grad():
            made = bc.distributed.ring_attention(*leaves, comm, is_causal=True, return_lse=True, out=outs)
        assert all(one is out and torch.equal(one, was) for one, out, was in zip(made, outs, (y, lse), strict=True))
        held = [y.detach(), lse.detach(), *(leaf.grad for leaf in leaves)]
        return [bc.distributed.gather_sequence(one.numpy(), comm) for one in held]

    for got, wanted in zip(run_ranks(work, 2)[1], want, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-10, atol=1e-11)


def test_what_does_not_fit_is_refused() -> None:
    x = draw(12)
    ring = bc.distributed.ring_attention

    def refused(words: str, **more: Any) -> None:
        given = {n: x[n][:, :, :6] for n in ("q", "k", "v")} | more
        with pytest.raises(InvalidProblemError, match=words):
            run_ranks(lambda comm: ring(given.pop("q"), given.pop("k"), given.pop("v"), comm, **given), 1)

    refused("layout must be one of", layout="bhsd")
    refused("k must have q's 6 positions", k=x["k"])
    refused(r"sinks must have shape \(4,\)", sinks=np.zeros(3))
    refused("blocks must be 1 times a power of two", blocks=3)
    refused("window_left", window_left=-1)
    refused("out of y must be float64 of shape", out=np.zeros((2, 4, 6, 7)))
    with pytest.raises(InvalidProblemError, match="comm must be a Communicator"):
        ring(x["q"], x["k"], x["v"], None)
    with pytest.raises(InvalidProblemError, match="even length"):
        run_ranks(lambda comm: ring(*(x[n][:, :, :3] for n in ("q", "k", "v")), comm), 2)
    with pytest.raises(MismatchError, match="rank 1 calls ring_attention with right None, rank 0 with 0"):
        run_ranks(lambda comm: ring(*(x[n] for n in ("q", "k", "v")), comm, is_causal=comm.rank == 0), 2, timeout=5.0)
    with pytest.raises(MismatchError):  # ranks with shards of different lengths
        run_ranks(lambda comm: ring(*(x[n][:, :, : 4 + 2 * comm.rank] for n in ("q", "k", "v")), comm), 2, timeout=5.0)


def test_what_a_block_sees() -> None:
    for size, layout, n in ((2, "zigzag", 12), (3, "contiguous", 5)):
        blocks = blocks_of(n, size, layout, None)
        assert sorted(b for rank in range(size) for b in blocks.of(rank)) == list(range(blocks.count))
        i, j = np.arange(size * n)[:, None], np.arange(size * n)
        for left, right in ((None, 0), (2, 0), (5, None), (0, 0), (3, 4), (100, 0)):
            seen = (j >= i - (999 if left is None else left)) & (j <= i + (999 if right is None else right))
            made = np.zeros_like(seen)
            for a in range(blocks.count):
                for b in range(blocks.count):
                    piece = Sight(left, right).piece(blocks, a, b)
                    if piece is None:
                        continue
                    rows, cols = np.arange(blocks.length)[piece.queries], np.arange(blocks.length)[piece.keys]
                    r, c = np.arange(len(rows))[:, None], np.arange(len(cols))
                    lo, hi = piece.facts.get("window_left", 999), piece.facts.get("window_right", 999)
                    hi = 0 if piece.facts.get("is_causal") else hi
                    at = np.ix_(rows + a * blocks.length, cols + b * blocks.length)
                    made[at] = (c >= r - lo) & (c <= r + hi)
            np.testing.assert_array_equal(made, seen)


def test_a_tree_is_the_same_whatever_the_order_of_its_leaves() -> None:
    for count in (1, 2, 5, 6, 8, 13):
        wanted: list[str] = [str(n) for n in range(count)]
        while len(wanted) > 1:
            pairs = [f"({wanted[i]}+{wanted[i + 1]})" for i in range(0, len(wanted) - 1, 2)]
            wanted = pairs + wanted[2 * len(pairs) :]
        for seed in range(5):
            tree: FixedTree[str] = FixedTree(count, lambda a, b: f"({a}+{b})")
            for n in np.random.default_rng(seed).permutation(count):
                tree.add(int(n), str(n))
            assert tree.complete and tree.total == wanted[0]
