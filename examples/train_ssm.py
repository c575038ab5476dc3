"""Train a hybrid of gated delta rules and attention on bytes, decode it with states, and compare every bit.

    python examples/train_ssm.py                 # preset cpu on the NumPy backend: half a minute
    python examples/train_ssm.py --preset gpu    # on a CUDA device, bfloat16

Blocks take turns: a short causal convolution and the gated delta rule (Gated DeltaNet, arXiv:2412.06464), or causal
attention with rotary positions; each is followed by a gated unit. `bc` computes on torch's tensors, and torch's
autograd goes back through it. The text is that of train_gpt.py.

Training makes the fastest calls: on a GPU the delta rule in chunks. A decoder keeps the convolution's last inputs and
a state a head, or pages of keys and values, and takes a byte at a time. Where the trainer's pass makes calls whose bits
follow from a token and its place alone, its log-probabilities are the decoder's, bit for bit, and the run fails where
one is not. These calls are `gated_delta_rule(stepwise=True)`, and products and attention with
`PlanPreference(same_bits=True)`; convolutions, norms, rotations and units have the promise anyway. The NumPy backend
computes recurrences in float64 and rounds where a call ends, so its preset is float64: there nothing is rounded.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import time
from pathlib import Path
from typing import Any

import gpt_host  # noqa: F401  (before NumPy)
import numpy as np
import torch
from gpt_data import Corpus, load
from train_gpt import Parser, choose_device, describe, main, require

import baracuda_py as bc

WIDTH = 4  # of the convolutions
PAGE = 16  # keys of a page
SAME = bc.PlanPreference(same_bits=True)
decays = bc.elementwise("-exp(rate) * softplus(a + bias)")
sigmoid = bc.elementwise("sigmoid(x)")


def wide(x: Any) -> Any:
    """x in the element of decays, losses and probabilities: float32, or float64 where that is x's."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


@dataclasses.dataclass(frozen=True)
class Preset:
    """Sizes of a run; the letters of `blocks` are d, a delta rule, and a, attention."""

    blocks: str
    d: int
    heads: int
    ffn: int
    context: int
    batch: int
    steps: int
    dtype: Any
    lr: float


PRESETS = {
    "cpu": Preset("da", d=64, heads=2, ffn=160, context=48, batch=8, steps=60, dtype=torch.float64, lr=4e-3),
    "gpu": Preset(
        "ddad" * 3, d=1024, heads=8, ffn=2816, context=1024, batch=32, steps=400, dtype=torch.bfloat16, lr=6e-4
    ),
}


class Hybrid:
    """Weights, and what the trainer and the decoder make of them."""

    def __init__(self, preset: Preset, device: str, seed: int) -> None:
        self.preset, self.device = preset, device
        rng = np.random.default_rng(seed)

        def drawn(*shape: int, scale: float = 1.0) -> Any:
            values = rng.standard_normal(shape) * scale / math.sqrt(shape[-1])
            return torch.tensor(values, dtype=torch.float32, device=device).requires_grad_()

        def ones(count: int, value: float = 1.0) -> Any:
            return torch.full((count,), value, device=device).requires_grad_()

        d, heads, ffn, depth = preset.d, preset.heads, preset.ffn, (2 * len(preset.blocks)) ** -0.5
        self.weights = {"embedding": drawn(256, d, scale=math.sqrt(d)), "norm": ones(d), "head": drawn(256, d)}
        for n, kind in enumerate(preset.blocks):
            made = {
                "norm": ones(d), "qkv": drawn(3 * d, d), "out": drawn(d, d, scale=depth), "unit_norm": ones(d),
                "gate": drawn(ffn, d), "up": drawn(ffn, d), "down": drawn(d, ffn, scale=depth),
            }  # fmt: skip
            if kind == "d":
                made |= {
                    "conv": drawn(3 * d, WIDTH), "ab": drawn(2 * heads, d), "z": drawn(d, d),
                    "rate": ones(heads, 0.0), "bias": ones(heads, -2.0), "out_norm": ones(d // heads),
                }  # fmt: skip
            self.weights |= {f"{n}.{name}": one for name, one in made.items()}

    def _of(self, prefix: str) -> dict[str, Any]:
        """The weights under a prefix in the element of the computation, those of decays in a wide one."""
        found = {name.removeprefix(prefix): one for name, one in self.weights.items() if name.startswith(prefix)}
        made = {n: one.to(self.preset.dtype) for n, one in found.items()}
        return made | {n: found[n].to(wide(made[n]).dtype) for n in ("rate", "bias") if n in found}

    def logits(self, tokens: Any, mixed: Any, same: bool) -> Any:
        """Logits [batch, steps, 256]; mixed(n, kind, weights, x): what block n takes from other steps."""
        w, options = self._of(""), {"preference": SAME} if same else {}
        x = bc.embedding(tokens, w["embedding"])
        for n, kind in enumerate(self.preset.blocks):
            own = self._of(f"{n}.")
            x = bc.add(x, bc.linear(mixed(n, kind, own, bc.rms_norm(x, own["norm"])), own["out"], **options))
            h = bc.rms_norm(x, own["unit_norm"])
            gate, up = (bc.linear(h, own[name], **options) for name in ("gate", "up"))
            x = bc.add(x, bc.linear(bc.swiglu(gate, up), own["down"], **options))
        return bc.linear(bc.rms_norm(x, w["norm"]), w["head"], **options)

    def delta(self, w: dict[str, Any], x: Any, convolved: Any, ruled: Any, **options: Any) -> Any:
        """Behind its convolution and recurrence, x [batch, steps, d] to the same shape."""
        heads = self.preset.heads
        qkv = convolved(bc.linear(x, w["qkv"], **options)).contiguous()
        q, k, v = (one.unflatten(-1, (heads, -1)) for one in qkv.chunk(3, -1))
        a, b = wide(bc.linear(x, w["ab"], **options)).chunk(2, -1)
        g, beta = decays(rate=w["rate"], a=a, bias=w["bias"]), sigmoid(x=b)
        z = bc.linear(x, w["z"], **options).unflatten(-1, (heads, -1))
        return bc.gated_rms_norm(ruled(q, k, v, g, beta), z, w["out_norm"]).flatten(-2)

    def turned(self, w: dict[str, Any], x: Any, at: Any, **options: Any) -> Any:
        """q, k, v [batch, steps, heads, d], q and k at their positions [batch, steps]."""
        q, k, v = bc.linear(x, w["qkv"], **options).unflatten(-1, (3, self.preset.heads, -1)).unbind(2)
        q, k = bc.rope(q.contiguous(), at, x2=k.contiguous(), layout="bshd")
        return q, k, v.contiguous()


def forward(model: Hybrid, tokens: Any, same: bool = False) -> Any:
    """The trainer's pass: logits [batch, steps, 256] of tokens [batch, steps]; same: in the bits of the decoder."""
    options = {"preference": SAME} if same else {}
    at = torch.arange(tokens.shape[1], dtype=torch.int32, device=tokens.device).expand(len(tokens), -1).contiguous()

    def mixed(n: int, kind: str, w: dict[str, Any], x: Any) -> Any:
        if kind == "a":
            y = bc.flash_sdpa(*model.turned(w, x, at, **options), is_causal=True, layout="bshd", **options)
            return y.flatten(-2)
        return model.delta(
            w, x, lambda y: bc.causal_conv1d(y, w["conv"], activation="silu", layout="bld"),
            lambda *given: bc.gated_delta_rule(*given, use_qk_l2norm=True, stepwise=same), **options,
        )  # fmt: skip

    return model.logits(tokens, mixed, same)


class Generation:
    """States of a batch of texts, which a byte of each moves on."""

    def __init__(self, model: Hybrid, batch: int) -> None:
        self.model, self.at, preset = model, 0, model.preset
        d, pages = preset.d // preset.heads, -(-preset.context // PAGE)
        place: dict[str, Any] = {"device": model.device}
        self.states: list[tuple[Any, Any]] = []
        for kind in preset.blocks:
            shapes = [(batch, 3 * preset.d, WIDTH - 1), (batch, preset.heads, d, d)]
            elements = [preset.dtype, torch.promote_types(preset.dtype, torch.float32)]
            if kind == "a":
                shapes, elements = [(batch * pages, preset.heads, PAGE, d)] * 2, [preset.dtype] * 2
            first, second = (torch.zeros(s, dtype=e, **place) for s, e in zip(shapes, elements, strict=True))
            self.states.append((first, second))
        self.table = torch.arange(batch * pages, dtype=torch.int32, **place).reshape(batch, pages)
        self.bounds = torch.arange(batch + 1, dtype=torch.int32, **place)

    def step(self, tokens: Any) -> Any:
        """Logits [batch, 256] behind one more byte of each, [batch]."""
        with torch.no_grad():
            logits = self.model.logits(tokens[:, None], self._mixed, True)[:, 0]
        self.at += 1
        return logits

    def _mixed(self, n: int, kind: str, w: dict[str, Any], x: Any) -> Any:
        first, second = self.states[n]
        return self._attention(w, x, first, second) if kind == "a" else self._delta(w, x, first, second)

    def _attention(self, w: dict[str, Any], x: Any, keys: Any, values: Any) -> Any:
        at = torch.full((len(x), 1), self.at, dtype=torch.int32, device=x.device)
        q, k, v = self.model.turned(w, x, at, preference=SAME)
        rows = self.table[:, self.at // PAGE].long()
        keys[rows, :, self.at % PAGE], values[rows, :, self.at % PAGE] = k[:, 0], v[:, 0]
        y = bc.batch_paged_extend(
            q[:, 0], keys, values, self.bounds, page_table=self.table, lengths=at[:, 0] + 1, preference=SAME
        )
        return y.flatten(-2)[:, None]

    def _delta(self, w: dict[str, Any], x: Any, inputs: Any, state: Any) -> Any:
        return self.model.delta(
            w, x, lambda y: bc.causal_conv1d_update(y[:, 0], inputs, w["conv"], activation="silu")[:, None],
            lambda q, k, v, g, beta: bc.linear_attention_decode(
                q, k, v, state, g=g, beta=beta, kind="scalar_delta", use_qk_l2norm=True
            ),
            preference=SAME,
        )  # fmt: skip


def train(model: Hybrid, corpus: Corpus, seed: int) -> tuple[list[float], float]:
    """Losses, and tokens a second."""
    from tqdm import tqdm

    preset, rng = model.preset, np.random.default_rng(seed)
    optimizer = torch.optim.AdamW(model.weights.values(), lr=preset.lr, betas=(0.9, 0.95))
    losses, start = [], time.perf_counter()
    for step in tqdm(range(preset.steps), desc="training", mininterval=1.0):
        for group in optimizer.param_groups:
            group["lr"] = preset.lr * min(1.0, (step + 1) / 20) * (1 - 0.9 * step / preset.steps)
        x, y = (torch.tensor(one, device=model.device) for one in corpus.batch(rng, preset.batch, preset.context))
        optimizer.zero_grad()
        loss = bc.cross_entropy(wide(forward(model, x).flatten(0, 1)), y.flatten().long())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.weights.values(), 1.0)
        optimizer.step()
        losses.append(loss.detach())
    found = [float(one) for one in losses]
    return found, preset.steps * preset.batch * preset.context / (time.perf_counter() - start)


def held_out(model: Hybrid, corpus: Corpus, batches: int = 2) -> float:
    """The loss on held-out text, in nats a byte."""
    preset, found = model.preset, []
    for x, y in corpus.evaluation(preset.batch, preset.context, batches):
        tokens, targets = (torch.tensor(one, device=model.device).long() for one in (x, y))
        with torch.no_grad():
            found.append(float(bc.cross_entropy(wide(forward(model, tokens).flatten(0, 1)), targets.flatten())))
    return float(np.mean(found))


def generate(model: Hybrid, prompt: bytes, count: int, batch: int, seed: int) -> tuple[Any, Any]:
    """Texts [batch, prompt + count] drawn behind a prompt, and the log-probability of each byte that was drawn."""
    states, logits, drawn = Generation(model, batch), None, []
    texts = torch.tensor(list(prompt), device=model.device).expand(batch, -1)
    for at in range(len(prompt) + count):
        if at >= len(prompt):
            logprobs = bc.log_softmax(wide(logits), axis=-1)
            token = bc.sample(logits.float(), temperature=0.8, seed=seed + at)[:, None].long()
            texts = torch.cat([texts, token], 1)
            drawn.append(logprobs.gather(1, token))
        if at < len(prompt) + count - 1:
            logits = states.step(texts[:, at])
    return texts, torch.cat(drawn, 1)


def differing(model: Hybrid, texts: Any, drawn: Any, same: bool) -> tuple[int, float]:
    """How many log-probabilities the trainer's pass has otherwise, and by how much."""
    with torch.no_grad():
        logprobs = bc.log_softmax(wide(forward(model, texts[:, :-1], same)), axis=-1)
    again = logprobs.gather(2, texts[:, 1:, None])[:, -drawn.shape[1] :, 0]
    return int((again != drawn).sum()), float((again - drawn).abs().max())


def plot(losses: list[float], loss: float, path: Path) -> None:
    """The loss curve as a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    axes.plot(range(1, len(losses) + 1), losses, linewidth=1, label="training")
    axes.axhline(loss, color="tab:orange", linestyle="--", label=f"held out {loss:.3f}")
    axes.set(xlabel="step", ylabel="nats per byte", title=path.stem)
    axes.legend()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def options(argv: list[str] | None) -> argparse.Namespace:
    """The command line, checked."""
    parser = Parser(__doc__, steps="the preset's")
    parser.add_argument("--out", metavar="FOLDER", default="out", help="where the loss curve goes (default: out)")
    parser.add_argument("--texts", type=int, default=4, help="to decode at once (default: 4)")
    return parser.checked(argv, steps=1, seed=0, texts=1)


def run(argv: list[str] | None = None) -> dict[str, Any]:
    """Train, decode, compare, report; returns the figures."""
    asked = options(argv)
    require("tqdm", "matplotlib")
    device, _ = choose_device(asked.device)
    preset = PRESETS[asked.preset or ("cpu" if device.kind == "cpu" else "gpu")]
    preset = dataclasses.replace(preset, steps=asked.steps or preset.steps)
    corpus, prompt = load(asked.text, preset.context), b"def "
    Path(asked.out).mkdir(parents=True, exist_ok=True)
    model = Hybrid(preset, "cpu" if device.kind == "cpu" else f"cuda:{device.ordinal}", asked.seed)
    count = sum(one.numel() for one in model.weights.values())
    print(f"{count:,} parameters, blocks {preset.blocks}, {preset.dtype}, on {describe(device)}", flush=True)
    losses, rate = train(model, corpus, asked.seed)
    loss, curve = held_out(model, corpus), Path(asked.out) / "train_ssm.png"
    plot(losses, loss, curve)
    print(f"held-out loss {loss:.4f} nats/byte, {rate:,.0f} tokens/s, loss curve in {curve}")
    texts, drawn = generate(model, prompt, preset.context - len(prompt), asked.texts, asked.seed)
    print(f"--- a text ---\n{bytes(texts[0].tolist()).decode('utf-8', 'replace')}\n--------------")
    found = {}
    for name, same in (("the fastest ops", False), ("the same bits", True)):
        found[name] = differing(model, texts, drawn, same)
        print(f"trainer with {name:16} {found[name][0]:>7,} of {drawn.numel():,} log-probabilities differ, "
              f"by {found[name][1]:.1e}")  # fmt: skip
    if found["the same bits"][0]:
        raise SystemExit("decoder and trainer differ where the same bits were asked for")
    return {"losses": losses, "held_out": loss, "tokens_per_second": rate, "differ": found}


if __name__ == "__main__":
    raise SystemExit(main(run=run))
