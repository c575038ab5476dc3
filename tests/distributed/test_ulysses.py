"""ulysses_attention: a head has the bits of one rank, whatever the ranks; gradients are attention's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.distributed import MismatchError, run_ranks

HEADS, LENGTH, D = 8, 16, 4


def draw(kv_heads: int, dtype: Any = np.float32) -> dict[str, Any]:
    rng = np.random.default_rng(kv_heads)
    shapes = {"q": (2, HEADS, LENGTH, D), "k": (2, kv_heads, LENGTH, D), "v": (2, kv_heads, LENGTH, 6)}
    made = {name: rng.standard_normal(shape).astype(dtype) for name, shape in shapes.items()}
    return made | {"dy": rng.standard_normal((2, HEADS, LENGTH, 6)).astype(dtype)}


def own(x: Any, comm: Any) -> Any:
    return bc.distributed.shard_sequence(x, comm, layout="contiguous")


@pytest.mark.parametrize("kv_heads", [1, 2, 8])
def test_heads_have_the_bits_of_one_rank_and_gradients(kv_heads: int) -> None:
    torch = pytest.importorskip("torch")
    x = draw(kv_heads)
    y, lse = bc.flash_sdpa(x["q"], x["k"], x["v"], is_causal=True, window_left=9, return_lse=True)
    grads = bc.flash_sdpa_backward(x["q"], x["k"], x["v"], y, lse, x["dy"], is_causal=True, window_left=9)

    def work(comm: Any) -> Any:
        leaf = [torch.tensor(own(x[name], comm), requires_grad=True) for name in ("q", "k", "v")]
        facts = {"is_causal": True, "window_left": 9, "return_lse": True}
        made = bc.distributed.ulysses_attention(*leaf, comm, **facts)
        made[0].backward(torch.tensor(own(x["dy"], comm)))
        outs = torch.zeros_like(made[0]), torch.zeros_like(made[1])
        with torch.no_grad():
            again = bc.distributed.ulysses_attention(*leaf, comm, **facts, out=outs)
        assert all(torch.equal(a, b) and a is out for a, b, out in zip(again, made, outs, strict=True))
        return [one.detach().numpy() for one in (*made, *(one.grad for one in leaf))]

    for size in (1, 2, 4, 8):
        got = [np.concatenate(parts, 2) for parts in zip(*run_ranks(work, size), strict=True)]
        for n, (one, want) in enumerate(zip(got, (y, lse, *grads), strict=True)):
            if n < 3 or kv_heads % size == 0:  # else a key head's gradient is added from several ranks
                assert one.tobytes() == np.ascontiguousarray(want).tobytes(), (size, n)
            np.testing.assert_allclose(one, want, rtol=1e-5, atol=1e-5)


def test_any_attention() -> None:
    x = draw(4, np.float64)
    alibi = bc.attention("s - 0.1 * (q - k)", "q >= k")
    want = alibi(x["q"], x["k"], x["v"])

    def work(comm: Any) -> Any:
        return bc.distributed.ulysses_attention(*(own(x[n], comm) for n in ("q", "k", "v")), comm, attention=alibi)

    assert np.concatenate(run_ranks(work, 2), 2).tobytes() == want.tobytes()


def test_what_does_not_fit_is_refused() -> None:
    x = draw(2)
    given = [x[name] for name in ("q", "k", "v")]
    attend = bc.distributed.ulysses_attention
    with pytest.raises(InvalidProblemError, match="8 heads, which 3 ranks do not divide"):
        run_ranks(lambda comm: attend(*given, comm), 3)
    with pytest.raises(InvalidProblemError, match="as many heads"):
        run_ranks(lambda comm: attend(given[0], given[1], given[2][:, :1], comm), 1)
    with pytest.raises(InvalidProblemError, match="k must have q's 16 positions"):
        run_ranks(lambda comm: attend(given[0], given[1][:, :, :4], given[2], comm), 1)
    with pytest.raises(InvalidProblemError, match="attention must be a function"):
        run_ranks(lambda comm: attend(*given, comm, attention="flash"), 1)
    with pytest.raises(InvalidProblemError, match="comm must be a Communicator"):
        attend(*given, 2)
    with pytest.raises(MismatchError):
        run_ranks(lambda comm: attend(*(a[:, :, : 4 + comm.rank] for a in given), comm), 2, timeout=5.0)
