"""Rigid alignment: the rotation and shift between many pairs of small clouds of points, by singular values of 3 × 3.

    python examples/rigid_alignment.py                 # on the NumPy backend: seconds
    python examples/rigid_alignment.py --preset gpu    # on a CUDA device: a million pairs

Each pair is a cloud and the same cloud turned, shifted and with noise. With H = Σ (p - p̄)(q - q̄)ᵀ = U S Vᵀ the rotation
that brings p to q is V diag(1, 1, det V Uᵀ) Uᵀ (Kabsch 1976, Umeyama 1991). Every matrix is a thread's own: its bits do
not depend on the others'.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from typing import Any

import numpy as np
from train_gpt import UsageError, choose_device, describe, main

import baracuda_py as bc


@dataclasses.dataclass(frozen=True)
class Preset:
    """How many pairs there are, of how many points each."""

    pairs: int
    points: int = 16


PRESETS = {"cpu": Preset(pairs=2000), "gpu": Preset(pairs=1_000_000)}
NOISE = 0.01


def rotations(count: int, xp: Any, rng: np.random.Generator) -> Any:
    """Rotations [count, 3, 3], uniformly drawn: of quaternions of length 1."""
    quaternion = rng.standard_normal((count, 4))
    a, b, c, d = (quaternion / np.linalg.norm(quaternion, axis=1, keepdims=True)).T
    rows = (
        (1 - 2 * (c * c + d * d), 2 * (b * c - a * d), 2 * (b * d + a * c)),
        (2 * (b * c + a * d), 1 - 2 * (b * b + d * d), 2 * (c * d - a * b)),
        (2 * (b * d - a * c), 2 * (c * d + a * b), 1 - 2 * (b * b + c * c)),
    )
    return xp.asarray(np.stack([np.stack(row, -1) for row in rows], -2).astype(np.float32))


def pairs(preset: Preset, xp: Any, seed: int) -> tuple[Any, Any, Any, Any]:
    """Clouds p and q [pairs, points, 3], and the rotations and shifts between them."""
    rng = np.random.default_rng(seed)
    p = xp.asarray(rng.standard_normal((preset.pairs, preset.points, 3), dtype=np.float32))
    turn, shift = rotations(preset.pairs, xp, rng), xp.asarray(rng.uniform(-5, 5, (preset.pairs, 1, 3)))
    noise = xp.asarray(NOISE * rng.standard_normal(p.shape, dtype=np.float32))
    return p, bc.matmul(p, turn.swapaxes(1, 2)) + shift.astype(np.float32) + noise, turn, shift[:, 0]


def align(p: Any, q: Any) -> tuple[Any, Any]:
    """(R [pairs, 3, 3], t [pairs, 3]) that bring p to q with the least squares: q ≈ p Rᵀ + t."""
    p_mean, q_mean = bc.mean(p, 1, True), bc.mean(q, 1, True)
    u, _, vh = bc.svd(bc.matmul((p - p_mean).swapaxes(1, 2), q - q_mean))
    mirrored = bc.det(bc.matmul(u, vh)) < 0  # V Uᵀ would be a reflection: its last axis is turned round
    vh[:, 2] *= bc.where(mirrored, -1.0, 1.0)[:, None].astype(vh.dtype)
    turn = bc.matmul(u, vh).swapaxes(1, 2)
    return turn, (q_mean - bc.matmul(p_mean, turn.swapaxes(1, 2)))[:, 0]


def run(argv: list[str] | None = None) -> dict[str, float]:
    """Align, report; returns the largest angle to the true rotation and error of a shift, and the share of mirrors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=sorted(PRESETS), help="default: gpu on a CUDA device, else cpu")
    parser.add_argument("--device", help="cpu or cuda:N (default: a CUDA device if there is one)")
    parser.add_argument("--pairs", type=int, help="default: the preset's")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(argv)
    if asked.pairs is not None and asked.pairs < 1:
        raise UsageError(f"--pairs must be at least 1, got {asked.pairs}")
    device, xp = choose_device(asked.device)
    preset = PRESETS[asked.preset or ("cpu" if device.kind == "cpu" else "gpu")]
    preset = dataclasses.replace(preset, pairs=asked.pairs or preset.pairs)
    p, q, turn, shift = pairs(preset, xp, asked.seed)
    align(p[:2], q[:2])  # compiles what is needed
    start = time.perf_counter()
    found, moved = align(p, q)
    worst_shift = float(bc.amax(abs(moved - shift)))
    seconds = time.perf_counter() - start
    # R and its truth differ by a turn of the angle whose cosine is (trace(R Rᵀ) - 1) / 2; small angles by |R - R'|.
    angle = float(bc.amax(bc.norm(found - turn, 2, (1, 2)))) / 2**0.5
    proper = float(bc.mean((abs(bc.det(found) - 1) < 1e-4).astype(np.float32)))
    print(f"{preset.pairs:,} pairs of {preset.points} points, on {describe(device)}: {1e3 * seconds:.1f} ms")
    print(f"largest angle {angle:.4f} rad, largest error of a shift {worst_shift:.4f}, noise {NOISE}")
    return {"angle": angle, "shift": worst_shift, "proper": proper}


if __name__ == "__main__":
    raise SystemExit(main(run=run))
