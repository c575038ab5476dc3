"""Score terms of packed sequences on the emulator: the bits of flash_sdpa, and of its gradients, of each alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from attention_rows import MMA, SIMT, WGMMA, Row, run

from baracuda_py import FlashSdpaBackwardPlan, FlashSdpaPlan, FlashSdpaVarlenBackwardPlan, FlashSdpaVarlenPlan
from baracuda_py.core.element import ElementKind
from baracuda_py.testing.draw import stored

pytestmark = pytest.mark.usefixtures("emulation")

ENDS_Q, ENDS_K = np.array([0, 70, 70, 99], np.int32), np.array([0, 84, 90, 131], np.int32)
HEADS = {"num_heads": 4, "num_kv_heads": 2}
FACTS: list[dict[str, Any]] = [
    {"is_causal": True, "softcap": 3.0, "causal_alignment": "bottom_right"},
    {"dropout_p": 0.3, "causal_alignment": "top_left", "window_left": 40},
]


@pytest.mark.parametrize("facts", FACTS, ids=lambda f: "-".join(f))
@pytest.mark.parametrize(
    ("row", "d", "element"), [(WGMMA, 64, "bfloat16"), (WGMMA, 128, "float16"), (MMA, 64, "float16"),
                              (SIMT, 16, "float32")]
)  # fmt: skip
def test_each_sequence_has_the_bits_that_it_has_alone(row: Row, d: int, element: str, facts: dict[str, Any]) -> None:
    rng, kind = np.random.default_rng(d), ElementKind.of(element)
    sizes = {**HEADS, "d_k": d, "d_v": d, "element": element, **facts}

    def made(*shape: int) -> np.ndarray:
        return stored(rng.standard_normal(shape), kind)

    q, dy, k, v = made(99, 4, d), made(99, 4, d), made(131, 2, d), made(131, 2, d)
    slopes, sinks = (stored(rng.standard_normal(shape) / 9, kind.acc) for shape in ((3, 4), (4,)))
    bounds = {"cu_seqlens_q": ENDS_Q, "cu_seqlens_k": ENDS_K}
    given = {"q": q, "k": k, "v": v, "slopes": slopes, "sinks": sinks, "seed": 2**40 + 7, "offset": 11}
    desc = FlashSdpaVarlenPlan.descriptor(batch_size=3, total_q=99, total_k=131, **sizes)
    packed = run("emulator", FlashSdpaVarlenPlan, desc, given | bounds, {"y", "lse"}, row)
    y, lse = stored(packed["y"], kind), stored(packed["lse"], kind.acc)
    desc = FlashSdpaVarlenBackwardPlan.descriptor(batch_size=3, total_q=99, total_k=131, **sizes)
    saved = {"y": y, "lse": lse, "dy": dy}
    wanted = {"dq", "dk", "dv"}
    packed |= run("emulator", FlashSdpaVarlenBackwardPlan, desc, given | bounds | saved, wanted, row)
    for b in (0, 2):
        rows, keys = slice(ENDS_Q[b], ENDS_Q[b + 1]), slice(ENDS_K[b], ENDS_K[b + 1])
        of = {"q": rows, "y": rows, "dy": rows, "dq": rows, "k": keys, "v": keys, "dk": keys, "dv": keys}
        alone = {n: np.ascontiguousarray(x[of[n]].swapaxes(0, 1)[None]) for n, x in (given | saved).items() if n in of}
        alone |= {"lse": np.ascontiguousarray(lse[None, :, rows]), "mask": None, "slopes": slopes[b : b + 1]}
        alone |= {"sinks": sinks, "seed": 2**40 + 7, "offset": 11 + (b << 32)}
        lengths = {"batch_size": 1, "query_len": alone["q"].shape[2], "key_len": alone["k"].shape[2]}
        forward = {name: alone[name] for name in ("q", "k", "v", "mask", "slopes", "sinks", "seed", "offset")}
        dense = run("emulator", FlashSdpaPlan, FlashSdpaPlan.descriptor(**lengths, **sizes), forward, {"y", "lse"}, row)
        desc = FlashSdpaBackwardPlan.descriptor(**lengths, **sizes)
        dense |= run("emulator", FlashSdpaBackwardPlan, desc, alone, wanted, row)
        np.testing.assert_array_equal(dense.pop("lse")[0], packed["lse"][:, rows])
        for name, x in dense.items():
            np.testing.assert_array_equal(x[0].swapaxes(0, 1), packed[name][of[name]], err_msg=name)
