"""torch.optim.Adafactor: second moments by rows and columns, the step by an update rule."""

from __future__ import annotations

from typing import Any

import baracuda_py as bc

from ...expressions.elementwise import elementwise
from ...expressions.update import UpdateRule
from ..untyped import torch
from .by_rule import ByRule, acc, rule

_ROWS, _COLUMNS = (bc.reduce("mean(g * g)", axis=axis, keepdims=True) for axis in (-1, -2))
_OF_FACTORS = elementwise("u = scale * g * rsqrt(maximum(rows * columns, least))")
_OF_VECTOR = elementwise("u = scale * g * rsqrt(maximum(v, least))")


class Adafactor(ByRule, torch.optim.Adafactor):  # type: ignore[misc]
    """torch.optim.Adafactor (Shazeer and Stern 2018); see `ByRule`.

    Of tensors of two axes and more the second moments are a row's and a column's mean squares, whose product over their
    mean stands for the whole; norms stay on the device. Per tensor two reductions, the direction and two norms; the
    step is one launch for all.
    """

    states = {"row_var": "", "col_var": "", "variance": ""}  # noqa: RUF012

    def begun(self, group: dict[str, Any], p: Any) -> dict[str, Any]:
        """Rows and columns, or the variance of a vector."""
        if p.grad.dim() < 2:
            return {"variance": torch.zeros_like(p, dtype=acc(p), memory_format=torch.preserve_format)}
        shape = list(p.shape)
        of_rows, of_columns = [*shape[:-1], 1], [*shape[:-2], 1, shape[-1]]
        return {
            name: torch.zeros(one, dtype=acc(p), device=p.device)
            for name, one in (("row_var", of_rows), ("col_var", of_columns))
        }

    def held(self, group: dict[str, Any]) -> tuple[str, ...]:
        """Those that a tensor has are its own, see `begun`."""
        return ("variance",)

    def alike(self, group: dict[str, Any]) -> list[list[Any]]:
        """As elsewhere; a matrix has no variance."""
        lists = super().alike(group)
        for p in (p for one in lists for p in one if p.dim() > 1):
            self.state[p].pop("variance", None)
        return lists

    def rule(self, group: dict[str, Any]) -> UpdateRule:
        """The step, a rate for each tensor."""
        return rule("adafactor_step")

    def update(self, group: dict[str, Any], params: list[Any], grad_scale: Any) -> None:
        """Moments and directions of each tensor, then the step of all."""
        states = [self.state[p] for p in params]
        t, lr = self.counted_on(group, states), float(group["lr"])
        pace, weight = min(lr, 1 / t**0.5), float(t) ** group["beta2_decay"]
        eps1, eps2 = group["eps"]
        eps1 = torch.finfo(params[0].dtype).eps if eps1 is None else eps1
        directions, rates = [], []
        params = [p for p in params if p.numel()]
        for p, state in ((p, self.state[p]) for p in params):
            u = self._direction(p.grad.to(acc(p)), state, weight, eps1, grad_scale)
            size = p.numel() ** 0.5
            rate = (bc.global_norm([p]) / size).clamp(min=eps2) * pace
            directions.append(u)
            rates.append(rate / (bc.global_norm([u]) / (size * group["d"])).clamp(min=1.0))
        decay = lr * group["weight_decay"]
        self.rule(group)(p=params, u=directions, rate=rates, decay=decay)

    def _direction(self, g: Any, state: dict[str, Any], weight: float, eps1: float, scale: Any) -> Any:
        least = eps1 * eps1
        square = scale * scale
        if g.dim() < 2:
            state["variance"].lerp_(g * g * square, weight)
            return _OF_VECTOR(scale=scale, g=g, v=state["variance"], least=least)
        rows, columns = state["row_var"], state["col_var"]
        rows.lerp_(_ROWS(g) * square, weight)
        columns.lerp_(_COLUMNS(g) * square, weight)
        share = rows / rows.mean(dim=-2, keepdim=True).clamp(min=eps1)
        return _OF_FACTORS(scale=scale, g=g, rows=share, columns=columns, least=least)
