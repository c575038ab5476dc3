"""The loop of a server: continuous batching, paged caches, prefix reuse, chunked prefill, a sampler for each request.

    python examples/serve.py                       # preset cpu with random weights on the NumPy backend: a few seconds
    python examples/serve.py --train 300           # the model of train_gpt.py, trained for so many steps first
    python examples/serve.py --preset gpu          # on a CUDA device

Requests arrive while others run. Each step takes a token of every text that is being generated and, with what is left
of its budget, the next piece of a prompt; `baracuda_py.serving` says which, and which pages they go to. Prompts that
begin alike share pages, also of requests that are finished. The same requests are then served one at a time, prompts
whole and nothing reused, and greedy ones generated from a dense cache: in float32 each must get the same text.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from typing import Any

import gpt_host  # noqa: F401  (before NumPy)
from gpt_data import load
from gpt_model import PRESETS, Decoder
from gpt_train import train
from train_gpt import Parser, UsageError, choose_device, describe, main, require

import baracuda_py as bc
from baracuda_py.serving import Batch, PageAllocator, PrefixTree, Request, SamplingParams, Scheduler, Sequence

SHARED = b"import numpy as np\nimport baracuda_py as bc\n\n\n"  # what most prompts begin with
PROMPTS = (
    SHARED + b"def softmax(x):\n", SHARED + b"def rms_norm(x, weight):\n", SHARED + b"class Attention:\n", b"x = ",
    SHARED + b"def softmax(x, axis):\n", SHARED + b"for row in rows:\n    ", b"# a prompt of its own\n", SHARED,
)  # fmt: skip
PARAMS = (
    SamplingParams(temperature=0.0), SamplingParams(temperature=0.8, top_k=40, seed=1),
    SamplingParams(temperature=0.0), SamplingParams(top_p=0.9, repetition=1.2, seed=2), SamplingParams(temperature=0.0),
    SamplingParams(min_p=0.05, frequency=0.2, seed=3),
)  # fmt: skip
ARRIVE = 2  # requests that come a step
PAGE = 16  # tokens


class Server:
    """The model, its paged caches, and who is served in which of their pages."""

    def __init__(self, model: Decoder, pages: int, *, reuse: bool = True, draft: Any = None, **limits: int) -> None:
        self.model, self.caches, self.draft = model, model.cache(pages, PAGE), draft
        allocator = PageAllocator(pages, PAGE)
        self.scheduler = Scheduler(allocator, PrefixTree(allocator) if reuse else None, **limits)
        self.steps = self.computed = self.most = 0  # steps, tokens that they computed, and the most sequences of one

    def step(self) -> bool:
        """The next step; False where there is nothing to do."""
        batch = self.scheduler.schedule(self.draft)
        if batch is None:
            return False
        place = self.model.xp.asarray
        logits = self.logits(batch.placed(place))
        ids = batch.samplers(place)(logits)
        self.scheduler.update(batch, ids, self.logprobs(logits, ids))
        self.steps, self.computed = self.steps + 1, self.computed + len(batch.tokens)
        self.most = max(self.most, len(batch.sequences))
        return True

    def logprobs(self, logits: Any, ids: Any) -> Any:
        """The log-probabilities that sequences keep; None: they keep none."""
        return None

    def logits(self, batch: Batch) -> Any:
        """A forward pass over the batch's tokens: logits [len(batch.sampling), vocab]."""
        bc.copy_pages([cache for pair in self.caches for cache in pair], batch.copies)

        def attend(i: int, q: Any, k: Any, v: Any) -> Any:
            bc.rope(q, batch.positions, x2=k, out=(q, k))
            q, k, v = (one[0].transpose(1, 0, 2) for one in (q, k, v))  # [tokens, heads, head_dim]
            bc.paged_kv_append(k, v, *self.caches[i], slot_mapping=batch.slot_mapping)
            return self.attention(q, self.caches[i], batch)

        return self.model.infer(batch.tokens, (1, batch.tokens.size), attend, rows=batch.rows)

    def attention(self, q: Any, caches: tuple[Any, Any], batch: Batch) -> Any:
        """Of a layer's queries [tokens, heads, head_dim], whose keys and values are in the caches already.

        One op for chunks and single tokens: a token's bits do not depend on what is beside it, nor on what a prefix
        already held.
        """
        return bc.batch_paged_extend(
            q, *caches, batch.qo_indptr, page_table=batch.page_table, lengths=batch.lengths, max_seqlen_q=batch.longest,
            preference=self.model.attention,
        )  # fmt: skip

    def serve(self, requests: list[Request], arrive: int) -> list[Sequence]:
        """The texts of all requests, of which `arrive` come before each step until there are no more."""
        served: list[Sequence] = []
        while True:
            for request in requests[len(served) : len(served) + arrive]:
                served.append(self.scheduler.add(request))
            if not self.step():
                return served


def requests_of(count: int, length: int, seed: int) -> list[Request]:
    """So many requests of `length` bytes each; prompts and parameters in turns."""
    made = []
    for i in range(count):
        params = PARAMS[i % len(PARAMS)]
        params = dataclasses.replace(params, seed=params.seed + seed + i)
        made.append(Request(PROMPTS[i % len(PROMPTS)], length, params))
    return made


def greedy(model: Decoder, request: Request) -> list[int]:
    """What a greedy request gets from the model's own loop over a dense cache."""
    prompt = bytes(request.prompt)
    text, _ = model.generate(prompt, request.max_tokens, temperature=0.0, top_k=0, seed=0)
    return list(text[len(prompt) :])


def timed(server: Server, requests: list[Request], arrive: int) -> tuple[list[Sequence], float]:
    """The texts, and generated tokens a second."""
    start = time.perf_counter()
    served = server.serve(requests, arrive)
    return served, sum(len(one.generated) for one in served) / (time.perf_counter() - start)


def options(argv: list[str] | None) -> argparse.Namespace:
    """The command line, checked."""
    parser = Parser(__doc__, steps="24 bytes a request", trains=False)
    parser.add_argument("--train", type=int, default=0, metavar="STEPS", help="train first (default: random weights)")
    parser.add_argument("--float32", action="store_true", help="serve with the float32 master weights")
    parser.add_argument("--requests", type=int, default=12, help="how many are served (default: 12)")
    parser.add_argument("--budget", type=int, default=32, help="tokens a step has at most (default: 32)")
    parser.add_argument("--pages", type=int, default=64, help="of 16 tokens, of each cache (default: 64)")
    return parser.checked(argv, steps=1, seed=0, train=0, requests=1, budget=1, pages=1)


def run(argv: list[str] | None = None) -> dict[str, Any]:
    """Serve, compare, report; the figures."""
    asked = options(argv)
    device, xp = choose_device(asked.device)
    preset = PRESETS[asked.preset or ("cpu" if device.kind == "cpu" else "gpu")]
    length = asked.steps or 24
    if max(map(len, PROMPTS)) + length > preset.context:
        raise UsageError(f"--steps must be at most {preset.context - max(map(len, PROMPTS))} with this preset")
    model = Decoder(dataclasses.replace(preset, steps=asked.train or preset.steps), xp, asked.seed)
    if asked.train:
        require("tqdm")
        train(model, load(None, preset.context), asked.seed)
    if asked.float32:
        model.copies = None
    model.products = bc.PlanPreference(batch_invariant=True)
    exact = model.copies is None
    print(f"{preset.parameters():,} parameters, {model.weights['head'].dtype}, on {describe(device)}", flush=True)
    requests = requests_of(asked.requests, length, asked.seed)
    Server(model, asked.pages, max_tokens=asked.budget).serve(requests_of(2, 2, 0), 1)  # compiles what the loops need
    together = Server(model, asked.pages, max_tokens=asked.budget)
    alone = Server(model, asked.pages, reuse=False, max_sequences=1, max_tokens=preset.context)
    served, rate = timed(together, requests, ARRIVE)
    one_by_one, slow = timed(alone, requests, len(requests))
    for i in (0, 1):
        print(f"{bytes(requests[i].prompt)[-20:]!r} + {bytes(served[i].generated)!r}")
    print(f"{'':12} {'steps':>6} {'tokens computed':>16} {'most at once':>13} {'tokens/s':>9}")
    for name, server, speed in (("together", together, rate), ("one by one", alone, slow)):
        print(f"{name:12} {server.steps:>6} {server.computed:>16} {server.most:>13} {speed:>9,.0f}")
    differ = [i for i, (a, b) in enumerate(zip(served, one_by_one, strict=True)) if a.generated != b.generated]
    plain = [i for i, request in enumerate(requests) if request.params.temperature == 0]
    wrong = [i for i in plain if served[i].generated != greedy(model, requests[i])]
    print(f"{len(requests) - len(differ)} of {len(requests)} texts are those of the requests served one by one")
    print(f"{len(plain) - len(wrong)} of {len(plain)} greedy texts are those of a dense cache")
    if exact and (differ or wrong):
        raise SystemExit(f"in float32 every text must be the same; not so: {sorted({*differ, *wrong})}")
    return {
        "rate": rate, "slow": slow, "computed": (together.computed, alone.computed), "differ": differ, "wrong": wrong,
        "texts": [bytes(one.generated) for one in served], "steps": together.steps,
    }  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main(run=run))
