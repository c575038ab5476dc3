"""Operands for functions of the functional layer that are written by hand, which no page draws problems for."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

import baracuda_py as bc
from baracuda_py.core import ElementKind
from baracuda_py.ops.random.distributions import RandomKind
from tests.interop.hand_affine import AFFINE
from tests.interop.hand_clouds import CLOUDS
from tests.interop.hand_convolutions import CONVOLUTIONS
from tests.interop.hand_experts import EXPERTS
from tests.interop.hand_images import IMAGES
from tests.interop.hand_layout import LAYOUT
from tests.interop.hand_linalg_functions import LINALG_FUNCTIONS
from tests.interop.hand_linalg_lu import LINALG_LU
from tests.interop.hand_recurrence import RECURRENCE
from tests.interop.hand_recurrent import RECURRENT
from tests.interop.hand_signals import SIGNALS
from tests.interop.hand_sounds import SOUNDS

Call = tuple[list[Any], dict[str, Any]]


def made(*shape: int, seed: int = 0, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


_MASK = np.arange(8).reshape(2, 4) % 3 < 2


def _tokens(count: int) -> list[Any]:
    return [-np.abs(made(2, 4, seed=i)) for i in range(count)]


def _codes(*shape: int) -> np.ndarray:
    return np.random.default_rng(4).integers(0, 256, shape, dtype=np.uint8)


_DOT = (((1,), (0,)), ((), ()))


def _blocks_of_32() -> list[Any]:
    return [bc.BlockScaleConfig("mxfp8")] * 3


def _adapters(rows: Any) -> list[Any]:
    return [rows, made(2, 3, 8, seed=1), made(2, 6, 3, seed=2), np.array([1, -1, 0, 1])]


def _words() -> list[Any]:
    return [_codes(3, 8).view(np.int32), made(2, 3, seed=1, dtype=np.float16)]


def _heads(count: int, length: int = 8) -> list[Any]:
    return [made(1, 2, length, 16, seed=i) for i in range(count)]


def _attention_layer() -> list[Any]:
    weights = [made(24, 8, seed=3), made(24, seed=4), None, None, False, 0.0, made(8, 8, seed=5), made(8, seed=6)]
    return [*(made(5, 2, 8, seed=i) for i in range(3)), 8, 2, *weights]


def _pages(queries: int, dtype: Any = np.float32) -> Call:
    pages = {"page_table": np.arange(4, dtype=np.int32).reshape(2, 2), "lengths": np.array([7, 3], np.int32)}
    bounds = [np.array([0, 1, queries], np.int32)] if queries != 2 else []
    return [made(queries, 2, 16, dtype=dtype), *[made(4, 2, 4, 16, dtype=dtype)] * 2, *bounds], pages


def _fp8_pages() -> Call:
    (q, *_), pages = _pages(2, np.float16)
    codes = (np.arange(512) % 100).astype(np.uint8).reshape(4, 2, 4, 16)
    return [q, codes, codes], pages


def _coded_pages() -> Call:
    (q, *_, bounds), pages = _pages(3)
    codes = (np.arange(512) % 201 - 100).astype(np.int8).reshape(4, 2, 4, 16)
    return [q, codes, codes, bounds, *[np.full((4, 2, 4, 1), 0.02, np.float32)] * 2], pages


def _cascade() -> Call:
    (q, k, v, bounds), pages = _pages(3)
    shared = {"page_table": np.array([[3]], np.int32), "lengths": np.array([4], np.int32)}
    levels = {name: [shared[name], pages[name]] for name in shared}
    return [q, k, v, [np.array([0, 3], np.int32), bounds]], levels


def _fp8_append() -> Call:
    tables = {"page_table": np.arange(4, dtype=np.int32).reshape(2, 2), "cache_offsets": np.array([6, 3], np.int32)}
    return [made(2, 2, 16), made(2, 2, 16, seed=1), *(np.zeros((4, 2, 4, 16), np.uint8) for _ in range(2))], tables


def _packed() -> list[Any]:
    return [*(made(9, 2, 16, seed=i) for i in range(3)), *[np.array([0, 4, 9], np.int32)] * 2]


def _variable_blocks() -> list[Any]:
    """A pattern of two blocks by one, and their sizes, for two heads of 64 tokens."""
    return [np.ones((2, 2, 1), np.uint8), np.array([[20, 44]] * 2), np.array([[64]] * 2)]


def _varlen_backward() -> Call:
    operands = _packed()
    y, lse = bc.flash_sdpa_varlen(*operands, return_lse=True)
    return [*operands[:3], y, lse, made(9, 2, 16, seed=5), *operands[3:]], {}


def _flash_backward() -> Call:
    y, lse = bc.flash_sdpa(*_heads(3), return_lse=True)
    return [*_heads(3), y, lse, made(1, 2, 8, 16, seed=4)], {}


def _of_norm(function: str, *shapes: tuple[int, ...], **facts: Any) -> Call:
    operands = [made(*shape, seed=i) for i, shape in enumerate(shapes)]
    y = getattr(bc, function)(*operands, **facts)
    return [made(*np.shape(y), seed=7), *operands, y], facts


def _statistics() -> list[Any]:
    return [made(4), np.abs(made(4, seed=1)) + 0.5]


def _bytes() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return rng.integers(-128, 128, (4, 6), dtype=np.int8), rng.integers(-128, 128, (6, 5), dtype=np.int8)


def _aqlm() -> list[Any]:
    return [_codes(5, 2, 2), made(2, 16, 1, 8, seed=1), made(5, seed=2)]


def _quantized_layer() -> list[Any]:
    return [made(3, 6), np.ascontiguousarray(_bytes()[1].T), np.abs(made(5, seed=1))]


def _qlinear() -> list[Any]:
    (a, b), zero = _bytes(), np.array([3], np.int8)
    scale = np.array([0.5], np.float32)
    return [a, scale, zero, b, scale, zero, scale * 100, zero]


_MATRIX, _BF16 = (4, 6), ElementKind.BF16.dtype


def _sparse(dtype: Any = np.float32) -> list[Any]:
    values, metadata = bc.sparse24_compress(made(5, 16, seed=1).astype(dtype))
    return [made(3, 16).astype(dtype), values, metadata, made(5, seed=2).astype(dtype)]


def _packed_bytes(*shapes: tuple[int, int]) -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, 256, shape, dtype=np.uint8) for shape in shapes]


def made_index(rows: int, tokens: int) -> np.ndarray:
    """Places 0 to 3 along a row."""
    return np.arange(rows * tokens, dtype=np.int32).reshape(rows, tokens) % 4


_GATES = (
    "bilinear_glu", "celu_glu", "elu_glu", "geglu", "geglu_tanh", "glu", "hardshrink_glu", "hardsigmoid_glu",
    "hardswish_glu", "hardtanh_glu", "leaky_relu_glu", "log_sigmoid_glu", "mish_glu", "reglu", "relu2_glu", "relu6_glu",
    "selu_glu", "softplus_glu", "softshrink_glu", "softsign_glu", "swiglu", "swiglu_oai", "tanh_glu",
)  # fmt: skip


def _part(seed: int = 0) -> np.ndarray:
    """Numbers between 0.1 and 0.9."""
    return (np.random.default_rng(seed).random((4, 6)) * 0.8 + 0.1).astype(np.float32)


_TWO = np.array([2, 0])
_OF_INDICES: dict[str, Callable[[], Call]] = {
    "argwhere": lambda: ([made(3, 4)], {}),
    "compress": lambda: ([np.array([True, False, True]), made(3, 4)], {"axis": 0}),
    "extract": lambda: ([made(3, 4) > 0, made(3, 4)], {}),
    "flatnonzero": lambda: ([made(3, 4)], {}),
    "gather_nd": lambda: ([made(3, 4), np.array([[0, 1], [2, 3]])], {}),
    "gather_slices": lambda: (
        [made(3, 4), np.array([[0, 1], [1, 2]])],
        {"offset_dims": (1, 2), "start_index_map": (0, 1), "slice_sizes": (2, 2)},
    ),
    "scatter_slices": lambda: (
        [made(3, 4), np.array([[0, 1], [1, 2]]), made(2, 2, 2, seed=1)],
        {"update_window_dims": (1, 2), "scatter_dims_to_operand_dims": (0, 1)},
    ),
    "index_take": lambda: ([made(3, 4), [_TWO, np.array([1, 3])], (0, 1)], {}),
    "trim_zeros": lambda: ([np.float32([0, 0, 3, 0, 4, 0])], {}),
    "index": lambda: ([made(3, 4, 2), [_TWO[:, None], np.array([1, -1])]], {}),
    **dict.fromkeys(("index_add", "index_copy"), lambda: ([made(3, 4), _TWO, made(2, 4, seed=1)], {"axis": 0})),
    "index_fill": lambda: ([made(3, 4), _TWO, 0.5], {"axis": 0}),
    "index_put": lambda: ([made(3, 4), [_TWO, slice(1, 3)], made(2, 2, seed=1)], {}),
    "index_reduce": lambda: ([made(3, 4), _TWO, made(2, 4, seed=1), "mean"], {"axis": 0}),
    "masked_scatter": lambda: ([made(3, 4), made(3, 4) > 0, made(12, seed=1)], {}),
    "masked_select": lambda: ([made(3, 4), made(4) > 0], {}),
    "nonzero_static": lambda: ([made(3, 4)], {"size": 5}),
    "put": lambda: ([made(3, 4), np.array([0, 5, -1]), made(3, seed=1)], {}),
    "put_along_axis": lambda: ([made(3, 4), np.array([[1], [0], [3]]), made(3, 1, seed=1), 1], {}),
    "ravel_multi_index": lambda: ([[_TWO, _TWO]], {"dims": (3, 4)}),
    "scatter_sub": lambda: ([made(3, 4), made_index(3, 2), made(3, 2, seed=1)], {"axis": 1}),
    "scatter_nd": lambda: ([made(3, 4), _TWO[:, None], made(2, 4, seed=1), "add"], {}),
    **dict.fromkeys(("take_along_axis", "take_along_dim"), lambda: ([made(3, 4), np.array([[1], [0], [3]]), 1], {})),
}

GIVEN: dict[str, Callable[[], Call]] = {
    **AFFINE,
    **CONVOLUTIONS,
    **SIGNALS,
    **CLOUDS,
    **SOUNDS,
    **RECURRENCE,
    **_OF_INDICES,
    "betainc_backward": lambda: ([_part(), _part(1), _part(2), _part(3)], {}),
    "hyp2f1_backward": lambda: ([_part(), _part(1), _part(2), _part(3), _part(4)], {}),
    "hyp1f1_backward": lambda: ([_part(), _part(1), _part(2), _part(3)], {}),
    "bessel_jn": lambda: ([_part(), 3], {}),
    "jn": lambda: ([2, _part()], {}),
    "split_matmul": lambda: ([made(4, 6), made(6, 5)], {}),
    "ozaki_matmul": lambda: ([made(4, 6, dtype=np.float64), made(6, 5, dtype=np.float64)], {}),
    **dict.fromkeys(
        ("matmul_tc", "matmul_tc_async"), lambda: ([made(4, 6, dtype=np.float16), made(6, 5, dtype=np.float16)], {})
    ),
    **dict.fromkeys(
        ("matmul_tc_bf16", "matmul_tc_bf16_async"), lambda: ([made(4, 6, dtype=_BF16), made(6, 5, dtype=_BF16)], {})
    ),
    "grouped_mm": lambda: ([made(5, 6), made(2, 6, 3), np.array([2, 5])], {}),
    "ragged_dot": lambda: ([made(5, 6), made(2, 6, 3), np.array([2, 3])], {}),
    "poly_norm": lambda: ([made(4, 6), made(3), made(1)], {}),
    "poly_norm_backward": lambda: ([made(4, 6, seed=1), made(4, 6), made(3)], {}),
    "reduce_window": lambda: ([made(4, 6)], {"window_dimensions": (2, 2)}),
    "sph_harm_y": lambda: ([3, 2, _part(), _part(1)], {}),
    "sph_legendre_p": lambda: ([3, 2, _part()], {}),
    "sph_legendre_p_backward": lambda: ([made(4, 6), 3, 2, _part()], {}),
    **dict.fromkeys((f"{name}_backward" for name in _GATES), lambda: ([made(4, 3), made(4, 6)], {})),
    **{
        f"adaptive_{kind}_pool{rank}d": lambda rank=rank: ([made(1, 2, *[6] * rank)], {"output_size": 3})
        for kind in ("avg", "max")
        for rank in (1, 2, 3)
    },
    "gated_activation": lambda: ([made(4, 6)], {"kind": "swiglu"}),
    "gated_activation_backward": lambda: ([made(4, 3), made(4, 6)], {"kind": "swiglu"}),
    **dict.fromkeys(("addmm", "addmv"), lambda: ([made(4, 5), made(4, 6), made(6, 5)], {"alpha": 0.5, "beta": 2.0})),
    **dict.fromkeys(("topk", "top_k", "kthvalue"), lambda: ([made(4, 6), 2], {})),
    **dict.fromkeys(("bucketize", "digitize"), lambda: ([made(4, 6), np.array([-0.5, 0.5, 1.0], np.float32)], {})),
    "searchsorted": lambda: ([np.sort(made(4, 6)), made(4, 3)], {}),
    **dict.fromkeys(("median", "nanmedian", "mode", "rankdata"), lambda: ([made(4, 6)], {"axis": 1})),
    **dict.fromkeys(("quantile", "nanquantile"), lambda: ([made(4, 6), 0.3], {"axis": 1})),
    **dict.fromkeys(("percentile", "nanpercentile"), lambda: ([made(4, 6), np.array([10.0, 50.0])], {"axis": 0})),
    **dict.fromkeys(("histogram", "histogramdd"), lambda: ([made(40, 2), 4], {})),
    "histogram_bin_edges": lambda: ([made(40), 4], {"range": (-1.0, 1.0)}),
    "histogram2d": lambda: ([made(40), made(40, seed=1), 4], {}),
    "histc": lambda: ([made(40), 4], {}),
    "bincount": lambda: ([np.arange(12, dtype=np.int64) % 5, made(12)], {"length": 5}),
    **dict.fromkeys(("union1d", "intersect1d", "setdiff1d", "setxor1d"), lambda: ([made(6), made(6)[:4]], {})),
    "lexsort": lambda: ([[made(4, 6), made(4, 6, seed=1)]], {}),
    "segment_sort": lambda: ([made(9), np.array([0, 4, 9])], {}),
    "segment_topk": lambda: ([made(9), np.array([0, 1, 9]), 2], {}),
    "topk_varlen": lambda: ([made(3, 5), np.array([5, 2, 3]), 2], {}),
    "sort_key_val": lambda: ([made(4, 6), made(4, 6, seed=1)], {}),
    "merge_sorted": lambda: ([np.sort(made(4, 6)), np.sort(made(4, 6, seed=1))], {}),
    "interp": lambda: ([made(4, 6), np.float32([-1, 0, 2]), made(3, seed=1)], {}),
    "sort_complex": lambda: ([made(4, 6) + 1j * made(4, 6, seed=1)], {}),
    "isin": lambda: ([made(4, 6), made(4, 6)[:2]], {}),
    "associative_scan": lambda: (["mul", made(4, 6)], {"axis": 1}),
    "gated_linear": lambda: ([made(4, 6), made(5, 6, seed=1), made(5, 6, seed=2), made(5), made(5, seed=3)], {}),
    **dict.fromkeys(
        ("linear_cross_entropy", "linear_log_prob"),
        lambda: ([made(8, 6), made(10, 6, seed=1), np.arange(8), made(10)], {}),
    ),
    **{
        f"adaptive_max_pool{rank}d_with_indices": lambda rank=rank: ([made(1, 2, *[6] * rank)], {"output_size": 3})
        for rank in (1, 2, 3)
    },
    "cross": lambda: ([made(4, 3), made(1, 3, seed=1)], {}),
    "max_unpool1d": lambda: ([made(2, 3), np.arange(0, 6, 2) + np.zeros((2, 1), np.int64), 2], {}),
    "max_unpool2d": lambda: ([made(2, 1, 2), np.array([[[1, 2]], [[0, 3]]]), 2], {}),
    "max_unpool3d": lambda: ([made(2, 1, 1, 2), np.array([[[[1, 2]]], [[[0, 3]]]]), 2], {}),
    "linear_cross_entropy_of_probabilities": lambda: (
        [made(8, 6), made(10, 6, seed=1), abs(made(8, 10, seed=2)), made(10)], {}
    ),
    "linear_cross_entropy_of_probabilities_backward": lambda: (
        [np.ones((), np.float32), made(8, 6), made(10, 6, seed=1), abs(made(8, 10, seed=2)), made(10)], {}
    ),
    "linear_kl": lambda: ([made(8, 6), made(10, 6, seed=1), made(8, 4, seed=2), made(10, 4, seed=3)], {}),
    "gumbel_softmax": lambda: ([made(4, 6)], {"seed": 3}),
    "quantize_per_tensor_dynamic": lambda: ([made(4, 6)], {}),
    "scaled_matmul": lambda: (
        [_codes(3, 32) % 120, _codes(5, 32) % 120, *(np.full((n, 1), 127, np.uint8) for n in (3, 5))], {}
    ),
    "scaled_dot_general": lambda: ([made(32, 64), made(64, 32, seed=1), _DOT], {"configs": _blocks_of_32()}),
    "scaled_dot_general_backward": lambda: (
        [made(32, 32, seed=2), made(32, 64), made(64, 32, seed=1), _DOT], {"configs": _blocks_of_32()}
    ),
    "scaled_dot": lambda: ([_codes(3, 8).view(np.int8), made(8, 5), made(3, 2)], {"out_element": "float32"}),
    "scaled_grouped_mm": lambda: (
        [_codes(4, 16) % 120, (_codes(2, 5, 16) % 120).swapaxes(1, 2), made(4), made(2, 5), np.array([1, 4])],
        {"element": "float8_e4m3fn"},
    ),
    **dict.fromkeys(("int_mm", "matmul_int8", "matmul_integer"), lambda: ([*_bytes()], {})),
    "quantized_matmul": lambda: ([made(2, 64), _codes(3, 32), made(3, 2, seed=1)], {"kind": "int4"}),
    "matmul_w4a8": lambda: (
        [_codes(2, 64).view(np.int8), _codes(3, 32), made(3, 2, seed=1)], {"x_scale": made(2)}
    ),
    "lora_matmul": lambda: (_adapters(made(4, 8)), {"scale": made(2), "base": made(4, 6, seed=4)}),
    "lora_matmul_backward": lambda: (
        _adapters(made(4, 6, seed=3)),
        {"scale": made(2), "x": made(4, 8), "return_da": True, "return_db": True, "return_dscale": True},
    ),
    "matmul_int4": lambda: ([made(2, 16, dtype=np.float16), *_words()], {}),
    "qkv_project": lambda: (
        [made(2, 64), *[[_codes(n, 32), made(n, 2, seed=1)] for n in (3, 1, 2)]], {"kind": "int4"}
    ),
    "qkv_project_int4": lambda: (
        [made(2, 16, dtype=np.float16), *[_words()[0]] * 3, *[_words()[1]] * 3], {}
    ),
    "qkv_project_int8": lambda: ([made(2, 16, dtype=np.float16), *[_codes(16, 3).view(np.int8)] * 3], {}),
    "quantized_linear": lambda: (_quantized_layer(), {}),
    "quantized_linear_backward": lambda: ([made(3, 5, seed=2), *_quantized_layer()], {}),
    "aqlm_linear": lambda: ([made(3, 16), *_aqlm()], {"bias": made(5, seed=3)}),
    "aqlm_linear_backward": lambda: ([made(3, 5, seed=4), made(3, 16), *_aqlm()], {}),
    "svdquant_linear": lambda: (
        [
            made(3, 64), _codes(5, 32), np.abs(made(5, 2, seed=1)), made(64, 2, seed=2), made(5, 2, seed=3),
            np.abs(made(64, seed=4)) + 1, made(5, seed=5),
        ],
        {},
    ),
    "llm_int8_linear": lambda: (_quantized_layer(), {"threshold": 1.0, "max_outliers": 2}),
    "llm_int8_linear_backward": lambda: ([made(3, 5, seed=2), *_quantized_layer()], {}),
    "smooth_quant_linear": lambda: (
        [_bytes()[0], _bytes()[1].T, np.array(0.5, np.float32), made(5, seed=1), made(5)], {}
    ),
    "int_gemm": lambda: ([*_bytes(), made(4, 1), made(1, 5, seed=1)], {}),
    "int_bmm": lambda: ([x[None] for x in _bytes()], {}),
    "qlinear_matmul": lambda: (_qlinear(), {}),
    **dict.fromkeys(("sparse24_prune", "sparse24_mask"), lambda: ([made(3, 8)], {})),
    "sparse24_prune_backward": lambda: ([made(3, 8, seed=1), made(3, 8)], {}),
    "sparse24_matmul": lambda: (_sparse(), {}),
    "sparse24_matmul_backward": lambda: ([made(3, 5, seed=3), *_sparse()], {}),
    "sparse24_gemm": lambda: (_sparse(np.float16), {}),
    "sddmm": lambda: (
        [made(3, 4), made(5, 4, seed=1), np.array([0, 3, 2, 4, 2]), np.array([0, 2, 2, 5]), made(5, seed=2)],
        {"alpha": 0.5, "beta": 2.0},
    ),
    "sparse24_decompress": lambda: (_sparse()[1:3], {}),
    "pack_signs": lambda: ([made(3, 10)], {}),
    **dict.fromkeys(("unpack_signs", "ternary_unpack"), lambda: (_packed_bytes((3, 2)), {})),
    **dict.fromkeys(
        ("binary_matmul", "int4_matmul"),
        lambda: ([*_packed_bytes((3, 2), (4, 2)), np.abs(made(3)), np.abs(made(4, seed=1))], {}),
    ),
    "ternary_quantize": lambda: ([made(3, 10)], {}),
    "ternary_matmul": lambda: (
        [np.arange(-12, 12, dtype=np.int8).reshape(3, 8), *_packed_bytes((4, 2)), np.abs(made(3)), made(4, seed=1)], {}
    ),
    "packed_gemm": lambda: ([*_packed_bytes((3, 2), (4, 2)), np.abs(made(3))], {"kind": "int4"}),
    "scaled_mm": lambda: (
        [
            np.arange(64, dtype=np.uint8).reshape(4, 16),
            np.arange(80, dtype=np.uint8).reshape(16, 5),
            made(4, 1, dtype="float32"),
            made(1, 5, dtype="float32"),
        ],
        {"element": "float8_e4m3fn", "out_element": "float32"},
    ),
    "linear_swiglu": lambda: ([made(4, 6), made(10, 6, seed=1), made(10)], {}),
    "baddbmm": lambda: ([made(2, 4, 5), made(2, 4, 6), made(2, 6, 5)], {}),
    "scatter_reduce": lambda: ([made(3, 4), made_index(3, 2), made(3, 2, seed=1), "mean"], {"axis": 1}),
    "scatter_reduce_backward": lambda: (
        [made(3, 4), made(3, 4, seed=2), made_index(3, 2), made(3, 2, seed=1), None, "mean"],
        {"axis": 1},
    ),
    "embedding": lambda: ([made_index(3, 2), made(5, 4)], {}),
    "embedding_bag": lambda: ([made_index(3, 2), made(5, 4)], {"mode": "sum"}),
    "dense_to_jagged": lambda: ([made(2, 3, 4), np.array([0, 2, 5]), 5], {}),
    "jagged_dense_bmm": lambda: ([made(5, 3), np.array([0, 2, 5]), made(2, 3, 4)], {}),
    "jagged_jagged_bmm": lambda: ([made(5, 3), made(5, 4), np.array([0, 2, 5])], {}),
    "permute_2d_sparse_data": lambda: ([np.array([1, 0]), np.array([[2, 0], [1, 2]]), made(5, 2), made(5, seed=1)], {}),
    "permute_1d_sparse_data": lambda: ([np.array([1, 0]), np.array([2, 3]), made(5, 2)], {}),
    "block_bucketize_sparse_features": lambda: (
        [np.array([2, 0, 1, 2]), np.array([7, 8, 3, 1, 4]), np.array([5, 3]), 2, made(5)],
        {"bucketize_pos": True, "sequence": True},
    ),
    "jagged_to_padded_dense": lambda: ([made(5, 4), np.array([0, 2, 5]), 3], {}),
    "moe_permute": lambda: ([made(3, 4), made_index(3, 2)], {"num_experts": 4}),
    "moe_unpermute": lambda: ([made(6, 4), made_index(3, 2), made(3, 2)], {}),
    "segment_reduce": lambda: ([made(5, 4), "sum"], {"lengths": np.array([2, 3])}),
    "embedding_add": lambda: ([made_index(3, 2), made(5, 4), made_index(3, 2), made(5, 4, seed=1)], {}),
    "embedding_bag_tables": lambda: ([np.array([[[0, 1]], [[2, -1]]]), made(5, 4), np.array([0, 2, 5])], {}),
    "quantized_embedding": lambda: ([np.array([3, 1]), np.arange(20, dtype=np.int8).reshape(5, 4), made(5)], {}),
    "quantized_embedding_bag": lambda: (
        [np.array([[3, 1], [0, 3]]), np.arange(20, dtype=np.int8).reshape(5, 4), made(5)],
        {"mode": "sum"},
    ),
    "vocab_parallel_embedding": lambda: ([made_index(3, 2), made(5, 4), 1], {}),
    "choose": lambda: ([np.array([0, 1, 1], np.int32), [made(3), made(3, seed=1)]], {}),
    "corrcoef_backward": lambda: ([made(4, 4), made(4, 6)], {}),
    "cov_backward": lambda: ([made(4, 4), made(4, 6)], {}),
    "addbmm": lambda: ([made(4, 5), made(2, 4, 6), made(2, 6, 5)], {"alpha": 0.5}),
    "addr": lambda: ([made(4, 5), made(4), made(5)], {"beta": 2.0}),
    "bilinear": lambda: ([made(4, 3), made(4, 6), made(5, 3, 6), made(5)], {}),
    "block_diag": lambda: ([made(2, 3), made(4), made(1, 2)], {}),
    "block_diag_backward": lambda: ([made(3, 5)], {"shapes": ((2, 3), (1, 2))}),
    "chain_matmul": lambda: ([made(4, 6), made(6, 3), made(3, 5)], {}),
    "dot_general": lambda: ([made(2, 4, 6), made(2, 6, 5), (((2,), (1,)), ((0,), (0,)))], {}),
    "einsum": lambda: (["bij,bjk,k->bi", made(2, 4, 6), made(2, 6, 5), made(5)], {}),
    **{
        f"{name}{way}": lambda: ([made(4, 6) + 1j * made(4, 6, seed=1)], {})
        for name in ("fft", "ifft", "irfft", "hfft")
        for way in ("", "2", "n")
    },
    **{f"{name}{way}": lambda: ([made(4, 6)], {}) for name in ("rfft", "ihfft") for way in ("", "2", "n")},
    "cholesky_ex": lambda: ([made(4, 4) @ made(4, 4).T + np.eye(4, dtype=np.float32)], {}),
    "cond": lambda: ([made(4, 6)], {}),
    "eigh": lambda: ([made(4, 4) @ made(4, 4).T], {}),
    "eigvalsh": lambda: ([made(4, 4) @ made(4, 4).T], {}),
    "lstsq": lambda: ([made(6, 4), made(6, 2)], {}),
    "matrix_norm": lambda: ([made(4, 6), "nuc"], {}),
    "matrix_rank": lambda: ([made(4, 6)], {}),
    "orgqr": lambda: ([made(6, 4), made(4)], {}),
    "pinv": lambda: ([made(4, 6)], {}),
    "qr": lambda: ([made(6, 4)], {}),
    "svd": lambda: ([made(4, 6), False], {}),
    "svdvals": lambda: ([made(4, 6)], {}),
    "matrix_power": lambda: ([made(4, 4), 3], {}),
    "matvec": lambda: ([made(2, 4, 6), made(6)], {}),
    "multi_dot": lambda: ([[made(4, 6), made(6, 3), made(3)]], {}),
    "syrk": lambda: ([made(4, 6), made(4, 4)], {"alpha": 0.5}),
    "syrk_backward": lambda: ([made(4, 4), made(4, 6), made(4, 4, seed=1)], {}),
    "tensordot": lambda: ([made(4, 6), made(6, 5), 1], {}),
    "vecmat": lambda: ([made(2, 4), made(4, 6)], {}),
    "inner_backward": lambda: ([made(4, 3), made(4, 6), made(3, 6)], {}),
    "integer_pow": lambda: ([made(4, 6), 3], {}),
    "integer_pow_backward": lambda: ([made(4, 6), made(4, 6, seed=1), 3], {}),
    "jn_backward": lambda: ([made(4, 6), 2.0, made(4, 6, seed=1)], {}),
    "piecewise": lambda: ([made(4), [made(4) > 0, made(4) < -1], [1.0, 2.0, 3.0]], {}),
    "select": lambda: ([[made(4) > 0, made(4) < -1], [made(4, seed=1), made(4, seed=2)], 0.5], {}),
    "select_n": lambda: ([made(4) > 0, made(4, seed=1), made(4, seed=2)], {}),
    "stochastic_cast": lambda: ([made(4, 6), "bfloat16"], {"seed": 3}),
    "vdot_backward": lambda: ([made(), made(6), made(6, seed=1)], {}),
    "add_scaled_backward": lambda: ([made(4, 6), made(4, 6), made(4, 6), 2.0], {}),
    "batch_paged_decode": lambda: _pages(2),
    "batch_paged_decode_fp8": _fp8_pages,
    "paged_kv_append_fp8": _fp8_append,
    "batch_paged_extend": lambda: _pages(3),
    "batch_paged_extend_quantized": _coded_pages,
    "cascade_paged_attention": _cascade,
    "batch_paged_prefill": lambda: _pages(3),
    "batch_ragged_prefill": lambda: (_packed(), {}),
    "batch_norm": lambda: ([made(2, 4, 4, 4)], {"training": True}),
    "batch_norm_backward_elemt": lambda: ([*[made(2, 4, 4)] * 2, *_statistics(), None, *_statistics(), 8.0], {}),
    "batch_norm_backward_reduce": lambda: ([*[made(2, 4, 4)] * 2, *_statistics()], {}),
    "batch_norm_elemt": lambda: ([made(2, 4, 4), None, None, *_statistics()], {}),
    "batch_norm_gather_stats_with_counts": lambda: (
        [made(2, 4), np.abs(made(2, 4)) + 0.5, np.array([16, 8], np.int32)],
        {},
    ),
    "dropout_add_layer_norm": lambda: ([made(4, 6), made(4, 6, seed=1)], {"seed": 3}),
    "fp8_dequantize": lambda: ([np.arange(24, dtype=np.uint8).reshape(4, 6), np.array(0.5, np.float32)], {}),
    "dropout_add_rms_norm": lambda: ([made(4, 6), made(4, 6, seed=1)], {"seed": 3}),
    "layer_norm_linear": lambda: ([made(4, 6), made(5, 6, seed=1), made(6), made(6), made(5)], {}),
    "rms_norm_linear": lambda: ([made(4, 6), made(5, 6, seed=1), made(6), made(5)], {}),
    "adaptive_log_softmax_with_loss": lambda: (
        [made(4, 6), np.array([0, 3, 6, 1]), made(4, 6), [[made(3, 6), made(4, 3)]]],
        {},
    ),
    "clipped_value_loss": lambda: ([*_tokens(3), _MASK], {}),
    "grpo_loss": lambda: ([*_tokens(2), made(2), *_tokens(1), _MASK], {}),
    "ppo_loss": lambda: ([*_tokens(2), made(2, 4), _MASK], {}),
    "load_balancing_loss": lambda: ([made(4, 6), made_index(4, 2)], {}),
    "local_response_norm": lambda: ([made(2, 4, 4), 3], {}),
    "local_response_norm_backward": lambda: ([made(2, 4, 4), made(2, 4, 4, seed=1), 3], {}),
    "spectral_norm": lambda: ([made(4, 6), made(4, seed=1), made(6, seed=2)], {}),
    "spectral_norm_backward": lambda: ([made(4, 6), made(4, 6, seed=3), made(4, seed=1), made(6, seed=2)], {}),
    "spectral_norm_step": lambda: ([made(4, 6), made(4, seed=1), made(6, seed=2)], {}),
    "weight_norm": lambda: ([made(4, 6), made(4, 1, seed=1)], {}),
    "weight_norm_backward": lambda: ([made(4, 6), made(4, 6, seed=2), made(4, 1, seed=1)], {}),
    "group_norm": lambda: ([made(2, 4, 4), 2], {}),
    "cdist_backward": lambda: _of_norm("cdist", _MATRIX, (3, 6)),
    "cosine_similarity_backward": lambda: ([made(4, seed=2), made(4, 6), made(4, 6, seed=1)], {}),
    "dist_backward": lambda: _of_norm("dist", _MATRIX, _MATRIX),
    "dynamic_tanh": lambda: ([made(4, 6), made(6), made(6), 0.5], {}),
    "adjoint": lambda: ([made(4, 6) + 1j * made(4, 6, seed=1)], {}),
    "expn": lambda: ([2, np.abs(made(4, 6)) + 0.1], {}),
    "fill": lambda: ([made(3, 4), 2.5], {}),
    "flash_decoding": lambda: ([made(2, 4, 16), *[made(2, 2, 8, 16)] * 2, np.array([5, 8], np.int32)], {}),
    "flash_sdpa_backward": _flash_backward,
    "flash_sdpa_varlen": lambda: (_packed(), {}),
    "flash_sdpa_varlen_backward": _varlen_backward,
    "masked_fill": lambda: ([made(3, 4), made(3, 4) > 0, 1.5], {}),
    "norm_backward": lambda: _of_norm("norm", _MATRIX),
    "pairwise_distance_backward": lambda: _of_norm("pairwise_distance", _MATRIX, _MATRIX),
    "prelu": lambda: ([made(4, 6), made(6)], {}),
    "prelu_backward": lambda: ([made(4, 6), made(4, 6, seed=1), made(6)], {}),
    "renorm": lambda: ([made(4, 6), 2.0, 0, 1.0], {}),
    "renorm_backward": lambda: ([made(4, 6), made(4, 6, seed=1), 2.0, 0, 1.0], {}),
    "dot_product_attention": lambda: (
        [*(made(2, 6, 2, 16, seed=i) for i in range(3)), made(2, 6, 6, seed=3)],
        {"key_value_seq_lengths": np.array([6, 4], np.int32), "query_seq_lengths": np.array([3, 6], np.int32)},
    ),
    "multi_head_attention_forward": lambda: (_attention_layer(), {}),
    "neighborhood_attention": lambda: ([*(made(1, 4, 5, 2, 8, seed=i) for i in range(3)), 3], {}),
    "sdpa_backward": lambda: ([*_heads(3), np.full((1, 2, 8, 8), 0.125, np.float32), made(1, 2, 8, 16, seed=4)], {}),
    "block_select_attention": lambda: ([*_heads(3, 64), np.zeros((1, 2, 64, 1), np.int32)], {}),
    "block_select_attention_backward": lambda: (
        [
            *_heads(3, 64), np.zeros((1, 2, 64, 1), np.int32), made(1, 2, 64, 16), made(1, 2, 64),
            made(1, 2, 64, 16, seed=4),
        ],
        {},
    ),
    "block_select_attention_varlen": lambda: (
        [*(made(20, 2, 8, seed=i) for i in range(3)), np.zeros((20, 2, 1), np.int32), np.array([0, 7, 20])],
        {"block_size": 8},
    ),
    "block_select_attention_varlen_backward": lambda: (
        [
            *(made(20, 2, 8, seed=i) for i in range(3)), np.zeros((20, 2, 1), np.int32), np.array([0, 7, 20]),
            made(20, 2, 8), made(2, 20), made(20, 2, 8, seed=4),
        ],
        {"block_size": 8},
    ),
    "block_importance": lambda: (
        [made(1, 2, 64, 16), made(1, 2, 3, 16, seed=1), np.full((1, 2, 64), 2.0, np.float32)],
        {"block_size": 16},
    ),
    "native_sparse_attention": lambda: (
        [*_heads(3, 64), *(made(1, 2, 64, seed=i) for i in range(3))], {"block_size": 16, "window": 8},
    ),
    "rope_quantize_fp8": lambda: (
        [made(7, 4, 8), made(7, 2, 8, seed=1), np.arange(7), made(7, 4, 16, seed=2), made(7, 2, 16, seed=3)], {},
    ),
    "rope_varlen": lambda: ([made(7, 4, 16), np.array([0, 3, 7], np.int32), made(7, 2, 16, seed=1)], {}),
    "rope_varlen_backward": lambda: ([made(7, 4, 16), np.array([0, 3, 7], np.int32), made(7, 2, 16, seed=1)], {}),
    "sage_attention": lambda: ([x.astype(np.float16) for x in _heads(3, 64)], {}),
    "flash_sdpa_fp8": lambda: (
        [*((np.abs(x) * 20).astype(np.uint8) for x in _heads(3, 64)), *(made(1, 2, seed=i) for i in range(3))], {},
    ),
    "moba_attention": lambda: (_heads(3, 64), {"block_size": 16, "top_k": 2}),
    "forgetting_attention": lambda: ([*_heads(3), -np.abs(made(1, 2, 8, seed=3))], {}),
    "hyper_connection_post": lambda: ([made(3, 6), made(3, 4, 6, seed=1), made(3, 4), made(3, 4, 4, seed=2)], {}),
    "hyper_connection_pre": lambda: ([made(3, 4, 6), made(3, 4, seed=1)], {}),
    "hyper_connection_weights": lambda: (
        [made(3, 4, 6), made(4, 5), made(4), made(6, 5), made(6), made(1, seed=1), made(1, seed=2)], {},
    ),
    "mhc_weights": lambda: ([made(3, 4, 6), made(24, 24, seed=1), made(3), made(24, seed=2)], {"iterations": 3}),
    "sinkhorn": lambda: ([made(3, 4, 4), 3], {}),
    "multi_token_attention": lambda: ([*_heads(3), made(2, 1, 2, 3, seed=3), made(2, 2, 1, 1, seed=4)], {}),
    "path_attention": lambda: ([*_heads(4), np.abs(made(1, 2, 8, seed=4)), -np.abs(made(1, 2, 8, seed=5))], {}),
    "skip_softmax_attention": lambda: ([*_heads(3, 64), 1e-4], {"block_size": 16}),
    "sliding_tile_attention": lambda: ([*_heads(3, 71), (2, 1, 4), 8, (1, 1, 3)], {"text_length": 7}),
    "sdpa_variable_block_sparse": lambda: ([*_heads(3, 64), *_variable_blocks()], {}),
    "sdpa_variable_block_sparse_backward": lambda: (
        [*_heads(3, 64), *_variable_blocks(), made(1, 2, 64, 16), made(1, 2, 64), made(1, 2, 64, 16, seed=4)],
        {},
    ),
    "hstu_attention": lambda: (
        [*(made(9, 2, 8, seed=i) for i in range(3)), np.array([0, 4, 9])], {"max_seqlen": 5},
    ),
    "hstu_attention_backward": lambda: (
        [*(made(9, 2, 8, seed=i) for i in range(3)), np.array([0, 4, 9]), made(9, 2, 8, seed=3)], {"max_seqlen": 5},
    ),
    "sdpa_block_sparse": lambda: ([*_heads(3, 64), np.ones((1, 1), np.uint8)], {}),
    "sdpa_block_sparse_backward": lambda: (
        [*_heads(3, 64), np.ones((1, 1), np.uint8), made(1, 2, 64, 16), made(1, 2, 64), made(1, 2, 64, 16, seed=4)],
        {},
    ),
    "cross_entropy": lambda: ([made(4, 6), np.array([0, 5, 2, -100])], {}),
    "ctc_loss": lambda: (
        [made(6, 2, 4) - 2, np.array([[1, 2], [3, 3]]), np.array([6, 5]), np.array([2, 1])],
        {"normalized": False},
    ),
    "rnnt_loss": lambda: ([made(2, 4, 3, 5), np.array([[1, 2], [3, 3]]), np.array([4, 3]), np.array([2, 1])], {}),
    "nll_loss": lambda: ([made(4, 6), np.array([0, 5, 2, -100])], {}),
    "orpo_loss": lambda: ([-np.abs(made(4)) - 0.1, -np.abs(made(4, seed=1)) - 0.1], {}),
    "selective_log_softmax": lambda: ([made(4, 6), np.array([0, 5, 2, 1])], {}),
    "sum_to_size": lambda: ([made(3, 4), (1, 4)], {}),
    "where": lambda: ([made(3, 4) > 0, made(3, 4), 2.0], {}),
    **IMAGES,
    **LAYOUT,
    **LINALG_LU,
    **RECURRENT,
    **EXPERTS,
    **LINALG_FUNCTIONS,
    "adjust_logits": lambda: ([made(4, 6), np.array([[0, 1], [2, 2], [5, -1], [3, 4]])], {"repetition": 1.5}),
    "ball": lambda: ([3], {"shape": (4,), "like": made(4, 6), "seed": 3}),
    "categorical": lambda: ([made(4, 6)], {"seed": 3}),
    "choice": lambda: ([made(6), (4,)], {"seed": 3}),
    "dirichlet": lambda: ([_part()], {"seed": 3}),
    "multinomial": lambda: ([_part(), 3], {"seed": 3}),
    "multinomial_counts": lambda: ([7, _part()], {"seed": 3}),
    "multivariate_normal": lambda: ([made(5, 4), made(4, 4, seed=1)], {"seed": 3}),
    "native_dropout": lambda: ([made(4, 6)], {"p": 0.25, "seed": 3}),
    "orthogonal": lambda: ([3, 2], {"shape": (4,), "like": made(4, 6), "seed": 3}),
    "rng_uniform": lambda: ([_part(), _part() + 1], {"seed": 3}),
    "permutation": lambda: ([made(4, 6)], {"seed": 3}),
    "shuffle": lambda: ([made(4, 6)], {"seed": 3}),
    "randperm": lambda: ([6], {"seed": 3}),
    "token_logprobs": lambda: ([made(4, 6), np.array([0, 5, 2, 1])], {}),
    "randint_like": lambda: ([made(4, 6), 7], {"seed": 3}),
    "rademacher": lambda: ([], {"like": made(4, 6), "shape": (4, 6), "seed": 3}),
    "randint": lambda: ([0, 7], {"like": made(4, 6), "shape": (4, 6), "seed": 3}),
    **dict.fromkeys(
        ("rand", "randn", "bits", "rng_bit_generator"), lambda: ([(4, 6)], {"like": made(4, 6), "seed": 3})
    ),
    **{
        name: lambda kind=kind: (_parameters(kind), {"seed": 3})
        for kind in RandomKind
        if kind.row.ranges and kind is not RandomKind.RANDINT
        for name in (kind.row.name or kind.value, *kind.row.aliases)
    },
    **{
        f"{name}_mask": lambda value=value: ([made(4, 6), value], {})
        for name, value in (
            ("top_k", 3), ("top_p", 0.8), ("min_p", 0.1), ("typical_p", 0.8), ("epsilon", 0.1), ("eta", 0.1),
            ("top_n_sigma", 1.0),
        )
    },
    **{
        f"{name}_renorm": lambda value=value: ([_part(), value], {})
        for name, value in (("top_k", 3), ("top_p", 0.8), ("min_p", 0.5))
    },
}  # fmt: skip


def _parameters(kind: RandomKind) -> list[np.ndarray]:
    """Arrays of a distribution's parameters, from the middle of their ranges."""
    return [np.full(_MATRIX, low + 0.625 * (high - low), np.float32) for low, high in kind.row.ranges]


_FORMS: tuple[tuple[tuple[int, ...], Any], ...] = (
    (_MATRIX, np.float32), ((1, 2, 8, 16), np.float32), (_MATRIX, np.int32), ((4,), np.float32),
    ((1, 2, 8, 16), np.float16),
)  # fmt: skip


def operands_of(name: str) -> Call:
    """Arguments that a function takes: those above, else arrays of one shape that it accepts."""
    if name in GIVEN:
        return GIVEN[name]()
    function: Any = getattr(bc, name)
    parameters = inspect.signature(function).parameters.values()
    required = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD and p.default is p.empty]
    inputs = [n for n in getattr(function, "inputs", ()) if n not in function.defaults]
    count = len(required) or len(inputs)
    more = {"seed": 3} if any(p.name == "seed" and p.default is None for p in parameters) else {}
    for shape, dtype in _FORMS:
        given: list[Any] = [(3 * made(*shape, seed=i)).astype(dtype) for i in range(count)]
        for extra in (more, more | {"min": -0.5}):
            try:
                function(*given, **extra)
            except Exception:
                continue
            return given, extra
    raise AssertionError(f"{name}: give it operands in GIVEN")
