"""quantized_sdpa: every row against float64 of the decoded operands, and the bits that must not change."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from baracuda_py.core.errors import InvalidProblemError, UnsupportedError
from baracuda_py.core.preference import PlanPreference
from baracuda_py.ops.attention.quantized.quantized_sdpa import QuantizedSdpaDescriptor, QuantizedSdpaPlan
from baracuda_py.testing.emulator import emulated_device, emulating
from baracuda_py.testing.recording import pointer_view

DTYPES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float8_e4m3fn": ml_dtypes.float8_e4m3fn}
ROWS = {"wgmma": 9.0, "wgmma_fp8": 9.0, "mma": 8.0, "mma_fp8": 8.9, "simt": 8.0}


def emulate(row: str, desc: QuantizedSdpaDescriptor, operands: dict[str, Any], scale: float = 1.0) -> Any:
    """y and lse of one row."""
    y = np.full((*operands["q"].shape[:3], desc.d_v), 7).astype(DTYPES[str(desc.out_element)])
    lse = np.full(operands["q"].shape[:3], 7, np.float32)
    chosen = QuantizedSdpaPlan(desc, PlanPreference(), emulated_device(ROWS[row]))
    chosen.rows = tuple(variant for variant in chosen.rows if variant.name == row)
    with emulating(1):
        views = {n: pointer_view(x) for n, x in {**operands, "y": y, "lse": lse}.items()}
        chosen.run(QuantizedSdpaPlan.args(**views, out_scale=scale))
    return y, lse


def exact(
    desc: QuantizedSdpaDescriptor, q: Any, k: Any, v: Any, q_scale: Any, k_scale: Any, v_scale: Any = None
) -> Any:
    """float64, query by query."""
    y, lse = np.zeros((*q.shape[:3], desc.d_v)), np.full(q.shape[:3], -np.inf)
    for b, h, i in np.ndindex(*q.shape[:3]):
        kv = h // desc.group
        end = min(desc.key_len, i + 1 + desc.shift) if desc.is_causal else desc.key_len
        if end <= 0:
            continue
        left = q[b, h, i].astype(np.float64) * q_scale[b, h * desc.q_scale_heads // desc.num_heads, i // desc.q_block]
        right = k[b, kv, :end].astype(np.float64) * k_scale[b, kv, np.arange(end) // desc.k_block, None]
        s = right @ left * desc.scale
        lse[b, h, i] = np.logaddexp.reduce(s)
        y[b, h, i] = np.exp(s - lse[b, h, i]) @ v[b, kv, :end].astype(np.float64)
        y[b, h, i] *= 1.0 if v_scale is None else v_scale[b, kv]
    return y, lse


def problem(row: str, element: str, code: str, sizes: tuple[int, ...], **facts: Any) -> Any:
    """A descriptor, and operands for it."""
    batch, heads, kv_heads, queries, keys, d_k, d_v = sizes
    desc = QuantizedSdpaDescriptor(
        batch_size=batch, num_heads=heads, num_kv_heads=kv_heads, query_len=queries, key_len=keys, d_k=d_k, d_v=d_v,
        element=element, code_element=code, **facts,
    )  # fmt: skip
    rng = np.random.default_rng(sum(sizes))

    def codes(*shape: int) -> Any:
        x = rng.standard_normal(shape)
        return np.clip(np.rint(x * 40), -127, 127).astype(np.int8) if code == "int8" else x.astype(DTYPES[code])

    unit = 1 / 40 if code == "int8" else 1.0
    operands = {
        "q": codes(batch, heads, queries, d_k), "k": codes(batch, kv_heads, keys, d_k),
        "v": rng.standard_normal((batch, kv_heads, keys, d_v)).astype(DTYPES[element]),
        "q_scale": unit * np.exp2(rng.uniform(-1, 1, (batch, desc.q_scale_heads, desc.q_blocks))).astype(np.float32),
        "k_scale": unit * np.exp2(rng.uniform(-1, 1, (batch, kv_heads, desc.k_blocks))).astype(np.float32),
    }  # fmt: skip
    return desc, operands


CASES = [
    ("mma", "float16", "int8", (1, 2, 1, 70, 130, 64, 64), {"q_block": 16, "k_block": 64}),
    ("mma", "bfloat16", "int8", (1, 2, 2, 130, 70, 80, 128), {"q_block": 1, "is_causal": True}),
    ("mma", "float16", "int8", (2, 1, 1, 33, 129, 17, 19), {"is_causal": True, "causal_alignment": "bottom_right"}),
    ("mma_fp8", "bfloat16", "float8_e4m3fn", (1, 2, 1, 70, 130, 64, 64), {"is_causal": True}),
    ("mma_fp8", "float8_e4m3fn", "float8_e4m3fn", (1, 2, 1, 20, 70, 128, 72), {"out_element": "float16"}),
    ("mma_fp8", "float8_e4m3fn", "float8_e4m3fn", (1, 2, 1, 20, 70, 50, 33), {"out_element": "float8_e4m3fn"}),
    ("wgmma", "float16", "int8", (1, 2, 1, 70, 130, 64, 64), {"q_block": 16, "k_block": 64}),
    ("wgmma", "bfloat16", "int8", (1, 2, 2, 130, 270, 80, 128), {"q_block": 1, "is_causal": True, "k_block": 128}),
    ("wgmma", "float16", "int8", (2, 1, 1, 33, 129, 17, 19), {"is_causal": True, "causal_alignment": "bottom_right"}),
    ("wgmma_fp8", "bfloat16", "float8_e4m3fn", (1, 2, 1, 70, 130, 64, 64), {"is_causal": True}),
    ("wgmma_fp8", "float8_e4m3fn", "float8_e4m3fn", (1, 2, 1, 20, 270, 128, 72), {"out_element": "float16"}),
    ("wgmma_fp8", "float8_e4m3fn", "float8_e4m3fn", (1, 2, 1, 20, 70, 50, 33), {"out_element": "float8_e4m3fn"}),
    ("simt", "float16", "int8", (1, 4, 2, 9, 40, 200, 150), {"q_block": 5, "k_block": 7, "q_scale_heads": 2}),
    ("simt", "float8_e4m3fn", "float8_e4m3fn", (1, 2, 1, 9, 70, 33, 64), {"is_causal": True}),
]  # fmt: skip
ROUNDED = {"float16": 2**-10, "bfloat16": 2**-8, "float8_e4m3fn": 2**-4}


@pytest.mark.parametrize(("row", "element", "code", "sizes", "facts"), CASES)
def test_rows_against_float64_of_the_decoded_operands(
    row: str, element: str, code: str, sizes: tuple[int, ...], facts: dict[str, Any]
) -> None:
    desc, operands = problem(row, element, code, sizes, **facts)
    operands["v_scale"] = np.linspace(0.5, 1.5, sizes[0] * sizes[2], dtype=np.float32).reshape(sizes[0], sizes[2])
    y, lse = emulate(row, desc, operands, 0.75)
    want, sums = exact(desc, **operands)
    bound = ROUNDED[str(desc.out_element)] * (np.abs(want) + (1 if code == "int8" else 2))
    assert (np.abs(y.astype(np.float64) - 0.75 * want) <= bound).all()
    np.testing.assert_allclose(lse, sums, atol=1e-5 if code == "int8" else 1e-2, rtol=1e-5)


@pytest.mark.parametrize("row", [row for row in ROWS if row != "simt"])
def test_neither_company_nor_alignment_changes_a_bit(row: str) -> None:
    """A head alone has the bits that it has in a batch; rows that are not aligned, and heads in between."""
    code = "float8_e4m3fn" if row.endswith("fp8") else "int8"
    desc, operands = problem(row, "float16", code, (2, 2, 1, 70, 130, 64, 64), k_block=128, is_causal=True)
    y, lse = emulate(row, desc, operands)
    one, _ = problem(row, "float16", code, (1, 1, 1, 70, 130, 64, 64), k_block=128, is_causal=True)
    alone = {n: x[1:, -1:] for n, x in operands.items()}
    for name in ("q", "k", "v"):
        wider = np.zeros((*alone[name].shape[:3], 71)).astype(alone[name].dtype)[..., 3:67]
        wider[:] = alone[name]
        alone[name] = wider
    got = emulate(row, one, alone)
    assert got[0].tobytes() == y[1:, 1:].tobytes() and got[1].tobytes() == lse[1:, 1:].tobytes()


def test_scores_of_any_size() -> None:
    """Scales that make scores of 10^6: weights come from differences, as float32 has the scores."""
    desc, operands = problem("mma", "float16", "int8", (1, 1, 1, 20, 70, 64, 64))
    operands["q_scale"][:], operands["k_scale"][:] = 16.0, 4.0
    want, sums = exact(desc, **operands)
    for row in ("mma", "wgmma", "simt"):
        y, lse = emulate(row, desc, operands)
        np.testing.assert_allclose(lse, sums, rtol=1e-6)
        settled = np.abs(want - y.astype(np.float64)).max(-1) < 2**-9
        assert settled.all(), row


def test_what_is_refused() -> None:
    facts: dict[str, Any] = {"batch_size": 1, "query_len": 1, "key_len": 1, "d_k": 8, "d_v": 8}
    with pytest.raises(UnsupportedError, match="v of float8_e4m3fn goes with q and k of it, got int8"):
        QuantizedSdpaDescriptor(**facts, num_heads=2, element="float8_e4m3fn")
    with pytest.raises(UnsupportedError, match="v of float16 gives y of it, got out_element bfloat16"):
        QuantizedSdpaDescriptor(**facts, num_heads=2, element="float16", out_element="bfloat16")
    with pytest.raises(InvalidProblemError, match="q_scale_heads must divide num_heads, got 2 and 3"):
        QuantizedSdpaDescriptor(**facts, num_heads=3, element="float16", q_scale_heads=2)
    with pytest.raises(UnsupportedError, match="element float32 is not supported"):
        QuantizedSdpaDescriptor(**facts, num_heads=2, element="float32")
