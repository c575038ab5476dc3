"""Examples of convolutions that are written by hand: rows of `TABLE`."""

from __future__ import annotations

_RNG = "rng = np.random.default_rng(0)\n"


def _arrays(**shapes: tuple[int, ...]) -> str:
    return _RNG + "".join(
        f"{name} = rng.standard_normal({shape}, dtype=np.float32)\n" for name, shape in shapes.items()
    )


_SPACE = (7, 6, 5)
_IMAGES = _arrays(x=(2, 4, 7, 6), w=(6, 4, 3, 3))
_CODES = (
    _RNG
    + "x = rng.integers(0, 256, (2, 4, 7, 6), dtype=np.uint8)\n"
    + "w = rng.integers(-128, 128, (6, 4, 3, 3), dtype=np.int8)\n"
)

CONV: dict[str, str] = {
    **{
        f"conv{n}d": _arrays(x=(2, 4, *_SPACE[:n]), w=(6, 2, *(3,) * n), b=(6,))
        + f'y = bc.conv{n}d(x, w, b, padding="same", groups=2)'
        for n in (1, 2, 3)
    },
    **{
        f"conv_transpose{n}d": _arrays(x=(2, 4, *_SPACE[:n]), w=(4, 3, *(3,) * n))
        + f"y = bc.conv_transpose{n}d(x, w, stride=2, padding=1, output_padding=1)"
        for n in (1, 2, 3)
    },
    "conv_nd": f"{_IMAGES}y = bc.conv_nd(x, w, padding=((1, 0), (2, 1)), stride=2, activation='relu')",
    "conv_backward": f"""{_IMAGES}dy = rng.standard_normal((2, 6, 5, 4), dtype=np.float32)
dx, dw, dbias = bc.conv_backward(dy, x, w)""",
    "conv_integer": f"{_CODES}y = bc.conv_integer(x, w, np.uint8([128]), padding=1)",
    "qlinear_conv": f"""{_CODES}scale = np.full(6, 0.01, np.float32)
y = bc.qlinear_conv(x, np.float32([0.02]), np.uint8([128]), w, scale, None, np.float32([0.5]), np.uint8([100]))""",
    "quantized_conv": f"""{_CODES}scale = np.full(6, 0.01, np.float32)
y = bc.quantized_conv(x, w, scale_w=scale, out_element="bfloat16", padding=1)""",
    "scaled_conv": f"""{_IMAGES}x, w = (bc.cast(a, "float8_e4m3fn") for a in (x, w))
y = bc.scaled_conv(x, w, element="float8_e4m3fn", out_element="float32")  # NumPy holds fp8 as bytes""",
    "convolution": f"{_IMAGES}y = bc.convolution(x, w, None, 2, 1, 1, False, 0, 1)",
    "conv_tbc": f"{_arrays(x=(7, 2, 4), w=(3, 4, 6), b=(6,))}y = bc.conv_tbc(x, w, b, 1)",
    "conv": f'{_IMAGES}y = bc.conv(x, w, (1, 2), "SAME")',
    "conv_with_general_padding": f"{_IMAGES}y = bc.conv_with_general_padding(x, w, (1, 1), [(1, 0), (0, 2)], (2, 1))",
    "conv_general_dilated": f"""{_arrays(x=(2, 7, 6, 4), w=(3, 3, 4, 6))}y = bc.conv_general_dilated(
    x, w, (1, 1), "SAME", rhs_dilation=(2, 2), dimension_numbers=("NHWC", "HWIO", "NHWC"))""",
    "conv_transpose": f'{_arrays(x=(2, 7, 6, 4), w=(3, 3, 4, 6))}y = bc.conv_transpose(x, w, (2, 2), "SAME")',
    "conv_general_dilated_patches": f'{_IMAGES}y = bc.conv_general_dilated_patches(x, (3, 3), (1, 1), "VALID")',
    "conv_general_dilated_local": f"""{_IMAGES}w = rng.standard_normal((6, 36, 5, 4), dtype=np.float32)
y = bc.conv_general_dilated_local(x, w, (1, 1), "VALID", (3, 3))""",
    "fold_batch_norm": f"""{_IMAGES}mean, weight, bias = rng.standard_normal((3, 6), dtype=np.float32)
w, b = bc.fold_batch_norm(w, None, mean, np.ones(6, np.float32), weight, bias)""",
    "standardize_weight": f"{_IMAGES}y = bc.conv2d(x, bc.standardize_weight(w))",
}
