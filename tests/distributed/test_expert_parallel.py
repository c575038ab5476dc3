"""Experts over ranks: bit for bit `moe` of one rank, forward and backward, whoever has the tokens."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.distributed import MismatchError, run_ranks

TOKENS, K, EXPERTS, D, F, OUT = 13, 3, 8, 16, 12, 10
NAMES = ("x", "weights", "gate_up", "down", "gate_up_bias", "down_bias")
SHARDED = NAMES[2:]


def draw(dtype: Any, kind: str = "random") -> dict[str, Any]:
    rng = np.random.default_rng(0)
    shapes = {
        "x": (TOKENS, D), "weights": (TOKENS, K), "gate_up": (EXPERTS, 2 * F, D), "down": (EXPERTS, OUT, F),
        "gate_up_bias": (EXPERTS, 2 * F), "down_bias": (EXPERTS, OUT), "dy": (TOKENS, OUT),
    }  # fmt: skip
    made = {name: rng.standard_normal(shape).astype(dtype) for name, shape in shapes.items()}
    chosen = np.argsort(rng.random((TOKENS, EXPERTS)), 1)[:, :K]
    if kind == "one rank":
        chosen = np.tile([7, 6, 7], (TOKENS, 1))
    if kind == "nobody":
        chosen = np.full((TOKENS, K), -1)
    if kind == "some outside":
        chosen[::2, 1] = EXPERTS
    return made | {"indices": np.ascontiguousarray(chosen.astype(np.int32))}


def by_hand(x: dict[str, Any]) -> np.ndarray:
    """The formula in float64, token by token."""
    wide = {name: np.asarray(a, np.float64) for name, a in x.items()}
    y = np.zeros((TOKENS, OUT))
    for t in range(TOKENS):
        for j, e in enumerate(x["indices"][t]):
            if 0 <= e < EXPERTS:
                h = wide["gate_up"][e] @ wide["x"][t] + wide["gate_up_bias"][e]
                unit = h[:F] / (1 + np.exp(-h[:F])) * h[F:]
                y[t] += wide["weights"][t, j] * (wide["down"][e] @ unit + wide["down_bias"][e])
    return y


def bounds_of(size: int) -> list[int]:
    """Tokens of the ranks: uneven, and none on rank 1 of four."""
    return {1: [0, 13], 2: [0, 5, 13], 4: [0, 4, 4, 11, 13], 8: [0, 1, 2, 3, 5, 6, 8, 12, 13]}[size]


def of_rank(x: dict[str, Any], comm: Any) -> dict[str, Any]:
    ends, each = bounds_of(comm.size), EXPERTS // comm.size
    tokens, own = slice(*ends[comm.rank : comm.rank + 2]), slice(comm.rank * each, (comm.rank + 1) * each)
    return {name: a[own if name in SHARDED else tokens] for name, a in x.items()}


@pytest.mark.parametrize("kind", ["random", "one rank", "nobody", "some outside"])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16], ids=("f32", "bf16"))
def test_a_token_has_the_bits_of_one_rank(dtype: Any, kind: str) -> None:
    x = draw(dtype, kind)
    want = bc.moe(*(x[n] for n in ("x", "indices", *NAMES[1:])))
    wide = by_hand(x)
    bound = (1e-5 if dtype == np.float32 else 0.02) * max(1.0, np.abs(wide).max())
    np.testing.assert_allclose(want.astype(np.float64), wide, rtol=0, atol=bound)

    def work(comm: Any) -> Any:
        own = of_rank(x, comm)
        given = [own[n] for n in ("x", "indices", "weights", "gate_up", "down")]
        out = np.empty((len(own["x"]), OUT), dtype)
        biases = (own["gate_up_bias"], own["down_bias"])
        made = bc.distributed.expert_parallel_moe(*given, comm, *biases, out=out)
        assert made is out
        return made

    for size in (1, 2, 4, 8):
        assert np.concatenate(run_ranks(work, size)).tobytes() == want.tobytes(), size
    alone = bc.moe(x["x"][3:4], x["indices"][3:4], *(x[n][3:4] if n == "weights" else x[n] for n in NAMES[1:]))
    assert alone.tobytes() == want[3:4].tobytes()  # at any batch


@pytest.mark.parametrize("kind", ["random", "one rank", "nobody"])
def test_gradients_have_the_bits_of_one_rank(kind: str) -> None:
    torch = pytest.importorskip("torch")
    x = draw(np.float32, kind)

    def gradients(own: dict[str, Any], comm: Any = None) -> list[Any]:
        leaf = {n: torch.tensor(own[n], requires_grad=True) for n in NAMES}
        at = (leaf["x"], torch.tensor(own["indices"]), leaf["weights"], leaf["gate_up"], leaf["down"])
        biases = (leaf["gate_up_bias"], leaf["down_bias"])
        y = bc.moe(*at, *biases) if comm is None else bc.distributed.expert_parallel_moe(*at, comm, *biases)
        y.backward(torch.tensor(own["dy"]))
        return [one.grad.numpy() for one in leaf.values()]

    want = gradients(x)
    for size in (2, 4):
        found = run_ranks(lambda comm: gradients(of_rank(x, comm), comm), size)
        for n, name in enumerate(NAMES):
            assert np.concatenate([one[n] for one in found]).tobytes() == want[n].tobytes(), (size, name)


def test_rows_come_in_the_order_of_ranks_and_of_experts() -> None:
    def work(comm: Any) -> Any:
        x = np.arange(3, dtype=np.float32)[:, None] + 10 * comm.rank
        chosen = np.array([[3, 0], [0, 2], [9, 1]], np.int64)
        rows, own, route = bc.distributed.expert_dispatch(x, chosen, comm, 4)
        back = bc.distributed.expert_combine(rows * 2, route)
        np.testing.assert_array_equal(back, x * [[4], [4], [2]])  # one of the last token's experts is nowhere
        return rows[:, 0].tolist(), own[:, 0].tolist()

    assert run_ranks(work, 2) == [([0, 1, 2, 10, 11, 12], [0, 0, 1, 0, 0, 1]), ([1, 0, 11, 10], [0, 1, 0, 1])]


def test_what_does_not_fit_is_refused() -> None:
    x = draw(np.float32)
    given = [x[n] for n in ("x", "indices", "weights", "gate_up", "down")]
    with pytest.raises(InvalidProblemError, match="comm must be a Communicator"):
        bc.distributed.expert_parallel_moe(*given, None)
    with pytest.raises(InvalidProblemError, match="multiple of the 3 ranks, got 8"):
        run_ranks(lambda comm: bc.distributed.expert_dispatch(x["x"], x["indices"], comm, 8), 3)
    with pytest.raises(InvalidProblemError, match=r"indices must be \[13, k\]"):
        run_ranks(lambda comm: bc.distributed.expert_dispatch(x["x"], x["indices"][:4], comm, 8), 1)
    with pytest.raises(InvalidProblemError, match="int64 or int32"):
        run_ranks(lambda comm: bc.distributed.expert_dispatch(x["x"], x["weights"], comm, 8), 1)
    with pytest.raises(InvalidProblemError, match=r"y must be \[39, d_out\]"):
        route = run_ranks(lambda comm: bc.distributed.expert_dispatch(x["x"], x["indices"], comm, 8)[2], 1)[0]
        bc.distributed.expert_combine(x["x"], route)
    with pytest.raises(MismatchError):  # another width of rows
        run_ranks(
            lambda comm: bc.distributed.expert_dispatch(x["x"][:, : 8 + comm.rank], x["indices"], comm, 8), 2, timeout=5
        )
