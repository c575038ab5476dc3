"""A Gaussian process: hyperparameters by the gradient of the marginal likelihood, predictions with their uncertainty.

    python examples/gaussian_process.py                 # on the NumPy backend: seconds
    python examples/gaussian_process.py --preset gpu    # on a CUDA device: 4096 points, through cuSOLVER

y = f(x) + noise, f of the kernel s² exp(-Σ (x - x')² / 2 ℓ²), a length ℓ for each coordinate (Rasmussen and Williams,
Gaussian Processes for Machine Learning, 2006, algorithm 2.1 and equation 5.9). With K = L Lᵀ and α = K⁻¹ y the loss is
½ yᵀ α + Σ log L[i, i] + ½ n log 2π, and its derivative along dK is ½ Σ (K⁻¹ - α αᵀ) dK. All numbers are float64. Of
four coordinates two say nothing about y: their lengths grow until they do not matter.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import time
from typing import Any

import numpy as np
from train_gpt import UsageError, choose_device, describe, main

import baracuda_py as bc


@dataclasses.dataclass(frozen=True)
class Preset:
    """How many points there are, and how the process is trained."""

    points: int
    held_out: int
    steps: int
    learning_rate: float = 0.1
    coordinates: int = 4


PRESETS = {"cpu": Preset(points=256, held_out=200, steps=60), "gpu": Preset(points=4096, held_out=4096, steps=60)}
NOISE = 0.1

covariance = bc.elementwise("exp(2 * log_scale - squares / 2)")
weighted = bc.reduce("sum(0.5 * (inverse - product) * k)")


def points(preset: Preset, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """x [count, coordinates] and y, which depends on the first two coordinates."""
    x = rng.uniform(-2, 2, (count, preset.coordinates))
    return x, np.sin(3 * x[:, 0]) + 0.5 * np.cos(2 * x[:, 1]) + NOISE * rng.standard_normal(count)


class GaussianProcess:
    """Logs of the scale, of the noise and of a length for each coordinate, and what is known of f."""

    def __init__(self, x: Any, y: Any, xp: Any) -> None:
        self.x, self.y, self.xp = x, y, xp
        self.logs = np.concatenate([[0.0, math.log(0.5)], np.zeros(x.shape[1])])  # scale, noise, lengths
        self.moments = [np.zeros_like(self.logs) for _ in range(2)]

    def between(self, a: Any, b: Any) -> Any:
        """The kernel's numbers of two sets of points."""
        shrink = self.xp.asarray(np.exp(-self.logs[2:]))
        apart = bc.cdist(a * shrink, b * shrink)
        return covariance(squares=apart * apart, log_scale=float(self.logs[0]))

    def fit(self) -> tuple[float, np.ndarray]:
        """The loss and its gradient in the logs; keeps L and α for predictions."""
        n, noise = len(self.y), math.exp(2 * self.logs[1])
        k = self.between(self.x, self.x)
        self.factor = bc.cholesky(k + noise * bc.eye(n, element="float64", like=k))
        self.alpha = bc.cholesky_solve(self.y[:, None], self.factor)
        half_logdet = bc.sum(bc.log(bc.diagonal(self.factor)))
        loss = 0.5 * float(bc.sum(self.y * self.alpha[:, 0])) + float(half_logdet) + 0.5 * n * math.log(2 * math.pi)
        given = {"inverse": bc.cholesky_inverse(self.factor), "product": bc.matmul(self.alpha, self.alpha.T)}

        def along(dk: Any) -> float:
            return float(bc.sum(weighted(**given, k=dk)))

        gradient = [along(2 * k), along(2 * noise * bc.eye(n, element="float64", like=k))]
        for column, log in enumerate(self.logs[2:]):
            apart = (self.x[:, column, None] - self.x[None, :, column]) * math.exp(-log)
            gradient.append(along(k * apart * apart))
        return loss, np.array(gradient)

    def step(self, number: int, learning_rate: float) -> float:
        """A step of Adam; the loss before it."""
        loss, gradient = self.fit()
        bc.adam_step([self.logs], [gradient], *([one] for one in self.moments), lr=learning_rate, step=number)
        return loss

    def predict(self, x: Any) -> tuple[Any, Any]:
        """The mean and the standard deviation of y at other points, as the last `fit` left it."""
        across = self.between(self.x, x)
        mean = bc.matmul(across.T, self.alpha)[:, 0]
        known = bc.solve_triangular(self.factor, across, upper=False)
        left = math.exp(2 * self.logs[0]) + math.exp(2 * self.logs[1]) - bc.sum(known * known, 0)
        return mean, bc.sqrt(bc.clamp_min(left, 0.0))


def run(argv: list[str] | None = None) -> dict[str, float]:
    """Train, predict, report; returns the error, the share of points inside two deviations, and the loss."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=sorted(PRESETS), help="default: gpu on a CUDA device, else cpu")
    parser.add_argument("--device", help="cpu or cuda:N (default: a CUDA device if there is one)")
    parser.add_argument("--steps", type=int, help="default: the preset's")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(argv)
    if asked.steps is not None and asked.steps < 1:
        raise UsageError(f"--steps must be at least 1, got {asked.steps}")
    device, xp = choose_device(asked.device)
    preset = PRESETS[asked.preset or ("cpu" if device.kind == "cpu" else "gpu")]
    rng = np.random.default_rng(asked.seed)
    (x, y), (others, wanted) = (points(preset, count, rng) for count in (preset.points, preset.held_out))
    process = GaussianProcess(xp.asarray(x), xp.asarray(y), xp)
    steps, start = asked.steps or preset.steps, time.perf_counter()
    print(f"{preset.points:,} points, on {describe(device)}", flush=True)
    for number in range(1, steps + 1):
        loss = process.step(number, preset.learning_rate)
        if number in (1, steps) or number % 20 == 0:
            print(f"step {number:3}  loss {loss / preset.points:7.3f} a point", flush=True)
    each = (time.perf_counter() - start) / steps
    loss, _ = process.fit()
    mean, deviation = (np.asarray(one if xp is np else one.get()) for one in process.predict(xp.asarray(others)))
    error, inside = float(np.sqrt(np.mean((mean - wanted) ** 2))), float(np.mean(abs(mean - wanted) < 2 * deviation))
    lengths = " ".join(f"{one:.2g}" for one in np.exp(process.logs[2:]))
    print(f"lengths {lengths}; noise {math.exp(process.logs[1]):.3f} of {NOISE}; {1e3 * each:.1f} ms a step")
    print(f"error {error:.3f}; {inside:.1%} of {preset.held_out} others within two deviations")
    return {"error": error, "inside": inside, "loss": loss / preset.points}


if __name__ == "__main__":
    raise SystemExit(main(run=run))
