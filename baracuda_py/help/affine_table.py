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
}
