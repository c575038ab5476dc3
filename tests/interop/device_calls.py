"""Functional calls of each family, small, for tests of where things are made and launched."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

F16, F32, I32, I64 = np.float16, np.float32, np.int32, np.int64


def made(*shape: int, seed: int = 0, dtype: Any = F32) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def codes(*shape: int, most: int = 255) -> np.ndarray:
    return np.random.default_rng(1).integers(0, most + 1, shape, dtype=np.uint8)


def picks(*shape: int, below: int, dtype: Any = I64) -> np.ndarray:
    return np.random.default_rng(2).integers(0, below, shape).astype(dtype)


def signed(*shape: int) -> np.ndarray:
    return codes(*shape).view(np.int8)


@dataclass(frozen=True)
class Call:
    """A functional call: positional operands, the rest by name. `jax`: whether JAX arrays may be given."""

    name: str
    operands: list[Any]
    facts: dict[str, Any] = field(default_factory=dict)
    jax: bool = True


def heads(length: int, dtype: Any = F16) -> list[Any]:
    return [made(1, 2, length, 64, seed=i, dtype=dtype) for i in range(3)]


def steps() -> list[Any]:
    """Parameters, gradients and moments, which are written in place."""
    lists = [[made(300, seed=i), made(7, 9, seed=i + 1)] for i in range(3)]
    return [*lists, [np.abs(one) for one in lists[2]]]


CALLS = {
    "elementwise, broadcast": Call("add", [made(37, 1, 65), made(12, 1, seed=1)]),
    "elementwise, strided": Call("exp", [made(64, 33).T]),
    "complex": Call("mul", [made(9, 5) + 1j * made(9, 5, seed=1), made(5) + 1j], jax=False),
    "where": Call("where", [made(33, 7) > 0, made(33, 7), 2.0]),
    "cast": Call("cast", [made(1000), "float16"]),
    "reduce, rows": Call("sum", [made(50, 1000)], {"axis": 1}),
    "reduce, all": Call("sum", [made(300, 1000)]),
    "argmax": Call("argmax", [made(20, 999)], {"axis": 1}),
    "softmax": Call("softmax", [made(20, 999, dtype=F16)]),
    "log_softmax": Call("log_softmax", [made(3, 70000)]),
    "rms_norm": Call("rms_norm", [made(65, 512), made(512, seed=1)]),
    "layer_norm, gradient": Call(
        "layer_norm_backward", [made(500, 256), made(500, 256, seed=1), made(500), np.abs(made(500)) + 0.5, made(256)]
    ),
    "rms_norm, gradient": Call(
        "rms_norm_backward", [made(500, 256), made(500, 256, seed=1), np.abs(made(500)) + 0.5, made(256)]
    ),
    "batch_norm": Call("batch_norm", [made(4, 8, 10, 10)], {"training": True}),
    "group_norm": Call("group_norm", [made(4, 8, 10, 10), 2]),
    "cross_entropy": Call("cross_entropy", [made(65, 1000), picks(65, below=1000)]),
    "linear_cross_entropy": Call(
        "linear_cross_entropy", [made(64, 128, dtype=F16), made(500, 128, seed=1, dtype=F16), picks(64, below=500)]
    ),
    "matmul, f32": Call("matmul", [made(65, 130), made(130, 70, seed=1)]),
    "split_matmul": Call("split_matmul", [made(65, 130), made(130, 70, seed=1)]),
    "ozaki_matmul": Call("ozaki_matmul", [made(65, 130, dtype=np.float64), made(130, 70, seed=1, dtype=np.float64)]),
    "matmul, f16": Call("matmul", [made(256, 512, dtype=F16), made(512, 256, seed=1, dtype=F16)]),
    "matmul, batch": Call("matmul", [made(3, 64, 72, dtype=F16), made(3, 72, 80, seed=1, dtype=F16)]),
    "addmm": Call("addmm", [made(40, 50), made(40, 60), made(60, 50)], {"alpha": 0.5}),
    "addbmm": Call("addbmm", [made(4, 5), made(2, 4, 6), made(2, 6, 5)], {"alpha": 0.5}),
    "linear": Call("linear", [made(33, 64, dtype=F16), made(48, 64, seed=1, dtype=F16), made(48, dtype=F16)]),
    "einsum": Call("einsum", ["bij,bjk,k->bi", made(2, 4, 6), made(2, 6, 5), made(5)]),
    "grouped_mm": Call("grouped_mm", [made(50, 64, dtype=F16), made(2, 64, 32, dtype=F16), np.array([20, 50])]),
    "int gemm": Call("int_mm", [signed(64, 128), signed(128, 96)]),
    "int4 gemm": Call("quantized_matmul", [made(20, 64), codes(33, 32), made(33, 2, seed=1)], {"kind": "int4"}),
    "block_gemm": Call(
        "scaled_matmul",
        [codes(3, 32, most=119), codes(5, 32, most=119), *(np.full((n, 1), 127, np.uint8) for n in (3, 5))],
    ),
    "quantize": Call("quantize_per_tensor_dynamic", [made(40, 60)]),
    "attention": Call("flash_sdpa", heads(130), {"is_causal": True}),
    "attention, f32": Call("flash_sdpa", heads(40, F32)),
    "attention, decoding": Call(
        "flash_decoding", [made(2, 4, 64, dtype=F16), *[made(2, 2, 300, 64, dtype=F16)] * 2, np.array([5, 300], I32)]
    ),
    "rope": Call("rope", [made(2, 4, 8, 64)]),
    "max_pool2d": Call("max_pool2d", [made(2, 3, 16, 16)], {"kernel_size": 2}),
    "adaptive pool": Call("adaptive_avg_pool2d", [made(1, 2, 6, 6)], {"output_size": 3}),
    "reduce_window": Call("reduce_window", [made(40, 60)], {"window_dimensions": (2, 2)}),
    "cumsum": Call("cumsum", [made(20, 5000)], {"axis": 1}),
    "sort": Call("sort", [made(5, 3000)]),
    "sort, long": Call("sort", [made(200_000)]),
    "topk": Call("topk", [made(20, 3000), 7]),
    "unique": Call("unique", [picks(5000, below=100)]),
    "isin": Call("isin", [picks(400, below=50), np.array([3, 9, 40])]),
    "searchsorted": Call("searchsorted", [np.sort(made(4, 60)), made(4, 30)]),
    "histogram": Call("histc", [made(4000), 16], {"min": -3.0, "max": 3.0}),
    "gather": Call("take", [made(50, 33), picks(20, below=50)], {"axis": 0}),
    "scatter": Call(
        "scatter_reduce", [made(30, 40), picks(30, 20, below=40), made(30, 20, seed=1), "sum"], {"axis": 1}
    ),
    "index_fill": Call("index_fill", [made(30, 40), np.array([2, 0]), 0.5], {"axis": 0}),
    "index_put": Call("index_put", [made(30, 40), [np.array([2, 0]), slice(1, 3)], made(2, 2, seed=1)]),
    "gather_slices": Call(
        "gather_slices", [made(30, 40), np.array([[0, 1], [1, 2]])],
        {"offset_dims": (1, 2), "start_index_map": (0, 1), "slice_sizes": (2, 2)},
    ),
    "trim_zeros": Call("trim_zeros", [np.float32([0, 0, 3, 0, 4, 0])]),
    "nonzero": Call("nonzero_static", [made(30, 40)], {"size": 700}),
    "masked_select": Call("masked_select", [made(30, 40), made(30, 40, seed=1) > 0]),
    "segment": Call("segment_reduce", [made(50, 40), "sum"], {"lengths": np.array([20, 30])}),
    "segment_sort": Call("segment_sort", [made(900), np.array([0, 400, 900])]),
    "embedding": Call("embedding", [picks(30, 20, below=50), made(50, 64)]),
    "embedding_bag": Call("embedding_bag", [picks(30, 20, below=50), made(50, 64)], {"mode": "mean"}),
    "moe": Call("moe_permute", [made(30, 64), picks(30, 2, below=4, dtype=I32)], {"num_experts": 4}),
    "load_balancing_loss": Call("load_balancing_loss", [made(40, 6), picks(40, 2, below=6)]),
    "gated": Call("gated_activation", [made(40, 64)], {"kind": "swiglu"}),
    "concat": Call("concat", [[made(3, 7), made(5, 7)]], {"axis": 0}),
    "pad": Call("pad", [made(3, 7), [(1, 2), (0, 3)]]),
    "combinations": Call("combinations", [made(6)]),
    "fiedler_companion": Call("fiedler_companion", [made(5)]),
    "unpackbits": Call("unpackbits", [codes(40, 9)], {"axis": 1}),
    "weight_norm": Call("weight_norm", [made(40, 60), made(40, 1, seed=1)]),
    "spectral_norm": Call("spectral_norm", [made(40, 60), made(40, seed=1), made(60, seed=2)]),
    "orthogonal": Call("orthogonal", [6, 4], {"like": made(1), "seed": 3}),
    "dropout": Call("native_dropout", [made(4000)], {"p": 0.25, "seed": 3}),
    "random, number": Call("randn", [(4000,)], {"like": made(1), "seed": 3}),
    "random, seed on the device": Call(
        "randn", [(4000,)], {"like": made(1), "seed": np.array(3), "offset": np.array(8)}
    ),
    "sampling": Call("categorical", [made(40, 600)], {"seed": 3}),
    "multinomial": Call("multinomial", [np.abs(made(40, 600)), 3], {"seed": 3}),
    "top_p": Call("top_p_mask", [made(40, 600), 0.8]),
    "optimizer": Call("adam_step", steps(), {"step": 3, "lr": 0.1}, jax=False),
    "optimizer, numbers on the device": Call(
        "adam_step", steps(), {"step": np.array(3), "lr": np.array(0.1, F32)}, jax=False
    ),
    "global_norm": Call("global_norm", [[made(300), made(70, 9)]]),
}  # fmt: skip
