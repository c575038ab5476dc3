"""lstm, gru, rnn_tanh, rnn_relu and their cells: against torch in float64, values and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core import InvalidProblemError

torch = pytest.importorskip("torch")
bct = pytest.importorskip("baracuda_py.torch")

MODULES = {"lstm": "LSTM", "gru": "GRU", "rnn_tanh": "RNN", "rnn_relu": "RNN"}


def network(kind: str, **options: Any) -> Any:
    torch.manual_seed(3)
    more = {"nonlinearity": kind[4:]} if kind.startswith("rnn") else {}
    return getattr(torch.nn, MODULES[kind])(5, 4, dtype=torch.float64, **options, **more)


def weights(module: Any) -> list[Any]:
    return [getattr(module, name) for names in module._all_weights for name in names]


def states(kind: str, module: Any, batch: int) -> Any:
    count = module.num_layers * (2 if module.bidirectional else 1)
    sizes = (module.proj_size or 4, 4) if kind == "lstm" else (4,)
    made = tuple(torch.randn(count, batch, n, dtype=torch.float64, requires_grad=True) for n in sizes)
    return made if kind == "lstm" else made[0]


def same(got: Any, wanted: Any, inputs: list[Any]) -> None:
    for a, b in zip(got, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)
    slopes = [torch.randn_like(a) for a in wanted]
    grads = (torch.autograd.grad(made, inputs, slopes) for made in (got, wanted))
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


def flat(made: Any) -> list[Any]:
    """Output and states, one after the other."""
    output, rest = made
    return [output, *rest] if isinstance(rest, tuple) else [output, rest]


CASES = [
    {}, {"bidirectional": True}, {"num_layers": 2, "bidirectional": True}, {"bias": False}, {"batch_first": True},
]  # fmt: skip


@pytest.mark.parametrize("options", CASES, ids=str)
@pytest.mark.parametrize("kind", MODULES)
def test_values_and_gradients_are_torchs(kind: str, options: dict[str, Any]) -> None:
    module = network(kind, **options)
    x = torch.randn((3, 6, 5) if options.get("batch_first") else (6, 3, 5), dtype=torch.float64, requires_grad=True)
    hx, params = states(kind, module, 3), weights(module)
    got = getattr(bct, kind)(
        x, hx, params, has_biases=module.bias, num_layers=module.num_layers, bidirectional=module.bidirectional,
        batch_first=module.batch_first,
    )  # fmt: skip
    same(got, flat(module(x, hx)), [x, *(hx if kind == "lstm" else (hx,)), *params])


@pytest.mark.parametrize("bidirectional", [False, True])
def test_projections(bidirectional: bool) -> None:
    module = network("lstm", proj_size=2, bidirectional=bidirectional)
    x, hx = torch.randn(4, 3, 5, dtype=torch.float64, requires_grad=True), states("lstm", module, 3)
    got = bct.lstm(x, hx, weights(module), bidirectional=bidirectional)
    same(got, flat(module(x, hx)), [x, *hx, *weights(module)])


@pytest.mark.parametrize("lengths", [(5, 3, 3, 1), (2, 2), (1,)])
@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_packed_sequences(kind: str, lengths: tuple[int, ...]) -> None:
    module = network(kind, num_layers=2, bidirectional=True)
    padded = torch.randn(max(lengths), len(lengths), 5, dtype=torch.float64)
    packed = torch.nn.utils.rnn.pack_padded_sequence(padded, torch.tensor(lengths))
    data, hx, params = packed.data.clone().requires_grad_(), states(kind, module, len(lengths)), weights(module)
    got = getattr(bct, kind)(data, hx, params, batch_sizes=packed.batch_sizes, num_layers=2, bidirectional=True)
    output, rest = module(torch.nn.utils.rnn.PackedSequence(data, packed.batch_sizes), hx)
    same(got, flat((output.data, rest)), [data, *(hx if kind == "lstm" else (hx,)), *params])


@pytest.mark.parametrize("kind", MODULES)
def test_cells(kind: str) -> None:
    module = network(kind)
    x, params = torch.randn(3, 5, dtype=torch.float64, requires_grad=True), weights(module)
    hx = [torch.randn(3, 4, dtype=torch.float64, requires_grad=True) for _ in range(1 + (kind == "lstm"))]
    given = tuple(hx) if kind == "lstm" else hx[0]
    got, wanted = (getattr(of, f"{kind}_cell")(x, given, *params) for of in (bct, torch))
    several = kind == "lstm"
    same(got if several else [got], wanted if several else [wanted], [x, *hx, *params])
    plain = [p.detach().numpy() for p in (x, *hx, *params)]
    out = tuple(np.empty((3, 4)) for _ in hx) if several else np.empty((3, 4))
    bare = tuple(plain[1:3]) if several else plain[1]
    assert getattr(bc, f"{kind}_cell")(plain[0], bare, *plain[1 + len(hx) :], out=out) is out
    np.testing.assert_allclose(out[1] if several else out, (wanted[1] if several else wanted).detach().numpy())


@pytest.mark.parametrize(("kind", "order", "usual"), [("lstm", "iofg", "ifgo"), ("gru", "zrn", "rzn")])
def test_orders_of_gates(kind: str, order: str, usual: str) -> None:
    module = network(kind)
    x, params = torch.randn(4, 2, 5, dtype=torch.float64), [p.detach() for p in weights(module)]
    hx = tuple(s.detach() for s in states(kind, module, 2)) if kind == "lstm" else states(kind, module, 2).detach()
    moved = [torch.cat([p.chunk(len(order))[usual.index(g)] for g in order]) for p in params]
    wanted = getattr(bct, kind)(x, hx, params)
    for a, b in zip(getattr(bct, kind)(x, hx, moved, order=order), wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-13)


def test_no_steps_and_out() -> None:
    rng = np.random.default_rng(0)
    w = [rng.standard_normal(s) for s in ((12, 5), (12, 4), (12,), (12,))]
    h = rng.standard_normal((1, 2, 4))
    y, last = bc.gru(np.empty((0, 2, 5)), h, w)
    assert y.shape == (0, 2, 4)
    np.testing.assert_array_equal(last, h)
    x, out = rng.standard_normal((3, 2, 5)), (np.empty((3, 2, 4)), np.empty((1, 2, 4)))
    assert bc.gru(x, h, w, out=out) is out
    for a, b in zip(out, bc.gru(x, h, w), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(out[0][-1], out[1][0])


def test_dropout_between_layers() -> None:
    module = network("gru", num_layers=2)
    x, hx, params = torch.randn(4, 2, 5, dtype=torch.float64), states("gru", module, 2), weights(module)
    facts = {"num_layers": 2, "dropout": 0.5, "seed": 7}
    still, moved, again = (bct.gru(x, hx, params, **facts, train=t)[0] for t in (False, True, True))
    torch.testing.assert_close(still, module(x, hx)[0])
    assert not torch.equal(still, moved)
    assert torch.equal(moved, again)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"input": np.zeros((3, 5))}, "input"),
        ({"hx": np.zeros((2, 2, 4))}, "hx"),
        ({"hx": np.zeros((1, 3, 4))}, "batch"),
        ({"params": [np.zeros((12, 5))]}, "params"),
        ({"params": [np.zeros((12, 6)), np.zeros((12, 4)), np.zeros(12), np.zeros(12)]}, "w_ih"),
        ({"order": "nzr"}, "order"),
        ({"num_layers": 0}, "num_layers"),
        ({"input": np.zeros((6, 5)), "batch_sizes": [2, 3, 1]}, "batch_sizes"),
    ],
)
def test_bad_input_is_named(change: dict[str, Any], said: str) -> None:
    given: dict[str, Any] = {
        "input": np.zeros((3, 2, 5)), "hx": np.zeros((1, 2, 4)),
        "params": [np.zeros((12, 5)), np.zeros((12, 4)), np.zeros(12), np.zeros(12)],
    }  # fmt: skip
    with pytest.raises(InvalidProblemError, match=said):
        bc.gru(**(given | change))
