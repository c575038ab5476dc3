"""Examples of linear attention under the names of the field."""

from __future__ import annotations

_RNG = "rng = np.random.default_rng(0)\n"
_QKV = f"""{_RNG}q, k = 0.3 * rng.standard_normal((2, 1, 8, 2, 16), dtype=np.float32)
v = rng.standard_normal((1, 8, 2, 4), dtype=np.float32)
"""
_G = "g = -rng.random((1, 8, 2), dtype=np.float32)\n"
_CHANNELS = "g = -rng.random((1, 8, 2, 16), dtype=np.float32)\n"
_BETA = "beta = rng.random((1, 8, 2), dtype=np.float32)\n"
_UPDATES = "k, v, beta = (np.repeat(x, 2, axis=1) for x in (k, v, beta))\n"

RECURRENCE: dict[str, str] = {
    "linear_attention": f"{_QKV}y, state = bc.linear_attention(q, k, v, output_final_state=True)",
    "retention": f"{_QKV}y = bc.retention(q, k, v)",
    "lightning_attention": f"{_QKV}y = bc.lightning_attention(q, k, v, layer_idx=1, num_layers=12)",
    "simple_gla": f"{_QKV}{_G}y = bc.simple_gla(q, k, v, g)",
    "gla": f"{_QKV}{_CHANNELS}y = bc.gla(q, k, v, g)",
    "delta_rule": f"{_QKV}{_BETA}y = bc.delta_rule(q, k, v, beta, use_qk_l2norm=True)",
    "gated_delta_rule": f"{_QKV}{_G}{_BETA}y = bc.gated_delta_rule(q, k, v, g, beta, use_qk_l2norm=True)",
    "kda": f"{_QKV}{_CHANNELS}{_BETA}y = bc.kda(q, k, v, g, beta, use_qk_l2norm=True)",
    "rwkv6": f"{_QKV}{_CHANNELS}u = rng.standard_normal((2, 16), dtype=np.float32)\ny = bc.rwkv6(q, k, v, g, u)",
    "rwkv7": f"{_QKV}{_CHANNELS}a, b = 0.3 * rng.standard_normal((2, 1, 8, 2, 16), dtype=np.float32)\n"
    "y = bc.rwkv7(q, g, k, v, a, b)",
    "gated_delta_product": f"{_QKV}{_G}{_BETA}{_UPDATES}y = bc.gated_delta_product(q, k, v, g, beta, 2)",
    "comba": f"{_QKV}{_G}{_BETA}d = np.full(2, 0.02, np.float32)  # of the query that p corrects\n"
    "y = bc.comba(q, k, v, 0.9 * k, g, beta, d, use_qk_l2norm=True)",
    "comba_decode": f"{_QKV}{_G}{_BETA}state = np.zeros((3, 2, 16, 4), np.float32)\n"
    "y = bc.comba_decode(q, k, v, 0.9 * k, g, beta, state, slots=np.array([2]), use_qk_l2norm=True)",
    "mesa_net": f"{_QKV}{_G}{_BETA}lamb = np.full((2, 16), 0.5, np.float32)\n"
    "y = bc.mesa_net(q, k, v, g, beta, lamb, max_cg_iterations=16)",
    "mamba2_ssd": f"""{_RNG}x = rng.standard_normal((1, 8, 2, 4), dtype=np.float32)
dt = rng.random((1, 8, 2), dtype=np.float32)
B, C = rng.standard_normal((2, 1, 8, 1, 16), dtype=np.float32)
y = bc.mamba2_ssd(x, dt, np.array([-1.0, -2.0], np.float32), B, C, D=np.ones(2, np.float32))""",
    "mlstm": f"""{_QKV}i, f = rng.standard_normal((2, 1, 8, 2), dtype=np.float32)
h, (C, n, m) = bc.mlstm(q, k, v, i, f + 3, output_final_state=True)""",
    "hgrn": f"{_RNG}x, g = rng.standard_normal((2, 1, 8, 4), dtype=np.float32)\nh = bc.hgrn(x, -np.abs(g))",
}  # fmt: skip
RECURRENCE["linear_attention_backward"] = (
    f"{_QKV}dy = rng.standard_normal((1, 8, 2, 4), dtype=np.float32)\n"
    'dq, dk, dv = bc.linear_attention_backward(q, k, v, dy, kind="none")'
)
RECURRENCE["linear_attention_replay"] = f"""{_QKV}{_G}state = np.zeros((1, 2, 16, 4), np.float32)
rings = [np.zeros((1, 23, *x.shape[2:]), np.float32) for x in (k, v, g)]  # every + 2 steps - 1 of them
length = written = np.zeros(1, np.int32)
y, written = bc.linear_attention_replay(q, k, v, length, written, state, *rings[:2], ring_g=rings[2], g=g, every=8,
                                        kind="scalar")"""
RECURRENCE["linear_attention_decode"] = (
    f"{_QKV}{_G}state = np.zeros((3, 2, 16, 4), np.float32)\nslots = np.array([2])\n"
    'y = bc.linear_attention_decode(q, k, v, state, g=g, slots=slots, kind="scalar")'
)
