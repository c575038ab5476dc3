"""AdamW over all tensors of a group in one launch, as a torch.optim.Optimizer."""

from __future__ import annotations

from typing import Any

from ...core.errors import InvalidProblemError
from ...expressions.update import UpdateRule
from ..untyped import torch
from .by_rule import ByRule, rule


class AdamW(ByRule, torch.optim.AdamW):  # type: ignore[misc]
    """torch.optim.AdamW (Loshchilov and Hutter 2019) in one launch for all tensors of a group that are of one kind.

    Moments are float32 (float64 for float64), also of 16-bit parameters. lr may be a 0-d tensor on the device.
    capturable: the steps are counted on the device, so that a CUDA graph can hold `step`.
    foreach, fused: what this is in either case; with fused=True a `GradScaler` leaves it to `step` to unscale gradients
    and to skip a step. differentiable is refused.
    state_dict has torch's keys, and either loads the other's.
    """

    states = {"exp_avg": "m", "exp_avg_sq": "v", "max_exp_avg_sq": "vmax"}  # noqa: RUF012

    def __init__(
        self, params: Any, lr: Any = 1e-3, betas: tuple[Any, Any] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 1e-2, amsgrad: bool = False, *, maximize: bool = False, foreach: bool | None = None,
        capturable: bool = False, differentiable: bool = False, fused: bool | None = None,
    ) -> None:  # fmt: skip
        for name, value, holds in (
            ("lr", lr, lr.numel() == 1 if isinstance(lr, torch.Tensor) else lr >= 0),
            ("betas", betas, len(betas) == 2 and all(0 <= b < 1 for b in betas)),
            ("eps", eps, eps >= 0),
            ("weight_decay", weight_decay, weight_decay >= 0),
            ("fused", "beside foreach=True, of which one is meant", not (fused and foreach)),
        ):
            if not holds:
                raise InvalidProblemError(f"{name} is out of range: {value}")
        super().__init__(
            params, lr, tuple(map(float, betas)), eps, weight_decay, bool(amsgrad), maximize=bool(maximize),
            capturable=bool(capturable), differentiable=bool(differentiable), fused=fused,
        )  # fmt: skip
        for facts in (self.defaults, *self.param_groups):
            facts["foreach"] = foreach if facts["foreach"] is None else facts["foreach"]

    def held(self, group: dict[str, Any]) -> tuple[str, ...]:
        """The largest second moment only with amsgrad."""
        return tuple(self.states) if group["amsgrad"] else ("exp_avg", "exp_avg_sq")

    def rule(self, group: dict[str, Any]) -> UpdateRule:
        """adamw."""
        return rule("adamw", amsgrad=bool(group["amsgrad"]))

    def numbers(self, group: dict[str, Any], states: list[dict[str, Any]], t: Any) -> dict[str, Any]:
        """The betas and eps."""
        b1, b2 = map(float, group["betas"])
        return {"b1": b1, "b2": b2, "eps": group["eps"]}
