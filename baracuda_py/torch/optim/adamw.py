"""AdamW over all tensors of a group in one launch, as a torch.optim.Optimizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import baracuda_py as bc

from ...core.errors import InvalidProblemError, UnsupportedError
from ..untyped import torch

_MOMENTS = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")


class AdamW(torch.optim.AdamW):  # type: ignore[misc]
    """torch.optim.AdamW (Loshchilov and Hutter 2019) in one launch for all tensors of a group that are of one kind.

    Moments are float32 (float64 for float64), also of 16-bit parameters. lr may be a 0-d tensor on the device.
    capturable: the steps are counted on the device, so that a CUDA graph can hold `step`.
    foreach, fused: what this is in either case; with fused=True a `GradScaler` leaves it to `step` to unscale gradients
    and to skip a step. amsgrad is composed of torch's operations over lists. differentiable is refused.
    state_dict has torch's keys, and either loads the other's.
    """

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

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As torch's."""
        super().add_param_group(param_group)
        _refuse_differentiable(self.param_groups[-1:])

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step(self, closure: Callable[[], Any] | None = None, *, grad_scale: Any = 1.0) -> Any:
        """One step. grad_scale: a factor of the gradients, a number or a 0-d tensor, such as `global_norm`'s clip."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        found_inf, scaled = getattr(self, "found_inf", None), getattr(self, "grad_scale", None)  # by a GradScaler
        if found_inf is not None and float(found_inf):
            return loss
        if scaled is not None:
            grad_scale = grad_scale / scaled
        for group in self.param_groups:
            for params in self._alike(group):
                self._update(group, params, grad_scale)
        return loss

    def _alike(self, group: dict[str, Any]) -> list[list[Any]]:
        """The parameters that have a gradient, in lists of one device, dtype and count of steps."""
        lists: dict[Any, list[Any]] = {}
        fresh: dict[Any, Any] = {}  # the counter of those that take their first step now
        for p in group["params"]:
            if p.grad is None:
                continue
            if p.grad.is_sparse or p.is_complex():
                raise UnsupportedError("AdamW takes dense, real parameters and gradients")
            state = self.state[p]
            if not state:
                on = p.device if group["capturable"] else "cpu"
                if on not in fresh:
                    fresh[on] = torch.zeros((), dtype=torch.float32, device=on)
                state["step"] = fresh[on] if group["capturable"] else fresh[on].clone()
            for name in _MOMENTS if group["amsgrad"] else _MOMENTS[:2]:
                if name not in state:
                    state[name] = torch.zeros_like(p, dtype=_acc(p), memory_format=torch.preserve_format)
            step = state["step"]
            count = id(step) if group["capturable"] else float(step)
            lists.setdefault((p.device, p.dtype, p.grad.dtype, count), []).append(p)
        return list(lists.values())

    def _update(self, group: dict[str, Any], params: list[Any], grad_scale: Any) -> None:
        states = [self.state[p] for p in params]
        if group["capturable"]:
            states[0]["step"] += 1
            step = states[0]["step"].to(torch.int64)
        else:
            for state in states:
                state["step"] += 1
            step = int(states[0]["step"])
        lr = group["lr"].reshape(()) if isinstance(group["lr"], torch.Tensor) else group["lr"]
        scale = -grad_scale if group["maximize"] else grad_scale
        scale = scale.to(params[0].device).reshape(()) if isinstance(scale, torch.Tensor) else scale
        if group["amsgrad"]:
            _amsgrad(group, params, states, lr, step, scale)
            return
        beta1, beta2 = map(float, group["betas"])
        bc.adam_step(
            params, [p.grad for p in params], [s["exp_avg"] for s in states], [s["exp_avg_sq"] for s in states],
            beta1=beta1, beta2=beta2, eps=group["eps"], weight_decay=group["weight_decay"], lr=lr, step=step,
            grad_scale=scale,
        )  # fmt: skip

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As torch's, but moments of 16-bit parameters stay float32, and steps that are equal are one tensor."""
        _refuse_differentiable(state_dict["param_groups"])
        super().load_state_dict(state_dict)
        given = [index for group in state_dict["param_groups"] for index in group["params"]]
        held = [p for group in self.param_groups for p in group["params"]]
        for index, p in zip(given, held, strict=True):
            saved = state_dict["state"].get(index, {})
            for name in _MOMENTS:
                if name in saved:
                    self.state[p][name] = saved[name].to(p.device, _acc(p), copy=True)
        for group in self.param_groups:
            shared: dict[Any, Any] = {}
            for p in group["params"]:
                if p not in self.state:
                    continue
                step = self.state[p]["step"].to(p.device if group["capturable"] else "cpu", torch.float32)
                same = shared.setdefault((p.device, float(step)), step) if group["capturable"] else step
                self.state[p]["step"] = same


def _acc(parameter: Any) -> Any:
    """The dtype of a parameter's moments."""
    return torch.promote_types(parameter.dtype, torch.float32)


def _refuse_differentiable(groups: list[dict[str, Any]]) -> None:
    if any(group.get("differentiable") for group in groups):
        raise UnsupportedError(
            "differentiable: the step writes parameters in place and takes no part in autograd; leave it out, or take "
            "torch.optim.AdamW(differentiable=True)"
        )


def _amsgrad(
    group: dict[str, Any], params: list[Any], states: list[dict[str, Any]], lr: Any, step: Any, scale: Any
) -> None:
    """AdamW with the largest second moment until now in the place of the last one, in the moments' dtype."""
    beta1, beta2 = map(float, group["betas"])
    mean, square, largest = ([state[name] for state in states] for name in _MOMENTS)
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
