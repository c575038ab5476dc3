"""Calls of the public functions that no plan stands behind: views, what is made of numbers, formulas, packing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import baracuda_py as bc

Call = tuple[list[Any], dict[str, Any]]


def _x(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _list(seed: int) -> list[np.ndarray]:
    return [_x(6, seed=seed), _x(2, 3, seed=seed)]


def _codes(*shape: int, below: int = 256) -> np.ndarray:
    return np.random.default_rng(4).integers(0, below, shape, dtype=np.uint8)


def _words(*shape: int) -> np.ndarray:
    return _codes(*shape[:-1], 4 * shape[-1]).view(np.int32)


def _made_by(*arrays: Any, **facts: Any) -> Callable[[Any], Any]:
    """What calls the function that a call makes: a formula's function on arrays."""
    return lambda made: made(*arrays, **facts)


def _of(*given: Any, **facts: Any) -> Callable[[], list[Call]]:
    return lambda: [(list(given), facts)]


def _packed(pack: str, **facts: Any) -> list[Any]:
    """codes [n, k], scales and zeros [n, k / 32] of kind uint4, as a packer of weights stores them."""
    return list(getattr(bc, pack)(_codes(16, 64, below=16), _x(16, 2), _codes(16, 2, below=16), **facts))


def _both(*given: Any, **facts: Any) -> Callable[[], list[Call]]:
    """On the host, and beside an array."""
    return lambda: [(list(given), facts), (list(given), {**facts, "like": _x(2)})]


_TURNED = np.arange(32, dtype=np.int32)[::-1].copy()
_X, _CUBE, _ROW = _x(4, 6), _x(2, 3, 4), _x(5)
_NUMBERS = np.arange(4, dtype=np.float32)

_VIEWS: dict[str, Callable[[], list[Call]]] = {
    **dict.fromkeys(("array_split", "tensor_split", "chunk", "unsafe_chunk"), _of(_X, 3, axis=1)),
    **dict.fromkeys(("atleast_1d", "atleast_2d", "atleast_3d"), lambda: [([_x()], {}), ([_ROW, _X], {})]),
    "broadcast": _of(_X, (2, 3)),
    **dict.fromkeys(("broadcast_arrays", "broadcast_tensors"), _of(_x(4, 1), _x(3))),
    "broadcast_in_dim": _of(_x(4), (4, 3), (0,)),
    "broadcast_like": _of(_x(4, 1), _x(2, 4, 3)),
    "broadcast_to": _of(_x(4, 1), (2, 4, 3)),
    "broadcast_to_rank": _of(_X, 4),
    "bitcast_convert_type": lambda: [([_X, "int32"], {}), ([_X, "int16"], {})],
    "collapse": _of(_CUBE, 0, 2),
    "contiguous": lambda: [([_X], {}), ([_X.T], {})],
    "diagonal": _of(_CUBE, 1, 0, 2),
    "dsplit": _of(_CUBE, 2),
    "expand": _of(_x(4, 1), 2, 4, 3),
    "expand_dims": _of(_X, (0, 2)),
    "flatten": lambda: [([_CUBE], {}), ([_CUBE.swapaxes(0, 2), 1], {})],
    "halves": _of(_X),
    "hsplit": _of(_X, (2, 3)),
    "index_in_dim": _of(_X, 1, 1, False),
    "ix_": lambda: [([np.array([2, 0]), np.array([1, 3, 2])], {}), ([np.array([1, 0])], {})],
    "matrix_transpose": _of(_CUBE),
    "meshgrid": lambda: [([_x(3), _x(4)], {}), ([_x(3), _x(4)], {"indexing": "xy", "sparse": True})],
    **dict.fromkeys(("moveaxis", "movedim"), _of(_CUBE, (0, 1), (2, 0))),
    "narrow": _of(_X, 1, -4, 3),
    **dict.fromkeys(("permute", "permute_dims"), lambda: [([_CUBE, 2, 0, 1], {}), ([_CUBE, (1, 0, 2)], {})]),
    "ravel": lambda: [([_CUBE], {}), ([_X.T], {})],
    "reshape": lambda: [([_X, 3, -1], {}), ([_X.T, (2, 12)], {})],
    **dict.fromkeys(("resolve_conj", "resolve_neg"), _of(_X + 1j * _X)),
    "rollaxis": _of(_CUBE, 2),
    "slice_in_dim": _of(_X, 1, 6, 2, 1),
    **dict.fromkeys(("split", "unsafe_split"), lambda: [([_X, 4, 1], {}), ([_X, (1, 5)], {"axis": 1})]),
    **dict.fromkeys(("split_with_sizes", "unsafe_split_with_sizes"), _of(_X, (1, 5), 1)),
    "squeeze": lambda: [([_x(1, 4, 1)], {}), ([_x(1, 4, 1), 2], {})],
    **dict.fromkeys(("swapaxes", "swapdims"), _of(_CUBE, 0, 2)),
    "t": _of(_X),
    "transpose": lambda: [([_CUBE, 0, 2], {}), ([_CUBE], {})],
    **dict.fromkeys(("unbind", "unstack"), _of(_CUBE, 1)),
    "unflatten": _of(_X, 1, (2, -1)),
    "unfold": _of(_X, 1, 3, 2),
    "unsqueeze": _of(_X, -1),
    "view_as_complex": _of(_x(4, 2)),
    "view_as_real": _of(_X + 1j * _X),
    "vsplit": _of(_X, 2),
    **dict.fromkeys(("iscomplexobj", "isrealobj"), lambda: [([_X], {}), ([_X + 1j], {})]),
}

_MADE: dict[str, Callable[[], list[Call]]] = {
    "alibi_slopes": _of(6),
    "arange": lambda: [([5], {}), ([1.0, 3, 0.5], {"like": _X}), ([2, 9, 3, "int32"], {"like": _X})],
    **dict.fromkeys(("bartlett", "blackman", "hamming", "hanning", "indices"), _both(5)),
    **dict.fromkeys(("bartlett_window", "blackman_window", "hamming_window", "hann_window"), _both(5, False)),
    "indices": _both((2, 3)),
    **dict.fromkeys(("cosine", "exponential_window", "gaussian", "general_hamming", "hann", "nuttall"), _both(5)),
    "general_cosine": _both(5, a=(0.4, 0.5, 0.1)),
    **dict.fromkeys(
        ("barthann", "blackmanharris", "bohman", "boxcar", "chebwin", "flattop", "lanczos", "parzen", "taylor_window"),
        _both(5),
    ),
    **dict.fromkeys(("triang", "tukey"), _both(5)),
    "general_gaussian": _both(5, p=1.5, sig=2.0),
    "dpss": _both(7, 2.0),
    "kaiser_bessel_derived": _both(6, 4.0),
    "get_window": _both(("tukey", 0.3), 6),
    "mel_filterbank": _both(9, 0.0, 4000.0, 3, 8000),
    **dict.fromkeys(("fftfreq", "rfftfreq"), _both(5, 0.5)),
    "broadcasted_iota": _both("int32", (3, 4), 1),
    "cartesian_prod": lambda: [([_x(2), _x(3, seed=1)], {}), ([_x(2)], {})],
    "dft": _both(4, "sqrtn"),
    "diag_indices": _both(3, 2),
    "diag_indices_from": _of(_x(3, 3)),
    **dict.fromkeys(("empty", "ones", "zeros"), _both((3, 4), "float16")),
    **dict.fromkeys(("empty_like", "ones_like", "zeros_like"), lambda: [([_X], {}), ([_X.T, "int64"], {})]),
    "empty_permuted": _both((2, 3, 4), (2, 0, 1)),
    "empty_strided": _both((2, 3), (1, 2)),
    "eye": _both(3, 4, 1),
    "fiedler": _of(_ROW),
    "full": _both((3, 4), 2.5),
    "full_like": _of(_X, 3, "int32"),
    "geomspace": _both(1.0, 8.0, 4),
    **dict.fromkeys(("hadamard", "hilbert", "invhilbert", "identity"), _both(4)),
    "hadamard_matrix": _of(4),
    "helmert": _both(4, True),
    "iota": _both("float32", 5),
    "kaiser": _both(5, 8.0),
    "kaiser_window": _both(5),
    "linspace": lambda: [([0.0, 1.0, 5], {}), ([0.0, 1.0, 5], {"endpoint": False, "like": _X})],
    "logspace": _both(0.0, 2.0, 5),
    "mask_indices": lambda: [([4, bc.triu, 1], {"like": _X})],
    **dict.fromkeys(("pascal", "invpascal"), _both(4, "lower")),
    **dict.fromkeys(("range", "range_closed"), _both(1, 5, 2)),
    "tri": _both(3, 4, -1),
    **dict.fromkeys(("tril_indices", "triu_indices"), _both(3, 4, 1)),
    **dict.fromkeys(("tril_indices_from", "triu_indices_from"), _of(_X)),
    "vander": _of(_ROW, 3, True),
}

_FORMULAS: dict[str, Callable[[], list[Call]]] = {
    "attention": lambda: [(["s + 0.5 * (q - k)", "k <= q"], {}), (["s * 2"], {})],
    "conv_formula": lambda: [(["gelu(x + bias)"], {}), (["x * 2"], {})],
    "elementwise": lambda: [(["x * sigmoid(a * x) + y"], {"a": 1.5})],
    "optimizer": lambda: [(["p = p - lr * g"], {"lr": 0.1}), (["sgd"], {})],
    "product": lambda: [(["gelu(x + bias)"], {}), (["x * 2"], {})],
    "reduce": lambda: [(["x * y", "sum"], {"axis": -1}), (["x", "logsumexp"], {"axis": 0, "then": "logsumexp * 2"})],
    "scan": lambda: [(["x * y", "cumsum"], {"axis": 1}), (["x", "cumprod"], {"axis": 0, "reverse": True})],
}

THEN: dict[str, Callable[[Any], Any]] = {
    "attention": _made_by(*(_x(1, 2, 5, 16, seed=i) for i in range(3))),
    "conv_formula": lambda made: made(
        _x(2, 6, 8), _x(5, 6, 3, seed=1), **({"bias": _ROW} if "bias" in str(made) else {})
    ),
    "elementwise": _made_by(_X, _x(6, seed=1)),
    "optimizer": lambda made: made([_x(6), _x(2, 3)], [_x(6, seed=1), _x(2, 3, seed=1)]),
    "product": lambda made: made(_X, _x(6, 5, seed=1), **({"bias": _ROW} if "bias" in str(made) else {})),
    "reduce": lambda made: made(_X, _x(6, seed=1)) if "y" in str(made) else made(_X),
    "scan": lambda made: made(_X, _x(6, seed=1)) if "y" in str(made) else made(_X),
}
"""What is made of what a function of formulas gives."""

_LISTS: dict[str, Callable[[], list[Call]]] = {
    "clip_grad_norm_": lambda: [([_list(0), 1.0], {})],
    "clip_grad_value_": lambda: [([_list(0), 0.5], {})],
    "foreach_add": lambda: [([_list(0), _list(1)], {"alpha": 2.0}), ([_list(0), 1.5], {})],
    "foreach_axpby": lambda: [([_list(0), _list(1), 2.0, -1.0], {})],
    "foreach_lerp": lambda: [([_list(0), _list(1), 0.25], {})],
    "foreach_mul": lambda: [([_list(0), _list(1)], {})],
    "foreach_norm": lambda: [([_list(0)], {})],
    "lbfgs_direction": lambda: [([_x(6), [_x(6, seed=1)], [_x(6, seed=1)]], {}), ([_x(6), [], []], {"gamma": 0.5})],
    "optimizer_rules": _of(),
    "orthogonalize": lambda: [([_X], {}), ([_x(2, 5, 3), 8, "polar_express"], {"element": None})],
    "unscale_": lambda: [([_list(0), 2.0], {})],
}
"""Lists of arrays, those that are written made anew; matrices for Muon."""

_OF_PACKING: dict[str, Callable[[], list[Call]]] = {
    "choose_qparams_optimized": _of(_x(64)),
    "dynamic_map": _of(),
    "hqq_quantize": lambda: [([_x(8, 64)], {}), ([_x(8, 64)], {"kind": "uint8", "group": 32})],
    "nest_scales": lambda: [([np.abs(_x(4, 300)), bc.dynamic_map()], {})],
    "nested_scales": lambda: [([_codes(300), bc.dynamic_map(), np.abs(_x(2)), 0.5], {})],
    **dict.fromkeys(("pack_awq", "pack_gptq"), _of(_codes(16, 64, below=16), _x(16, 2), _codes(16, 2, below=16))),
    "pack_marlin": lambda: [
        ([_codes(64, 32), _x(64, 2)], {}),
        ([_codes(64, 32), _x(64, 2), _codes(64, 2), np.arange(32, dtype=np.int32) % 2], {"bits": 8}),
    ],
    "pack_codes": lambda: [([_codes(3, 16, below=2**bits), bits], {}) for bits in (1, 3, 4)],
    "repack_awq": lambda: [(_packed("pack_awq"), {})],
    "repack_gptq": lambda: [(_packed("pack_gptq"), {})],
    "repack_marlin": lambda: [
        ([_words(1, 128), _x(1, 64)], {}),
        ([_words(2, 256), _x(2, 64), _words(2, 16), np.arange(32, dtype=np.int32) // 16, _TURNED], {"bits": 8}),
    ],
    "repack_marlin24": lambda: [([_words(2, 128), _words(2, 64).view(np.int16), _x(2, 64)], {})],
    "smooth_quant_scales": _of(_X, _x(5, 6, seed=1), 0.4),
    "unpack_codes": lambda: [([_codes(3, 6), bits], {}) for bits in (1, 3, 4)],
}

EXPORTED: dict[str, Callable[[], list[Call]]] = {
    "unpack_kv_cache": lambda: [([_x(3, 2, 4, 5, 8)], {}), ([_x(2, 3, 4, 5, 8)], {"axis": 0})],
    **_VIEWS,
    **_MADE,
    **_FORMULAS,
    **_LISTS,
    **_OF_PACKING,
    "apply_along_axis": lambda: [([bc.sum, 1, _CUBE], {})],
    "apply_over_axes": lambda: [([bc.sum, _CUBE, (0, 2)], {})],
    "einsum_path": _of("ij,jk,kl->il", _x(3, 4), _x(4, 5), _x(5, 2)),
    "fake_device": _of(8.6),
    "get_scaled_dot_general_config": lambda: [([mode], {}) for mode in ("nvfp4", "mxfp8")],
    "rope_axial_frequencies": lambda: [
        ([(2, 3), (4, 8)], {}),
        ([[2, 4, 6], [4, 4, 8]], {"merge": 2, "starts": (1, 0, 0)}),
    ],
    "tiled_mlp": lambda: [([bc.silu, _CUBE], {"chunks": 2})],
    "rope_frequencies": lambda: [([8], {"base": 100.0}), ([8], {"scaling": {"rope_type": "linear", "factor": 2.0}})],
    "scatter_apply": lambda: [([_X, np.array([[1], [0], [3], [2]]), bc.exp], {"axis": 1})],
}
