"""Train a small residual network on images of shapes, twice with one seed: the second run has the bits of the first.

    python examples/train_cnn.py                 # 16 x 16 pixels on the NumPy backend, under a minute on two busy cores
    python examples/train_cnn.py --preset gpu    # 32 x 32 pixels in batches of 256 on a CUDA device

Each image shows one of eight shapes at a random place, in random size and colours, under noise; the program makes them.
The network is convolutions, batch norms, residual blocks and pools, channels last, of plans alone: every layer returns
what undoes it, and no sum of a gradient depends on the order in which threads arrive. Ends with the accuracy on new
images, beside that of the same network in torch where torch is installed, whether the bits agree, and the loss curve.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpt_host
import numpy as np
from train_gpt import Parser, choose_device, describe, require
from train_gpt import main as guarded

import baracuda_py as bc

SHAPES = ("disc", "ring", "square", "cross", "rows", "columns", "checks", "corner")


@dataclasses.dataclass(frozen=True)
class Preset:
    """Sizes of a run."""

    pixels: int
    width: int
    batch: int
    steps: int
    lr: float = 0.01


PRESETS = {
    "cpu": Preset(pixels=16, width=8, batch=32, steps=100),
    "gpu": Preset(pixels=32, width=64, batch=256, steps=400, lr=0.004),
}


def images(preset: Preset, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Images [count, 3, pixels, pixels], channels last in memory, and the numbers of their shapes, int64 [count]."""
    n = preset.pixels
    kinds = rng.integers(0, len(SHAPES), count)
    middle, size = rng.uniform(0.35, 0.65, (2, count, 1, 1)) * n, rng.uniform(0.2, 0.35, (count, 1, 1)) * n
    y, x = np.arange(n)[:, None] - middle[0], np.arange(n) - middle[1]
    far, box = np.hypot(y, x), np.maximum(np.abs(y), np.abs(x)) < size
    rows, columns = (np.floor(c / 2) % 2 == 0 for c in (y, x))
    masks = np.stack([
        far < size, (far < size) & (far > 0.55 * size), box, box & (np.minimum(np.abs(y), np.abs(x)) < 0.3 * size),
        box & rows, box & columns, box & (rows ^ columns), box & ((y > 0.3 * size) | (x > 0.3 * size)),
    ])[kinds, np.arange(count)][..., None]  # fmt: skip
    ink, paper = rng.uniform(0.5, 1, (count, 1, 1, 3)), rng.uniform(-1, 0, (count, 1, 1, 3))
    made = np.where(masks, ink, paper) + 0.3 * rng.standard_normal((count, n, n, 3))
    return np.moveaxis(made.astype(np.float32), -1, 1), kinds


Back = Callable[[Any], Any]  # the gradient of a layer's output to that of its input


class Network:
    """Weights by name, the gradients of the last step, and what Adam keeps."""

    def __init__(self, preset: Preset, xp: Any, seed: int) -> None:
        rng, w = np.random.default_rng(seed), preset.width
        filters = {"stem": (w, 3), "a1": (w, w), "a2": (w, w), "down": (2 * w, w), "b1": (2 * w, 2 * w),
                   "b2": (2 * w, 2 * w)}  # fmt: skip
        held: dict[str, np.ndarray] = {}
        self.running: dict[str, list[Any]] = {}
        for name, (outputs, inputs) in filters.items():
            held[name] = rng.standard_normal((outputs, inputs, 3, 3)) * (2 / (9 * inputs)) ** 0.5
            held[f"{name}.scale"], held[f"{name}.shift"] = np.ones(outputs), np.zeros(outputs)
            self.running[name] = [xp.zeros(outputs, np.float32), xp.ones(outputs, np.float32)]
        held["head"] = rng.standard_normal((len(SHAPES), 2 * w)) / (2 * w) ** 0.5
        held["bias"] = np.zeros(len(SHAPES))
        self.weights = {name: xp.asarray(value.astype(np.float32)) for name, value in held.items()}
        self.moments = [[xp.zeros_like(value) for value in self.weights.values()] for _ in range(2)]
        self.gradients: dict[str, Any] = {}
        self.training = True

    def conv(self, x: Any, name: str) -> tuple[Any, Back]:
        """Convolution and batch norm."""
        w, scale, shift = (self.weights[name + end] for end in ("", ".scale", ".shift"))
        z = bc.conv2d(x, w, padding=1)
        if not self.training:
            return bc.batch_norm(z, *self.running[name], scale, shift), lambda dy: dy
        y, mean, rstd = bc.native_batch_norm(z, scale, shift, *self.running[name], training=True)

        def back(dy: Any) -> Any:
            dz, dscale, dshift = bc.channel_norm_backward(dy, z, mean, rstd, scale)
            dx, dw = bc.conv_backward(dz, x, w, padding=1, return_dbias=False)
            self.gradients |= {name: dw, f"{name}.scale": dscale, f"{name}.shift": dshift}
            return dx

        return y, back

    def block(self, x: Any, name: str) -> tuple[Any, Back]:
        """relu(x + two convolutions of x)."""
        first, back1 = self.conv(x, f"{name}1")
        inner, back2 = self.conv(bc.relu(first), f"{name}2")
        total = bc.add(x, inner)

        def back(dy: Any) -> Any:
            dtotal = bc.relu_backward(dy, total)
            return bc.add(dtotal, back1(bc.relu_backward(back2(dtotal), first)))

        return bc.relu(total), back

    def logits(self, x: Any) -> tuple[Any, Back]:
        """What the network says of each shape, [batch, shapes]."""
        stem, back_stem = self.conv(x, "stem")
        a, back_a = self.block(bc.relu(stem), "a")
        pooled, indices = bc.max_pool2d(a, kernel_size=2, return_indices=True)
        down, back_down = self.conv(pooled, "down")
        b, back_b = self.block(bc.relu(down), "b")
        means = bc.adaptive_avg_pool2d(b, output_size=1).reshape(len(b), -1)
        made = bc.linear(means, self.weights["head"], self.weights["bias"])

        def back(dy: Any) -> Any:
            self.gradients |= {"head": bc.matmul(dy.T, means), "bias": bc.sum(dy, axis=0)}
            dmeans = bc.matmul(dy, self.weights["head"]).reshape(*means.shape, 1, 1)
            db = bc.pool_backward(dmeans, kind="avg", shape=b.shape, spatial_rank=2, output_size=1)
            dpooled = back_down(bc.relu_backward(back_b(db), down))
            da = bc.pool_backward(
                dpooled, indices=indices, kind="max", shape=a.shape, spatial_rank=2, kernel_size=2
            )  # fmt: skip
            return back_stem(bc.relu_backward(back_a(da), stem))

        return made, back

    def step(self, x: Any, y: Any, number: int, lr: float) -> Any:
        """One step of Adam; the loss, 0-d."""
        logits, back = self.logits(x)
        loss, dlogits = bc.cross_entropy(logits, y, return_dlogits=True)
        back(dlogits)
        gradients = [self.gradients[name] for name in self.weights]
        bc.adam_step([*self.weights.values()], gradients, *self.moments, mode="adam", step=number + 1, lr=lr)
        return loss


def batches(preset: Preset, seed: int, xp: Any, steps: int) -> Any:
    """The images and shapes of every step."""
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        x, y = images(preset, rng, preset.batch)
        yield xp.moveaxis(xp.asarray(np.moveaxis(x, 1, -1)), -1, 1), xp.asarray(y)


def rate(preset: Preset, number: int) -> float:
    """The learning rate, which falls to nothing."""
    return preset.lr * (1 - number / preset.steps)


def train(preset: Preset, xp: Any, seed: int, shown: bool = False) -> tuple[Network, list[float]]:
    """A network, and the losses of its steps."""
    from tqdm import tqdm

    network, losses = Network(preset, xp, seed), []
    fed = batches(preset, seed + 1, xp, preset.steps)
    for number, (x, y) in enumerate(tqdm(fed, total=preset.steps, disable=not shown, desc="training")):
        losses.append(network.step(x, y, number, rate(preset, number)))
    return network, [float(one) for one in losses]  # read once, in the end: no step waits for the device


def accuracy(preset: Preset, network: Network, xp: Any, seed: int) -> float:
    """The share of new images whose shape is named."""
    network.training = False
    right = [bc.argmax(network.logits(x)[0], axis=1) == y for x, y in batches(preset, seed + 2, xp, 8)]
    return float(np.mean([float(one.mean()) for one in right]))


def in_torch(preset: Preset, seed: int, device: str) -> float:
    """The accuracy of the same network from the same weights on the same images in torch."""
    import torch

    F = torch.nn.functional
    own = Network(preset, np, seed)
    weights = {name: torch.tensor(value, device=device).requires_grad_() for name, value in own.weights.items()}
    running = {name: [torch.tensor(one, device=device) for one in pair] for name, pair in own.running.items()}
    optimizer = torch.optim.Adam(weights.values(), lr=preset.lr)

    def conv(x: Any, name: str, training: bool) -> Any:
        z = F.conv2d(x, weights[name], padding=1)
        return F.batch_norm(z, *running[name], weights[f"{name}.scale"], weights[f"{name}.shift"], training)

    def logits(x: Any, training: bool) -> Any:
        x = conv(x, "stem", training).relu()
        x = (x + conv(conv(x, "a1", training).relu(), "a2", training)).relu()
        x = conv(F.max_pool2d(x, 2), "down", training).relu()
        x = (x + conv(conv(x, "b1", training).relu(), "b2", training)).relu()
        return F.linear(x.mean((2, 3)), weights["head"], weights["bias"])

    for number, (x, y) in enumerate(batches(preset, seed + 1, np, preset.steps)):
        optimizer.param_groups[0]["lr"] = rate(preset, number)
        optimizer.zero_grad()
        F.cross_entropy(logits(torch.tensor(x, device=device), True), torch.tensor(y, device=device)).backward()
        optimizer.step()
    with torch.no_grad():
        fed = batches(preset, seed + 2, np, 8)
        right = [logits(torch.tensor(x, device=device), False).argmax(1).cpu() == torch.tensor(y) for x, y in fed]
    return float(torch.cat(right).float().mean())


def host(x: Any) -> np.ndarray:
    """A copy on the host."""
    return x if isinstance(x, np.ndarray) else x.get()  # type: ignore[no-any-return]


def plot(losses: list[float], path: Path) -> None:
    """The loss curve as a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    axes.plot(range(1, len(losses) + 1), losses, linewidth=1)
    axes.set(xlabel="step", ylabel="nats per image", title="train_cnn")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


class Options(Parser):
    """The command line."""

    def __init__(self) -> None:
        form = argparse.RawDescriptionHelpFormatter
        argparse.ArgumentParser.__init__(self, description=__doc__, formatter_class=form)
        self.add_argument("--preset", choices=sorted(PRESETS), help="default: gpu on a CUDA device, else cpu")
        self.add_argument("--device", help="cpu or cuda:N (default: a CUDA device if there is one)")
        self.add_argument("--steps", type=int, help="training steps (default: the preset's)")
        self.add_argument("--seed", type=int, default=0)
        self.add_argument("--out", metavar="FOLDER", default="out", help="where the loss curve goes (default: out)")


def run(argv: list[str] | None = None) -> dict[str, Any]:
    """Train twice, compare, report; returns the figures."""
    asked = Options().checked(argv, steps=1, seed=0)
    require("tqdm", "matplotlib")
    device, xp = choose_device(asked.device)
    preset = PRESETS[asked.preset or ("cpu" if device.kind == "cpu" else "gpu")]
    preset = dataclasses.replace(preset, steps=asked.steps) if asked.steps else preset
    Path(asked.out).mkdir(parents=True, exist_ok=True)
    begun = time.perf_counter()
    network, losses = train(preset, xp, asked.seed, shown=True)
    took = time.perf_counter() - begun
    again, repeated = train(preset, xp, asked.seed)
    same = losses == repeated and all(
        host(value).tobytes() == host(again.weights[name]).tobytes() for name, value in network.weights.items()
    )
    right = accuracy(preset, network, xp, asked.seed)
    curve = Path(asked.out) / "train_cnn.png"
    plot(losses, curve)
    pace = preset.batch * preset.steps / took
    print(f"loss {losses[0]:.2f} at first, {np.mean(losses[-5:]):.2f} in the end, on {describe(device)}: {curve}")
    print(f"{right:.1%} of new images named, {pace:,.0f} images/s in training")
    theirs = None
    if importlib.util.find_spec("torch") is not None:
        theirs = in_torch(preset, asked.seed, "cpu" if device.kind == "cpu" else f"cuda:{device.ordinal}")
        print(f"{theirs:.1%} by the same network in torch")
    print(f"the second run has {'the same bits' if same else 'OTHER BITS'} in every weight and loss")
    return {"losses": losses, "accuracy": right, "torch": theirs, "same": same}


def main(argv: list[str] | None = None) -> int:
    """`run`, with one line on stderr and a non-zero exit for whatever went wrong."""
    gpt_host.keep_memory()
    return guarded(argv, run)


if __name__ == "__main__":
    raise SystemExit(main())
