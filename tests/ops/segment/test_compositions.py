"""What segments are composed to: torch.segment_reduce, the rows of experts, jagged arrays, messages along edges."""

from __future__ import annotations

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError

RNG = np.random.default_rng(13)
torch = pytest.importorskip("torch")
bct = pytest.importorskip("baracuda_py.torch")


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "prod"])
@pytest.mark.parametrize("initial", [None, 0.5])
@pytest.mark.parametrize("axis", [0, 1])
def test_segment_reduce_is_torchs(reduce, initial, axis):
    shape, lengths = ((9, 3), [4, 0, 5]) if axis == 0 else ((2, 6, 3), [[1, 2, 3], [4, 0, 2]])
    x, lengths = torch.from_numpy(RNG.standard_normal(shape)), torch.tensor(lengths)
    made = []
    for function in (bct.segment_reduce, torch.segment_reduce):
        leaf = x.clone().requires_grad_()
        y = function(leaf, reduce, lengths=lengths, axis=axis, initial=initial)
        made.append((y, torch.autograd.grad(y.nan_to_num(0, 0, 0).sum(), leaf)[0]))
    for ours, theirs in zip(*made, strict=True):
        torch.testing.assert_close(ours, theirs, equal_nan=True)


def test_segment_reduce_by_offsets_and_out():
    x, offsets, y = RNG.standard_normal((9, 3)), np.array([0, 4, 4, 9]), np.empty((3, 3))
    assert bc.segment_reduce(x, "sum", offsets=offsets, out=y) is y
    np.testing.assert_allclose(y, [x[:4].sum(0), np.zeros(3), x[4:].sum(0)])
    with pytest.raises(InvalidProblemError, match="one of them"):
        bc.segment_reduce(x, "sum")
    with pytest.raises(InvalidProblemError, match="reduce must be one of"):
        bc.segment_reduce(x, "median", offsets=offsets)
    with pytest.raises(InvalidProblemError, match=r"lengths must be \[segments\]"):
        bc.segment_reduce(x, "sum", lengths=np.ones((3, 3), np.int64))


def test_rows_of_experts_and_back():
    x, experts = RNG.standard_normal((7, 5)), RNG.integers(0, 4, (7, 2))
    y, offsets, places = bc.moe_permute(x, experts, num_experts=4)
    for expert in range(4):
        tokens = np.argwhere(experts == expert)[:, 0]
        np.testing.assert_array_equal(y[offsets[expert] : offsets[expert + 1]], x[tokens])
    np.testing.assert_array_equal(y[places], np.stack([x, x], 1))
    weight = RNG.random((7, 2))
    np.testing.assert_allclose(bc.moe_unpermute(y, places, weight), x * weight.sum(1, keepdims=True))


def test_experts_of_another_device_get_nothing():
    x, experts = RNG.standard_normal((3, 5)), np.array([[0, 7], [-1, 1], [1, 0]])
    y, offsets, places = bc.moe_permute(x, experts, num_experts=2)
    np.testing.assert_array_equal(offsets, [0, 2, 4])
    np.testing.assert_array_equal(places, [[0, -1], [-1, 2], [3, 1]])
    np.testing.assert_array_equal(y, [x[0], x[2], x[1], x[2], np.zeros(5), np.zeros(5)])
    np.testing.assert_array_equal(bc.moe_unpermute(y, places), [x[0], x[1], 2 * x[2]])


def test_gradients_of_experts():
    x = torch.from_numpy(RNG.standard_normal((7, 5))).requires_grad_()
    weight = torch.from_numpy(RNG.random((7, 2))).requires_grad_()
    experts = torch.from_numpy(RNG.integers(0, 4, (7, 2)))

    def through(x, weight):
        y, _, places = bct.moe_permute(x, experts, num_experts=4)
        return bct.moe_unpermute(y.sin(), places, weight)

    assert torch.autograd.gradcheck(through, (x, weight))
    torch.testing.assert_close(through(x, weight), x.sin() * weight.sum(1, keepdim=True))


def test_weights_of_experts_in_float32():
    y, places = torch.randn(6, 8, dtype=torch.bfloat16), torch.tensor([[0, 3], [5, 1], [2, 4]])
    y, weight = y.requires_grad_(), torch.rand(3, 2, requires_grad=True)
    made = bct.moe_unpermute(y, places, weight)
    dy, dweight = torch.autograd.grad(made, (y, weight), torch.ones_like(made))
    assert (made.dtype, dy.dtype, dweight.dtype) == (torch.bfloat16, torch.bfloat16, torch.float32)
    torch.testing.assert_close(dweight, y.float()[places].sum(-1))


@pytest.mark.parametrize("padding", [0.0, -2.5])
def test_jagged_rows(padding):
    values, offsets = RNG.standard_normal((7, 2)), np.array([0, 3, 3, 7])
    y = bc.jagged_to_padded_dense(values, offsets, 3, padding)
    wanted = np.full((3, 3, 2), padding)
    wanted[0], wanted[2] = values[:3], values[3:6]
    np.testing.assert_array_equal(y, wanted)
    back = bc.dense_to_jagged(y, offsets, 7)
    np.testing.assert_array_equal(back, np.concatenate([values[:6], np.zeros((1, 2))]))


def test_gradients_of_jagged_rows():
    values, offsets = torch.from_numpy(RNG.standard_normal((7, 2))).requires_grad_(), torch.tensor([0, 3, 3, 7])
    assert torch.autograd.gradcheck(lambda v: bct.jagged_to_padded_dense(v, offsets, 3, 1.5).sin(), values)
    dense = torch.from_numpy(RNG.standard_normal((3, 3, 2))).requires_grad_()
    assert torch.autograd.gradcheck(lambda d: bct.dense_to_jagged(d, offsets, 7).sin(), dense)


def test_messages_along_edges():
    x, weight = RNG.standard_normal((6, 4)), RNG.standard_normal(20)
    src, dst = RNG.integers(0, 6, 20), RNG.integers(0, 5, 20)
    wanted = np.zeros((5, 4))
    np.add.at(wanted, dst, weight[:, None] * x[src])
    np.testing.assert_allclose(bc.gather_scatter_sum(x, src, dst, weight, num_segments=5), wanted)
    y, arg = bc.gather_scatter_max(x, src, dst, weight, num_segments=5, return_arg=True)
    for segment in range(5):
        if (dst == segment).any():
            messages = (weight[:, None] * x[src])[dst == segment]
            np.testing.assert_allclose(y[segment], messages.max(0))
            np.testing.assert_array_equal(arg[segment], np.flatnonzero(dst == segment)[messages.argmax(0)])
        else:
            assert (arg[segment] == -1).all()


@pytest.mark.parametrize("kind", ["sum", "mean", "max", "min"])
def test_gradients_of_messages(kind):
    x = torch.from_numpy(RNG.standard_normal((6, 4))).requires_grad_()
    weight = torch.from_numpy(RNG.standard_normal(20)).requires_grad_()
    src, dst = torch.from_numpy(RNG.integers(0, 6, 20)), torch.from_numpy(RNG.integers(-1, 6, 20))
    function = getattr(bct, f"gather_scatter_{kind}")
    assert torch.autograd.gradcheck(
        lambda x, w: function(x, src, dst, w, num_segments=5, **({"with_empty": True} if kind[0] == "m" else {})),
        (x, weight),
    )


def test_what_has_no_place_on_purpose_is_no_mistake(monkeypatch):
    x, offsets = np.array([3.0, 1, 2]), np.array([0, 1, 3])
    rows, _, places = bc.moe_permute(x[:2], np.array([[0, 5], [1, 0]], np.int32), num_experts=2)
    assert places[0, 1] == -1
    monkeypatch.setenv("BARACUDA_CHECK", "1")
    assert bc.segment_topk(x, offsets, 2)[1].tolist() == [[0, -1], [2, 1]]
    assert bc.jagged_to_padded_dense(x, offsets, 2).tolist() == [[3, 0], [1, 2]]
    assert bc.dense_to_jagged(np.ones((2, 1)), offsets, 3).tolist() == [1, 1, 0]
    assert bc.moe_unpermute(rows, places).tolist() == [3, 2]
    with pytest.raises(InvalidProblemError, match="src must lie"):
        bc.moe_unpermute(rows, places - 1)


def test_a_number_for_none_fits_its_element():
    with pytest.raises(InvalidProblemError, match="absent must be at least -2147483648 in int32"):
        bc.segment_ids(np.array([0, 2]), tokens=3, absent=-(2**63), element="int32")
    with pytest.raises(InvalidProblemError, match="absent must be at least -2147483648 in int32"):
        bc.segment_order(np.array([0, 2]), num_segments=3, absent=-(2**40), element="int32")
