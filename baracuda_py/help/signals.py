"""Examples of the functions of polynomials, signals and pairs that are written by hand: rows of `TABLE`."""

from __future__ import annotations

_RNG = "rng = np.random.default_rng(0)\n"
_X = f"{_RNG}x = rng.standard_normal((3, 4), dtype=np.float32)\n"
_POLYNOMIAL = "p = np.float32([1, -3, 2])  # z² - 3 z + 2\n"
_TAPS = f"{_RNG}a = rng.standard_normal(8, dtype=np.float32)\nv = np.float32([1, 2, 1])\n"
_IMAGE = f"{_RNG}a = rng.standard_normal((5, 6), dtype=np.float32)\nv = np.ones((3, 3), np.float32)\n"
_PAIRS = f"{_RNG}a, b = rng.standard_normal((2, 1, 4, 4, 8), dtype=np.float32)\n"
_FACTORS = "a, b = np.float32([1, -1]), np.float32([1, 2, 3])\n"

SIGNALS: dict[str, str] = {
    "convolve": f'{_TAPS}y = bc.convolve(a, v, "same")',
    "convolve_backward": f"{_TAPS}da, dv = bc.convolve_backward(np.ones(10, np.float32), a, v)",
    "convolve2d": f'{_IMAGE}y = bc.convolve2d(a, v, "same")',
    "convolve2d_backward": f"{_IMAGE}da, dv = bc.convolve2d_backward(np.ones((7, 8), np.float32), a, v)",
    "correlate": f'{_TAPS}y = bc.correlate(a, v, "full")',
    "correlate_backward": f"{_TAPS}da, dv = bc.correlate_backward(np.ones(6, np.float32), a, v)",
    "correlate2d": f'{_IMAGE}y = bc.correlate2d(a, v, "valid")',
    "correlate2d_backward": f"{_IMAGE}da, dv = bc.correlate2d_backward(np.ones((7, 8), np.float32), a, v)",
    "detrend": f"{_X}y = bc.detrend(x, axis=1)",
    "detrend_backward": f"{_X}dx = bc.detrend_backward(np.ones_like(x), x, axis=1)",
    "fftshift": f"{_X}y = bc.fftshift(x, axis=1)",
    "ifftshift": f"{_X}y = bc.ifftshift(x, axis=1)",
    "native_group_norm": f"""{_RNG}x = rng.standard_normal((2, 4, 4, 4), dtype=np.float32)
y, mean, rstd = bc.native_group_norm(x, 2)""",
    "poly": "x = np.float32([1, 2, -1])\np = bc.poly(x)",
    "polyadd": f"{_FACTORS}y = bc.polyadd(a, b)",
    "polyder": f"{_POLYNOMIAL}y = bc.polyder(p)",
    "polydiv": f"{_POLYNOMIAL}quotient, remainder = bc.polydiv(p, np.float32([1, -1]))",
    "polyint": f"{_POLYNOMIAL}y = bc.polyint(p, 2, (1.0, 0.5))",
    "polymul": f"{_FACTORS}y = bc.polymul(a, b)",
    "polysub": f"{_FACTORS}y = bc.polysub(a, b)",
    "polyval": f"{_POLYNOMIAL}{_X}y = bc.polyval(p, x)",
    "polyval_backward": f"{_POLYNOMIAL}{_X}dp, dx = bc.polyval_backward(np.ones_like(x), p, x)",
    "symmetric_product": f"{_X}c = np.eye(3, dtype=np.float32)\ny = bc.symmetric_product(x, c, beta=0.5)",
    "triangle_attention": f"""{_RNG}q, k, v = rng.standard_normal((3, 1, 6, 2, 6, 16), dtype=np.float32)
bias = rng.standard_normal((1, 1, 2, 6, 6), dtype=np.float32)
y = bc.triangle_attention(q, k, v, bias)""",
    "triangle_multiplication": f'{_PAIRS}z = bc.triangle_multiplication(a, b, "incoming")',
    "triangle_multiplicative_update": f"""{_PAIRS}weights = rng.standard_normal((4, 8, 8), dtype=np.float32)
p_in, g_in, p_out, g_out = weights
y = bc.triangle_multiplicative_update(a, p_in, g_in, p_out[:, :4], g_out)""",
}
