"""Train and sample a Llama-style byte model with plans alone.

    python examples/train_gpt.py                 # preset cpu on the NumPy backend: under 3 minutes on two busy cores
    python examples/train_gpt.py --preset gpu    # on a CUDA device

The text is the source of the Python standard library (or --text FOLDER), every tenth file held out. Ends with the
held-out loss in nats per byte, a loss curve, a sample, and what ran: backend, device, kernel SKUs.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import gpt_host
import numpy as np
from gpt_data import Corpus, TextError, load
from gpt_fp8 import in_fp8
from gpt_model import PRESETS, Preset
from gpt_optimizers import OPTIMIZERS
from gpt_train import held_out_loss, train

import baracuda_py as bc


class UsageError(Exception):
    """A request that cannot be served; the message is the one line the user reads."""


class Parser(argparse.ArgumentParser):
    """What examples of this model ask for; bad options are one line, like every other bad request."""

    def __init__(self, doc: str | None, steps: str, trains: bool = True) -> None:
        super().__init__(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
        self.add_argument("--preset", choices=sorted(PRESETS), help="default: gpu on a CUDA device, else cpu")
        self.add_argument("--device", help="cpu or cuda:N (default: a CUDA device if there is one)")
        self.add_argument("--steps", type=int, help=f"{'training ' if trains else ''}steps (default: {steps})")
        if trains:
            self.add_argument("--text", metavar="FOLDER", help="train on this folder's text files")
        self.add_argument("--seed", type=int, default=0)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see --help)")

    def checked(self, argv: list[str] | None, **least: int) -> argparse.Namespace:
        """The options, of which those named, where given, are at least so much."""
        parsed = self.parse_args(argv)
        for name, low in least.items():
            value = getattr(parsed, name)
            if value is not None and not low <= value < 2**31:
                self.error(f"--{name.replace('_', '-')} must be at least {low} and below 2^31, got {value}")
        return parsed


class SkuLog(logging.Handler):
    """Collects the SKU that each plan logs when it first runs."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.add(record.getMessage())


def options(argv: list[str] | None) -> argparse.Namespace:
    """The command line, checked."""
    parser = Parser(__doc__, steps="the preset's")
    parser.add_argument("--out", metavar="FOLDER", default="out", help="where the loss curve goes (default: out)")
    parser.add_argument(
        "--sample", type=int, metavar="BYTES", help="bytes to generate (default: what the context holds)"
    )
    parser.add_argument("--optimizer", choices=sorted(OPTIMIZERS), default="adamw", help="default: adamw")
    parser.add_argument("--fp8", action="store_true", help="products of layers and their gradients in fp8")
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--top-k", type=int, default=40)
    return parser.checked(argv, steps=1, sample=0, temperature=0, top_k=0, seed=0)


def choose_device(name: str | None) -> tuple[Any, Any]:
    """The device and its array package."""
    from baracuda_py.core.device import resolve_device

    device = resolve_device(name)
    if device.kind == "cpu":
        return device, np
    import cupy

    cupy.cuda.Device(device.ordinal).use()
    return device, cupy


def describe(device: Any) -> str:
    """Backend and device, for the report."""
    return "the NumPy backend" if device.kind == "cpu" else f"{device} ({device.name})"


def free_memory(device: Any) -> int:
    """Bytes that can still be allocated."""
    if device.kind == "cpu":
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    from cupy.cuda import runtime

    return int(runtime.memGetInfo()[0])


def require(*packages: str) -> None:
    """Refuse where a package is missing."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(f"this example needs {' and '.join(missing)}: pip install 'baracuda_py[examples]'")


def prepare(asked: argparse.Namespace) -> tuple[Preset, Any, Any, Corpus]:
    """Preset, device, array package and text; refuses before anything large is allocated."""
    require("tqdm", "matplotlib")
    device, xp = choose_device(asked.device)
    name = asked.preset or ("cpu" if device.kind == "cpu" else "gpu")
    preset = PRESETS[name]
    if asked.steps:
        preset = dataclasses.replace(preset, steps=asked.steps)
    if getattr(asked, "fp8", False):
        preset = dataclasses.replace(preset, compute="bfloat16")
    need, free = preset.memory(device.kind == "cpu"), free_memory(device)
    if need > free:
        instead = "" if name == "cpu" else "; try --preset cpu"
        raise UsageError(
            f"preset {name} needs about {need / 2**30:.1f} GiB, {device} has {free / 2**30:.1f} GiB free{instead}"
        )
    Path(asked.out).mkdir(parents=True, exist_ok=True)
    return preset, device, xp, load(asked.text, preset.context)


def plot(losses: list[float], held_out: float, path: Path) -> None:
    """The loss curve as a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    axes.plot(range(1, len(losses) + 1), losses, linewidth=1, label="training")
    axes.axhline(held_out, color="tab:orange", linestyle="--", label=f"held out {held_out:.3f}")
    axes.set(xlabel="step", ylabel="nats per byte", title="train_gpt")
    axes.legend()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def run(argv: list[str] | None = None) -> dict[str, Any]:
    """Train, evaluate, sample, report; returns the figures."""
    asked = options(argv)
    preset, device, xp, corpus = prepare(asked)
    log = SkuLog()
    logger = logging.getLogger("baracuda_py.sku")
    logger.setLevel(logging.INFO)
    logger.addHandler(log)
    where, prompt = describe(device), b"def "
    print(f"{preset.parameters():,} parameters, {len(corpus.train):,} bytes of {corpus.source}, on {where}", flush=True)
    decoder = OPTIMIZERS[asked.optimizer]
    model = (in_fp8(decoder) if asked.fp8 else decoder)(preset, xp, asked.seed)
    losses, rate = train(model, corpus, asked.seed)
    held_out = held_out_loss(model, corpus)
    curve = Path(asked.out) / "train_gpt.png"
    plot(losses, held_out, curve)
    print(f"held-out loss {held_out:.4f} nats/byte, {rate:,.0f} tokens/s, loss curve in {curve}")
    count = preset.context - len(prompt) if asked.sample is None else asked.sample
    if count:
        how = {"temperature": asked.temperature, "top_k": asked.top_k, "seed": asked.seed}
        text, logprobs = model.generate(prompt, count, **how)
        print(f"--- sample ---\n{text.decode('utf-8', 'replace')}\n--------------")
        print(f"its bytes were drawn with {-float(logprobs.mean()):.2f} nats each")
    logger.removeHandler(log)
    print(f"ran on {where}, {len(log.seen)} kernel SKUs:")
    for sku in sorted(log.seen):
        print(f"  {sku}")
    return {"held_out": held_out, "tokens_per_second": rate, "losses": losses, "skus": sorted(log.seen)}


def main(argv: list[str] | None = None, run: Callable[[list[str] | None], Any] = run) -> int:
    """`run` with one line on stderr, and a non-zero exit, for whatever went wrong."""
    gpt_host.keep_memory()
    try:
        run(argv)
    except (UsageError, TextError, bc.BaracudaError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    except MemoryError as error:
        print(f"error: out of memory: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
