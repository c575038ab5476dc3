"""What the two benchmarks of `patch` share: models of transformers with random weights, and candidates that take turns.

Patches replace functions of a modelling file, too, so each candidate runs in processes of its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import torch

VOCABULARY = 128256
Apply = Callable[[Any], Any]


def llama(layers: int, **facts: Any) -> Any:
    """A Llama of Llama 3.2's width (2048, 32 heads of 64 over 8 of keys), bf16, of `layers` layers, on the GPU."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=2048, intermediate_size=8192, num_hidden_layers=layers,
        num_attention_heads=32, num_key_value_heads=8, head_dim=64, max_position_embeddings=8192,
        rope_parameters={"rope_type": "default", "rope_theta": 500000.0}, tie_word_embeddings=False, **facts,
    )  # fmt: skip
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("cuda"):
            return LlamaForCausalLM(config)
    finally:
        torch.set_default_dtype(before)


def liger(model: Any) -> None:
    """Liger-Kernel's patch of an instance."""
    from liger_kernel.transformers import apply_liger_kernel_to_llama

    apply_liger_kernel_to_llama(model=model)


def ours(model: Any) -> None:
    """Ours."""
    from baracuda_py.torch.patch import patch

    print(patch(model))


def nothing(model: Any) -> None:
    """The model as it is."""


def in_turns(
    script: str, names: list[str], options: argparse.Namespace, words: tuple[str, ...]
) -> dict[str, list[Any]]:
    """What `script --alone NAME` prints last, as JSON, for each candidate; a pass over all of them, then another.

    words: options that are handed on. Those that are compiled for a minute run in the first pass alone. A candidate
    that does not run is left out, and said.
    """
    found: dict[str, list[Any]] = {name: [] for name in names}
    for name in (*names, *(name for name in names if "compile" not in name)):
        command = [sys.executable, script, "--alone", name]
        for word in words:
            command += [f"--{word}", str(getattr(options, word))]
        ran = subprocess.run(command, capture_output=True, text=True)
        if ran.returncode:
            print(f"{name} left out: {(ran.stderr.strip().splitlines() or ['?'])[-1]}", file=sys.stderr, flush=True)
            continue
        found[name].append(json.loads(ran.stdout.splitlines()[-1]))
        print(f"{name}: ran", file=sys.stderr, flush=True)
    return {name: runs for name, runs in found.items() if runs}


def _parser(description: str | None, candidates: dict[str, Any], numbers: dict[str, int]) -> argparse.ArgumentParser:
    """The options of both scripts: numbers with their defaults, and which candidates run."""
    from record import add_options

    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(made)
    for word, default in numbers.items():
        made.add_argument(f"--{word}", type=int, default=default)
    made.add_argument("--only", default=";".join(candidates), help="names of candidates, by semicolons")
    made.add_argument("--alone", default=None, help=argparse.SUPPRESS)
    return made


def compare(
    script: str, description: str | None, candidates: dict[str, Any], numbers: dict[str, int],
    measured: Callable[[str, argparse.Namespace], Any], rows: Callable[[dict[str, Any], argparse.Namespace], Any],
    kind: str, key: tuple[str, ...],
) -> tuple[Any, list[dict[str, Any]]] | None:  # fmt: skip
    """The script: run its candidates in turns, print their rows, and keep them as results of a kind.

    measured: what one candidate gives in its own process, where this returns None; rows: of what the runs of all gave.
    """
    from record import Results

    options = _parser(description, candidates, numbers).parse_args()
    if options.alone:
        print(json.dumps(measured(options.alone, options)))
        return None
    names = [name for name in candidates if name in options.only.split(";")]
    found = rows(in_turns(script, names, options, tuple(numbers)), options)
    for row in found:
        print("  ".join(f"{word} {value}" for word, value in row.items()))
    results = Results(options, kind, key)
    results.write(found)
    return results, found
