"""Recurrent layers of any size on a GPU: sizes of models, every element of every result, beside float64 and torch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from baracuda_py.ops.recurrence.recurrent_packed import RecurrentCell, RecurrentPackedDescriptor, RecurrentPackedPlan
from baracuda_py.ops.recurrence.recurrent_packed_backward import RecurrentPackedBackwardPlan
from baracuda_py.testing.draw import fill
from baracuda_py.testing.gpu import wrong_plan

torch = pytest.importorskip("torch")
bct = pytest.importorskip("baracuda_py.torch")
nn = pytest.importorskip("baracuda_py.torch.nn")
pytestmark = pytest.mark.gpu
SHRINKS = (70, 70, 70, 66, 66, 30, 30, 30, 1)


@pytest.mark.parametrize("plan", [RecurrentPackedPlan, RecurrentPackedBackwardPlan])
@pytest.mark.parametrize("kind", list(RecurrentCell))
@pytest.mark.parametrize(("hidden", "sizes", "reverse"), [(512, (64,) * 9, False), (304, SHRINKS, True)])
@pytest.mark.parametrize("element", ["float16", "bfloat16", "float32"])
def test_plans(
    element: str, hidden: int, sizes: tuple[int, ...], reverse: bool, kind: RecurrentCell, plan: Any
) -> None:
    desc = RecurrentPackedDescriptor(kind=kind, sizes=sizes, hidden=hidden, reverse=reverse, element=element)
    optional = {"bias": True} if plan is RecurrentPackedPlan else {"dh0": True}
    case = fill(plan, desc, np.random.default_rng(hidden), optional)
    assert wrong_plan(case, [plan.select(desc)]) is None


@pytest.mark.parametrize("plan", [RecurrentPackedPlan, RecurrentPackedBackwardPlan])
@pytest.mark.parametrize(("hidden", "element"), [(257, "float64"), (333, "bfloat16"), (1030, "float16")])
def test_pieces_that_are_not_whole(hidden: int, element: str, plan: Any) -> None:
    desc = RecurrentPackedDescriptor(kind=RecurrentCell.LSTM, sizes=(5, 5, 3), hidden=hidden, element=element)
    case = fill(plan, desc, np.random.default_rng(hidden), {"bias": True} if plan is RecurrentPackedPlan else {})
    assert wrong_plan(case, [plan.select(desc)]) is None


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_layers_and_gradients(dtype: Any, name: str, packed: bool) -> None:
    """Two layers in both directions of 320 units, the weights' gradients too."""
    torch.manual_seed(0)
    layer = getattr(nn, name)(96, 320, num_layers=2, bidirectional=True).to(dtype)
    truth = getattr(torch.nn, name)(96, 320, num_layers=2, bidirectional=True).double()
    truth.load_state_dict(layer.state_dict())
    x = torch.randn(24, 5, 96).to(dtype)
    wide, ours = x.double().requires_grad_(), x.cuda().requires_grad_()
    lengths = torch.tensor([24, 20, 20, 9, 1])

    def given(one: Any) -> Any:
        return torch.nn.utils.rnn.pack_padded_sequence(one, lengths) if packed else one

    wanted, got = truth(given(wide))[0], layer.cuda()(given(ours))[0]
    wanted, got = (one.data if packed else one for one in (wanted, got))
    unit = 1e-4 if dtype == torch.float32 else 4e-2
    assert float((got.cpu().double() - wanted).norm()) <= unit * float(wanted.norm())
    wanted.square().sum().backward()
    got.float().square().sum().backward()
    assert float((ours.grad.cpu().double() - wide.grad).norm()) <= 4 * unit * float(wide.grad.norm())
    for (which, p), q in zip(layer.named_parameters(), truth.parameters(), strict=True):
        assert float((p.grad.cpu().double() - q.grad).norm()) <= 4 * unit * float(q.grad.norm()), which


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_sequences_packed_or_padded_have_the_same_bits_and_long_ones_run(kind: str) -> None:
    torch.manual_seed(0)
    hidden, batch, steps = 512, 40, 300
    columns = (4 if kind == "lstm" else 3) * hidden
    like: dict[str, Any] = {"device": "cuda", "dtype": torch.bfloat16}
    gates, weight = torch.randn(steps, batch, columns, **like), torch.randn(columns, hidden, **like) / hidden**0.5
    first = torch.zeros(batch, hidden, **like)
    lengths = torch.arange(steps, steps - 5 * batch, -5)

    def states(x: Any, sizes: list[int]) -> Any:
        given = {"c0": first[: sizes[0]], "return_c": True} if kind == "lstm" else {}
        made = bct.recurrent_packed(x, first[: sizes[0]], weight, kind=kind, sizes=sizes, **given)
        return made[0] if kind == "lstm" else made

    whole = states(gates.flatten(0, 1), [batch] * steps).unflatten(0, (steps, batch))
    packed = torch.nn.utils.rnn.pack_padded_sequence(gates, lengths)
    made = states(packed.data, packed.batch_sizes.tolist())
    padded = torch.nn.utils.rnn.pad_packed_sequence(torch.nn.utils.rnn.PackedSequence(made, packed.batch_sizes))[0]
    for row, length in enumerate(lengths.tolist()):
        assert torch.equal(padded[:length, row], whole[:length, row])
    assert torch.equal(states(gates[:, 0].contiguous(), [1] * steps), whole[:, 0])


def test_a_chain_of_steps_is_captured() -> None:
    cupy = pytest.importorskip("cupy")
    desc = RecurrentPackedDescriptor(kind=RecurrentCell.GRU, sizes=(16,) * 40, hidden=384, element="float16")
    plan = RecurrentPackedPlan.select(desc)
    rng = cupy.random.default_rng(0)
    like = {"gates": (640, 1152), "h0": (16, 384), "weight": (1152, 384)}
    held = {name: (rng.standard_normal(shape) / 20).astype(cupy.float16) for name, shape in like.items()}
    h, again = cupy.empty((640, 384), cupy.float16), cupy.empty((640, 384), cupy.float16)
    plan(**held, h=h)
    bound, stream = plan.bind(plan.args(**held, h=again)), cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        bound()
        graph = stream.end_capture()
        graph.launch()
    stream.synchronize()
    assert bool((h == again).all())
