"""Optimizers that torch has not: Lion, Adan, LAMB, LARS, in the form of torch.optim's."""

from __future__ import annotations

from typing import Any

from ...core.errors import InvalidProblemError
from ...expressions.update import UpdateRule
from ...ops.optimizer.foreach import foreach_norm
from ..untyped import torch
from .by_rule import ByRule, at_least, rule


class _Own(ByRule, torch.optim.Optimizer):  # type: ignore[misc]
    """An optimizer whose constructor is not torch's."""

    def _made(self, params: Any, capturable: bool | None = None, **defaults: Any) -> None:
        """Check the ranges that all have in common, and begin."""
        lr, betas = defaults["lr"], defaults.get("betas", ())
        at_least("lr", float(lr) if not isinstance(lr, torch.Tensor) else 0.0)
        at_least("weight_decay", defaults["weight_decay"])
        for i, beta in enumerate(betas):
            at_least(f"betas[{i}]", beta, below=1.0)
        facts = {} if capturable is None else {"capturable": bool(capturable)}
        torch.optim.Optimizer.__init__(self, params, {**defaults, **facts})

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for name, value in self.defaults.items():
                group.setdefault(name, value)


class Lion(_Own):
    """Lion (Chen et al. 2023, Symbolic Discovery of Optimization Algorithms); see `ByRule`.

    u = sign(β1 m + (1 − β1) g); p ← p (1 − lr · weight_decay) − lr u; m ← β2 m + (1 − β2) g.
    """

    states = {"exp_avg": "m"}  # noqa: RUF012
    counted = False

    def __init__(
        self, params: Any, lr: Any = 1e-4, betas: tuple[float, float] = (0.9, 0.99), weight_decay: float = 0.0, *,
        maximize: bool = False,
    ) -> None:  # fmt: skip
        self._made(params, lr=lr, betas=tuple(map(float, betas)), weight_decay=weight_decay, maximize=bool(maximize))

    def rule(self, group: dict[str, Any]) -> UpdateRule:
        """lion."""
        return rule("lion")

    def numbers(self, group: dict[str, Any], states: list[dict[str, Any]], t: Any) -> dict[str, Any]:
        """The betas."""
        return {"b1": group["betas"][0], "b2": group["betas"][1]}


class Adan(_Own):
    """Adan (Xie et al. 2022, Adaptive Nesterov Momentum Algorithm); see `ByRule`. betas weigh what was before.

    m, d and v are means of g, of its change g − g₋₁, and of (g + β2 (g − g₋₁))²;
    p ← (p − lr (m̂ + β2 d̂) / (sqrt(v̂) + eps)) / (1 + lr · weight_decay), hats being free of the beginning's bias.
    """

    states = {"exp_avg": "m", "exp_avg_diff": "d", "exp_avg_sq": "v", "last_grad": "last"}  # noqa: RUF012

    def __init__(
        self, params: Any, lr: Any = 1e-3, betas: tuple[float, float, float] = (0.98, 0.92, 0.99), eps: float = 1e-8,
        weight_decay: float = 0.0, *, maximize: bool = False, capturable: bool = False,
    ) -> None:  # fmt: skip
        at_least("eps", eps)
        self._made(
            params, capturable, lr=lr, betas=tuple(map(float, betas)), eps=eps, weight_decay=weight_decay,
            maximize=bool(maximize),
        )  # fmt: skip

    def rule(self, group: dict[str, Any]) -> UpdateRule:
        """adan."""
        return rule("adan")

    def numbers(self, group: dict[str, Any], states: list[dict[str, Any]], t: Any) -> dict[str, Any]:
        """The betas and eps."""
        b1, b2, b3 = group["betas"]
        return {"b1": b1, "b2": b2, "b3": b3, "eps": group["eps"]}


class LAMB(_Own):
    """LAMB (You et al. 2020, Large Batch Optimization for Deep Learning); see `ByRule`.

    u = m̂ / (sqrt(v̂) + eps) + weight_decay · p as in AdamW; p ← p − lr · (‖p‖ / ‖u‖) · u for each tensor, the ratio
    being 1 where either norm is 0, and at most `clip` where that is given. Three launches, and two for each tensor's
    norms.
    """

    states = {"exp_avg": "m", "exp_avg_sq": "v"}  # noqa: RUF012

    def __init__(
        self, params: Any, lr: Any = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-6,
        weight_decay: float = 0.01, *, clip: float | None = None, maximize: bool = False, capturable: bool = False,
    ) -> None:  # fmt: skip
        at_least("eps", eps)
        if clip is not None and clip <= 0:
            raise InvalidProblemError(f"clip must be above 0, got {clip}")
        self._made(
            params, capturable, lr=lr, betas=tuple(map(float, betas)), eps=eps, weight_decay=weight_decay, clip=clip,
            maximize=bool(maximize),
        )  # fmt: skip

    def rule(self, group: dict[str, Any]) -> UpdateRule:
        """The direction; p follows."""
        return rule("lamb_direction")

    def update(self, group: dict[str, Any], params: list[Any], grad_scale: Any) -> None:
        """The direction, norms, then the step."""
        states = [self.state[p] for p in params]
        u = [torch.empty_like(state["exp_avg"]) for state in states]
        b1, b2 = group["betas"]
        t = self.counted_on(group, states)
        m, v = ([state[name] for state in states] for name in ("exp_avg", "exp_avg_sq"))
        self.rule(group)(
            p=params, g=[p.grad for p in params], m=m, v=v, u=u, t=t, b1=b1, b2=b2, eps=group["eps"],
            weight_decay=group["weight_decay"], grad_scale=grad_scale,
        )  # fmt: skip
        ratio = _ratios(foreach_norm(params), foreach_norm(u))
        if group["clip"] is not None:
            ratio = ratio.clamp(max=group["clip"])
        rule("step_of_tensors")(p=params, u=u, trust=list(ratio.unbind()), lr=group["lr"])


class LARS(_Own):
    """LARS (You, Gitman and Ginsburg 2017, Large Batch Training of Convolutional Networks); see `ByRule`.

    m ← momentum · m + λ (g + weight_decay · p); p ← p − lr · m, where for each tensor
    λ = trust · ‖p‖ / (‖g‖ + weight_decay · ‖p‖ + eps), 1 where ‖p‖ or ‖g‖ is 0.
    """

    states = {"momentum_buffer": "m"}  # noqa: RUF012
    counted = False

    def __init__(
        self, params: Any, lr: Any = 1e-3, momentum: float = 0.9, weight_decay: float = 0.0, trust: float = 1e-3,
        eps: float = 1e-8, *, maximize: bool = False,
    ) -> None:  # fmt: skip
        for name, value in (("momentum", momentum), ("trust", trust), ("eps", eps)):
            at_least(name, value)
        self._made(
            params, lr=lr, momentum=momentum, weight_decay=weight_decay, trust=trust, eps=eps, maximize=bool(maximize)
        )

    def rule(self, group: dict[str, Any]) -> UpdateRule:
        """lars."""
        return rule("lars")

    def update(self, group: dict[str, Any], params: list[Any], grad_scale: Any) -> None:
        """Norms, then the step."""
        grads = [p.grad for p in params]
        of_params = torch.stack(foreach_norm(params))
        scale = abs(grad_scale) if not isinstance(grad_scale, torch.Tensor) else grad_scale.abs().to(of_params.device)
        of_grads = torch.stack(foreach_norm(grads)).to(of_params.dtype) * scale
        below = of_grads + group["weight_decay"] * of_params + group["eps"]
        here = (of_params > 0) & (of_grads > 0)
        trust = torch.where(here, group["trust"] * of_params / below, torch.ones_like(below))
        m = [self.state[p]["momentum_buffer"] for p in params]
        self.rule(group)(
            p=params, g=grads, m=m, trust=list(trust.unbind()), lr=group["lr"], beta=group["momentum"],
            weight_decay=group["weight_decay"], grad_scale=grad_scale,
        )  # fmt: skip


def _ratios(above: list[Any], below: list[Any]) -> Any:
    """Of each tensor, 1 where either is 0."""
    a, b = torch.stack(above), torch.stack(below)
    a = a.to(b.dtype)
    return torch.where((a > 0) & (b > 0), a / b, torch.ones_like(b))
