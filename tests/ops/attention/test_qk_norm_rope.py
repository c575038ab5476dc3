"""qk_norm_rope: beside rms_norm and rope, its gradients beside autograd, layouts, and what it refuses."""

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.device import fake_device

torch = pytest.importorskip("torch")


def operands(dtype=torch.float64, heads=4, kv_heads=2, columns=16):
    torch.manual_seed(0)
    shapes = ((2, heads, 5, columns), (2, kv_heads, 5, columns), (columns,), (columns,))
    return [torch.randn(shape, dtype=dtype) for shape in shapes]


def apart(q, k, q_weight, k_weight, weight_offset=0.0, **turn):
    """The two functions that it is one of."""
    q, k = (bc.rms_norm(x, w, weight_offset=weight_offset) for x, w in ((q, q_weight), (k, k_weight)))
    return bc.rope(q, x2=k, **turn)


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize("rotary", [None, 12, 0])
def test_it_is_a_norm_and_a_rotation(pairing, rotary):
    q, k, q_weight, k_weight = operands()
    positions = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])
    turn = {"positions": positions, "pairing": pairing, "rotary_dim": rotary, "base": 500.0, "offset": 7}
    wanted = apart(q, k, q_weight, k_weight, 1.0, **turn)
    found = bc.qk_norm_rope(q, k, q_weight, k_weight, weight_offset=1.0, **turn)
    torch.testing.assert_close(found, wanted)
    swapped = bc.qk_norm_rope(
        q.transpose(1, 2), k.transpose(1, 2), q_weight, k_weight, weight_offset=1.0, layout="bshd", **turn
    )
    for a, b in zip(swapped, wanted, strict=True):
        torch.testing.assert_close(a.transpose(1, 2), b)


def test_gradients():
    leaves = [t.requires_grad_() for t in operands()]
    ways = [torch.randn_like(t) for t in leaves[:2]]
    turn = {"pairing": "half", "scale": 1.25}
    found = torch.autograd.grad(bc.qk_norm_rope(*leaves, **turn), leaves, ways)
    torch.testing.assert_close(found, torch.autograd.grad(apart(*leaves, **turn), leaves, ways))
    assert torch.autograd.gradcheck(lambda *t: bc.qk_norm_rope(*t, rotary_dim=8), leaves)


def test_without_weights_in_16_bits():
    q, k, *_ = operands(torch.bfloat16)
    yq, yk = bc.qk_norm_rope(q, k)
    assert yq.dtype == yk.dtype == torch.bfloat16
    wide = bc.qk_norm_rope(q.double(), k.double())
    torch.testing.assert_close((yq.double(), yk.double()), wide, rtol=8e-3, atol=1e-3)


def test_refusals():
    q, k, q_weight, _ = (t.numpy() for t in operands())
    with pytest.raises(bc.InvalidProblemError, match="rotary_dim must be even"):
        bc.qk_norm_rope(q, k, rotary_dim=3)
    with pytest.raises(bc.InvalidProblemError, match="q_weight"):
        bc.qk_norm_rope(q, k, q_weight[:-1])
    with pytest.raises(bc.InvalidProblemError, match="tokens"):
        bc.qk_norm_rope(q, k[:, :, :3])
    with pytest.raises(bc.InvalidProblemError, match="cos and sin go together"):
        bc.qk_norm_rope(q, k, cos=np.ones((5, 8)))


def test_heads_too_long_are_told_before_a_launch():
    desc = bc.QkNormRopeDescriptor(
        batch_size=1, num_heads=1, num_kv_heads=1, seq_len=1, head_dim=1026, element="bfloat16"
    )
    plan = bc.QkNormRopePlan.select(desc, device=fake_device(9.0))
    q, k = (bc.TensorRef(at << 20, (1, 1, 1, 1026), element="bfloat16") for at in (1, 2))
    verdict = plan.can_implement(bc.QkNormRopeArgs(q=q, k=k, yq=q, yk=k))
    assert not verdict and "head_dim must be at most 1024" in verdict.reason
