"""Generation by an unmodified transformers Llama, as it is and patched: growing cache, and compiled static cache.

    python benchmarks/transformers_generate.py [--csv [FILE]] [--rounds 5] [--layers 16] [--batches 1,8]
        [--prompt 512] [--tokens 128] [--only "NAME;NAME"]

bf16, random weights, greedy. A candidate's tokens/s are those of `tokens - 1` decoding steps: the time of a whole call
less that of a call for one token. Candidates take turns in one process; patched models are models of their own. How
many of the tokens are those of the unpatched model is printed; random weights have close calls.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import checkout  # noqa: F401
import torch
import transformers_models as models
from record import Results, add_options

CANDIDATES: dict[str, tuple[models.Apply, bool]] = {
    "transformers": (models.nothing, False),
    "transformers, compiled static cache": (models.nothing, True),
    "baracuda_py": (models.ours, False),
    "baracuda_py, compiled static cache": (models.ours, True),
}


def generator(model: Any, static: bool, prompt: torch.Tensor) -> Callable[[int], torch.Tensor]:
    """tokens → the generated ones."""
    facts = {"cache_implementation": "static"} if static else {}

    def call(tokens: int) -> torch.Tensor:
        with torch.inference_mode():
            found = model.generate(
                prompt, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False, pad_token_id=0, **facts
            )
        return found[:, prompt.shape[1] :]  # type: ignore[no-any-return]

    return call


def seconds(call: Callable[[int], torch.Tensor], tokens: int) -> float:
    """Of a call."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    call(tokens)
    torch.cuda.synchronize()
    return time.perf_counter() - began


def rows(options: argparse.Namespace) -> list[dict[str, Any]]:
    """A row a candidate and batch."""
    names = [name for name in CANDIDATES if options.only is None or name in options.only.split(";")]
    held: dict[models.Apply, Any] = {}
    for name in names:
        apply = CANDIDATES[name][0]
        if apply not in held:
            held[apply] = models.llama(options.layers).eval()
            apply(held[apply])
    made = []
    for batch in map(int, options.batches.split(",")):
        prompt = torch.randint(models.VOCABULARY, (batch, options.prompt), device="cuda")
        calls = {name: generator(held[CANDIDATES[name][0]], CANDIDATES[name][1], prompt) for name in names}
        first, results = {}, {}
        for name, call in calls.items():
            first[name] = seconds(call, options.tokens)
            results[name] = call(options.tokens)
            call(1)
        times: dict[str, list[float]] = {name: [] for name in names}
        for _ in range(options.rounds):
            for name, call in calls.items():
                times[name].append(seconds(call, options.tokens) - seconds(call, 1))
        for name, values in times.items():
            step = statistics.median(values) / (options.tokens - 1)
            equal = float((results[name] == results[names[0]]).double().mean())
            made.append(
                {
                    "candidate": name, "layers": options.layers, "batch": batch, "prompt": options.prompt,
                    "tokens": options.tokens, "ms_a_step": f"{step * 1e3:.3f}", "tokens_per_s": f"{batch / step:.0f}",
                    "first_call_s": f"{first[name]:.1f}", "tokens_as_transformers": f"{equal:.3f}",
                }
            )  # fmt: skip
            print("  ".join(f"{key} {value}" for key, value in made[-1].items()), flush=True)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    for word, default in (("rounds", 5), ("layers", 16), ("prompt", 512), ("tokens", 128)):
        parser.add_argument(f"--{word}", type=int, default=default)
    parser.add_argument("--batches", default="1,8")
    parser.add_argument("--only", default=None, help="names of candidates, by semicolons")
    options = parser.parse_args()
    Results(options, "transformers_generate", ("candidate", "layers", "batch", "prompt", "tokens")).write(rows(options))


if __name__ == "__main__":
    main()
