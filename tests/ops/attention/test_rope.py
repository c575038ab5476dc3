"""rope: known values, identities against independent formulas, and layouts on the GPU."""

from __future__ import annotations

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.device import fake_device
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.ops.attention.rope.rope import RopeArgs, RopeDescriptor, RopePlan, reference, rope
from baracuda_py.ops.attention.rope.rope_backward import rope_backward
from baracuda_py.testing.places import call

RNG = np.random.default_rng(5)


def by_complex_numbers(x, positions, base, rotary, pairing):
    """Each pair as a complex number times exp(i angle): another way to write the same rotation."""
    y = np.array(x, np.float64)
    frequency = base ** (-2 * np.arange(rotary // 2) / rotary)
    turn = np.exp(1j * np.asarray(positions, np.float64)[..., :, None] * frequency)
    if pairing == "half":
        z = (y[..., : rotary // 2] + 1j * y[..., rotary // 2 : rotary]) * turn
        y[..., : rotary // 2], y[..., rotary // 2 : rotary] = z.real, z.imag
    else:
        z = (y[..., 0:rotary:2] + 1j * y[..., 1:rotary:2]) * turn
        y[..., 0:rotary:2], y[..., 1:rotary:2] = z.real, z.imag
    return y


def test_known_values():
    x = np.array([[[[1.0, 0.0], [1.0, 0.0], [0.0, 2.0]]]])
    expected = [[1, 0], [np.cos(1), np.sin(1)], [-2 * np.sin(2), 2 * np.cos(2)]]
    for pairing in ("half", "interleaved"):
        np.testing.assert_allclose(rope(x, pairing=pairing)[0, 0], expected, atol=1e-15)


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize("rotary", [0, 2, 6, 10])
def test_complex_rotation(pairing, rotary):
    x = RNG.standard_normal((2, 3, 7, 10))
    positions = RNG.integers(-50, 5000, 7)
    y = rope(x, positions, pairing=pairing, rotary_dim=rotary, base=500.0)
    np.testing.assert_allclose(y, by_complex_numbers(x, positions, 500.0, rotary, pairing), atol=1e-10)
    np.testing.assert_array_equal(y[..., rotary:], x[..., rotary:])


def test_pairings_differ_by_a_permutation_of_columns():
    x = RNG.standard_normal((1, 2, 5, 8))
    shuffle = np.r_[0:8:2, 1:8:2]
    np.testing.assert_array_equal(rope(x, pairing="interleaved")[..., shuffle], rope(x[..., shuffle]))


def test_scores_depend_on_distance_only():
    q, k = RNG.standard_normal((2, 1, 1, 4, 16))
    near = rope(q) @ rope(k).swapaxes(-1, -2)
    far = rope(q, offset=100_000) @ rope(k, offset=100_000).swapaxes(-1, -2)
    np.testing.assert_allclose(near, far, atol=1e-9)


def test_positions_broadcast_and_offset():
    x = RNG.standard_normal((3, 2, 4, 6))
    plain = rope(x, offset=7)
    for positions in (np.arange(4), np.arange(4)[None], np.tile(np.arange(4, dtype=np.int32), (3, 1))):
        np.testing.assert_array_equal(rope(x, positions, offset=7), plain)
    per_sample = np.array([[5], [0], [-3]])
    y = rope(x, per_sample)
    for b in range(3):
        np.testing.assert_array_equal(y[b], rope(x[b : b + 1], np.full(4, per_sample[b, 0]))[0])


def test_queries_and_keys_together():
    q, k = RNG.standard_normal((2, 4, 3, 8)), RNG.standard_normal((2, 1, 3, 8))
    y, y2 = rope(q, x2=k, return_y2=True)
    np.testing.assert_array_equal(y, rope(q))
    np.testing.assert_array_equal(y2, rope(k))


def test_inv_freq_replaces_base():
    x = RNG.standard_normal((1, 1, 9, 8))
    frequencies = 10000.0 ** (-np.arange(4) / 4)
    np.testing.assert_allclose(rope(x, inv_freq=frequencies), rope(x), atol=1e-14)
    half_speed = rope(x, inv_freq=frequencies / 2)
    np.testing.assert_allclose(half_speed[:, :, ::2], rope(x[:, :, ::2]), atol=1e-14)


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_scale_multiplies_the_rotated_columns(pairing):
    x, dy = RNG.standard_normal((2, 2, 3, 4, 10))
    options = {"pairing": pairing, "rotary_dim": 6}
    y = rope(x, **options, scale=1.5)
    np.testing.assert_allclose(y[..., :6], 1.5 * rope(x, **options)[..., :6], rtol=1e-14)
    np.testing.assert_array_equal(y[..., 6:], x[..., 6:])
    back = rope_backward(dy, **options, scale=1.5)
    np.testing.assert_allclose(np.vdot(dy, y), np.vdot(back, x), rtol=1e-12)


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_tables_replace_angles(pairing):
    x = RNG.standard_normal((2, 3, 5, 12))
    angle = np.arange(5)[:, None] * 100.0 ** (-np.arange(4) / 4)
    options = {"pairing": pairing, "rotary_dim": 8}
    expected = rope(x, base=100.0, **options)
    for shape in ((5, 4), (1, 5, 4), (2, 5, 4)):
        tables = {"cos": np.broadcast_to(np.cos(angle), shape), "sin": np.broadcast_to(np.sin(angle), shape)}
        np.testing.assert_allclose(rope(x, **tables, **options), expected, atol=1e-14)
        np.testing.assert_allclose(rope_backward(expected, **tables, **options), x, atol=1e-14)
    scaled = rope(x, cos=np.cos(angle) / 4, sin=np.sin(angle) / 4, scale=4.0, **options)
    np.testing.assert_allclose(scaled, expected, atol=1e-14)


def test_tables_stand_alone():
    x, table = RNG.standard_normal((1, 1, 3, 4)), np.ones((3, 2))
    with pytest.raises(InvalidProblemError, match="cos and sin go together"):
        rope(x, cos=table)
    with pytest.raises(InvalidProblemError, match="cos and sin replace positions and inv_freq"):
        rope(x, np.arange(3), np.ones(2), cos=table, sin=table)


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_backward_is_inverse_and_adjoint(pairing):
    x, dy = RNG.standard_normal((2, 2, 3, 4, 10))
    options = {"pairing": pairing, "rotary_dim": 6, "offset": 11}
    np.testing.assert_allclose(rope_backward(rope(x, **options), **options), x, atol=1e-14)
    np.testing.assert_allclose(np.vdot(dy, rope(x, **options)), np.vdot(rope_backward(dy, **options), x), rtol=1e-12)
    dx, dx2 = rope_backward(dy, dy2=x, **options)
    np.testing.assert_array_equal(dx, rope_backward(dy, **options))
    np.testing.assert_array_equal(dx2, rope_backward(x, **options))


def test_far_positions_keep_float32_accuracy():
    x = RNG.standard_normal((1, 1, 4, 64)).astype(np.float32)
    positions = np.array([10**6, 999_983, 2**20, -(10**6)])
    frequency = np.longdouble(10000) ** (-np.arange(32) / np.longdouble(32))
    turn = np.exp(1j * positions[:, None] * frequency)
    z = (x[..., :32] + 1j * x[..., 32:].astype(np.longdouble)) * turn
    exact = np.concatenate([z.real, z.imag], -1)
    np.testing.assert_allclose(rope(x, positions), exact, atol=5e-7)


def test_in_place_and_copied_columns_keep_nan():
    x = RNG.standard_normal((1, 2, 3, 6))
    x[..., 4] = np.nan
    expected = rope(x, rotary_dim=4)
    desc = RopeDescriptor(batch_size=1, num_heads=2, seq_len=3, head_dim=6, rotary_dim=4, element="float64")
    RopePlan.select(desc, device="cpu").run(RopeArgs(x=x, y=x))
    np.testing.assert_array_equal(x, expected)
    assert np.isnan(expected[..., 4]).all() and not np.isnan(expected[..., :4]).any()


@pytest.mark.parametrize(("head_dim", "rotary"), [(5, None), (6, 3), (6, 8)])
def test_bad_rotary_dim(head_dim, rotary):
    with pytest.raises(InvalidProblemError, match="rotary_dim"):
        RopeDescriptor(batch_size=1, num_heads=1, seq_len=1, head_dim=head_dim, rotary_dim=rotary, element="float32")


def test_sku_without_a_gpu():
    desc = RopeDescriptor(batch_size=1, num_heads=32, seq_len=4096, head_dim=128, element="bfloat16")
    plan = RopePlan.select(desc, device=fake_device(9.0))
    assert str(plan.sku) == "attention.rope/rotate/bfloat16.float32/contiguous/sm80/bespoke"
    assert plan.workspace_size() == 0


@pytest.mark.gpu
@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize(("rotary", "start"), [(None, 0), (64, 0), (32, 1)])
def test_gpu_many_heads(pairing, rotary, start):
    """Enough work that a thread serves eight heads; unaligned rows (start 1) must agree with aligned ones in bits."""
    import cupy as cp

    buffer = cp.asarray(RNG.standard_normal((2, 1500, 44, 128 + start)).astype(np.float32))
    x = buffer.transpose(0, 2, 1, 3)[..., start:]
    positions = cp.asarray(RNG.integers(-10, 10**6, (2, 1500)))
    y, y2 = rope(x[:, :40], positions, x2=x[:, 40:], return_y2=True, pairing=pairing, rotary_dim=rotary)
    dense = rope(cp.ascontiguousarray(x), positions, pairing=pairing, rotary_dim=rotary)
    np.testing.assert_array_equal(cp.concatenate([y, y2], 1).get(), dense.get())
    desc = RopeDescriptor(
        batch_size=2, num_heads=44, seq_len=1500, head_dim=128, rotary_dim=rotary, pairing=pairing, element="float32"
    )
    absent = dict.fromkeys(("inv_freq", "x2", "cos", "sin"))
    truth = reference(
        desc, x=x.get().astype(np.float64), positions=positions.get(), offset=0, scale=1.0, wanted=set(), **absent
    )
    np.testing.assert_allclose(dense.get(), truth["y"], atol=2e-6)


@pytest.mark.gpu
def test_gpu_in_place_views_of_one_buffer():
    import cupy as cp

    packed = cp.asarray(RNG.standard_normal((2, 33, 3, 4, 64)).astype(np.float16))
    q, k = (packed[:, :, i].transpose(0, 2, 1, 3) for i in (0, 1))
    expected, value = (rope(q).get(), rope(k).get()), packed[:, :, 2].get()
    rope(q, x2=k, return_y2=True, out=(q, k))
    np.testing.assert_array_equal(q.get(), expected[0])
    np.testing.assert_array_equal(k.get(), expected[1])
    np.testing.assert_array_equal(packed[:, :, 2].get(), value)


@pytest.mark.gpu
def test_gpu_offset_on_the_device():
    import cupy as cp

    x = cp.asarray(RNG.standard_normal((2, 3, 4, 16)))
    for kind in (np.int32, np.int64):
        np.testing.assert_array_equal(rope(x, offset=cp.asarray(9, kind)).get(), rope(x, offset=9).get())


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(("pairing", "rotary"), [("half", 64), ("interleaved", 64), ("half", 20), ("interleaved", 22)])
def test_gpu_tables_and_scale(dtype, pairing, rotary):
    """Tables in the accumulator or in x's element; a number and a device scalar as the scale; forward and backward."""
    import cupy as cp

    x = RNG.standard_normal((2, 3, 5, 64)).astype(dtype)
    cos, sin = RNG.standard_normal((2, 2, 5, rotary // 2)).astype(np.float64 if dtype == np.float64 else np.float32)
    options = {"pairing": pairing, "rotary_dim": rotary}
    close = {"rtol": 0, "atol": {np.float16: 8e-3, np.float32: 2e-6, np.float64: 4e-15}[dtype]}
    for kind in (cos.dtype, x.dtype):
        given = {"cos": cos.astype(kind), "sin": sin.astype(kind)}
        device = {name: cp.asarray(table) for name, table in given.items()}
        for function in (rope, rope_backward):
            y = function(cp.asarray(x), **device, **options, scale=1.25)
            np.testing.assert_allclose(y.get(), function(x, **given, **options, scale=1.25), **close)
            moved = function(cp.asarray(x), **device, **options, scale=cp.asarray(1.25))
            np.testing.assert_array_equal(moved.get(), y.get())
    shared = rope(cp.asarray(x), cos=cp.asarray(cos[0]), sin=cp.asarray(sin[0]), **options)
    np.testing.assert_allclose(shared.get(), rope(x, cos=cos[0], sin=sin[0], **options), **close)
    y = rope(cp.asarray(x), scale=0.5, **options)
    np.testing.assert_array_equal(y.get()[..., :rotary], rope(cp.asarray(x), **options).get()[..., :rotary] / 2)
    np.testing.assert_array_equal(y.get()[..., rotary:], x[..., rotary:])


@pytest.mark.parametrize("plan", ["RopePlan", "QkNormRopePlan"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_frequency_that_is_not_finite(plan, dtype, place):
    """Its pairs are NaN, the others what they are without it."""
    plan, shape = getattr(bc, plan), (1, 2, 3, 8)
    x = np.random.default_rng(3).standard_normal(shape)
    facts = {"batch_size": 1, "seq_len": 3, "head_dim": 8, "pairing": "interleaved", "element": dtype}
    if plan is RopePlan:
        desc, given, outputs = plan.descriptor(num_heads=2, **facts), {"x": x}, ("y",)
    else:
        desc, given, outputs = plan.descriptor(num_heads=2, num_kv_heads=2, **facts), {"q": x, "k": x}, ("yq", "yk")
    usual = np.array([1.0, 0.3, 0.1, 0.02])
    wanted = call(plan, desc, outputs, place, inv_freq=usual, **given)[outputs[0]]
    for odd in (np.inf, -np.inf, np.nan):
        found = call(plan, desc, outputs, place, inv_freq=np.where(np.arange(4) == 2, odd, usual), **given)
        y = found[outputs[0]]
        assert np.isnan(y[..., 4:6]).all()
        np.testing.assert_array_equal(np.delete(y, (4, 5), -1), np.delete(wanted, (4, 5), -1))
