"""AdamW over all tensors of a group in one launch, as a torch.optim.Optimizer."""

from __future__ import annotations

from typing import Any

import baracuda_py as bc

from ...core.errors import InvalidProblemError
from ..untyped import torch
from .by_rule import ByRule, number


class AdamW(ByRule, torch.optim.AdamW):  # type: ignore[misc]
    """torch.optim.AdamW (Loshchilov and Hutter 2019) in one launch for all tensors of a group that are of one kind.

    Moments are float32 (float64 for float64), also of 16-bit parameters. lr may be a 0-d tensor on the device.
    capturable: the steps are counted on the device, so that a CUDA graph can hold `step`.
    foreach, fused: what this is in either case; with fused=True a `GradScaler` leaves it to `step` to unscale gradients
    and to skip a step. amsgrad is composed of torch's operations over lists. differentiable is refused.
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

    def update(self, group: dict[str, Any], params: list[Any], grad_scale: Any) -> None:
        """One step of tensors that are alike, by `adam_step`; amsgrad by torch's operations over lists."""
        states = [self.state[p] for p in params]
        step, lr = self.counted_on(group, states), number(group["lr"])
        scale = grad_scale.to(params[0].device).reshape(()) if isinstance(grad_scale, torch.Tensor) else grad_scale
        if group["amsgrad"]:
            _amsgrad(group, params, states, lr, step, scale)
            return
        beta1, beta2 = map(float, group["betas"])
        bc.adam_step(
            params, [p.grad for p in params], [s["exp_avg"] for s in states], [s["exp_avg_sq"] for s in states],
            beta1=beta1, beta2=beta2, eps=group["eps"], weight_decay=group["weight_decay"], lr=lr, step=step,
            grad_scale=scale,
        )  # fmt: skip


def _amsgrad(
    group: dict[str, Any], params: list[Any], states: list[dict[str, Any]], lr: Any, step: Any, scale: Any
) -> None:
    """AdamW with the largest second moment until now in the place of the last one, in the moments' dtype."""
    beta1, beta2 = map(float, group["betas"])
    mean, square, largest = ([state[name] for state in states] for name in AdamW.states)
    acc, lr = mean[0].dtype, lr.to(params[0].device) if isinstance(lr, torch.Tensor) else lr
    grads = torch._foreach_mul([p.grad.to(acc) for p in params], scale)
    torch._foreach_lerp_(mean, grads, 1 - beta1)
    torch._foreach_mul_(square, beta2)
    torch._foreach_addcmul_(square, grads, grads, 1 - beta2)
    torch._foreach_maximum_(largest, square)
    steps = step.to(torch.float64) if isinstance(step, torch.Tensor) else step
    below = torch._foreach_sqrt(largest)
    torch._foreach_div_(below, (1 - beta2**steps) ** 0.5)
    torch._foreach_add_(below, group["eps"])
    change = torch._foreach_div(mean, below)
    torch._foreach_mul_(change, lr / (1 - beta1**steps))
    wide = torch._foreach_mul([p.to(acc) for p in params], 1 - lr * group["weight_decay"])
    torch._foreach_copy_(params, torch._foreach_sub(wide, change))
