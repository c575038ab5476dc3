"""Optimizers that torch has not, each one launch a step: AdEMAMix, Sophia, schedule-free AdamW."""

from __future__ import annotations

import math
from typing import Any

from ...core.errors import InvalidProblemError
from ...expressions.update import UpdateRule
from ..untyped import torch
from .batches import Batch
from .by_rule import acc, at_least, rule
from .others import _Own


class AdEMAMix(_Own):
    """AdEMAMix (Pagliardini, Ablin and Grangier 2024, Better, Faster, Older); see `ByRule`.

    m and n are means of g by β1 and β3; p ← p − lr ((m̂ + α n) / (sqrt(v̂) + eps) + weight_decay · p).
    warmup: steps in which α and β3 grow from 0 and β1, as the paper has them; None: they are as given from the first.
    """

    states = {"exp_avg": "m", "exp_avg_slow": "slow", "exp_avg_sq": "v"}  # noqa: RUF012

    def __init__(
        self, params: Any, lr: Any = 1e-3, betas: tuple[float, float, float] = (0.9, 0.999, 0.9999), eps: float = 1e-8,
        weight_decay: float = 0.0, *, alpha: float = 5.0, warmup: int | None = None, maximize: bool = False,
    ) -> None:  # fmt: skip
        at_least("eps", eps)
        at_least("alpha", alpha)
        if warmup is not None and warmup < 1:
            raise InvalidProblemError(f"warmup must be at least 1 step, got {warmup}")
        self._made(
            params, lr=lr, betas=tuple(map(float, betas)), eps=eps, weight_decay=weight_decay, alpha=float(alpha),
            warmup=warmup, maximize=bool(maximize),
        )  # fmt: skip

    def rule(self, group: dict[str, Any]) -> UpdateRule:
        """ademamix."""
        return rule("ademamix")

    def numbers(self, group: dict[str, Any], states: list[dict[str, Any]], t: Any) -> dict[str, Any]:
        """The betas, and α, as far as they have grown."""
        b1, b2, b3 = group["betas"]
        alpha, share = group["alpha"], min(t / group["warmup"], 1.0) if group["warmup"] else 1.0
        if share < 1:
            alpha = share * alpha
            if 0 < b1 < b3:  # the half-life grows in even steps
                low, high = math.log(b1), math.log(b3)
                b3 = math.exp(low * high / ((1 - share) * high + share * low))
        return {"b1": b1, "b2": b2, "b3": b3, "alpha": alpha, "eps": group["eps"]}


class Sophia(_Own):
    """Sophia-G (Liu et al. 2023, A Scalable Stochastic Second-order Optimizer); see `ByRule`.

    m ← β1 m + (1 − β1) g; p ← p (1 − lr · weight_decay) − lr clamp(m / max(rho · batch_size · h, 1e-15), −1, 1).
    `update_hessian` takes the gradients of a loss at labels that were sampled from the model, every ten steps or so:
    h ← β2 h + (1 − β2) g². batch_size: of the labels, as it scales that estimate.
    """

    states = {"exp_avg": "m", "hessian": "h"}  # noqa: RUF012
    counted = False

    def __init__(
        self, params: Any, lr: Any = 1e-4, betas: tuple[float, float] = (0.965, 0.99), rho: float = 0.04,
        weight_decay: float = 0.1, *, batch_size: float = 1.0, maximize: bool = False,
    ) -> None:  # fmt: skip
        at_least("rho", rho)
        at_least("batch_size", batch_size)
        self._made(
            params, lr=lr, betas=tuple(map(float, betas)), rho=rho, weight_decay=weight_decay,
            batch_size=float(batch_size), maximize=bool(maximize),
        )  # fmt: skip

    def rule(self, group: dict[str, Any]) -> UpdateRule:
        """sophia."""
        return rule("sophia")

    def numbers(self, group: dict[str, Any], states: list[dict[str, Any]], t: Any) -> dict[str, Any]:
        """β1, rho and the batch's size."""
        return {"b1": group["betas"][0], "rho": group["rho"], "bs": group["batch_size"]}

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def update_hessian(self) -> None:
        """Take the gradients that parameters have now into the estimate of the Hessian's diagonal."""
        for group in self.param_groups:
            for params in self.alike(group):
                held = [self.state[p]["hessian"] for p in params]
                rule("sophia_hessian")(h=held, g=[p.grad for p in params], b2=group["betas"][1])


class AdamWScheduleFree(_Own):
    """AdamW without a schedule of rates (Defazio et al. 2024, The Road Less Scheduled); see `ByRule`.

    Gradients are taken at y = β1 x + (1 − β1) z, where z is what AdamW's step without momentum moves and x its mean,
    weighted by (step^r) (largest rate yet)^power. Parameters hold y; `eval()` puts x in their place, `train()` puts y
    back, and `step` is taken in the latter, which holds at the beginning. warmup: steps in which the rate grows.
    """

    states = {"z": "z", "exp_avg_sq": "v"}  # noqa: RUF012
    counted = False

    def __init__(
        self, params: Any, lr: float = 2.5e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0.0, *, warmup: int = 0, r: float = 0.0, power: float = 2.0, maximize: bool = False,
    ) -> None:  # fmt: skip
        at_least("eps", eps)
        if not 0 < betas[0] < 1:
            raise InvalidProblemError(f"betas[0] must lie between 0 and 1, got {betas[0]}")
        self._made(
            params, lr=float(lr), betas=tuple(map(float, betas)), eps=eps, weight_decay=weight_decay, warmup=warmup,
            r=r, power=power, maximize=bool(maximize), steps=0, largest=0.0, weights=0.0, training=True,
        )  # fmt: skip

    def begun(self, group: dict[str, Any], p: Any) -> dict[str, Any]:
        """z begins where the parameter is."""
        made = super().begun(group, p)
        made["z"].copy_(p)
        return made

    def batches(self, place: int, group: dict[str, Any]) -> list[Batch]:
        """As elsewhere, once a step: the rate and this step's weight in the mean."""
        if not group["training"]:
            raise InvalidProblemError("step: the parameters hold the mean after eval(); call train() first")
        group["steps"] += 1
        t = group["steps"]
        group["rate"] = group["lr"] * min(1.0, t / group["warmup"] if group["warmup"] else 1.0)
        group["largest"] = max(group["largest"], group["rate"])
        weight = t ** group["r"] * group["largest"] ** group["power"]
        group["weights"] += weight
        group["share"] = weight / group["weights"] if group["weights"] else 0.0
        return super().batches(place, group)

    def rule(self, group: dict[str, Any]) -> UpdateRule:
        """schedule_free."""
        return rule("schedule_free")

    def numbers(self, group: dict[str, Any], states: list[dict[str, Any]], t: Any) -> dict[str, Any]:
        """The rate, the weight, and what Adam has."""
        b1, b2 = group["betas"]
        found = {"lr": group["rate"], "c": group["share"], "t": group["steps"]}
        return {**found, "b1": b1, "b2": b2, "eps": group["eps"]}

    def train(self) -> None:
        """Parameters hold y, at which gradients are taken."""
        self._moved(True)

    def eval(self) -> None:
        """Parameters hold x, the mean."""
        self._moved(False)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _moved(self, training: bool) -> None:
        for group in self.param_groups:
            if group["training"] == training:
                continue
            group["training"] = training
            b1 = group["betas"][0]
            share = 1 - b1 if training else 1 - 1 / b1
            for p in group["params"]:
                if "z" in self.state.get(p, {}):
                    z = self.state[p]["z"]
                    p.copy_(p.to(acc(p)).lerp(z, share))


__all__ = ["AdEMAMix", "AdamWScheduleFree", "Sophia"]
