"""GPTQ (Frantar et al., 2022, arXiv:2210.17323): int4 codes whose errors make up for each other, in NumPy float64.

A layer makes y = W x of inputs x. Rounding W to Ŵ costs Σ |(W - Ŵ) x|² = tr((W - Ŵ) H (W - Ŵ)ᵀ) over calibration
inputs, H = Σ x xᵀ. So after a column of W is rounded, those to its right are moved to where they make up for as much
of its error as they can, which is a triangular solve: U, upper triangular with UᵀU = H⁻¹, has all that is needed.
"""

from __future__ import annotations

import numpy as np

LARGEST = 7  # of int4's codes -8 … 7 that scales bring the largest number of a group to


def inverse_factor(hessian: np.ndarray, damping: float) -> np.ndarray:
    """U [k, k], upper triangular with UᵀU = (H + damping · mean(diagonal) · I)⁻¹."""
    k = len(hessian)
    strength = damping * float(np.mean(np.diagonal(hessian))) or 1.0  # inputs that are all 0 say nothing
    return np.linalg.cholesky(np.linalg.inv(hessian + strength * np.eye(k))).T


def gptq(weight: np.ndarray, hessian: np.ndarray, group: int, damping: float = 0.01) -> tuple[np.ndarray, np.ndarray]:
    """int8 codes [n, k] of -8 … 7, and their float16 scales [n, k / group], of W [n, k] and H [k, k].

    The scale of a group is its largest |W| over 7, as of `block_quantize`, once all columns before it are rounded.
    Within a group errors are fed to the columns of the group one by one; those behind it get them as one product.
    """
    w, factor = weight.astype(np.float64), inverse_factor(hessian.astype(np.float64), damping)
    n, k = w.shape
    codes, scales = np.empty((n, k), np.int8), np.empty((n, k // group), np.float16)
    errors = np.empty((n, group))
    for first in range(0, k, group):
        last = first + group
        held = (np.abs(w[:, first:last]).max(axis=1).astype(np.float32) / LARGEST).astype(np.float16)
        scales[:, first // group] = held
        scale = held.astype(np.float64)
        by = np.where(scale > 0, scale, 1.0)
        for j in range(first, last):
            codes[:, j] = np.clip(np.rint(w[:, j] / by), -LARGEST - 1, LARGEST)
            error = errors[:, j - first] = (w[:, j] - scale * codes[:, j]) / factor[j, j]
            w[:, j:last] -= np.outer(error, factor[j, j:last])
        w[:, last:] -= errors @ factor[first:last, last:]
    return codes, scales


def output_error(weight: np.ndarray, rounded: np.ndarray, hessian: np.ndarray) -> float:
    """|(W - Ŵ) X| / |W X| over the calibration inputs, from H = X Xᵀ alone."""

    def power(w: np.ndarray) -> float:
        return float(np.sum((w @ hessian) * w))

    wide = weight.astype(np.float64)
    return float(np.sqrt(power(wide - rounded) / power(wide)))
