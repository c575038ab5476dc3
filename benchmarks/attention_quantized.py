"""Attention of 8-bit codes beside attention of 16 bits: ours, and torch's scaled_dot_product_attention.

    python benchmarks/attention_quantized.py [--csv [FILE]] [--rounds 6] [--only 4x32x4096x128]

bf16, as many key heads as heads. "int8" and "fp8": sage_attention whole, its codes made on the way; "int8_codes" and
"fp8_codes": quantized_sdpa of codes that are there, the latter with values of e4m3. Rates count flops of products.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import checkout  # noqa: F401
import torch
from record import Results, add_options
from timing import interleaved

import baracuda_py as bc

SHAPES = ((4, 32, 1024, 128), (4, 32, 4096, 128), (4, 32, 4096, 64), (1, 32, 16384, 128))


def calls(q: Any, k: Any, v: Any, causal: bool) -> dict[str, list[Callable[[], Any]]]:
    """What is timed, by name."""
    blocks = {"q": (1, 1, 16, 0), "k": (1, 1, 128, 0)}
    q8, q_scale, k8, k_scale = (
        x for name, of in (("q", q), ("k", k)) for x in bc.dynamic_quantize(of, block_shape=blocks[name])
    )
    coded = {"q_scale": q_scale[..., 0], "k_scale": k_scale[..., 0], "q_block": 16, "k_block": 128, "is_causal": causal}
    fp8 = [x.to(torch.float8_e4m3fn) for x in (q, k, v)]
    return {
        "int8": [lambda: bc.sage_attention(q, k, v, is_causal=causal)],
        "fp8": [lambda: bc.sage_attention(q, k, v, qk="fp8", is_causal=causal)],
        "int8_codes": [lambda: bc.quantized_sdpa(q8, k8, v, **coded)],
        "fp8_codes": [lambda: bc.flash_sdpa_fp8(*fp8, is_causal=causal)],
        "flash_sdpa": [lambda: bc.flash_sdpa(q, k, v, is_causal=causal)],
        "torch": [lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)],
    }


def row(shape: tuple[int, ...], causal: bool, rounds: int) -> dict[str, Any]:
    """A CSV row."""
    batch, heads, length, d = shape
    q, k, v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    every = calls(q, k, v, causal)
    for one in every.values():
        one[0]()
    pairs = length * (length + 1) // 2 if causal else length * length
    made: dict[str, Any] = {"batch": batch, "heads": heads, "length": length, "d": d, "causal": int(causal)}
    for name, found in interleaved(every, rounds).items():
        made[f"{name}_us"] = f"{found.median:.1f}"
        made[f"{name}_tflops"] = f"{4e-6 * batch * heads * pairs * d / found.median:.0f}"
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--only", default=None, help="problems as '4x32x4096x128', with commas")
    add_options(parser)
    options = parser.parse_args()
    results = Results(options, "attention_quantized", ("batch", "heads", "length", "d", "causal"))
    wanted = options.only and [one.strip() for one in options.only.split(",")]
    done: list[dict[str, Any]] = []
    for shape in SHAPES:
        if wanted and "x".join(map(str, shape)) not in wanted:
            continue
        for causal in (False, True):
            done.append(row(shape, causal, options.rounds))
            print("  ".join(f"{name} {value}" for name, value in done[-1].items()), flush=True)
            results.write(done)
            torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
