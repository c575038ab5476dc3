"""baracuda_py.torch.nn's recurrent modules beside torch.nn's, with the same state_dict."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
nn = pytest.importorskip("baracuda_py.torch.nn")

KINDS = [("LSTM", {}), ("LSTM", {"proj_size": 2}), ("GRU", {}), ("RNN", {}), ("RNN", {"nonlinearity": "relu"})]


def both(name: str, *sizes: int, **options: Any) -> tuple[Any, Any]:
    theirs = getattr(torch.nn, name)(*sizes, dtype=torch.float64, **options)
    ours = getattr(nn, name)(*sizes, dtype=torch.float64, **options)
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def same(got: Any, wanted: Any) -> None:
    torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("name", "options"), KINDS, ids=str)
def test_networks(name: str, options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    ours, theirs = both(name, 3, 4, num_layers=2, bidirectional=True, batch_first=True, **options)
    x = torch.randn(2, 5, 3, dtype=torch.float64)
    got, wanted = ours(x), theirs(x)
    same(got, wanted)
    same(ours(x, got[1]), theirs(x, wanted[1]))
    same(ours(x[0]), theirs(x[0]))
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, torch.tensor([2, 5]), batch_first=True, enforce_sorted=False)
    (a, h), (b, g) = ours(packed, wanted[1]), theirs(packed, wanted[1])
    same((a.data, h), (b.data, g))
    same(*(torch.nn.utils.rnn.pad_packed_sequence(one) for one in (a, b)))
    ours(x)[0].sum().backward()
    theirs(x)[0].sum().backward()
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        same(p.grad, q.grad)


@pytest.mark.parametrize(
    ("name", "options"), [("LSTMCell", {}), ("GRUCell", {"bias": False}), ("RNNCell", {"nonlinearity": "relu"})]
)
def test_cells(name: str, options: dict[str, Any]) -> None:
    ours, theirs = both(name, 3, 4, **options)
    x = torch.randn(2, 3, dtype=torch.float64)
    state = theirs(x)
    same(ours(x), state)
    same(ours(x, state), theirs(x, state))
    same(ours(x[0]), theirs(x[0]))


def test_dropout_draws_in_training_only() -> None:
    torch.manual_seed(0)
    ours, theirs = both("LSTM", 3, 4, num_layers=2, dropout=0.5)
    x = torch.randn(6, 2, 3, dtype=torch.float64)
    assert not torch.equal(ours(x)[0], ours(x)[0])
    same(ours.eval()(x), theirs.eval()(x))


def test_gate_order() -> None:
    _, theirs = both("GRU", 3, 4)
    keras = nn.GRU(3, 4, gate_order="zrn", dtype=torch.float64)
    moved = {n: torch.cat([p.chunk(3)[i] for i in (1, 0, 2)]) for n, p in theirs.state_dict().items()}
    keras.load_state_dict(moved)
    x = torch.randn(2, 2, 3, dtype=torch.float64)
    same(keras(x), theirs(x))
