"""Generation by an unmodified transformers Llama, as it is and patched: growing cache, and compiled static cache.

    python benchmarks/transformers_generate.py [--csv [FILE]] [--rounds 4] [--layers 16] [--batch 1] [--prompt 512]
        [--tokens 128] [--only "NAME;NAME"]

bf16, random weights, greedy. A candidate's tokens/s are those of `tokens - 1` decoding steps: the time of a whole call
less that of a call for one token. Candidates run in processes of their own, which take turns. How many of the tokens
are those of the unpatched model is printed: random weights have close calls, after which the texts differ.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import checkout  # noqa: F401
import torch
import transformers_models as models

NUMBERS = {"rounds": 4, "layers": 16, "batch": 1, "prompt": 512, "tokens": 128}
CANDIDATES: dict[str, tuple[models.Apply, dict[str, str]]] = {
    "transformers": (models.nothing, {}),
    "transformers, compiled static cache": (models.nothing, {"cache_implementation": "static"}),
    "baracuda_py": (models.ours, {}),
    "baracuda_py, compiled static cache": (models.ours, {"cache_implementation": "static"}),
}


def measured(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Seconds a decoding step, those of the first call, and the generated tokens of a candidate."""
    apply, facts = CANDIDATES[name]
    model = models.llama(options.layers).eval()
    apply(model)
    generator = torch.Generator("cuda").manual_seed(1)
    shape = (options.batch, options.prompt)
    prompt = torch.randint(models.VOCABULARY, shape, device="cuda", generator=generator)

    def seconds(tokens: int) -> tuple[float, Any]:
        torch.cuda.synchronize()
        began = time.perf_counter()
        with torch.inference_mode():
            found = model.generate(
                prompt, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False, pad_token_id=0, **facts
            )
        torch.cuda.synchronize()
        return time.perf_counter() - began, found[:, prompt.shape[1] :]

    first, tokens = seconds(options.tokens)
    seconds(1)
    times = [seconds(options.tokens)[0] - seconds(1)[0] for _ in range(options.rounds)]
    return {"s": [t / (options.tokens - 1) for t in times], "first": first, "tokens": tokens.tolist()}


def rows(found: dict[str, Any], options: argparse.Namespace) -> list[dict[str, Any]]:
    """A row a candidate."""
    made, wanted = [], None
    for name, runs in found.items():
        tokens = torch.tensor(runs[0]["tokens"])
        wanted = tokens if wanted is None else wanted
        step = statistics.median([s for run in runs for s in run["s"]])
        made.append(
            {
                "candidate": name, "layers": options.layers, "batch": options.batch, "prompt": options.prompt,
                "tokens": options.tokens, "ms_a_step": f"{step * 1e3:.3f}",
                "tokens_per_s": f"{options.batch / step:.0f}", "first_call_s": f"{runs[0]['first']:.1f}",
                "tokens_as_first_candidate": f"{float((tokens == wanted).double().mean()):.3f}",
            }
        )  # fmt: skip
    return made


KEY = ("candidate", "layers", "batch", "prompt", "tokens")

if __name__ == "__main__":
    models.compare(__file__, __doc__, CANDIDATES, NUMBERS, measured, rows, "transformers_generate", KEY)
