"""Cross entropy of logits, and of a linear layer whose logits never exist as a whole."""

from __future__ import annotations

from typing import Any

import baracuda_py.torch as bct

from ...core.checked import shown
from ...core.errors import InvalidProblemError
from ..untyped import torch

REDUCTIONS = ("mean", "sum", "none")


class CrossEntropyLoss(torch.nn.CrossEntropyLoss):  # type: ignore[misc]
    """torch.nn.CrossEntropyLoss; logits [N, classes, d1, …], targets [N, d1, …], or probabilities of the logits' shape.

    The classes are also the last axis, as language models have them, where targets that are classes fit only that.
    Losses are added in float32 (float64 for float64).
    """

    def forward(self, input: Any, target: Any) -> Any:
        """The loss: 0-d, or of the shape of targets that are classes with reduction "none"."""
        classes = input.dim() > 2 and (
            target.is_floating_point() or target.shape == (*input.shape[:1], *input.shape[2:])
        )
        return bct.cross_entropy(
            input, target, self.weight, ignore_index=self.ignore_index, label_smoothing=self.label_smoothing,
            reduction=self.reduction, axis=1 if classes else -1,
        )  # fmt: skip


class FusedLinearCrossEntropyLoss(torch.nn.Module):  # type: ignore[misc]
    """cross_entropy(x Wᵀ + bias, targets), whose logits are never whole in memory: `bc.linear_cross_entropy`.

    weight: a factor of each class [classes], as of torch.nn.CrossEntropyLoss. z_loss: a factor of lse², softcap: that
    of logits. chunk_size: rows whose logits are held at once, by default as many as the op thinks fit.
    """

    def __init__(
        self, ignore_index: int = -100, label_smoothing: float = 0.0, reduction: str = "mean",
        chunk_size: int | None = None, *, weight: Any = None, z_loss: float = 0.0, softcap: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__()
        if reduction not in REDUCTIONS:
            raise InvalidProblemError(f"reduction must be one of {', '.join(REDUCTIONS)}, got {shown(reduction)}")
        if chunk_size is not None and chunk_size < 1:
            raise InvalidProblemError(f"chunk_size must be at least 1, got {chunk_size}")
        self.ignore_index, self.label_smoothing = ignore_index, label_smoothing
        self.reduction, self.chunk_size, self.z_loss, self.softcap = reduction, chunk_size, z_loss, softcap
        self.weight: Any
        self.register_buffer("weight", weight)

    def forward(self, x: Any, weight: Any, targets: Any, bias: Any = None) -> Any:
        """x […, features], weight [classes, features], targets […], bias [classes]; the loss is 0-d, or […].

        x and targets are copied where their rows are no even steps apart, as those of x[:, :-1] are.
        """
        lead = tuple(x.shape[:-1])
        if tuple(targets.shape) != lead:
            raise InvalidProblemError(f"targets must have shape {lead}, got {tuple(targets.shape)}")
        loss = bct.linear_cross_entropy(
            x.reshape(-1, x.shape[-1]), weight, targets.reshape(-1), bias, self.weight, ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing, z_loss=self.z_loss, softcap=self.softcap, reduction=self.reduction,
            chunk=self.chunk_size or 0,
        )  # fmt: skip
        return loss.reshape(lead) if self.reduction == "none" else loss

    def extra_repr(self) -> str:
        """The settings, as a module prints them."""
        facts = ("ignore_index", "label_smoothing", "reduction", "chunk_size", "z_loss", "softcap")
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in facts)
