"""Recurrences over steps in shards against one rank, of every kind, both methods, forward and backward."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.distributed import MismatchError, run_ranks
from baracuda_py.ops.recurrence.attend import call
from baracuda_py.ops.recurrence.kinds import CHANNELLED, DELTAS, SCALARS, RecurrenceKind

B, N, H, DK, DV, DIM = 2, 13, 3, 4, 5, 4
ENDS = ([0, 13], [0, 5, 13], [0, 4, 4, 9, 13])
"""Where ranks begin: uneven, and one without steps."""
DIAGONAL = ("none", "scalar", "channel", "channel_bonus")


def draw(kind: RecurrenceKind) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    x = {"q": rng.standard_normal((B, N, H, DK)), "k": rng.standard_normal((B, N, 1, DK)) / 2}
    x["v"] = rng.standard_normal((B, N, H, DV))
    if kind in SCALARS or kind in CHANNELLED:
        x["g"] = -rng.random((B, N, H) if kind in SCALARS else (B, N, H, DK))
    if kind in DELTAS:
        x["beta"] = rng.random((B, N, H))
    if kind is RecurrenceKind.RANK_ONE:
        x |= {name: rng.standard_normal((B, N, H, DK)) / 4 for name in ("a", "b")}
    if kind is RecurrenceKind.CHANNEL_BONUS:
        x["bonus"] = rng.standard_normal((H, DK))
    return x | {"initial_state": rng.standard_normal((B, H, DK, DV))}


def one_rank(kind: RecurrenceKind, x: dict[str, Any]) -> Any:
    """(y, final state) of the op itself."""
    given = {("g_channel" if name == "g" and kind in CHANNELLED else name): a for name, a in x.items()}
    return call(**given, kind=kind, return_final_state=True)


def over(kind: RecurrenceKind, x: dict[str, Any], comm: Any, method: str | None) -> Any:
    rest = {name: a for name, a in x.items() if name not in ("q", "k", "v")}
    return bc.distributed.context_linear_attention(
        x["q"], x["k"], x["v"], comm, kind=kind, method=method, output_final_state=True, **rest
    )


def steps(x: dict[str, Any], ends: list[int], rank: int, along: int, whole: tuple[str, ...]) -> dict[str, Any]:
    own = (*[slice(None)] * along, slice(*ends[rank : rank + 2]))
    return {name: a if name in whole else a[own] for name, a in x.items()}


def gradients(function: Any, x: dict[str, Any], dy: Any, dlast: Any) -> list[Any]:
    torch = pytest.importorskip("torch")
    leaf = {name: torch.tensor(a, requires_grad=True) for name, a in x.items()}
    y, last = function(leaf)
    ((y * torch.tensor(dy)).sum() + (last * torch.tensor(dlast)).sum()).backward()
    return [y.detach().numpy(), last.detach().numpy(), {name: a.grad.numpy() for name, a in leaf.items()}]


@pytest.mark.parametrize("method", ["prefix", "sequential"])
@pytest.mark.parametrize("kind", list(RecurrenceKind), ids=lambda kind: kind.value)
def test_linear_attention(kind: RecurrenceKind, method: str) -> None:
    if method == "prefix" and kind.value not in DIAGONAL:
        with pytest.raises(InvalidProblemError, match='"sequential" does'):
            run_ranks(lambda comm: over(kind, draw(kind), comm, method), 1)
        return
    x, rng = draw(kind), np.random.default_rng(1)
    dy, dlast = rng.standard_normal((B, N, H, DV)), rng.standard_normal((B, H, DK, DV))
    want = gradients(lambda leaf: one_rank(kind, leaf), x, dy, dlast)
    for ends in ENDS:
        size, whole = len(ends) - 1, ("initial_state", "bonus")

        def work(comm: Any, ends: Any = ends, whole: Any = whole) -> Any:
            own = steps(x, ends, comm.rank, 1, whole)
            part = dy[:, slice(*ends[comm.rank : comm.rank + 2])]
            return gradients(lambda leaf: over(kind, leaf, comm, method), own, part, dlast / comm.size)

        found = run_ranks(work, size)
        y = np.concatenate([one[0] for one in found], 1)
        bound = 0 if method == "sequential" or size == 1 else 1e-13
        np.testing.assert_allclose(y, want[0], rtol=bound, atol=bound)
        for one in found:
            np.testing.assert_allclose(one[1], want[1], rtol=bound, atol=bound)
        for name, whole_gradient in want[2].items():
            parts = [one[2][name] for one in found]
            got = sum(parts) if name in whole else np.concatenate(parts, 1)
            np.testing.assert_allclose(got, whole_gradient, rtol=1e-12, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("method", ["prefix", "sequential"])
@pytest.mark.parametrize("softplus", [True, False])
def test_selective_scan(method: str, softplus: bool) -> None:
    rng = np.random.default_rng(2)
    x = {"u": rng.standard_normal((B, DIM, N)), "delta": rng.random((B, DIM, N)), "A": -rng.random((DIM, 3))}
    x |= {"B": rng.standard_normal((B, 2, 3, N)), "C": rng.standard_normal((B, 2, 3, N)), "D": rng.random(DIM)}
    x |= {"z": rng.standard_normal((B, DIM, N)), "delta_bias": rng.random(DIM)}
    x |= {"initial_state": rng.standard_normal((B, DIM, 3))}
    shared = ("A", "D", "delta_bias", "initial_state")
    dy, dlast = rng.standard_normal((B, DIM, N)), rng.standard_normal((B, DIM, 3))
    facts = {"delta_softplus": softplus, "return_last_state": True}
    want = gradients(lambda leaf: bc.selective_scan(**leaf, **facts), x, dy, dlast)
    for ends in ENDS:

        def work(comm: Any, ends: Any = ends) -> Any:
            own = {name: a if name in shared else a[..., slice(*ends[comm.rank :][:2])] for name, a in x.items()}
            part = dy[..., slice(*ends[comm.rank :][:2])]
            scan = bc.distributed.context_selective_scan
            return gradients(lambda leaf: scan(**leaf, comm=comm, method=method, **facts), own, part, dlast / comm.size)

        found = run_ranks(work, len(ends) - 1)
        bound = 0 if method == "sequential" else 1e-12
        np.testing.assert_allclose(np.concatenate([one[0] for one in found], 2), want[0], rtol=bound, atol=bound)
        np.testing.assert_allclose(found[0][1], want[1], rtol=bound, atol=bound)
        for name, whole_gradient in want[2].items():
            parts = [one[2][name] for one in found]
            got = sum(parts) if name in shared else np.concatenate(parts, -1)
            np.testing.assert_allclose(got, whole_gradient, rtol=1e-11, atol=1e-12, err_msg=name)


def test_narrow_elements_without_a_first_state_and_out() -> None:
    x = {name: a.astype(ml_dtypes.bfloat16) for name, a in draw(RecurrenceKind.SCALAR).items() if name in "qkvg"}
    want = bc.simple_gla(**x)
    for method in ("prefix", "sequential"):

        def work(comm: Any, method: str = method) -> Any:
            own = steps(x, ENDS[2], comm.rank, 1, ())
            out = np.zeros((B, own["q"].shape[1], H, DV), ml_dtypes.bfloat16)
            made = bc.distributed.context_linear_attention(**own, comm=comm, kind="scalar", method=method, out=out)
            assert made is out
            return made

        got = np.concatenate(run_ranks(work, 4), 1)
        np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=0.01, atol=0.01)


def test_only_the_last_state_reaches_a_loss() -> None:
    torch = pytest.importorskip("torch")
    x = draw(RecurrenceKind.SCALAR)

    def work(comm: Any) -> Any:
        own = {
            n: torch.tensor(a, requires_grad=True)
            for n, a in steps(x, ENDS[1], comm.rank, 1, ("initial_state",)).items()
        }
        over(RecurrenceKind.SCALAR, own, comm, None)[1].sum().backward()
        return own["g"].grad.numpy(), own["q"].grad.abs().sum().item()

    found = run_ranks(work, 2)
    leaf = {n: torch.tensor(a, requires_grad=True) for n, a in x.items()}
    (2 * one_rank(RecurrenceKind.SCALAR, leaf)[1]).sum().backward()  # both ranks have it in their loss
    np.testing.assert_allclose(np.concatenate([one[0] for one in found], 1), leaf["g"].grad.numpy(), rtol=1e-12)
    assert found[0][1] == found[1][1] == 0


def test_positions_before_a_shard_and_their_gradient() -> None:
    torch = pytest.importorskip("torch")
    x, weight = np.random.default_rng(0).standard_normal((2, 3, 12)), np.random.default_rng(1).standard_normal((3, 4))

    def convolved(leaf: Any, before: Any) -> Any:
        y = bc.causal_conv1d(leaf, torch.tensor(weight), initial_states=before, activation="silu")
        (y * y).sum().backward()
        return y.detach().numpy(), leaf.grad.numpy()

    def work(comm: Any) -> Any:
        own = bc.distributed.shard_sequence(x, comm, axis=-1, layout="contiguous")
        leaf = torch.tensor(own, requires_grad=True)
        return convolved(leaf, bc.distributed.previous_positions(leaf, comm, 3))

    want = convolved(torch.tensor(x, requires_grad=True), None)
    for size in (1, 2, 4):
        got = [np.concatenate(parts, -1) for parts in zip(*run_ranks(work, size), strict=True)]
        for one, wanted in zip(got, want, strict=True):
            np.testing.assert_allclose(one, wanted, rtol=1e-13, atol=1e-13)
    for words, count, axis in (("must have 13 positions", 13, -1), ("axis must be", 1, 3), ("count", -1, 0)):
        with pytest.raises(InvalidProblemError, match=words):
            run_ranks(lambda comm, c=count, a=axis: bc.distributed.previous_positions(x, comm, c, axis=a), 1)


def test_what_does_not_fit_is_refused() -> None:
    x = draw(RecurrenceKind.NONE)
    three = [x[n] for n in ("q", "k", "v")]
    attend = bc.distributed.context_linear_attention

    def refused(words: str, *given: Any, **more: Any) -> None:
        with pytest.raises(InvalidProblemError, match=words):
            run_ranks(lambda comm: attend(*given, comm, **more), 1)

    refused("kind must be one of", *three, kind="gla")
    refused("kind none takes no g", *three, g=np.zeros((B, N, H)))
    refused("kind scalar takes the operand g", *three, kind="scalar")
    refused("method must be one of", *three, method="tree")
    with pytest.raises(InvalidProblemError, match="comm must be a Communicator"):
        attend(*three, None)
    with pytest.raises(MismatchError):  # another number of channels
        run_ranks(lambda comm: attend(*(a[..., : 2 + comm.rank] for a in three), comm), 2, timeout=5.0)
