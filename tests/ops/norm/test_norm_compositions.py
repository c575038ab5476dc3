"""Norms made of other ops: local response, weight and spectral norm, and norms beside dropout, gates and modulation."""

import numpy as np
import pytest

import baracuda_py as bc

torch = pytest.importorskip("torch")
F = torch.nn.functional


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape)).to(dtype)


def same(ours, theirs, *operands):
    """Values, and gradients of every operand."""
    found = []
    for function in (ours, theirs):
        leaves = [t.clone().requires_grad_() for t in operands]
        y = function(*leaves)
        found.append((y.detach(), *torch.autograd.grad(y.sin().sum(), leaves)))
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("shape", [(2, 7), (2, 7, 3), (2, 7, 3, 4), (1, 3, 2, 3, 2)])
def test_local_response_norm(size, shape):
    if len(shape) > 2:
        same(
            lambda x: bc.local_response_norm(x, size, 0.3, 0.6, 1.5),
            lambda x: F.local_response_norm(x, size, 0.3, 0.6, 1.5), normal(*shape),
        )  # fmt: skip
    x = normal(*shape).numpy()
    low, wanted = size // 2, np.empty_like(x)
    for c in range(shape[1]):
        window = x[:, max(c - low, 0) : c + (size - 1) // 2 + 1]
        wanted[:, c] = x[:, c] / (1.5 + 0.3 / size * np.sum(window**2, 1)) ** 0.6
    np.testing.assert_allclose(bc.local_response_norm(x, size, 0.3, 0.6, 1.5), wanted)


@pytest.mark.parametrize("axis", [0, 1, -1, None])
def test_weight_norm(axis):
    v, g = normal(4, 5, 3), normal(*[n if axis is not None and a == axis % 3 else 1 for a, n in enumerate((4, 5, 3))])
    theirs = (lambda v, g: torch._weight_norm(v, g, axis % 3)) if axis is not None else lambda v, g: v * g / v.norm()
    same(lambda v, g: bc.weight_norm(v, g, axis), theirs, v, g)
    half = bc.weight_norm(v.half(), g.half(), axis)
    torch.testing.assert_close(half.double(), theirs(v, g), rtol=3e-3, atol=3e-3)


@pytest.mark.parametrize("axis", [0, 1])
def test_spectral_norm(axis):
    weight = normal(4, 5, 3)
    module = torch.nn.ParameterList([weight.clone()])
    normed = torch.nn.utils.parametrizations.spectral_norm(module, "0", n_power_iterations=2, dim=axis)
    kept = normed.parametrizations["0"][0]
    u, v = kept._u.clone(), kept._v.clone()
    u, v = bc.spectral_norm_step(weight, u, v, 2, axis)
    theirs = normed[0]  # in training a look is a step
    torch.testing.assert_close(u, kept._u)
    torch.testing.assert_close(v, kept._v)
    leaf = weight.clone().requires_grad_()
    ours = bc.spectral_norm(leaf, u, v, axis)
    torch.testing.assert_close(ours, theirs)
    dy = normal(4, 5, 3, seed=1)
    (wanted,) = torch.autograd.grad(theirs, normed.parametrizations["0"].original, dy)
    torch.testing.assert_close(torch.autograd.grad(ours, leaf, dy)[0], wanted)
    with pytest.raises(bc.InvalidProblemError, match="u and v must have shapes"):
        bc.spectral_norm(weight, v, u, axis)


def test_dropout_add_norm():
    x, residual, weight, bias = normal(4, 16), normal(4, 16, seed=1), normal(16, seed=2), normal(16, seed=3)
    y, h = bc.dropout_add_rms_norm(x, residual, weight, 0.25, seed=7)
    torch.testing.assert_close(h, bc.dropout(x, 0.25, seed=7) + residual)
    torch.testing.assert_close(y, F.rms_norm(h, (16,), weight, 1e-6))
    y, h = bc.dropout_add_layer_norm(x, residual, weight, bias, 0.25, training=False)
    torch.testing.assert_close(y, F.layer_norm(x + residual, (16,), weight, bias))
    same(
        lambda x, r, w: sum(bc.dropout_add_rms_norm(x, r, w, 0.25, seed=7)),
        lambda x, r, w: (h := bc.dropout(x, 0.25, seed=7) + r) + F.rms_norm(h, (16,), w, 1e-6), x, residual, weight,
    )  # fmt: skip


@pytest.mark.parametrize("before", [True, False])
def test_gated_rms_norm(before):
    def theirs(x, gate, weight):
        if before:
            return F.rms_norm(x, (16,), weight, 1e-6) * F.silu(gate)
        return F.rms_norm(x * F.silu(gate), (16,), weight, 1e-6)

    same(
        lambda x, g, w: bc.gated_rms_norm(x, g, w, norm_before_gate=before), theirs, normal(3, 16),
        normal(3, 16, seed=1), normal(16, seed=2),
    )  # fmt: skip


def test_modulated_layer_norm():
    same(
        bc.modulated_layer_norm, lambda x, shift, scale: F.layer_norm(x, (16,), eps=1e-6) * (1 + scale) + shift,
        normal(2, 3, 16), normal(2, 1, 16, seed=1), normal(2, 1, 16, seed=2),
    )  # fmt: skip


@pytest.mark.parametrize("element", ["float8_e4m3fn", "float8_e5m2", "int8"])
def test_quantised_norms(element):
    x, residual, weight = (normal(5, 64, seed=i, dtype=torch.float32).numpy() for i in range(3))
    y, scales, h = bc.rms_norm_quantize(x, weight[0], residual, to_element=element, weight_offset=1.0, return_h=True)
    np.testing.assert_array_equal(h, x + residual)
    wanted = bc.rms_norm(h, weight[0], weight_offset=1.0)
    kind = bc.ElementKind.of(element)
    np.testing.assert_allclose(scales, np.abs(wanted).max(1) / kind.limits.max, rtol=1e-6)
    back = np.asarray(bc.cast(y, "float32") if element == "int8" else y.view(kind.dtype).astype(np.float32))
    step = scales[:, None] if element == "int8" else np.abs(wanted) * kind.limits.eps + scales[:, None] * 2**-6
    assert (np.abs(back * scales[:, None] - wanted) <= 0.51 * step).all()
    fixed = bc.layer_norm_quantize(x, weight[0], weight[1], to_element=element, scale=0.05)
    wanted = bc.layer_norm(x, weight[0], weight[1]) / np.float32(0.05)
    assert fixed.dtype == y.dtype
    if element == "int8":
        np.testing.assert_array_equal(fixed, np.clip(np.rint(wanted), -128, 127))


def test_weight_offset():
    x, weight = normal(4, 16), normal(16, seed=1)
    same(lambda x, w: bc.rms_norm(x, w, weight_offset=1.0), lambda x, w: F.rms_norm(x, (16,), 1 + w, 1e-6), x, weight)


def test_norms_before_a_product():
    x, weight, norm, bias = normal(2, 3, 8), normal(5, 8, seed=1), normal(8, seed=2), normal(5, seed=3)
    same(
        lambda x, w, n, b: bc.rms_norm_linear(x, w, n, b, weight_offset=1.0, activation="silu"),
        lambda x, w, n, b: F.silu(F.linear(F.rms_norm(x, (8,), n + 1, 1e-6), w, b)), x, weight, norm, bias,
    )  # fmt: skip
    same(
        lambda x, w, n, b: bc.layer_norm_linear(x, w, n, n, b, residual=b.expand(2, 3, 5)),
        lambda x, w, n, b: F.linear(F.layer_norm(x, (8,), n, n), w, b) + b, x, weight, norm, bias,
    )  # fmt: skip
    with pytest.raises(bc.InvalidProblemError, match="weight"):
        bc.rms_norm_linear(x, weight, norm[:4])


@pytest.mark.parametrize("axis", [0, 1, -1, (0, 2), (2, 1), (0, 1, 2)])
def test_standardize(axis):
    jax = pytest.importorskip("jax")
    x = normal(4, 5, 3)
    found = bc.standardize(x, axis, eps=0.1)
    wanted = jax.nn.standardize(x.numpy().astype(np.float32), axis, epsilon=0.1)
    np.testing.assert_allclose(found.numpy(), np.asarray(wanted), rtol=2e-5, atol=2e-6)
    filled = torch.empty_like(x)
    assert bc.standardize(x, axis, eps=0.1, out=filled) is filled
    torch.testing.assert_close(filled, found)
    with pytest.raises(bc.InvalidProblemError, match="names an axis twice"):
        bc.standardize(x, (0, 0))
