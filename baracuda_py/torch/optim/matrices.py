"""torch.optim.Muon: momentum by an update rule, orthogonalised by Newton-Schulz iterations of symmetric products."""

from __future__ import annotations

import math
from typing import Any

import baracuda_py as bc

from ...core.errors import InvalidProblemError, UnsupportedError
from ...expressions.update import UpdateRule
from ..untyped import torch
from .by_rule import ByRule, rule


class Muon(ByRule, torch.optim.Muon):  # type: ignore[misc]
    """torch.optim.Muon (Jordan et al. 2024), its matrices of one shape in one batch; see `ByRule`.

    b ← momentum · b + (1 − momentum) g; u = orthogonalize(lerp(g, b, momentum)) in bfloat16 (of b without nesterov);
    p ← p (1 − lr · weight_decay) − adjusted lr · u. ns_coefficients: three numbers, or "polar_express" for those of
    Amsel et al. 2025, another triple for each step.
    """

    states = {"momentum_buffer": "m"}  # noqa: RUF012
    counted = False

    def __init__(
        self, params: Any, lr: Any = 1e-3, weight_decay: float = 0.1, momentum: float = 0.95, nesterov: bool = True,
        ns_coefficients: Any = (3.4445, -4.775, 2.0315), eps: float = 1e-7, ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:  # fmt: skip
        if ns_steps >= 100:
            raise InvalidProblemError(f"ns_steps must be below 100, got {ns_steps}")
        super().__init__(params, lr, weight_decay, momentum, nesterov, ns_coefficients, eps, ns_steps, adjust_lr_fn)

    def rule(self, group: dict[str, Any]) -> UpdateRule:
        """The direction before it is orthogonalised."""
        return rule("muon_direction", nesterov=bool(group["nesterov"]))

    def update(self, group: dict[str, Any], params: list[Any], grad_scale: Any) -> None:
        """Momenta in one launch, then each shape's matrices together, then the step in one launch."""
        grads = [p.grad for p in params]
        if any(g.dim() != 2 for g in grads):
            raise UnsupportedError("Muon takes matrices; give vectors and other tensors to AdamW")
        u = [torch.empty(p.shape, dtype=torch.bfloat16, device=p.device) for p in params]
        m = [self.state[p]["momentum_buffer"] for p in params]
        self.rule(group)(g=grads, m=m, u=u, beta=group["momentum"], grad_scale=grad_scale)
        shapes: dict[Any, list[int]] = {}
        for i, p in enumerate(params):
            shapes.setdefault(tuple(p.shape), []).append(i)
        lr = float(group["lr"])
        for shape, places in shapes.items():
            if not math.prod(shape):
                continue
            whole = torch.stack([u[i] for i in places])
            made = bc.orthogonalize(
                whole, steps=group["ns_steps"], coefficients=group["ns_coefficients"], eps=group["eps"]
            )
            rule("muon_step")(
                p=[params[i] for i in places], u=list(made.unbind()), lr=lr, rate=_adjusted(lr, group, shape),
                weight_decay=group["weight_decay"],
            )  # fmt: skip


def _adjusted(lr: float, group: dict[str, Any], shape: tuple[int, int]) -> float:
    rows, cols = shape
    if group["adjust_lr_fn"] == "match_rms_adamw":
        return lr * 0.2 * math.sqrt(max(rows, cols))
    return lr * math.sqrt(max(1.0, rows / cols))
