"""rope_frequencies takes what public checkpoints carry; the values by the formulas once more, pair by pair."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest

from baracuda_py.core.errors import BaracudaError, InvalidProblemError
from baracuda_py.ops.attention.rope.rope import rope
from baracuda_py.ops.attention.rope.rope_frequencies import rope_frequencies

QWEN2_VL = {"type": "mrope", "mrope_section": [16, 24, 24]}
QWEN2_5_VL = {"mrope_section": [16, 24, 24], "rope_type": "default", "type": "default"}
QWEN3_VL = {"mrope_interleaved": True, "mrope_section": [24, 20, 20], "rope_type": "default"}
QWEN2_5_VL_YARN = {
    "type": "yarn", "mrope_section": [16, 24, 24], "factor": 4, "original_max_position_embeddings": 32768,
}  # fmt: skip
QWEN3_5 = {
    "mrope_interleaved": True, "mrope_section": [11, 11, 10], "partial_rotary_factor": 0.25, "rope_theta": 10_000_000,
    "rope_type": "default",
}  # fmt: skip
HUNYUAN = {
    "alpha": 1000.0, "beta_fast": 32, "beta_slow": 1, "factor": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
    "type": "dynamic",
}  # fmt: skip
YARN_LLAMA2 = {"factor": 16.0, "finetuned": True, "original_max_position_embeddings": 4096, "type": "yarn"}
DEEPSEEK_V3 = {
    "beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0,
    "original_max_position_embeddings": 4096, "type": "yarn",
}  # fmt: skip
MINISTRAL3 = {
    "beta_fast": 32.0, "beta_slow": 1.0, "factor": 16.0, "llama_4_scaling_beta": 0.1, "mscale": 1.0,
    "mscale_all_dim": 1.0, "original_max_position_embeddings": 16384, "max_position_embeddings": 16384,
    "rope_theta": 1000000.0, "rope_type": "yarn", "type": "yarn",
}  # fmt: skip
GPT_OSS = {
    "beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "original_max_position_embeddings": 4096, "rope_type": "yarn",
    "truncate": False,
}  # fmt: skip
LLAMA4 = {
    "factor": 16.0, "high_freq_factor": 1.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192,
    "rope_type": "llama3",
}  # fmt: skip
GEMMA3 = {
    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1_000_000.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
}
GEMMA4 = {
    "full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 1_000_000.0, "rope_type": "proportional"},
    "sliding_attention": {"rope_theta": 10_000.0, "rope_type": "default"},
}
FACTORS = {"short_factor": [1.0 + 0.01 * j for j in range(48)], "long_factor": [1.0 + 1.3 * j for j in range(48)]}
PHI3_SU = {"type": "su", **FACTORS}
PHI35_MOE = {
    "type": "longrope", **FACTORS, "original_max_position_embeddings": 4096, "short_mscale": 1.243163121016122,
    "long_mscale": 1.243163121016122,
}  # fmt: skip


def plain(dim, base):
    """base^(-2j / dim) to 30 digits, then rounded."""
    with localcontext() as context:
        context.prec = 30
        return np.array([float(Decimal(base) ** (Decimal(-2 * j) / dim)) for j in range(dim // 2)])


def yarn(dim, base, factor, original, fast=32.0, slow=1.0, whole=True):
    """Peng et al.: 1 - a ramp over the pair's number from the pair of `fast` turns to that of `slow`."""

    def number(turns):
        return dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = number(fast), number(slow)
    if whole:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    ramp = [min(max((j - low) / (high - low), 0.0), 1.0) for j in range(dim // 2)]
    return np.array([f / factor * r + f * (1 - r) for f, r in zip(plain(dim, base), ramp, strict=True)])


KEPT = {  # name: (columns, options, inverse frequencies, scale)
    "Qwen2-VL": (128, {"base": 1e6, "scaling": QWEN2_VL}, plain(128, 1e6), 1.0),
    "Qwen2.5-VL": (128, {"base": 1e6, "scaling": QWEN2_5_VL}, plain(128, 1e6), 1.0),
    "Qwen3-VL": (128, {"base": 5e6, "scaling": QWEN3_VL}, plain(128, 5e6), 1.0),
    "Qwen2.5-VL 128k": (
        128, {"base": 1e6, "scaling": QWEN2_5_VL_YARN}, yarn(128, 1e6, 4, 32768), 0.1 * math.log(4) + 1
    ),
    "Qwen3.5": (64, {"scaling": QWEN3_5}, plain(64, 1e7), 1.0),
    "Qwen3.5 by head": (None, {"head_dim": 256, "scaling": QWEN3_5}, plain(64, 1e7), 1.0),
    "Hunyuan": (128, {"scaling": HUNYUAN}, plain(128, 1e4 * 1000.0 ** (128 / 126)), 1.0),
    "Hunyuan, long": (128, {"scaling": HUNYUAN, "seq_len": 300_000}, plain(128, 1e4 * 1000.0 ** (128 / 126)), 1.0),
    "YaRN Llama 2": (128, {"scaling": YARN_LLAMA2}, yarn(128, 1e4, 16, 4096), 0.1 * math.log(16) + 1),
    "DeepSeek-V3": (64, {"scaling": DEEPSEEK_V3}, yarn(64, 1e4, 40, 4096), 1.0),
    "none of all_dim": (
        64, {"scaling": DEEPSEEK_V3 | {"mscale_all_dim": 0}}, yarn(64, 1e4, 40, 4096), 0.1 * math.log(40) + 1
    ),
    "Ministral 3": (128, {"scaling": MINISTRAL3}, yarn(128, 1e6, 16, 16384), 1.0),
    "gpt-oss": (
        64, {"base": 150000.0, "scaling": GPT_OSS}, yarn(64, 150000.0, 32, 4096, whole=False), 0.1 * math.log(32) + 1
    ),
    "attn_factor": (
        128, {"scaling": YARN_LLAMA2 | {"attn_factor": 0.5, "extrapolation_factor": 1.0}}, yarn(128, 1e4, 16, 4096),
        0.05 * math.log(16) + 0.5,
    ),
    "Gemma 3, full": (
        256, {"scaling": GEMMA3, "layer_type": "full_attention"}, plain(256, 1e6) / 8, 1.0
    ),
    "Gemma 3, sliding": (256, {"scaling": GEMMA3, "layer_type": "sliding_attention"}, plain(256, 1e4), 1.0),
    "Gemma 4, full": (
        None, {"head_dim": 512, "scaling": GEMMA4, "layer_type": "full_attention"},
        np.where(np.arange(256) < 64, plain(512, 1e6), 0), 1.0,
    ),
    "Phi-3": (
        96, {"scaling": PHI3_SU, "max_position_embeddings": 131072, "original_max_position_embeddings": 4096},
        plain(96, 1e4) / FACTORS["short_factor"], math.sqrt(1 + math.log(32) / math.log(4096)),
    ),
    "Phi-3.5-MoE": (96, {"scaling": PHI35_MOE}, plain(96, 1e4) / FACTORS["short_factor"], 1.243163121016122),
    "Phi-3.5-MoE, long": (
        96, {"scaling": PHI35_MOE | {"short_mscale": 1.0}, "seq_len": 5000}, plain(96, 1e4) / FACTORS["long_factor"],
        1.243163121016122,
    ),
    "Phi-3.5-MoE, short": (
        96, {"scaling": PHI35_MOE | {"short_mscale": 1.125}, "seq_len": 4096}, plain(96, 1e4) / FACTORS["short_factor"],
        1.125,
    ),
    "Llama 4": (
        128, {"base": 5e5, "scaling": LLAMA4},
        np.where(2 * math.pi / plain(128, 5e5) > 8192, plain(128, 5e5) / 16, plain(128, 5e5)), 1.0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KEPT)
def test_public_configurations(name):
    columns, options, want, scale = KEPT[name]
    found = rope_frequencies(columns, dtype=np.float64, **options)
    np.testing.assert_allclose(found.inv_freq, want, rtol=1e-12)
    assert found.scale == pytest.approx(scale, rel=1e-14) and type(found.scale) is float
    assert rope_frequencies(columns, **options).inv_freq.dtype == np.float32


def numpy_numbers(value, kind):
    """The same configuration with NumPy's numbers, as a loader may leave them."""
    if isinstance(value, dict):
        return {name: numpy_numbers(v, kind) for name, v in value.items()}
    if isinstance(value, list):
        return np.array(value)
    if isinstance(value, bool):
        return np.bool_(value)
    return np.int64(value) if isinstance(value, int) else kind(value) if isinstance(value, float) else value


@pytest.mark.parametrize("kind", [np.float64, np.float32, lambda v: np.array(v, np.float32)])
@pytest.mark.parametrize("name", KEPT)
def test_numbers_of_numpy(name, kind):
    columns, options, want, scale = KEPT[name]
    found = rope_frequencies(
        None if columns is None else np.int32(columns), dtype="float64", **numpy_numbers(options, kind)
    )
    np.testing.assert_allclose(found.inv_freq, want, rtol=1e-5)
    assert found.scale == pytest.approx(scale, rel=1e-6)


def test_sections_take_positions_of_their_own():
    """What the page says of mrope_section: tables made of three positions, by the pairs of each section."""
    inv_freq, _ = rope_frequencies(16, scaling={"type": "mrope", "mrope_section": [2, 3, 3]}, dtype=np.float64)
    places = np.array([[7, 7, 8], [0, 1, 2], [5, 4, 9]])  # time, height, width of three tokens
    angle = np.repeat(places, [2, 3, 3], axis=0).T * inv_freq
    x = np.random.default_rng(0).standard_normal((1, 2, 3, 16))
    y = rope(x, cos=np.cos(angle), sin=np.sin(angle))
    for token, (first, last) in enumerate(zip(places[0], places[2], strict=True)):
        alone = x[:, :, token : token + 1]
        np.testing.assert_allclose(y[:, :, token, 0], rope(alone, np.array([first]))[:, :, 0, 0], atol=1e-12)
        np.testing.assert_allclose(y[:, :, token, 7], rope(alone, np.array([last]))[:, :, 0, 7], atol=1e-12)


def test_layers_without_entries():
    scaling = {"full_attention": GEMMA3["full_attention"], "linear_attention": None}
    inv_freq, scale = rope_frequencies(8, scaling=scaling, layer_type="linear_attention", dtype=np.float64)
    np.testing.assert_allclose(inv_freq, plain(8, 1e4), rtol=1e-14)
    assert scale == 1.0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            {"scaling": "llama3"},
            r'such as \{"rope_type": "llama3", "factor": …, "low_freq_factor": …, .*got \'llama3\'',
        ),
        ({"scaling": "fast"}, "scaling must be what a model's configuration has as rope_scaling"),
        ({"scaling": [("type", "linear")]}, "scaling must be what"),
        ({"scaling": 8.0}, "scaling must be what"),
        ({"scaling": GEMMA3}, r"pass layer_type=, one of \['full_attention', 'sliding_attention'\], got None"),
        ({"scaling": GEMMA3, "layer_type": "global"}, "pass layer_type=, one of .* got 'global'"),
        ({"scaling": {**GEMMA3, "factor": 2}, "layer_type": "full_attention"}, "scaling mixes entries"),
        ({"scaling": YARN_LLAMA2, "layer_type": "full_attention"}, "one set of entries for all"),
        ({"scaling": {"type": "linear", "factor": 2, "scale": 3}}, "knows no scale; it knows factor, finetuned"),
        ({"scaling": {"type": "linear", "factor": 2, 3: 3}}, "knows no 3"),
        ({"scaling": {"type": ["linear"]}}, "rope_type must be one of"),
        ({"scaling": {"type": "mrope", "rope_type": "linear", "factor": 2}}, "'linear' and 'mrope'"),
        ({"scaling": {"type": "mrope", "mrope_section": [16, 24, 25]}}, "sizes whose sum is 64, half of the 128"),
        ({"scaling": {"type": "mrope", "mrope_section": 64}}, "mrope_section must be sizes"),
        ({"scaling": {"type": "mrope", "mrope_section": [16.0, 48]}}, "mrope_section must be an integer"),
        ({"scaling": {**QWEN3_VL, "mrope_interleaved": 1}}, "mrope_interleaved must be True or False"),
        ({"scaling": {**GPT_OSS, "truncate": "no"}}, "truncate must be True or False, got 'no'"),
        ({"scaling": {"type": "linear", "factor": True}}, "factor must be a number > 0, got True"),
        ({"scaling": {"type": "linear", "factor": np.bool_(True)}}, "factor must be a number > 0"),
        ({"scaling": {"type": "linear", "factor": np.float32("nan")}}, "factor must be a number > 0"),
        ({"scaling": {"type": "linear", "factor": "8"}}, "factor must be a number > 0, got '8'"),
        ({"scaling": {**DEEPSEEK_V3, "mscale_all_dim": -1}}, "mscale_all_dim must be a number >= 0"),
        ({"scaling": {"partial_rotary_factor": 1.5}}, "partial_rotary_factor must be at most 1"),
        ({"scaling": {"rope_theta": 1}}, "rope_theta must be a number > 1, got 1"),
        ({"base": "big"}, "base must be a number > 1, got 'big'"),
        ({"base": None}, "base must be a number > 1, got None"),
        ({"seq_len": -1}, "seq_len must be an integer >= 0"),
        ({"seq_len": 1.5}, "seq_len must be an integer >= 0, got 1.5"),
        ({"dtype": np.float16}, "dtype must be float32 or float64"),
        ({"scaling": {"type": "ntk", "factor": 1e308}}, "leave a float's range|not finite"),
        ({"scaling": {"type": "linear", "factor": 1e-300}}, "not finite"),
        ({"scaling": GEMMA3, "layer_type": np.ones(2)}, "layer_type must be the name"),
        ({"scaling": {"type": "mrope", "mrope_section": np.array(64)}}, "mrope_section must be sizes"),
        ({"scaling": {"partial_rotary_factor": np.ones(3)}}, "partial_rotary_factor must be a number > 0"),
        ({"scaling": {"partial_rotary_factor": 0}}, "partial_rotary_factor must be a number > 0"),
        ({"head_dim": 256, "scaling": QWEN3_5}, "rotary_dim must be 64, partial_rotary_factor 0.25 of head_dim 256"),
        ({"head_dim": 2.5}, "head_dim must be an integer"),
        (
            {"scaling": {"type": "su", **FACTORS, "short_factor": "x"}, "max_position_embeddings": 9},
            "short_factor must be",
        ),
    ],
)
def test_refusals(options, says):
    with pytest.raises(InvalidProblemError, match=says):
        rope_frequencies(128, **options)


def test_dtypes():
    with pytest.raises(BaracudaError, match="quad"):
        rope_frequencies(8, dtype="quad")
    for dtype in (np.float64, "float64", np.dtype("float64"), np.ones(2)):  # dtype-like, as element= takes it
        assert rope_frequencies(8, dtype=dtype).inv_freq.dtype == np.float64


@pytest.mark.parametrize("dim", [None, True, np.bool_(True), 2.0, "8", -2, 7])
def test_other_columns_are_refused(dim):
    with pytest.raises(InvalidProblemError, match="rotary_dim"):
        rope_frequencies(dim)
