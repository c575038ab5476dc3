"""GaLore: any optimizer in a subspace of each matrix's gradient, which changes every so many steps."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import baracuda_py as bc

from ...core.checked import shown
from ...core.errors import InvalidProblemError, UnsupportedError
from ...interop.dynamo import uncompiled
from ..untyped import torch
from .by_rule import STEP, acc, at_least, loss_of, rule

_READ_PARAMETERS = ("Adafactor", "AdamWScheduleFree", "LAMB", "LARS", "LBFGS", "Prodigy", "SparseAdam", "ZeroOptimizer")
"""Whose step depends on the parameter's value, of which a subspace has none."""
_OWN = {"rank": None, "update_proj_gap": 200, "scale": 0.25, "proj_type": "std"}
_TYPES = ("std", "reverse_std", "left", "right")


class GaLore(torch.optim.Optimizer):  # type: ignore[misc]
    """An optimizer whose states of matrices have a rank (Zhao et al. 2024, Gradient Low-Rank Projection).

        optimizer = GaLore([{"params": matrices, "rank": 128}, {"params": rest}], AdamW, lr=1e-3)

    Every update_proj_gap steps the gradient [m, n] of a matrix gives a basis q of its `rank` leading singular vectors;
    the optimizer steps on g q (or qᵀ g), and p ← p (1 − lr · weight_decay) + scale · (its change) qᵀ. The shorter side
    is kept with proj_type "std", the longer with "reverse_std"; "left" and "right" name the side of q. svd: "full", or
    "lowrank", by products with random vectors (Halko et al. 2011). Groups without a rank, and tensors that are no
    matrix or have no side above the rank, are stepped as they are. Keywords of a group are those of the authors.

    optimizer_class: one whose change does not depend on the parameter's value: Adam, AdamW and their 8-bit forms, SGD,
    Lion, RMSprop, Muon, SOAP and such; its own weight decay is 0 for the subspace. Changes and states are float32 or
    float64. `state_dict` has the optimizer's under "inner".
    """

    def __init__(
        self, params: Any, optimizer_class: Callable[..., Any], *, rank: int | None = None, update_proj_gap: int = 200,
        scale: float = 0.25, proj_type: str = "std", svd: str = "full", **options: Any,
    ) -> None:  # fmt: skip
        name = getattr(optimizer_class, "__name__", shown(optimizer_class))
        if name in _READ_PARAMETERS:
            raise UnsupportedError(
                f"GaLore: the step of {name} depends on the parameters, of which a subspace has none"
            )
        if svd not in ("full", "lowrank"):
            raise InvalidProblemError(f"svd must be 'full' or 'lowrank', got {shown(svd)}")
        self.svd = svd
        self.inner: Any = None
        self.low: dict[Any, Any] = {}
        own = {"rank": rank, "update_proj_gap": update_proj_gap, "scale": scale, "proj_type": proj_type}
        super().__init__(params, {**_OWN, **own})
        inner = []
        for group in self.param_groups:
            _checked(group)
            kept = {k: v for k, v in group.items() if k not in (*_OWN, "params")}
            inner.append({**kept, "params": [self._stand_in(group, p) for p in group["params"]]})
        self.inner = optimizer_class(inner, **options)
        self.defaults.update({k: v for k, v in self.inner.defaults.items() if k not in self.defaults})
        for group, theirs in zip(self.param_groups, self.inner.param_groups, strict=True):
            for key, value in theirs.items():
                group.setdefault(key, value)
            self._follow(group, theirs)

    def _stand_in(self, group: dict[str, Any], p: Any) -> Any:
        """What the optimizer steps on: the parameter, or a matrix of its subspace, which is 0 between steps."""
        shape = _projected(group, p)
        if shape is None:
            return p
        self.low[p] = torch.nn.Parameter(torch.zeros(shape, dtype=acc(p), device=p.device))
        return self.low[p]

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Groups are given when it is made."""
        if self.inner is not None:
            raise UnsupportedError("GaLore takes its groups when it is made")
        super().add_param_group(param_group)

    def _follow(self, group: dict[str, Any], theirs: dict[str, Any]) -> None:
        """What a schedule may have changed, but the decay of matrices, which is of the parameters."""
        theirs.update({k: group[k] for k in theirs if k in group and k != "params"})
        if any(p in self.low for p in group["params"]):
            if any(p not in self.low for p in group["params"]) and group.get("weight_decay"):
                raise InvalidProblemError(
                    "weight_decay: a group with a rank has tensors that are no matrix above it; give them another group"
                )
            if "weight_decay" in theirs:
                theirs["weight_decay"] = 0.0

    @torch.no_grad()  # type: ignore[untyped-decorator]
    @uncompiled(STEP)
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step."""
        loss = loss_of(closure)
        for group, theirs in zip(self.param_groups, self.inner.param_groups, strict=True):
            self._follow(group, theirs)
            for p in (p for p in group["params"] if p in self.low):
                self.low[p].grad = None if p.grad is None else self._down(group, p)
        self.inner.step()
        for group in self.param_groups:
            stepped = [p for p in group["params"] if p in self.low and p.grad is not None]
            if stepped:
                up = [self._up(p) for p in stepped]
                rule("muon_step")(
                    p=stepped, u=up, lr=float(group["lr"]), rate=-float(group["scale"]),
                    weight_decay=group.get("weight_decay", 0.0),
                )  # fmt: skip
                for p in stepped:
                    self.low[p].zero_()
        return loss

    def _down(self, group: dict[str, Any], p: Any) -> Any:
        """The gradient in the subspace, which is made anew when its time has come."""
        state, g = self.state[p], p.grad.to(acc(p))
        count = state.get("step", 0)
        if count % group["update_proj_gap"] == 0:
            state["basis"] = self._basis(group, g, _on_the_right(group, p), count)
        state["step"] = count + 1
        right, q = _on_the_right(group, p), state["basis"]
        return bc.matmul(g, q) if right else bc.matmul(q.T, g)

    def _basis(self, group: dict[str, Any], g: Any, right: bool, count: int) -> Any:
        rank = group["rank"]
        if self.svd == "lowrank":
            u, _, v = bc.svd_lowrank(g, rank, seed=count)
            return (v if right else u).contiguous()
        u, _, vh = bc.svd(g, False)
        return (vh[:rank].T if right else u[:, :rank]).contiguous()

    def _up(self, p: Any) -> Any:
        q, low = self.state[p]["basis"], self.low[p]
        return bc.matmul(low, q.T) if low.shape[0] == p.shape[0] and q.shape[0] == p.shape[1] else bc.matmul(q, low)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As torch's."""
        super().zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        """Bases and counts, and the optimizer's own under "inner"."""
        return {**super().state_dict(), "inner": self.inner.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """That of `state_dict`; bases keep their dtype."""
        given = copy.copy(state_dict)
        self.inner.load_state_dict(given.pop("inner"))
        super().load_state_dict(given)
        held = [p for group in self.param_groups for p in group["params"]]
        places = [i for group in given["param_groups"] for i in group["params"]]
        for i, p in zip(places, held, strict=True):
            saved = given["state"].get(i, {}).get("basis")
            if saved is not None:
                self.state[p]["basis"] = saved.to(p.device, acc(p), copy=True)


def _checked(group: dict[str, Any]) -> None:
    if group["rank"] is not None:
        at_least("rank", group["rank"], 1)
    at_least("update_proj_gap", group["update_proj_gap"], 1)
    if group["proj_type"] not in _TYPES:
        raise InvalidProblemError(
            f"proj_type must be one of {', '.join(map(repr, _TYPES))}, got {shown(group['proj_type'])}"
        )


def _on_the_right(group: dict[str, Any], p: Any) -> bool:
    """Whether q multiplies from the right, so that rows are kept."""
    kind, tall = group["proj_type"], p.shape[0] >= p.shape[1]
    return bool(kind == "right" or (kind == "std" and tall) or (kind == "reverse_std" and not tall))


def _projected(group: dict[str, Any], p: Any) -> tuple[int, int] | None:
    """The shape in the subspace, None where there is none."""
    if group["rank"] is None or p.dim() != 2 or min(p.shape) <= group["rank"]:
        return None
    rows, cols = p.shape
    return (rows, group["rank"]) if _on_the_right(group, p) else (group["rank"], cols)


__all__ = ["GaLore"]
