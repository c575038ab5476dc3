"""One answer: the log-probabilities of a server and of a trainer, bit for bit the same.

    python examples/one_answer.py                                # on the NumPy backend: half a minute
    python examples/one_answer.py --preset gpu --tokens 1000000    # on a CUDA device

Requests with samplers of their own run through the loop of serve.py: pages, prefixes that are reused, prompts in
chunks, drafts by lookup. Then the trainer's forward pass of train_gpt.py says the log-probability of each generated
token again. In the mode of one answer both make calls whose bits follow from a token and its place alone, and no number
may differ: the run fails where one does. Beside it stand the same loop with the fastest ops, and a loop in torch with a
dense KV cache and SDPA, where torch is installed.

On the NumPy backend that is promised, too: there each row of a product and each query is a call of its own to BLAS. Of
the fastest ops it computes in float64 and rounds once, which hides most of what BLAS changes with the shape.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import time

import gpt_host  # noqa: F401  (before NumPy)
import numpy as np
from gpt_data import load
from gpt_model import PRESETS, Decoder
from gpt_rollout import Rollouts, of_the_trainer
from gpt_train import train
from serve import ARRIVE, PAGE, PROMPTS, requests_of
from train_gpt import Parser, UsageError, choose_device, describe, main, require

from baracuda_py.serving import Request, Sequence

DEFAULTS = {"cpu": {"steps": 48, "tokens": 2000, "batch": 16}, "gpu": {"steps": 512, "tokens": 100_000, "batch": 256}}
AT_ONCE = 16  # texts that the trainer takes at a time


@dataclasses.dataclass
class Row:
    """What a loop did: its log-probabilities, those that the trainer has others of, and tokens a second."""

    name: str
    rate: float
    steps: int | None
    total: int
    differ: int
    largest: float

    def __str__(self) -> str:
        steps = "" if self.steps is None else f"{self.steps:,}"
        return f"{self.name:22} {self.rate:>9,.0f} {steps:>7} {self.total:>10,} {self.differ:>10,} {self.largest:>9.1e}"


def asked_for(count: int, length: int, seed: int) -> list[Request]:
    """Requests for `count` tokens, of `length` each but the last."""
    requests = requests_of(-(-count // length), length, seed)
    rest = count - length * (len(requests) - 1)
    return [*requests[:-1], dataclasses.replace(requests[-1], max_tokens=rest)]


def served(name: str, model: Decoder, requests: list[Request], batch: int, drafts: int) -> tuple[Row, list[Sequence]]:
    """The loop, then the trainer over what it made."""
    longest = max(map(len, PROMPTS)) + max(one.max_tokens for one in requests)
    pages = batch * -(-longest // PAGE) + len(PROMPTS) * -(-max(map(len, PROMPTS)) // PAGE)
    limits = {"max_sequences": batch, "max_tokens": batch * (1 + drafts) + 64}
    warm = [dataclasses.replace(one, max_tokens=min(3, one.max_tokens)) for one in requests[:3]]
    Rollouts(model, pages, drafts=drafts, **limits).serve(warm, 1)  # compiles what the loop needs
    server = Rollouts(model, pages, drafts=drafts, **limits)
    start = time.perf_counter()
    made = server.serve(requests, max(ARRIVE, batch // 4))
    seconds = time.perf_counter() - start
    rollout = np.array([one for sequence in made for one in sequence.logprobs], np.float32)
    again = np.concatenate(list(of_the_trainer(model, made, AT_ONCE)))
    differ = int((rollout.view(np.int32) != again.view(np.int32)).sum())
    largest = float(np.abs(rollout - again).max())
    return Row(name, len(rollout) / seconds, server.steps, len(rollout), differ, largest), made


def torchs(model: Decoder, requests: list[Request], batch: int, seed: int) -> Row | None:
    """The loop in torch; None where none is installed that has the device."""
    if importlib.util.find_spec("torch") is None:
        return None
    import torch
    from gpt_torch import TorchDecoder, compared, rollouts

    if model.xp is not np and not torch.cuda.is_available():
        return None

    peer, wanted = TorchDecoder(model), [(tuple(one.prompt), one.max_tokens) for one in requests]
    rollouts(peer, wanted[:1], batch, seed)
    start = time.perf_counter()
    made = rollouts(peer, wanted, batch, seed)
    seconds = time.perf_counter() - start
    total, differ, largest = compared(peer, made)
    return Row("torch, cache and SDPA", total / seconds, None, total, differ, largest)


def options(argv: list[str] | None) -> argparse.Namespace:
    """The command line, checked."""
    parser = Parser(__doc__, steps="48 tokens a request, of preset gpu 512", trains=False)
    parser.add_argument("--tokens", type=int, help="to generate in each loop (default: 2000, of preset gpu 100000)")
    parser.add_argument("--batch", type=int, help="texts at once, at most (default: 16, of preset gpu 256)")
    parser.add_argument("--drafts", type=int, default=4, help="tokens drafted behind a text, at most (default: 4)")
    parser.add_argument("--train", type=int, default=0, metavar="STEPS", help="train first (default: random weights)")
    parser.add_argument("--float32", action="store_true", help="with the float32 master weights")
    asked = parser.checked(argv, steps=1, seed=0, tokens=1, batch=1, drafts=0, train=0)
    asked.device, asked.xp = choose_device(asked.device)
    asked.preset = asked.preset or ("cpu" if asked.device.kind == "cpu" else "gpu")
    for name, value in DEFAULTS[asked.preset].items():
        setattr(asked, name, getattr(asked, name) or value)
    most = PRESETS[asked.preset].context - max(map(len, PROMPTS))
    if asked.steps > most:
        raise UsageError(f"--steps must be at most {most} with this preset")
    return asked


def run(argv: list[str] | None = None) -> list[Row]:
    """Serve, compare, report; the rows of the table."""
    asked = options(argv)
    preset = PRESETS[asked.preset]
    model = Decoder(dataclasses.replace(preset, steps=asked.train or preset.steps), asked.xp, asked.seed)
    if asked.train:
        require("tqdm")
        train(model, load(None, preset.context), asked.seed)
    if asked.float32:
        model.copies = None
    requests = asked_for(asked.tokens, asked.steps, asked.seed)
    print(f"{preset.parameters():,} parameters, {model.weights['head'].dtype}, on {describe(asked.device)}")
    print(f"{'':22} {'tokens/s':>9} {'steps':>7} {'logprobs':>10} {'differ':>10} {'by':>9}", flush=True)
    same, rows, texts = model.with_same_bits(), [], []
    loops = (("fastest", model, 0), ("one answer", same, 0), ("one answer, drafts", same, asked.drafts))
    for name, one, drafts in loops:
        row, made = served(name, one, requests, asked.batch, drafts)
        rows.append(row)
        texts.append([(sequence.generated, sequence.logprobs) for sequence in made])
        print(row, flush=True)
    peer = torchs(model, requests, asked.batch, asked.seed)
    if peer is None:
        print("no torch for this device: its loop is left out")
    else:
        rows.append(peer)
        print(peer)
    if any(row.differ for row in rows[1:3]) or texts[1] != texts[2]:
        raise SystemExit("a log-probability or a text changed where the same bits were asked for")
    print(f"server and trainer agree in every bit of {rows[1].total:,} log-probabilities, with drafts and without")
    return rows


if __name__ == "__main__":
    raise SystemExit(main(run=run))
