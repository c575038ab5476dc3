"""Continue a batch of prompts, each row with a sampler of its own, and show how likely every byte was.

    python examples/generate.py                       # random weights on the NumPy backend: a few seconds
    python examples/generate.py --train 250           # the model of train_gpt.py, trained for so many steps first
    python examples/generate.py --preset gpu --torch  # on a CUDA device, logits and what is drawn as torch tensors

Temperature, top-k, top-p, min-p, repetition penalty and seed are arrays with a number for each row, so that requests
which want different things share one call of `adjust_logits` and one of `sample`. One row is greedy; two may draw some
bytes only, by a bit mask as structured output has them. Beside each byte stand its logprob and the most likely bytes
with theirs, under the distribution that it was drawn from. A row's text does not depend on what stands beside it.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gpt_host  # noqa: F401  (before NumPy)
import numpy as np
from gpt_data import load
from gpt_model import PRESETS, Decoder
from gpt_train import train
from train_gpt import Parser, choose_device, describe, main, require

import baracuda_py as bc

VOCAB = 256


@dataclass(frozen=True)
class Request:
    """What one row wants; the defaults cut nothing off."""

    prompt: bytes
    temperature: float = 1.0  # 0: the most likely byte
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition: float = 1.0  # above 1, bytes that were there become less likely
    allowed: bytes = bytes(range(VOCAB))
    seed: int = 0


REQUESTS = (
    Request(b"def ", temperature=0.0),
    Request(b"class ", temperature=0.8, top_k=40, seed=1),
    Request(b"import ", temperature=1.1, top_p=0.9, repetition=1.2, seed=2),
    Request(b"return ", min_p=0.05, seed=3),
    Request(b"x = ", top_k=5, allowed=b"0123456789.+-* \n", seed=4),
    Request(b"# ", temperature=1.5, top_p=0.95, repetition=1.3, allowed=bytes(range(32, 127)), seed=5),
)


@dataclass(frozen=True)
class Drawn:
    """What was drawn for a row: bytes, their logprobs [n], and the likely bytes [n, top_n] (-1: none) with theirs."""

    text: bytes
    logprobs: np.ndarray
    top_ids: np.ndarray
    top_logprobs: np.ndarray


def bits(allowed: bytes) -> np.ndarray:
    """The bit mask, int32 [VOCAB / 32]: bit v % 32 of word v // 32 says whether byte v may be drawn."""
    flags = np.zeros(VOCAB, bool)
    flags[list(allowed)] = True
    return np.packbits(flags, bitorder="little").view(np.int32)


class Sampler:
    """The requests as arrays of rows; `place` puts a NumPy array where the logits are, in their package."""

    def __init__(self, requests: tuple[Request, ...], top_n: int, place: Callable[[np.ndarray], Any]) -> None:
        def rows(name: str, dtype: Any) -> Any:
            return place(np.array([getattr(one, name) for one in requests], dtype))

        self.cuts = {name: rows(name, np.float32) for name in ("temperature", "top_p", "min_p")}
        self.cuts |= {name: rows(name, np.int64) for name in ("top_k", "seed")}
        self.repetition, self.top_n = rows("repetition", np.float32), top_n
        self.allowed = place(np.stack([bits(one.allowed) for one in requests]))

    def __call__(self, logits: Any, history: Any, offset: int) -> tuple[Any, Any, Any, Any]:
        """Ids [B], their logprobs [B], and the ids and logprobs [B, top_n] of the most likely.

        logits [B, VOCAB]; history int64 [B, L], the bytes so far, -1 where there is none; another offset each step.
        """
        allowed = bc.adjust_logits(logits, history, mask=self.allowed, repetition=self.repetition)
        ids, logprob, top_ids, top_logprobs = bc.sample(
            allowed, **self.cuts, offset=offset, top_n=self.top_n, return_logprob=True
        )
        return ids, logprob, top_ids, top_logprobs


def generate(
    model: Decoder, requests: tuple[Request, ...], count: int, top_n: int = 3, hand: Callable[[Any], Any] | None = None
) -> list[Drawn]:
    """`count` bytes behind each prompt. hand: the arrays of the model's package in that of the sampler, by default it.

    Prompts of any lengths stand in one batch: a step takes one byte of every row, given or drawn.
    """
    xp, hand = model.xp, hand or (lambda array: array)
    sampler = Sampler(requests, top_n, lambda array: hand(xp.asarray(array)))
    lengths = [len(one.prompt) for one in requests]
    batch, total = len(requests), max(lengths) + count
    start = np.full((batch, total), -1)
    for row, one in zip(start, requests, strict=True):
        row[: len(one.prompt)] = list(one.prompt)
    text, given = xp.asarray(start), xp.asarray(start >= 0)
    cache, positions = model.cache(batch, total), xp.zeros(batch, np.int64)
    steps = []
    for at in range(total - 1):
        logits = model.decode(text[:, at].copy(), positions, cache)
        made = [xp.asarray(one) for one in sampler(hand(logits), hand(text), at)]
        text[:, at + 1] = xp.where(given[:, at + 1], text[:, at + 1], made[0])
        positions = bc.add(positions, model.one)
        steps.append(made[1:])
    logprobs, top_ids, top_logprobs = (host(xp.stack(each, axis=1)) for each in zip(*steps, strict=True))
    drawn = []
    for row, (length, whole) in enumerate(zip(lengths, host(text), strict=True)):
        places = slice(length - 1, length - 1 + count)  # a step draws the byte behind its own
        tail = bytes(whole[length : length + count].tolist())
        drawn.append(Drawn(tail, logprobs[row, places], top_ids[row, places], top_logprobs[row, places]))
    return drawn


def host(array: Any) -> np.ndarray:
    """An array in NumPy."""
    return array.get() if hasattr(array, "get") else array  # type: ignore[no-any-return]


def shown(byte: int) -> str:
    """A byte as Python writes it."""
    return repr(bytes([byte]))[1:]


def report(request: Request, drawn: Drawn) -> None:
    """A request, its text, and a line for each byte of it."""
    plain = Request(b"")
    wants = [
        f"{field.name} {getattr(request, field.name)}" for field in dataclasses.fields(Request)
        if field.name not in ("prompt", "allowed") and getattr(request, field.name) != getattr(plain, field.name)
    ]  # fmt: skip
    if request.allowed != plain.allowed:
        wants.append(f"{len(set(request.allowed))} bytes allowed")
    print(f"\n{request.prompt!r} + {drawn.text!r}   {', '.join(wants)}")
    for byte, logprob, ids, likely in zip(drawn.text, drawn.logprobs, drawn.top_ids, drawn.top_logprobs, strict=True):
        others = "  ".join(f"{shown(i):>6} {p:7.3f}" for i, p in zip(ids.tolist(), likely, strict=True) if i >= 0)
        print(f"  {shown(byte):>6} {logprob:7.3f}   most likely {others}")


def options(argv: list[str] | None) -> argparse.Namespace:
    """The command line, checked."""
    parser = Parser(__doc__, steps="8", trains=False)
    parser.add_argument("--train", type=int, default=0, metavar="STEPS", help="train first (default: random weights)")
    parser.add_argument("--top-n", type=int, default=3, help="likely bytes shown beside each drawn one (default: 3)")
    parser.add_argument("--torch", action="store_true", help="sample from torch tensors, of the same memory")
    return parser.checked(argv, steps=1, seed=0, train=0, top_n=1)


def run(argv: list[str] | None = None) -> list[Drawn]:
    """Generate and report; what was drawn."""
    asked = options(argv)
    hand = None
    if asked.torch:
        require("torch")
        import torch

        hand = torch.from_dlpack
    device, xp = choose_device(asked.device)
    preset = PRESETS[asked.preset or ("cpu" if device.kind == "cpu" else "gpu")]
    model = Decoder(dataclasses.replace(preset, steps=asked.train or preset.steps), xp, asked.seed)
    print(f"{preset.parameters():,} parameters, {asked.steps or 8} bytes a prompt, on {describe(device)}", flush=True)
    if asked.train:
        require("tqdm")
        train(model, load(None, preset.context), asked.seed)
    requests = tuple(dataclasses.replace(one, seed=one.seed + asked.seed) for one in REQUESTS)
    drawn = generate(model, requests, asked.steps or 8, min(asked.top_n, VOCAB), hand)
    for request, row in zip(requests, drawn, strict=True):
        report(request, row)
    return drawn


if __name__ == "__main__":
    raise SystemExit(main(run=run))
