"""torch.optim.LBFGS, whose two loops stay on the device, and SparseAdam, of the rows that a gradient has."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import baracuda_py as bc

from ...core.checked import shown
from ...core.errors import InvalidProblemError, UnsupportedError
from ...interop.dynamo import uncompiled
from ..untyped import torch
from .by_rule import STEP, acc, loss_of, rule

_search = sys.modules[torch.optim.LBFGS.__module__]._strong_wolfe
_LEAST_CURVATURE = 1e-10


class LBFGS(torch.optim.LBFGS):  # type: ignore[misc]
    """torch.optim.LBFGS (Liu and Nocedal 1989), its keywords, line search and state_dict; either loads the other's.

    The direction is `bc.lbfgs_direction`, whose inner products stay on the device, where torch waits for each of two a
    pair; an iteration waits for the closure's loss and for what decides whether to go on. 16-bit parameters, complex
    ones and sparse gradients: torch's own.
    """

    @torch.no_grad()  # type: ignore[untyped-decorator]
    @uncompiled(STEP)
    def step(self, closure: Callable[[], Any]) -> Any:
        """Up to max_iter iterations; closure clears gradients, makes the loss and its gradients, and gives the loss."""
        group, state = self.param_groups[0], self.state[self._params[0]]
        if any(p.dtype not in (torch.float32, torch.float64) for p in self._params):
            return super().step(closure)
        search = group["line_search_fn"]
        if search not in (None, "strong_wolfe"):
            raise InvalidProblemError(f"line_search_fn must be None or 'strong_wolfe', got {shown(search)}")
        evaluate = torch.enable_grad()(closure)
        first = evaluate()
        loss, grad = float(first), self._gather_flat_grad()
        evaluations = 1
        state.setdefault("n_iter", 0)
        state["func_evals"] = state.get("func_evals", 0) + 1
        if self._flat(group, grad):
            return first
        rate = float(group["lr"])
        for iteration in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            d = state["d"] = self._direction(group, state, grad)
            state["prev_flat_grad"], before = grad.clone(memory_format=torch.contiguous_format), loss
            state["prev_loss"] = loss
            # The first step has no curvature to be scaled by, and moves by at most the rate.
            t = min(1.0, 1.0 / float(grad.abs().sum())) * rate if state["n_iter"] == 1 else rate
            slope = grad.dot(d)
            state["t"] = t
            if float(slope) > -group["tolerance_change"]:
                break
            last, more = iteration == group["max_iter"], 0
            if search is not None:
                loss, grad, t, more = self._searched(evaluate, t, d, loss, grad, slope, group["max_eval"] - evaluations)
                state["t"] = t
                self._add_grad(t, d)
                done = self._flat(group, grad)
            else:
                self._add_grad(t, d)
                done = False
                if not last:
                    loss, grad, more = float(evaluate()), self._gather_flat_grad(), 1
                    done = self._flat(group, grad)
            evaluations += more
            state["func_evals"] += more
            still = float((d * t).abs().max()) <= group["tolerance_change"]
            if (
                last
                or evaluations >= group["max_eval"]
                or done
                or still
                or abs(loss - before) < group["tolerance_change"]
            ):
                break
        return first

    def _flat(self, group: dict[str, Any], grad: Any) -> bool:
        return float(grad.abs().max()) <= float(group["tolerance_grad"])

    def _direction(self, group: dict[str, Any], state: dict[str, Any], grad: Any) -> Any:
        """The next direction; pairs of a step and a change of the gradient are counted in, the oldest forgotten."""
        if state["n_iter"] == 1:
            state.update(old_dirs=[], old_stps=[], ro=[], H_diag=1)
            return grad.neg()
        y, s = grad - state["prev_flat_grad"], state["d"] * state["t"]
        curvature = y.dot(s)
        if float(curvature) > _LEAST_CURVATURE:
            if len(state["old_dirs"]) == group["history_size"]:
                for name in ("old_dirs", "old_stps", "ro"):
                    state[name].pop(0)
            state["old_dirs"].append(y)
            state["old_stps"].append(s)
            state["ro"].append(1.0 / curvature)
            state["H_diag"] = curvature / y.dot(y)
        gamma = state["H_diag"]
        pairs = state["old_stps"], state["old_dirs"]
        return bc.lbfgs_direction(grad, *pairs, rho=state["ro"], gamma=gamma)

    def _searched(
        self, evaluate: Any, t: float, d: Any, loss: float, grad: Any, slope: Any, most: int
    ) -> tuple[float, Any, float, int]:  # fmt: skip
        """torch's own line search, which keeps the strong conditions of Wolfe: loss, gradient, t, evaluations."""
        start = self._clone_param()

        def at(x: Any, t: Any, d: Any) -> Any:
            return self._directional_evaluate(evaluate, x, t, d)

        found: tuple[float, Any, float, int] = _search(at, start, t, d, loss, grad, slope, max_ls=most)
        return found


class SparseAdam(torch.optim.SparseAdam):  # type: ignore[misc]
    """torch.optim.SparseAdam, with its keywords and state_dict: Adam of the rows that a sparse gradient has.

    Those rows of the parameter and of its moments are gathered, stepped by one launch for all parameters of a count of
    steps, and put back. A gradient is coalesced by torch. Parameters are dense and real; moments of 16-bit ones are
    float32.
    """

    @torch.no_grad()  # type: ignore[untyped-decorator]
    @uncompiled(STEP)
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step."""
        loss = loss_of(closure)
        for group in self.param_groups:
            by_count: dict[int, list[Any]] = {}
            for p in group["params"]:
                if p.grad is None:
                    continue
                if not p.grad.is_sparse or p.is_complex():
                    raise UnsupportedError(
                        "SparseAdam takes real parameters with sparse gradients; give others to Adam"
                    )
                state = self.state[p]
                if not state:
                    zeros = torch.zeros_like(p, dtype=acc(p), memory_format=torch.preserve_format)
                    state.update(step=0, exp_avg=zeros, exp_avg_sq=torch.zeros_like(zeros))
                state["step"] += 1
                by_count.setdefault(state["step"], []).append(p)
            for t, params in by_count.items():
                self._stepped(group, t, params)
        return loss

    def _stepped(self, group: dict[str, Any], t: int, params: list[Any]) -> None:
        """The rows of parameters that have taken as many steps."""
        found = [_rows(p) for p in params]
        held = [
            [_flat(x, rows).index_select(0, places) for x in (p, self.state[p]["exp_avg"], self.state[p]["exp_avg_sq"])]
            for p, (rows, places, _) in zip(params, found, strict=True)
        ]
        lists = dict(zip("pmv", map(list, zip(*held, strict=True)), strict=True))
        b1, b2 = map(float, group["betas"])
        rule("sparse_adam")(
            **lists, g=[values for _, _, values in found], t=t, lr=float(group["lr"]), b1=b1, b2=b2, eps=group["eps"],
            grad_scale=-1.0 if group.get("maximize") else 1.0,
        )  # fmt: skip
        for p, (rows, places, _), stepped in zip(params, found, held, strict=True):
            for x, made in zip((p, self.state[p]["exp_avg"], self.state[p]["exp_avg_sq"]), stepped, strict=True):
                _flat(x, rows).index_copy_(0, places, made)


def _rows(p: Any) -> tuple[int, Any, Any]:
    """Of a sparse gradient: how many rows its leading axes have, which of them it has, and their values [., rest]."""
    grad = p.grad.coalesce()
    lead, places = p.shape[: grad.sparse_dim()], grad.indices()[0]
    for axis in range(1, grad.sparse_dim()):
        places = places * lead[axis] + grad.indices()[axis]
    return lead.numel(), places, grad.values().reshape(places.numel(), p.shape[grad.sparse_dim() :].numel())


def _flat(x: Any, rows: int) -> Any:
    """A view [rows, rest] of a dense tensor."""
    if not x.is_contiguous():
        raise UnsupportedError("SparseAdam takes contiguous parameters")
    return x.view(rows, x.numel() // max(rows, 1))


__all__ = ["LBFGS", "SparseAdam"]
