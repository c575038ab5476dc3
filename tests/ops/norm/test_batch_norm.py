"""Batch, group and instance norm: beside torch, where means are large, in layouts, in place, and refused."""

import numpy as np
import pytest

import baracuda_py as bc

torch = pytest.importorskip("torch")
F = torch.nn.functional
SHAPES = ((8, 6), (4, 6, 5), (4, 6, 5, 5), (2, 6, 3, 4, 5))


def operands(shape, dtype=torch.float64, seed=0):
    torch.manual_seed(seed)
    return [torch.randn(n, dtype=dtype) for n in (shape, shape[1], shape[1])]


def running(channels, dtype=torch.float64):
    return torch.zeros(channels, dtype=dtype), torch.ones(channels, dtype=dtype)


def by_torch(function, x, *rest, **given):
    """torch's result, and the gradients that the ones of y give x, weight and bias."""
    leaves = [t.clone().requires_grad_() for t in (x, *rest)]
    y = function(leaves[0], *leaves[1:], **given)
    return y.detach(), torch.autograd.grad(y.sin().sum(), leaves)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_and_its_running_statistics(shape, training):
    x, weight, bias = operands(shape)
    ours, theirs = running(6), running(6)
    for t in (*ours, *theirs):
        t += 0.25

    def of(norm, kept):
        return lambda x, w, b: norm(x, *kept, w, b, training, 0.3, 1e-3)

    found = by_torch(of(bc.batch_norm, ours), x, weight, bias)
    wanted = by_torch(of(F.batch_norm, theirs), x, weight, bias)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("groups", [1, 2, 3, 6])
def test_group_norm(shape, groups):
    wanted = by_torch(lambda x, w, b: F.group_norm(x, groups, w, b), *operands(shape))
    torch.testing.assert_close(by_torch(lambda x, w, b: bc.group_norm(x, groups, w, b), *operands(shape)), wanted)


@pytest.mark.parametrize("shape", SHAPES[1:])
def test_instance_norm_and_its_running_statistics(shape):
    x, weight, bias = operands(shape)
    ours, theirs = running(6), running(6)
    for of_input in (True, False):
        found = bc.instance_norm(x, *ours, weight, bias, of_input)
        torch.testing.assert_close(found, F.instance_norm(x, *theirs, weight, bias, of_input))
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("mean", [1e6, -3e4, 300.0])
@pytest.mark.parametrize("over", [{"over": "batch"}, {"over": "group", "num_groups": 2}, {"over": "instance"}])
def test_the_mean_may_be_large(mean, over):
    x = (np.random.default_rng(0).standard_normal((6, 4, 9, 9)) + mean).astype(np.float32)
    found = bc.channel_norm(x, **over)
    wanted = bc.channel_norm(x.astype(np.float64), **over)
    np.testing.assert_allclose(found, wanted, atol=1e-6)


@pytest.mark.parametrize("size", [1e38, 1e25, 1e-25, 1e-38])
def test_float32_of_any_size(size):
    x = (np.random.default_rng(0).standard_normal((6, 4, 9)) * size).astype(np.float32)
    with np.errstate(all="ignore"):
        wanted = bc.batch_norm(x.astype(np.float64) / size, training=True, eps=0.0)
        np.testing.assert_allclose(bc.batch_norm(x, training=True, eps=0.0), wanted, atol=2e-6)


def test_statistics_beside_channels_that_lie_last():
    x = torch.randn(3, 8, 5, 6, dtype=torch.float64).to(memory_format=torch.channels_last)
    for given in (x, x.permute(0, 2, 3, 1).contiguous().numpy().transpose(0, 3, 1, 2)):
        y, mean, rstd = bc.channel_norm(given, return_mean=True, return_rstd=True)
        torch.testing.assert_close(torch.as_tensor(y), F.batch_norm(x, None, None, training=True))
        torch.testing.assert_close(torch.as_tensor(mean), x.mean((0, 2, 3)))
        assert rstd.shape == (8,)


def test_channels_last_stay_so():
    x = torch.randn(3, 8, 5, 6).to(memory_format=torch.channels_last)
    for y in (bc.batch_norm(x, training=True), bc.group_norm(x, 2), bc.batch_norm(x, *running(8, x.dtype))):
        assert y.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(bc.group_norm(x, 2), F.group_norm(x, 2))


def test_half_activations_with_float_weights():
    x, weight, bias = operands((4, 6, 8), torch.float32)
    kept = running(6, torch.float32)
    y = bc.batch_norm(x.bfloat16(), *kept, weight, bias, True)
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(
        y.float(), F.batch_norm(x.bfloat16().float(), None, None, weight, bias, True), rtol=8e-3, atol=8e-3
    )
    y = bc.batch_norm(x.half(), *kept, weight, bias)
    torch.testing.assert_close(y, F.batch_norm(x.half().float(), *kept, weight, bias).half(), rtol=2e-3, atol=2e-3)


def test_native_batch_norm_returns_what_the_backward_takes():
    x, weight, bias = (t.numpy() for t in operands((4, 6, 8)))
    y, mean, rstd = bc.native_batch_norm(x, weight, bias)
    np.testing.assert_allclose(mean, x.mean((0, 2)))
    np.testing.assert_allclose(rstd, 1 / np.sqrt(x.var((0, 2)) + 1e-5))
    assert bc.channel_norm_backward(y, x, mean, rstd, weight)[0].shape == x.shape


def test_native_group_norm_returns_what_the_backward_takes():
    x, weight, bias = operands((4, 6, 8))
    made = bc.native_group_norm(x.numpy(), 3, weight.numpy(), bias.numpy())
    for one, other in zip(made, torch.native_group_norm(x, weight, bias, 4, 6, 8, 3, 1e-5), strict=True):
        np.testing.assert_allclose(one, other.numpy(), rtol=1e-6)
    out = tuple(np.empty_like(one) for one in made)
    assert all(a is b for a, b in zip(bc.native_group_norm(x.numpy(), 3, out=out), out, strict=True))
    with pytest.raises(bc.InvalidProblemError, match="native_group_norm needs x of shape"):
        bc.native_group_norm(x[0, 0].numpy(), 3)


def test_no_elements():
    y, mean, rstd = bc.native_batch_norm(np.ones((0, 3, 4)))
    assert y.shape == (0, 3, 4)
    assert np.isnan(mean).all() and np.isnan(rstd).all()
    kept = np.zeros(3), np.ones(3)
    bc.batch_norm(np.ones((0, 3, 4)), *kept, training=True)
    assert (kept[0] == 0).all() and (kept[1] == 1).all()


def test_in_two_parts():
    x, weight, bias = operands((6, 4, 5, 5), torch.float32)
    dy, kept = torch.randn_like(x), running(4, torch.float32)
    leaves = [t.requires_grad_() for t in (x.clone(), weight.clone(), bias.clone())]
    wanted = F.batch_norm(leaves[0], *kept, *leaves[1:], True)
    wanted.backward(dy)
    parts, slopes = np.split(x.numpy(), [2]), np.split(dy.numpy(), [2])
    stats = [bc.batch_norm_stats(part) for part in parts]
    own = np.zeros(4, np.float32), np.ones(4, np.float32)
    mean, rstd = bc.batch_norm_gather_stats_with_counts(
        *(np.stack(one) for one in zip(*stats, strict=True)), np.array([50, 100], np.int32), *own
    )
    np.testing.assert_allclose(own[0], kept[0], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(own[1], kept[1], rtol=1e-5)
    w, b = weight.numpy(), bias.numpy()
    y = np.concatenate([bc.batch_norm_elemt(part, w, b, mean, rstd) for part in parts])
    np.testing.assert_allclose(y, wanted.detach(), atol=3e-6)
    sums = [bc.batch_norm_backward_reduce(d, part, mean, rstd) for d, part in zip(slopes, parts, strict=True)]
    sum_dy, sum_dy_xhat = (a + b for a, b in zip(*sums, strict=True))
    np.testing.assert_allclose(sum_dy_xhat, leaves[1].grad, rtol=1e-4, atol=1e-5)
    dx = [
        bc.batch_norm_backward_elemt(d, part, mean, rstd, w, sum_dy, sum_dy_xhat, 150)
        for d, part in zip(slopes, parts, strict=True)
    ]
    np.testing.assert_allclose(np.concatenate(dx), leaves[0].grad, atol=5e-6)


def test_refusals():
    x = np.ones((2, 6, 4), np.float32)
    with pytest.raises(bc.InvalidProblemError, match="num_groups must divide the 6 channels of x, got 4"):
        bc.group_norm(x, 4)
    with pytest.raises(bc.InvalidProblemError, match="must be given"):
        bc.batch_norm(x)
    with pytest.raises(bc.InvalidProblemError, match="running_var is None"):
        bc.batch_norm(x, np.ones(6, np.float32), training=True)
    with pytest.raises(bc.InvalidProblemError, match="more than 1 element"):
        bc.batch_norm(x[:1, :, 0], training=True)
    with pytest.raises(bc.InvalidProblemError, match=r"\(batch, channels, length"):
        bc.instance_norm(x[..., 0])
    with pytest.raises(bc.InvalidProblemError, match="weight"):
        bc.group_norm(x, 2, np.ones(5, np.float32))
    with pytest.raises(bc.UnsupportedError, match="int32"):
        bc.group_norm(x.astype(np.int32), 2)


def test_running_statistics_of_jax_are_returned_not_moved():
    jax = pytest.importorskip("jax")
    import baracuda_py.jax as bj

    x, kept = jax.numpy.ones((4, 3, 5)), (jax.numpy.zeros(3), jax.numpy.ones(3))
    with pytest.raises(bc.UnsupportedError, match="JAX arrays are immutable"):
        bj.batch_norm(x, *kept, training=True)
    _, mean, var = bj.channel_norm(x, return_mean=True, return_var=True)
    moved = bj.running_statistics(mean, var, *kept, count=20)
    np.testing.assert_allclose(moved[0], np.full(3, 0.1), rtol=1e-6)
    np.testing.assert_allclose(moved[1], np.full(3, 0.9), rtol=1e-6)
