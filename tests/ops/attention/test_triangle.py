"""Triangle attention and multiplication against their formulas in torch, with gradients."""

import itertools

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError

torch = pytest.importorskip("torch")
F = torch.nn.functional
N, H, Q, K, D = 3, 2, 5, 7, 16


def drawn(*shape, seed=0, grad=True):
    made = torch.tensor(np.random.default_rng(seed).standard_normal(shape))
    return made.requires_grad_() if grad else made


def attention(q, k, v, bias, mask, scale=None):
    s = torch.einsum("...qd,...kd->...qk", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale)
    s = s if bias is None else s + bias
    s = s if mask is None else s.masked_fill(~mask, -1e9)
    return torch.softmax(s, -1) @ v


def same_gradients(found, wanted, leaves):
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)
    dy = torch.tensor(np.random.default_rng(9).standard_normal(found.shape))
    made, truth = (torch.autograd.grad(y, leaves, dy) for y in (found, wanted))
    for one, other in zip(made, truth, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("lead", [(), (1,), (2,)], ids=["none", "one", "two"])
@pytest.mark.parametrize(("biased", "masked"), list(itertools.product((False, True), repeat=2)))
def test_attention(lead, biased, masked):
    q, k, v = drawn(*lead, N, H, Q, D), drawn(*lead, N, H, K, D, seed=1), drawn(*lead, N, H, K, 2 * D, seed=2)
    bias = drawn(*lead, 1, H, Q, K, seed=3) if biased else None
    mask = torch.tensor(np.random.default_rng(4).random((*lead, N, 1, 1, K)) > 0.3) if masked else None
    leaves = [x for x in (q, k, v, bias) if x is not None]
    same_gradients(bc.triangle_attention(q, k, v, bias, mask), attention(q, k, v, bias, mask), leaves)
    out = torch.empty(*lead, N, H, Q, 2 * D, dtype=torch.float64)
    with torch.no_grad():
        assert bc.triangle_attention(q, k, v, bias, mask, scale=0.3, out=out) is out
    torch.testing.assert_close(out, attention(q, k, v, bias, mask, 0.3).detach(), rtol=1e-10, atol=1e-10)


def test_attention_of_projections_as_they_lie():
    """[B, N, L, H, D] in memory, as a linear layer gives it, and a part of that."""
    q, k, v = (drawn(2, N, Q, H, D, seed=i, grad=False).transpose(2, 3) for i in range(3))
    torch.testing.assert_close(bc.triangle_attention(q, k, v), attention(q, k, v, None, None), rtol=1e-10, atol=1e-10)
    q, k, v = (x[:, ::2] for x in (q, k, v))  # which are copied
    torch.testing.assert_close(bc.triangle_attention(q, k, v), attention(q, k, v, None, None), rtol=1e-10, atol=1e-10)


def test_attention_of_16_bits_takes_a_bias_of_float32():
    q, k, v = (drawn(2, N, H, Q, D, seed=i, grad=False).bfloat16() for i in range(3))
    bias, mask = drawn(2, 1, H, Q, Q, seed=4, grad=False).float(), torch.ones(2, N, 1, 1, Q, dtype=torch.bool)
    for one, masks in itertools.product((bias, bias.bfloat16()), (None, mask)):
        wanted = attention(q.float(), k.float(), v.float(), one.float(), None)
        for b in (2, 1):
            given = [x[:b] for x in (q, k, v, one)]
            found = bc.triangle_attention(*given, None if masks is None else masks[:b])
            torch.testing.assert_close(found.float(), wanted[:b], rtol=2e-2, atol=2e-2)


def test_queries_that_see_nothing_and_nothing_at_all():
    q, k, v = (drawn(2, N, H, Q, D, seed=i, grad=False) for i in range(3))
    mask = torch.ones(2, N, 1, 1, Q, dtype=torch.bool)
    mask[1, 2] = False
    y = bc.triangle_attention(q, k, v, drawn(2, 1, H, Q, Q, grad=False), mask)
    assert (y[1, 2] == 0).all() and (y[1, 1] != 0).all()
    assert bc.triangle_attention(q[:0], k[:0], v[:0]).shape == (0, N, H, Q, D)
    assert bc.triangle_attention(q[:, :0], k[:, :0], v[:, :0], mask=mask[:, :0]).shape == (2, 0, H, Q, D)


def test_what_attention_refuses():
    q, k, v = (drawn(2, N, H, Q, D, seed=i, grad=False) for i in range(3))
    bias, mask = drawn(2, 1, H, Q, Q, grad=False), torch.ones(2, N, 1, 1, Q, dtype=torch.bool)
    for operands, message in (
        ((q[0, 0], k[0, 0], v[0, 0]), "or all without B"), ((q, k[:, :1], v), "do not fit together"),
        ((q, k, v[..., :2, :]), "do not fit together"), ((q, k.float(), v), "k must hold float64"),
        ((q, k, v, bias[:, 0]), "bias must have shape"), ((q, k, v, bias[:1]), "bias must have shape"),
        ((q, k, v, bias.float()), "bias must hold float64"), ((q, k, v, bias, mask.double()), "mask must hold bool"),
        ((q, k, v, bias, mask[..., 0, :]), "mask must have shape"),
    ):  # fmt: skip
        with pytest.raises(InvalidProblemError, match=message):
            bc.triangle_attention(*operands)
    with pytest.raises(InvalidProblemError, match="out must have shape"):
        bc.triangle_attention(q, k, v, out=torch.empty(2, N, H, D, Q, dtype=torch.float64))
    for package in (torch.tensor, np.asarray):
        given = [package(x.numpy()) for x in (q, k, v)]
        with pytest.raises(InvalidProblemError, match="evenly spaced as one"):
            bc.triangle_attention(*given, out=package(np.empty((2, N + 1, H, Q, D)))[:, :N])


EQUATIONS = {"outgoing": "...ikc,...jkc->...ijc", "incoming": "...kic,...kjc->...ijc"}


@pytest.mark.parametrize("direction", EQUATIONS)
@pytest.mark.parametrize("lead", [(), (2,), (0,)], ids=["none", "two", "empty"])
def test_multiplication(direction, lead):
    a, b = drawn(*lead, 4, 4, 3), drawn(*lead, 4, 4, 3, seed=1)
    found = bc.triangle_multiplication(a, b, direction)
    same_gradients(found, torch.einsum(EQUATIONS[direction], a, b), [a, b])


def updated(x, weights, direction, mask, **more):
    h = F.layer_norm(x, x.shape[-1:], more.get("norm_in_weight"), more.get("norm_in_bias"))
    p_in, g_in, p_out, g_out = weights
    edges = torch.sigmoid(F.linear(h, g_in, more.get("g_in_bias"))) * F.linear(h, p_in, more.get("p_in_bias"))
    edges = edges if mask is None else edges * mask[..., None]
    z = torch.einsum(EQUATIONS[direction], *edges.chunk(2, -1))
    z = F.layer_norm(z, z.shape[-1:], more.get("norm_out_weight"), more.get("norm_out_bias"))
    return torch.sigmoid(F.linear(h, g_out, more.get("g_out_bias"))) * F.linear(z, p_out, more.get("p_out_bias"))


@pytest.mark.parametrize(("direction", "whole"), list(itertools.product(EQUATIONS, (False, True))))
def test_the_whole_update(direction, whole):
    x, sizes = drawn(2, 4, 4, 5), {"norm_in": 5, "norm_out": 4, "p_in": 8, "g_in": 8, "p_out": 6, "g_out": 6}
    weights = [drawn(*s, seed=i) for i, s in enumerate(((8, 5), (8, 5), (6, 4), (6, 5)))]
    more = {f"{name}_bias": drawn(n, seed=n) for name, n in sizes.items()} if whole else {}
    more |= {f"{name}_weight": drawn(sizes[name], seed=7) for name in ("norm_in", "norm_out")} if whole else {}
    mask = torch.tensor(np.random.default_rng(4).random((2, 4, 4)) > 0.3).double() if whole else None
    found = bc.triangle_multiplicative_update(x, *weights, direction, mask=mask, **more)
    same_gradients(found, updated(x, weights, direction, mask, **more), [x, *weights, *more.values()])


def test_what_multiplication_refuses():
    a, weights = drawn(4, 4, 3), [drawn(*s) for s in ((8, 3), (8, 3), (3, 4), (3, 3))]
    with pytest.raises(InvalidProblemError, match='direction must be "outgoing" or "incoming"'):
        bc.triangle_multiplication(a, a, "both")
    with pytest.raises(InvalidProblemError, match="b must have shape"):
        bc.triangle_multiplication(a, a[0])
    with pytest.raises(InvalidProblemError, match="x must have shape"):
        bc.triangle_multiplicative_update(a[:2], *weights)
    with pytest.raises(InvalidProblemError, match="mask must have shape"):
        bc.triangle_multiplicative_update(a, *weights, mask=a)
    with pytest.raises(InvalidProblemError, match="p_in_weight must have shape"):
        bc.triangle_multiplicative_update(a, weights[0][:7], *weights[1:])
