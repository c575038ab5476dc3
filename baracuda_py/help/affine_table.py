"""Examples of the affine quantisers that are written by hand: rows of `TABLE`."""

from __future__ import annotations

_RNG = "rng = np.random.default_rng(0)\n"
_X = f"{_RNG}x = rng.standard_normal((3, 8), dtype=np.float32)\n"
_Q = f"{_RNG}x = rng.integers(-100, 100, (3, 8), dtype=np.int8)\n"
_SCALES = {
    "": ("", "0.05, 3", ""),
    "_per_tensor": ("", "0.05, 3", ""),
    "_per_channel": ("scales = np.full(8, 0.05, np.float32)\n", "scales", ", axis=1"),
    "_per_token": ("scales = np.full(3, 0.05, np.float32)\n", "scales", ""),
    "_per_group": ("scales = np.full((3, 2), 0.05, np.float32)\n", "scales", ", group_size=4"),
    "_per_block": ("scales = np.full((2, 2), 0.05, np.float32)\n", "scales", ", block=(2, 4)"),
}

AFFINE: dict[str, str] = {
    f"{verb}{scope}": f"{lead}{made}y = bc.{verb}{scope}(x, {given}{more})"
    for verb, lead in (("quantize", _X), ("dequantize", _Q))
    for scope, (made, given, more) in _SCALES.items()
} | {
    "fake_quantize": f"{_X}y = bc.fake_quantize(x, 0.05, 3)",
    "fake_quantize_backward": f"{_X}dx = bc.fake_quantize_backward(np.ones_like(x), x, 0.02)",
    "fake_quantize_per_channel_affine": f"""{_X}scales, zeros = np.full(8, 0.05, np.float32), np.zeros(8, np.int32)
y = bc.fake_quantize_per_channel_affine(x, scales, zeros, 1, -128, 127)""",
    "fake_quantize_per_tensor_affine": f"{_X}y = bc.fake_quantize_per_tensor_affine(x, 0.05, 3, 0, 255)",
    "fused_moving_avg_obs_fake_quant": f"""{_X}low = np.full(1, np.inf, np.float32)
high, scale, zero = -low, np.ones_like(low), np.zeros(1, np.int32)
y = bc.fused_moving_avg_obs_fake_quant(x, True, True, low, high, scale, zero, 0.01, -128, 127, 0)""",
    "learnable_fake_quantize": f"{_X}y = bc.learnable_fake_quantize(x, np.full((3, 2), 0.05, np.float32))",
    "fake_quantize_learnable_per_tensor_affine": f"""{_X}scale, zero = np.float32([0.05]), np.float32([3])
y = bc.fake_quantize_learnable_per_tensor_affine(x, scale, zero, 0, 255)""",
    "fake_quantize_learnable_per_channel_affine": f"""{_X}scales = np.full(8, 0.05, np.float32)
y = bc.fake_quantize_learnable_per_channel_affine(x, scales, np.zeros_like(scales), 1, -128, 127)""",
    "quantize_backward": f"{_X}dx = bc.quantize_backward(np.ones_like(x), x, 0.02)",
    "choose_qparams": f"{_X}scales, zero_points = bc.choose_qparams(x, scope='token')",
    "dynamic_quantize": f"{_X}y, scales = bc.dynamic_quantize(x, scope='group', group_size=4)",
}
