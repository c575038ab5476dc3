"""A trained byte model with its layers in int8, fp8, int4 and NF4: held-out loss, bytes and tokens a second.

    python examples/quantize_gpt.py                   # preset cpu on the NumPy backend: under 4 minutes on 2 cores
    python examples/quantize_gpt.py --preset gpu      # on a CUDA device: above a minute the first time

Trains the model of train_gpt.py, then stores the matrices of its layers in one format after the other: int8 with inputs
quantised on the way (W8A8) and not (W8A16), fp8, int4 rounded to nearest and by GPTQ, and NF4. The 4-bit formats have a
float16 scale for every --group numbers. GPTQ sees windows of the training text (--calibration). Ends with a table and
a plot. The forward rate is that of a training batch, the decoding rate that of one sequence at the end of its context.

Preset gpu trains for 1740 steps first, as train_gpt.py does. What takes time then is the kernels that each format
compiles, which the cache keeps for the next run, GPTQ on the host, and rates measured over spells; `--steps 200` is a
quick look.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import gpt_host  # noqa: F401  (before NumPy)
import numpy as np
from gpt_data import Corpus
from gpt_model import Decoder
from gpt_quantized import SCHEMES, Stored, calibrated, layer_names
from gpt_train import held_out_loss, train
from train_gpt import Parser, UsageError, describe, main, prepare

import baracuda_py as bc

SPELL = 0.3  # seconds that a rate is measured over, at least


@dataclass(frozen=True)
class Row:
    """What the table says of a scheme. bits: of a number of the layers' matrices, with its share of the scales."""

    name: str
    nbytes: int
    bits: float
    loss: float
    forward: float
    decode: float


def options(argv: list[str] | None) -> argparse.Namespace:
    """The command line, checked."""
    parser = Parser(__doc__, steps="the preset's")
    parser.add_argument("--out", metavar="FOLDER", default="out", help="where the plot goes (default: out)")
    parser.add_argument("--group", type=int, default=32, help="numbers that share a scale in 4 bits (default: 32)")
    parser.add_argument(
        "--calibration", type=int, metavar="WINDOWS", help="windows of text for GPTQ (default: a training batch)"
    )
    return parser.checked(argv, steps=1, group=8, calibration=1, seed=0)


def rate(model: Decoder, call: Callable[[], Any], tokens: int) -> float:
    """Tokens per second of a call that has run before: the best of three spells."""

    def spell(count: int) -> float:
        settle(model)
        began = time.perf_counter()
        for _ in range(count):
            call()
        settle(model)
        return time.perf_counter() - began

    count, spent = 1, spell(1)
    while spent < SPELL:
        count *= 4
        spent = spell(count)
    return tokens * count / min(spent, spell(count), spell(count))


def settle(model: Decoder) -> None:
    """Wait until the device has done what was queued."""
    if model.xp is not np:
        model.xp.cuda.get_current_stream().synchronize()


def forward_rate(model: Decoder) -> float:
    """Tokens per second of the forward pass over a training batch."""
    p = model.preset
    tokens = model.xp.zeros((p.batch, p.context), np.int32)
    return rate(model, bc.graph(lambda given: model.forward(given)[0], tokens), tokens.size)


def decode_rate(model: Decoder) -> float:
    """Tokens per second of decoding one sequence, at the last position of its context."""
    xp, length = model.xp, model.preset.context
    token, position = xp.zeros(1, np.int64), xp.full(1, length - 1, np.int64)
    cache = model.cache(1, length)
    return rate(model, bc.graph(lambda t, p: model.decode(t, p, cache), token, position), 1)


def assess(name: str, model: Decoder, stored: dict[str, Stored], corpus: Corpus) -> Row:
    """The row of a scheme whose matrices are `stored`, or of the model as it was trained."""
    names, seen = layer_names(model), model.with_stored(stored)
    layers = sum((stored or model.weights)[n].nbytes for n in names)
    others = sum(w.nbytes for n, w in model.weights.items() if n not in names)
    norms = sum(w.nbytes for w in model.norms.values())
    bits = 8 * layers / sum(model.matrices[n].size for n in names)
    loss = held_out_loss(seen, corpus)
    return Row(name, layers + others + norms, bits, loss, forward_rate(seen), decode_rate(seen))


def compare(model: Decoder, corpus: Corpus, asked: argparse.Namespace) -> tuple[list[Row], dict[str, Any]]:
    """A row for the model as it was trained and one for each scheme, and the errors of GPTQ's layers."""
    from tqdm import tqdm

    p, errors = model.preset, dict[str, tuple[float, float]]()
    rng = np.random.default_rng((asked.seed, 1))
    windows, _ = corpus.batch(rng, asked.calibration or p.batch, p.context)
    rows: list[Row] = []
    parts = 1 + len(SCHEMES) + len(layer_names(model))
    with tqdm(total=parts, unit="part", desc="quantising", mininterval=0.5) as bar:
        bar.set_postfix_str(p.compute)
        rows.append(assess(p.compute, model, {}, corpus))
        bar.update()
        for scheme in SCHEMES:
            bar.set_postfix_str(scheme.name)
            if scheme.calibrated:
                stored, errors = calibrated(model, model.xp.asarray(windows), asked.group, bar.update)
            else:
                stored = scheme.layers(model, asked.group)
            rows.append(assess(scheme.name, model, stored, corpus))
            bar.update()
    return rows, errors


def table(rows: list[Row]) -> str:
    """The rows as text; losses beside that of the first."""
    lines = [f"{'layers':<13} {'MB':>8} {'bits':>6} {'held out':>9} {'change':>8} {'forward/s':>12} {'decoded/s':>10}"]
    for row in rows:
        change = row.loss / rows[0].loss - 1
        lines.append(
            f"{row.name:<13} {row.nbytes / 1e6:>8.2f} {row.bits:>6.2f} {row.loss:>9.4f} {change:>+8.2%} "
            f"{row.forward:>12,.0f} {row.decode:>10,.0f}"
        )
    return "\n".join(lines)


def plot(rows: list[Row], path: Path) -> None:
    """Loss over size, and both rates, as a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 3, figsize=(13, 4), layout="constrained")
    names, places = [row.name for row in rows], range(len(rows))
    for at, row in enumerate(rows):
        panels[0].scatter(row.nbytes / 1e6, row.loss, color=f"C{at}", label=row.name)
    panels[0].axhline(rows[0].loss, color="grey", linewidth=0.8, linestyle="--")
    panels[0].set(xlabel="MB of weights", ylabel="nats per byte", title="held-out loss")
    panels[0].legend(fontsize="small")
    for panel, title in zip(panels[1:], ("forward", "decode"), strict=True):
        panel.barh(places, [getattr(row, title) for row in rows], color=[f"C{at}" for at in places])
        panel.set_yticks(places, names)
        panel.invert_yaxis()
        panel.locator_params(axis="x", nbins=4)
        panel.set(xlabel="tokens/s", title=title)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def run(argv: list[str] | None = None) -> dict[str, Any]:
    """Train, quantise, report; returns the figures."""
    asked = options(argv)
    preset, device, xp, corpus = prepare(asked)
    shared = math.gcd(preset.d, preset.ffn)
    if asked.group % 8 or shared % asked.group:
        raise UsageError(f"--group must be a multiple of 8 that divides {preset.d} and {preset.ffn}, got {asked.group}")
    print(
        f"{preset.parameters():,} parameters, {len(corpus.train):,} bytes of {corpus.source}, on {describe(device)}",
        flush=True,
    )
    model = Decoder(preset, xp, asked.seed)
    train(model, corpus, asked.seed)
    rows, errors = compare(model, corpus, asked)
    chart = Path(asked.out) / "quantize_gpt.png"
    plot(rows, chart)
    print(table(rows))
    own, nearest = (float(np.mean([pair[way] for pair in errors.values()])) for way in (0, 1))
    print(
        f"int4 layers' outputs are off by {own:.1%} with GPTQ and by {nearest:.1%} rounded to nearest; plot in {chart}"
    )
    return {"rows": [asdict(row) for row in rows], "errors": errors}


if __name__ == "__main__":
    raise SystemExit(main(run=run))
