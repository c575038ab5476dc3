"""Optimizers that torch has not, of several calls a step: Prodigy, which finds its rate, and CAME."""

from __future__ import annotations

from typing import Any

import baracuda_py as bc

from ...core.errors import InvalidProblemError
from ...expressions.elementwise import elementwise
from ...expressions.update import UpdateRule
from ...interop.dynamo import uncompiled
from ..untyped import torch
from .batches import Batch
from .by_rule import STEP, acc, at_least, rule
from .factored import _COLUMNS, _OF_FACTORS, _OF_VECTOR, _ROWS
from .others import _Own

_TOWARDS, _SIZE = bc.reduce("sum(g * (start - p))"), bc.reduce("sum(abs(s))")


class Prodigy(_Own):
    """Prodigy (Mishchenko and Defazio 2023, An Expeditiously Adaptive Parameter-Free Learner); see `ByRule`.

    Adam of gradients times d, the estimate of the distance to a solution, which grows from d0; lr is 1 or what a
    schedule makes of it: p ← p (1 − d lr · weight_decay) − d lr m / (sqrt(v) + d eps). All groups share d, a 0-d tensor
    on the device in the first one. d0, d_coef, growth_rate and safeguard_warmup are the authors'. Two launches for the
    step, and two reductions a tensor.
    """

    states = {"exp_avg": "m", "exp_avg_sq": "v", "s": "s", "start": ""}  # noqa: RUF012

    def __init__(
        self, params: Any, lr: float = 1.0, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0.0, *, beta3: float | None = None, d0: float = 1e-6, d_coef: float = 1.0,
        growth_rate: float = float("inf"), bias_correction: bool = False, safeguard_warmup: bool = False,
        maximize: bool = False,
    ) -> None:  # fmt: skip
        at_least("eps", eps)
        if not d0 > 0 or not d_coef > 0 or not growth_rate >= 1:
            raise InvalidProblemError(
                f"d0 and d_coef must be above 0 and growth_rate at least 1, got {d0}, {d_coef} and {growth_rate}"
            )
        self._made(
            params, lr=lr, betas=tuple(map(float, betas)), eps=eps, weight_decay=weight_decay, beta3=beta3, d0=d0,
            d_coef=d_coef, growth_rate=growth_rate, bias_correction=bool(bias_correction),
            safeguard_warmup=bool(safeguard_warmup), maximize=bool(maximize),
        )  # fmt: skip

    def begun(self, group: dict[str, Any], p: Any) -> dict[str, Any]:
        """Where the parameter began."""
        made = super().begun(group, p)
        made["start"].copy_(p)
        return made

    @uncompiled(STEP)
    def stepped(self, grad_scale: Any) -> None:
        """Moments and what tells the distance, of all groups; then d; then the step."""
        batches = [(g, b) for place, g in enumerate(self.param_groups) for b in self.batches(place, g)]
        if not batches:
            return
        lead = self.param_groups[0]
        if "d" not in lead:
            zero = torch.zeros((), dtype=torch.float64, device=batches[0][1].params[0].device)
            lead.update(d=zero + lead["d0"], d_max=zero + lead["d0"], towards=zero.clone())
        d, towards, size = lead["d"], 0.0, 0.0
        for group, batch in batches:
            self.batch = batch
            scale = -grad_scale if group["maximize"] else grad_scale
            group["rate"] = self._rate(group, batch, d)
            weight = d / group["d0"]
            towards = towards + weight * group["rate"] * scale * self._moments(group, batch, d, scale)
            size = size + sum(_SIZE(state["s"]).to(torch.float64) for state in batch.states)
            batch.runs += 1
        sums = lead["towards"] = lead["towards"] * self._beta3(lead) + towards
        if float(lead["lr"]) > 0:
            found = torch.where(size > 0, lead["d_coef"] * sums / size, torch.zeros_like(sums))
            first = torch.where(d == lead["d0"], torch.maximum(d, found), d)
            lead["d_max"] = torch.maximum(lead["d_max"], found)
            lead["d"] = torch.minimum(lead["d_max"], first * lead["growth_rate"])
        for group, batch in batches:
            self.rule(group)(
                p=batch.params, m=batch.lists["exp_avg"], v=batch.lists["exp_avg_sq"], d=lead["d"], rate=group["rate"],
                eps=group["eps"], weight_decay=group["weight_decay"],
            )  # fmt: skip

    def rule(self, group: dict[str, Any]) -> UpdateRule:
        """The step, once d is known."""
        return rule("prodigy_step")

    def _beta3(self, group: dict[str, Any]) -> float:
        return float(group["betas"][1] ** 0.5 if group["beta3"] is None else group["beta3"])

    def _rate(self, group: dict[str, Any], batch: Batch, d: Any) -> Any:
        t, (b1, b2) = self.counted_on(group, batch.states), group["betas"]
        corrected = (1 - b2**t) ** 0.5 / (1 - b1**t) if group["bias_correction"] else 1.0
        return d * (group["lr"] * corrected)

    def _moments(self, group: dict[str, Any], batch: Batch, d: Any, scale: Any) -> Any:
        """Gradients times the way back to where parameters began, summed; the moments are written."""
        grads, (b1, b2) = [p.grad for p in batch.params], group["betas"]
        back = [
            _TOWARDS(g=g, start=state["start"], p=p).to(torch.float64)
            for g, state, p in zip(grads, batch.states, batch.params, strict=True)
        ]
        pace = d / group["d0"] * (d if group["safeguard_warmup"] else group["rate"])
        rule("prodigy_moments")(
            g=grads, m=batch.lists["exp_avg"], v=batch.lists["exp_avg_sq"], s=batch.lists["s"], d=d, pace=pace, b1=b1,
            b2=b2, b3=self._beta3(group), grad_scale=scale,
        )  # fmt: skip
        return sum(back)


_RESIDUAL = elementwise("square(u - m) + eps")


class CAME(_Own):
    """CAME (Luo et al. 2023, Confidence-guided Adaptive Memory Efficient Optimization); see `ByRule`.

    u = g / sqrt(v), v by rows and columns as in Adafactor and cut to an RMS of `clip`; m ← β1 m + (1 − β1) u; of a
    matrix the step is m / sqrt(s), s being means of (u − m)² + eps[1] by rows and columns, by β3.
    p ← p (1 − lr · weight_decay) − lr · step.
    """

    states = {"exp_avg": "m", "exp_avg_sq": "", "row": "", "column": "", "unsure_row": "", "unsure_column": ""}  # noqa: RUF012

    def __init__(
        self, params: Any, lr: float = 2e-4, betas: tuple[float, float, float] = (0.9, 0.999, 0.9999),
        eps: tuple[float, float] = (1e-30, 1e-16), weight_decay: float = 0.0, *, clip: float = 1.0,
        maximize: bool = False,
    ) -> None:  # fmt: skip
        if not clip > 0:
            raise InvalidProblemError(f"clip must be above 0, got {clip}")
        self._made(
            params, lr=lr, betas=tuple(map(float, betas)), eps=tuple(map(float, eps)), weight_decay=weight_decay,
            clip=clip, maximize=bool(maximize),
        )  # fmt: skip

    def held(self, group: dict[str, Any]) -> tuple[str, ...]:
        """What all tensors have; a matrix has rows and columns besides, see `begun`."""
        return ("exp_avg",)

    def begun(self, group: dict[str, Any], p: Any) -> dict[str, Any]:
        """Rows and columns of a matrix, the second moment of a vector."""
        made = super().begun(group, p)
        if p.dim() < 2:
            return made | {"exp_avg_sq": torch.zeros_like(made["exp_avg"])}
        of_rows, of_columns = [*p.shape[:-1], 1], [*p.shape[:-2], 1, p.shape[-1]]
        shapes = {"row": of_rows, "column": of_columns, "unsure_row": of_rows, "unsure_column": of_columns}
        return made | {name: torch.zeros(s, dtype=acc(p), device=p.device) for name, s in shapes.items()}

    def rule(self, group: dict[str, Any]) -> UpdateRule:
        """The step, a direction for each tensor."""
        return rule("muon_step")

    def update(self, group: dict[str, Any], params: list[Any], grad_scale: Any) -> None:
        """A direction of each tensor, then the step of all."""
        self.counted_on(group, self.batch.states)
        places = [i for i, p in enumerate(params) if p.numel()]
        directions = [self._direction(group, params[i], self.batch.states[i], grad_scale) for i in places]
        lr = float(group["lr"])
        self.rule(group)(
            p=[params[i] for i in places], u=directions, lr=lr, rate=lr, weight_decay=group["weight_decay"]
        )

    def _direction(self, group: dict[str, Any], p: Any, state: dict[str, Any], scale: Any) -> Any:
        b1, b2, b3 = group["betas"]
        (least, unsure), g, m = group["eps"], p.grad.to(acc(p)) * scale, state["exp_avg"]
        if p.dim() < 2:
            state["exp_avg_sq"].lerp_(g * g + least, 1 - b2)
            u = _OF_VECTOR(scale=1.0, g=g, v=state["exp_avg_sq"], least=0.0)
        else:
            state["row"].lerp_(_ROWS(g) + least, 1 - b2)
            state["column"].lerp_(_COLUMNS(g) + least, 1 - b2)
            u = _by_factors(g, state["row"], state["column"])
        u /= (bc.global_norm([u]) / (p.numel() ** 0.5 * group["clip"])).clamp(min=1.0)
        m.lerp_(u, 1 - b1)
        if p.dim() < 2:
            return m.clone()
        residual = _RESIDUAL(u=u, m=m, eps=unsure)
        state["unsure_row"].lerp_(residual.mean(-1, keepdim=True), 1 - b3)
        state["unsure_column"].lerp_(residual.mean(-2, keepdim=True), 1 - b3)
        return _by_factors(m, state["unsure_row"], state["unsure_column"])


def _by_factors(x: Any, rows: Any, columns: Any) -> Any:
    """x over the root of what rows and columns stand for."""
    return _OF_FACTORS(scale=1.0, g=x, rows=rows / rows.mean(dim=-2, keepdim=True), columns=columns, least=0.0)


__all__ = ["CAME", "Prodigy"]
