"""Cross entropy of logits, and of a linear layer whose logits never exist as a whole."""

from __future__ import annotations

from typing import Any

import baracuda_py.torch as bct

from ...core.checked import shown
from ...core.errors import InvalidProblemError
from ..untyped import torch


class CrossEntropyLoss(torch.nn.CrossEntropyLoss):  # type: ignore[misc]
    """torch.nn.CrossEntropyLoss; logits […, classes], targets […], or probabilities of the logits' shape.

    The classes are the last axis, as language models have them, or axis 1 where only that fits the shape of targets
    that are classes. Losses are added in float32 (float64 for float64).
    """

    def forward(self, logits: Any, targets: Any) -> Any:
        """The loss: 0-d, or […] with reduction "none"."""
        return bct.cross_entropy(
            logits, targets, self.weight, ignore_index=self.ignore_index, label_smoothing=self.label_smoothing,
            reduction=self.reduction,
        )  # fmt: skip


class FusedLinearCrossEntropyLoss(torch.nn.Module):  # type: ignore[misc]
    """cross_entropy(x Wᵀ + bias, targets) in chunks of tokens: the logits are never held as a whole.

    A chunk's logits, their loss and their gradient are made one after the other, and the gradients of x and W are
    added up in the forward pass (Hsu et al. 2024, Liger Kernel). Memory for logits is chunk_size · classes.
    """

    def __init__(
        self, ignore_index: int = -100, label_smoothing: float = 0.0, reduction: str = "mean", chunk_size: int = 1024
    ) -> None:
        super().__init__()
        if reduction not in ("mean", "sum"):
            raise InvalidProblemError(f"reduction must be 'mean' or 'sum', got {shown(reduction)}")
        if chunk_size < 1:
            raise InvalidProblemError(f"chunk_size must be at least 1, got {chunk_size}")
        self.ignore_index, self.label_smoothing = ignore_index, label_smoothing
        self.reduction, self.chunk_size = reduction, chunk_size

    def forward(self, x: Any, weight: Any, targets: Any, bias: Any = None) -> Any:
        """x […, features], weight [classes, features], targets […], bias [classes]; the loss is 0-d."""
        if targets.shape != x.shape[:-1]:
            raise InvalidProblemError(f"targets must have shape {tuple(x.shape[:-1])}, got {tuple(targets.shape)}")
        flat = x.reshape(-1, x.shape[-1])
        facts = (self.ignore_index, self.label_smoothing, self.reduction, self.chunk_size)
        return _Chunked.apply(flat, weight, targets.reshape(-1), bias, facts)


class _Chunked(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any, targets: Any, bias: Any, facts: tuple[int, float, str, int]) -> Any:
        """The loss; gradients of what needs one are made beside it."""
        ignore_index, label_smoothing, reduction, chunk = facts
        need_x, need_w, _, need_b = ctx.needs_input_grad[:4]
        acc = torch.promote_types(x.dtype, torch.float32)
        loss = torch.zeros((), dtype=acc, device=x.device)
        count = torch.zeros((), dtype=acc, device=x.device)
        dx = torch.empty_like(x) if need_x else None
        dw = torch.zeros(weight.shape, dtype=acc, device=x.device) if need_w else None
        db = torch.zeros(weight.shape[0], dtype=acc, device=x.device) if need_b else None
        for start in range(0, x.shape[0], chunk):
            part, at = x[start : start + chunk], targets[start : start + chunk]
            logits = torch.nn.functional.linear(part, weight, bias)
            made = bct.cross_entropy(
                logits, at, ignore_index=ignore_index, label_smoothing=label_smoothing, reduction="sum",
                return_dlogits=bool(need_x or need_w or need_b),
            )  # fmt: skip
            value, dlogits = made if isinstance(made, tuple) else (made, None)
            loss += value
            count += (at != ignore_index).sum()
            if need_x:
                dx[start : start + chunk] = dlogits @ weight  # type: ignore[index]
            if need_w:
                dw += dlogits.T @ part
            if need_b:
                db += dlogits.sum(0, dtype=acc)
        scale = 1 / count if reduction == "mean" else torch.ones_like(count)
        made = [g for g in (dx, dw, db) if g is not None]
        ctx.save_for_backward(scale, *made)
        ctx.kept = (need_x, need_w, need_b)
        ctx.dtypes = (x.dtype, weight.dtype, weight.dtype if bias is None else bias.dtype)
        return loss * scale

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, dloss: Any) -> Any:
        """What the forward pass made, scaled."""
        scale, *made = ctx.saved_tensors
        factor, held = scale * dloss, iter(made)
        dx, dw, db = (
            (next(held) * factor).to(dtype) if need else None for need, dtype in zip(ctx.kept, ctx.dtypes, strict=True)
        )
        return dx, dw, None, db, None
