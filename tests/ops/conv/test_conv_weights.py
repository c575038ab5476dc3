"""fold_batch_norm beside a batch norm behind the convolution, standardize_weight beside its formula; gradients."""

from __future__ import annotations

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py import InvalidProblemError

torch = pytest.importorskip("torch")
bt = pytest.importorskip("baracuda_py.torch")


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("affine", [False, True])
def test_folded_is_what_torch_fuses(biased: bool, affine: bool, transposed: bool) -> None:
    w = drawn(6, 6, 3, 2)
    bias, mean, gamma, beta = (drawn(6, seed=i) for i in range(1, 5))
    var = np.abs(drawn(6, seed=5))
    given = (bias if biased else None, mean, var, *((gamma, beta) if affine else ()))
    folded, shift = bc.fold_batch_norm(w, *given, eps=1e-3, transposed=transposed)
    out = (np.empty_like(w), np.empty(6))
    again = bc.fold_batch_norm(w, *given, eps=1e-3, transposed=transposed, out=out)
    assert again[0] is out[0] and again[1] is out[1]
    np.testing.assert_array_equal(out[1], shift)
    tensor = [None if a is None else torch.tensor(a) for a in (w, *given, *((None, None) if not affine else ()))]
    wanted = torch.nn.utils.fusion.fuse_conv_bn_weights(tensor[0], tensor[1], tensor[2], tensor[3], 1e-3, tensor[4],
                                                        tensor[5], transposed)  # fmt: skip
    np.testing.assert_allclose(folded, wanted[0].detach().numpy())
    np.testing.assert_allclose(shift, wanted[1].detach().numpy())


def test_standardised() -> None:
    w = drawn(6, 4, 3, 2)
    flat = w.reshape(6, -1)
    wanted = (flat - flat.mean(1, keepdims=True)) / np.sqrt(flat.var(1, keepdims=True) + 1e-5)
    out = np.empty_like(w)
    assert bc.standardize_weight(w, out=out) is out
    np.testing.assert_allclose(out, wanted.reshape(w.shape))
    ours, theirs = (torch.tensor(w, requires_grad=True) for _ in range(2))
    slope = torch.tensor(drawn(6, 4, 3, 2, seed=1))
    (bt.standardize_weight(ours) * slope).sum().backward()
    flat_t = theirs.flatten(1)
    made = (flat_t - flat_t.mean(1, keepdim=True)) / (flat_t.var(1, unbiased=False, keepdim=True) + 1e-5).sqrt()
    (made.reshape(theirs.shape) * slope).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)


def test_what_is_refused() -> None:
    with pytest.raises(InvalidProblemError, match="running_var"):
        bc.fold_batch_norm(drawn(6, 4, 3), None, drawn(6), drawn(5))
    with pytest.raises(InvalidProblemError, match="weight"):
        bc.fold_batch_norm(drawn(6, 4), None, drawn(6), drawn(6))
    with pytest.raises(InvalidProblemError, match="weight"):
        bc.standardize_weight(drawn(6))
    with pytest.raises(InvalidProblemError, match="out"):
        bc.standardize_weight(drawn(6, 4), out=np.empty((4, 6)))


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_torchs_helper_fuses_our_modules(rank: int) -> None:
    """torch.nn.utils.fusion takes `baracuda_py.torch.nn` convolutions, and gives one."""
    nn = pytest.importorskip("baracuda_py.torch.nn")
    conv = getattr(nn, f"Conv{rank}d")(4, 6, 3, padding=1, dtype=torch.float64).eval()
    norm = getattr(torch.nn, f"BatchNorm{rank}d")(6, dtype=torch.float64).eval()
    with torch.no_grad():
        norm.running_mean.uniform_(-1, 1), norm.running_var.uniform_(0.5, 2), norm.weight.uniform_(-1, 1)
    fused = torch.nn.utils.fusion.fuse_conv_bn_eval(conv, norm)
    assert type(fused) is type(conv)
    x = torch.tensor(drawn(2, 4, *(5, 6, 7)[:rank]))
    torch.testing.assert_close(fused(x), norm(conv(x)))
