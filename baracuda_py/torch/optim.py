"""AdamW over all tensors of a group in one launch, as a torch.optim.Optimizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import baracuda_py as bc

from ..core.errors import InvalidProblemError, UnsupportedError
from .untyped import torch


class AdamW(torch.optim.Optimizer):  # type: ignore[misc]
    """torch.optim.AdamW (Loshchilov and Hutter 2019) in one launch for all tensors of a group that are of one kind.

    Moments are float32 (float64 for float64), also of 16-bit parameters. lr may be a 0-d tensor on the device.
    capturable: the steps are counted on the device, so that a CUDA graph can hold `step`.
    state_dict has torch's keys, and either loads the other's.
    """

    def __init__(
        self, params: Any, lr: Any = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 1e-2, *, maximize: bool = False, capturable: bool = False,
    ) -> None:  # fmt: skip
        for name, value, holds in (
            ("lr", lr, not isinstance(lr, (int, float)) or lr >= 0),
            ("betas", betas, len(betas) == 2 and all(0 <= b < 1 for b in betas)),
            ("eps", eps, eps >= 0),
            ("weight_decay", weight_decay, weight_decay >= 0),
        ):
            if not holds:
                raise InvalidProblemError(f"{name} is out of range: {value}")
        facts = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, {**facts, "maximize": maximize, "capturable": capturable})

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step(self, closure: Callable[[], Any] | None = None, *, grad_scale: Any = 1.0) -> Any:
        """One step. grad_scale: a factor of the gradients, a number or a 0-d tensor, such as `global_norm`'s clip."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
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
                acc = torch.promote_types(p.dtype, torch.float32)
                state["step"] = fresh[on] if group["capturable"] else fresh[on].clone()
                state["exp_avg"] = torch.zeros_like(p, dtype=acc, memory_format=torch.preserve_format)
                state["exp_avg_sq"] = torch.zeros_like(p, dtype=acc, memory_format=torch.preserve_format)
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
        sign = -1.0 if group["maximize"] else 1.0
        bc.adam_step(
            params, [p.grad for p in params], [s["exp_avg"] for s in states], [s["exp_avg_sq"] for s in states],
            beta1=group["betas"][0], beta2=group["betas"][1], eps=group["eps"], weight_decay=group["weight_decay"],
            lr=group["lr"], step=step, grad_scale=sign * grad_scale,
        )  # fmt: skip

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As torch's, but moments of 16-bit parameters stay float32, and steps that are equal are one tensor."""
        super().load_state_dict(state_dict)
        given = [index for group in state_dict["param_groups"] for index in group["params"]]
        held = [p for group in self.param_groups for p in group["params"]]
        for index, p in zip(given, held, strict=True):
            for name in ("exp_avg", "exp_avg_sq"):
                if index in state_dict["state"]:
                    acc = torch.promote_types(p.dtype, torch.float32)
                    self.state[p][name] = state_dict["state"][index][name].to(p.device, acc, copy=True)
        for group in self.param_groups:
            shared: dict[Any, Any] = {}
            for p in group["params"]:
                if group["capturable"] and p in self.state:
                    step = self.state[p]["step"].to(p.device, torch.float32)
                    self.state[p]["step"] = shared.setdefault((p.device, float(step)), step)
