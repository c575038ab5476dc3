"""rope_frequencies: the published schemes written again pair by pair, known numbers, what is refused, and its use."""

from __future__ import annotations

import math

import numpy as np
import pytest

from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.ops.attention.rope.rope import rope
from baracuda_py.ops.attention.rope.rope_frequencies import SCHEMES, rope_frequencies

LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
PHI3 = {
    "type": "longrope", "short_factor": [1.0 + 0.01 * j for j in range(48)],
    "long_factor": [1.0 + 1.3 * j for j in range(48)],
}  # fmt: skip


def plain(dim, base):
    return [base ** (-2 * j / dim) for j in range(dim // 2)]


def yarn(dim, base, factor, original, fast=32.0, slow=1.0):
    """The authors' code: a ramp over the pair's number, between the whole numbers around the two rotation counts."""

    def number(rotations):
        return dim * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(base))

    low, high = max(math.floor(number(fast)), 0), min(math.ceil(number(slow)), dim - 1)
    found = []
    for j, f in enumerate(plain(dim, base)):
        extrapolated = 1.0 if j <= low else 0.0 if j >= high else 1 - (j - low) / (high - low)
        found.append(f * extrapolated + f / factor * (1 - extrapolated))
    return found


def llama3(dim, base, factor, low, high, original):
    """Meta's apply_scaling, by wavelength."""
    found = []
    for f in plain(dim, base):
        wavelength = 2 * math.pi / f
        if wavelength < original / high:
            found.append(f)
        elif wavelength > original / low:
            found.append(f / factor)
        else:
            smooth = (original / wavelength - low) / (high - low)
            found.append((1 - smooth) * f / factor + smooth * f)
    return found


def test_default_and_dtype():
    inv_freq, scale = rope_frequencies(8)
    assert inv_freq.dtype == np.float32 and scale == 1.0
    np.testing.assert_allclose(inv_freq, [1, 0.1, 0.01, 0.001], rtol=1e-7)
    exact = rope_frequencies(128, base=500000.0, dtype=np.float64).inv_freq
    assert exact.dtype == np.float64
    np.testing.assert_allclose(exact, plain(128, 500000.0), rtol=1e-14)
    assert rope_frequencies(0).inv_freq.shape == (0,)


def test_linear_interpolates_positions():
    """Chen et al.: position m of the longer context is position m / factor of the shorter one."""
    x = np.random.default_rng(1).standard_normal((1, 1, 9, 16))
    inv_freq, scale = rope_frequencies(16, scaling={"rope_type": "linear", "factor": 4}, dtype=np.float64)
    np.testing.assert_allclose(rope(x, inv_freq=inv_freq, scale=scale)[:, :, ::4], rope(x[:, :, ::4]), atol=1e-14)


def test_ntk_slows_the_last_pair_by_the_factor():
    """Its known base: 8 times the context of a head of 128 columns needs base 82684."""
    inv_freq, scale = rope_frequencies(128, scaling={"type": "ntk", "factor": 8.0}, dtype=np.float64)
    np.testing.assert_allclose(inv_freq, plain(128, 82684.6), rtol=1e-5)
    assert inv_freq[0] == 1 and scale == 1
    np.testing.assert_allclose(inv_freq[-1], plain(128, 10000.0)[-1] / 8, rtol=1e-12)


def test_dynamic_grows_with_the_sequence():
    scaling = {"rope_type": "dynamic", "factor": 2.0}
    facts = {"scaling": scaling, "max_position_embeddings": 2048, "dtype": np.float64}
    for short in (None, 1, 2048):
        np.testing.assert_allclose(rope_frequencies(64, seq_len=short, **facts).inv_freq, plain(64, 1e4), rtol=1e-12)
    base = 1e4 * (2.0 * 6144 / 2048 - 1.0) ** (64 / 62)
    np.testing.assert_allclose(rope_frequencies(64, seq_len=6144, **facts).inv_freq, plain(64, base), rtol=1e-12)


@pytest.mark.parametrize(
    ("dim", "base", "factor", "original"), [(128, 1e6, 4.0, 32768), (128, 1e4, 16.0, 4096), (64, 1e4, 40.0, 4096)]
)
def test_yarn(dim, base, factor, original):
    scaling = {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": original}
    inv_freq, scale = rope_frequencies(dim, base=base, scaling=scaling, dtype=np.float64)
    np.testing.assert_allclose(inv_freq, yarn(dim, base, factor, original), rtol=1e-13)
    assert scale == pytest.approx(0.1 * math.log(factor) + 1, rel=1e-15)
    assert rope_frequencies(dim, base=base, scaling={**scaling, "factor": 1.0}).scale == 1.0


def test_yarn_known_numbers():
    """Llama 2 by 16: pairs up to 20 are kept, those from 46 on interpolated. Factor 4 has the scale 1.1386."""
    scaling = {"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 4096}
    ratio = rope_frequencies(128, scaling=scaling, dtype=np.float64).inv_freq / plain(128, 1e4)
    np.testing.assert_allclose(ratio[:21], 1, rtol=1e-12)
    np.testing.assert_allclose(ratio[46:], 1 / 16, rtol=1e-12)
    assert (np.diff(ratio[20:47]) < 0).all()
    assert rope_frequencies(128, scaling=YARN).scale == pytest.approx(1.138629436, rel=1e-9)


def test_yarn_options():
    assert rope_frequencies(128, scaling={**YARN, "attention_factor": 0.7}).scale == 0.7
    deepseek = {**YARN, "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0}
    assert rope_frequencies(64, scaling=deepseek).scale == 1.0
    half = rope_frequencies(64, scaling={**YARN, "factor": 40, "mscale": 0.707, "mscale_all_dim": 1.0}).scale
    assert half == pytest.approx((0.0707 * math.log(40) + 1) / (0.1 * math.log(40) + 1), rel=1e-12)
    wide = rope_frequencies(128, scaling={**YARN, "beta_fast": 64, "beta_slow": 2}, dtype=np.float64).inv_freq
    np.testing.assert_allclose(wide, yarn(128, 1e4, 4.0, 32768, 64.0, 2.0), rtol=1e-13)
    smooth = rope_frequencies(128, scaling={**YARN, "truncate": False}, dtype=np.float64).inv_freq
    assert np.abs(smooth / rope_frequencies(128, scaling=YARN, dtype=np.float64).inv_freq - 1).max() > 1e-3
    longer = {"rope_type": "yarn", "original_max_position_embeddings": 32768}
    implied = rope_frequencies(128, scaling=longer, max_position_embeddings=131072)
    np.testing.assert_array_equal(implied.inv_freq, rope_frequencies(128, scaling=YARN).inv_freq)


def test_longrope():
    """Phi-3 mini 128k: a scale of sqrt(1 + ln 32 / ln 4096) = 1.1902; published factors divide the frequency."""
    scaling = {**PHI3, "original_max_position_embeddings": 4096}
    facts = {"scaling": scaling, "max_position_embeddings": 131072, "dtype": np.float64}
    for length, name in ((None, "short_factor"), (4096, "short_factor"), (4097, "long_factor")):
        inv_freq, scale = rope_frequencies(96, seq_len=length, **facts)
        np.testing.assert_allclose(inv_freq, np.divide(plain(96, 1e4), PHI3[name]), rtol=1e-14)
        assert scale == pytest.approx(1.190238, rel=1e-6)
    assert rope_frequencies(96, scaling={**scaling, "factor": 8, "attention_factor": 1.5}).scale == 1.5


def test_llama3():
    inv_freq, scale = rope_frequencies(128, base=500000.0, scaling=LLAMA3, dtype=np.float64)
    np.testing.assert_allclose(inv_freq, llama3(128, 500000.0, 8.0, 1.0, 4.0, 8192), rtol=1e-13)
    assert scale == 1.0
    ratio = inv_freq / plain(128, 500000.0)
    # Wavelengths below 8192 / 4 are kept, those above 8192 divided by 8: pairs 0 to 28, and 35 on.
    assert np.flatnonzero(ratio < 1 - 1e-12)[0] == 29 and np.flatnonzero(ratio < 1 / 8 + 1e-12)[0] == 35


def test_base_in_the_configuration():
    scaling = {**LLAMA3, "rope_theta": 500000.0}
    np.testing.assert_array_equal(
        rope_frequencies(128, scaling=scaling).inv_freq, rope_frequencies(128, base=5e5, scaling=LLAMA3).inv_freq
    )
    both = {"type": "linear", "rope_type": "linear", "factor": 2.0}
    np.testing.assert_allclose(rope_frequencies(4, scaling=both).inv_freq, [0.5, 0.005], rtol=1e-6)


@pytest.mark.parametrize(
    ("dim", "options", "message"),
    [
        (7, {}, "rotary_dim"),
        (8, {"base": 1.0}, "base"),
        (8, {"scaling": {"rope_type": "spline"}}, "rope_type must be one of"),
        (8, {"scaling": {"rope_type": "linear", "type": "ntk", "factor": 2}}, "'linear' and 'ntk'"),
        (8, {"scaling": {"rope_type": "linear"}}, "needs factor"),
        (8, {"scaling": {"rope_type": "linear", "factor": -2}}, "factor must be a number > 0"),
        (8, {"scaling": {"rope_type": "linear", "factor": 2, "beta_fast": 3}}, "knows no beta_fast"),
        (8, {"scaling": {"rope_type": "dynamic", "factor": 2}}, "needs max_position_embeddings"),
        (8, {"scaling": {**LLAMA3, "high_freq_factor": 0.5}}, "high_freq_factor"),
        (8, {"scaling": {**PHI3, "original_max_position_embeddings": 4096, "factor": 2}}, "short_factor must be 4"),
    ],
)
def test_refusals(dim, options, message):
    with pytest.raises(InvalidProblemError, match=message):
        rope_frequencies(dim, **options)


def test_every_scheme_is_tested():
    """The table has the schemes above, one of `test_rope_checkpoints.py`, and no other."""
    assert set(SCHEMES) == {"default", "linear", "ntk", "dynamic", "yarn", "longrope", "llama3", "proportional"}
