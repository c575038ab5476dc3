"""Examples of hand-written functions over low-bit formats; tests run every one."""

from __future__ import annotations

_W = "rng = np.random.default_rng(0)\nx = rng.standard_normal((3, 64), dtype=np.float32)\n"

_INT4 = """x = np.ones((2, 16), np.float16)
w, s = np.arange(6, dtype=np.int32).reshape(3, 2), np.ones((2, 3), np.float16)
"""

_AQLM = f"""{_W}codes = rng.integers(0, 256, (4, 8, 2), dtype=np.uint8)  # 2 x 8: vectors of 8 weights
books = rng.standard_normal((2, 256, 1, 8), dtype=np.float32)
"""

QUANTIZED = {
    "block_quantize": f"{_W}codes, scales = bc.block_quantize(x, kind='nf4', group=32)",
    "quantized_matmul": """x, codes = np.ones((2, 64), np.float32), np.arange(96, dtype=np.uint8).reshape(3, 32)
y = bc.quantized_matmul(x, codes, np.full((3, 2), 0.5, np.float32), kind="int4")""",
    "qkv_project": """x, w = np.ones((2, 64), np.float32), np.eye(64, dtype=np.float32)
w = bc.block_quantize(w, kind="nf4", group=32)  # the codes and the scales
q, k, v = bc.qkv_project(x, w, w, w, kind="nf4")""",
    "matmul_w4a8": f"""{_W}q, q_scale = bc.dynamic_quantize(x, scope="token")
codes, scales = bc.block_quantize(x, kind="int4", group=32)
y = bc.matmul_w4a8(q, codes, scales, x_scale=q_scale)""",
    "quantize_per_tensor_dynamic": f"{_W}y, scale, zero_point = bc.quantize_per_tensor_dynamic(x)",
    "scaled_matmul": f"""{_W}codes, scales = bc.block_quantize(x, kind="mxfp8_e4m3")
y = bc.scaled_matmul(codes, codes, scales, scales)""",
    "scaled_dot_general": f"""{_W}configs = [bc.get_scaled_dot_general_config("mxfp8")] * 3
y = bc.scaled_dot_general(x, x, (((1,), (1,)), ((), ())), configs=configs)""",
    "scaled_dot_general_backward": f"""{_W}configs = [bc.get_scaled_dot_general_config("nvfp4", 0.5)] * 3
w, dy = rng.standard_normal((64, 5), dtype=np.float32), np.ones((3, 5), np.float32)
da, db = bc.scaled_dot_general_backward(dy, x, w, (((1,), (0,)), ((), ())), configs=configs)""",
    "scaled_dot": f"""{_W}codes, scales = bc.dynamic_quantize(x, scope="group", group_size=32)
y = bc.scaled_dot(codes, codes.T, scales, scales.T)""",
    "scaled_grouped_mm": """a, w = (np.arange(n, dtype=np.uint8) for n in (64, 96))
a, w = a.reshape(4, 16), w.reshape(2, 3, 16)
scale_a, scale_b, offsets = np.ones(4, np.float32), np.ones((2, 3), np.float32), np.array([1, 4])
y = bc.scaled_grouped_mm(a, w.swapaxes(1, 2), scale_a, scale_b, offsets, element="float8_e4m3fn")""",
    "aqlm_linear": f"{_AQLM}y = bc.aqlm_linear(x, codes, books, np.full(4, 0.5, np.float32))",
    "aqlm_linear_backward": f"{_AQLM}dx = bc.aqlm_linear_backward(np.ones((3, 4), np.float32), x, codes, books)",
    "svdquant_linear": f"""{_W}codes, scales = bc.block_quantize(x, kind="int4", group=64)
y = bc.svdquant_linear(x, codes, scales, np.ones((64, 2), np.float32), np.ones((3, 2), np.float32))""",
    "matmul_int4": f"{_INT4}y = bc.matmul_int4(x, w, s)",
    "qkv_project_int4": f"{_INT4}q, k, v = bc.qkv_project_int4(x, w, w, w, s, s, s)",
    "qkv_project_int8": """x, w = np.ones((2, 4), np.float16), np.arange(12, dtype=np.int8).reshape(4, 3)
q, k, v = bc.qkv_project_int8(x, w, w, w, 0.5, 0.25, 1.0)""",
}
