"""Shampoo and SOAP: steps preconditioned along each axis of a tensor, of products, eigenvectors and QR."""

from __future__ import annotations

from typing import Any

import baracuda_py as bc

from ...core.errors import InvalidProblemError
from ...expressions.elementwise import elementwise
from ...expressions.update import UpdateRule
from ..untyped import torch
from .by_rule import acc, at_least, rule
from .others import _Own

_AXES = range(8)
_OF_SQUARES = elementwise("u = g / (sqrt(s) + eps)")


class _Preconditioned(_Own):
    """Gram matrices of a tensor's axes: of axis i the products of its slices, [n, n]."""

    @staticmethod
    def axes(group: dict[str, Any], p: Any) -> list[int]:
        """The axes that have a preconditioner: those of at most max_precond_dim, of vectors only where asked."""
        if p.dim() == 0 or (p.dim() == 1 and not group["precondition_1d"]) or p.numel() == 0:
            return []
        return [i for i in range(p.dim()) if 1 < p.shape[i] <= group["max_precond_dim"]]

    def rule(self, group: dict[str, Any]) -> UpdateRule:
        """The step, a direction for each tensor."""
        return rule("muon_step")

    def update(self, group: dict[str, Any], params: list[Any], grad_scale: Any) -> None:
        """A direction of each tensor, then the step of all."""
        t = self.counted_on(group, self.batch.states)
        places = [i for i, p in enumerate(params) if p.numel()]
        found = [self.direction(group, params[i], self.batch.states[i], t, grad_scale) for i in places]
        lr, kept = float(group["lr"]), [i for i, u in zip(places, found, strict=True) if u is not None]
        if kept:
            self.rule(group)(
                p=[params[i] for i in kept], u=[u for u in found if u is not None], lr=lr, rate=lr,
                weight_decay=group["weight_decay"],
            )  # fmt: skip

    def direction(self, group: dict[str, Any], p: Any, state: dict[str, Any], t: int, scale: Any) -> Any:
        """What a tensor goes along, or None for no step."""
        raise NotImplementedError

    def key(self, group: dict[str, Any], state: dict[str, Any]) -> Any:
        """Counts of steps; those of the device are of no use to what the host decides by."""
        return float(state["step"])


def _gram(g: Any, axis: int, before: Any, keep: float, share: float) -> None:
    """before ← keep · before + share · (slices of g along an axis by themselves)."""
    rows = g.movedim(axis, 0).reshape(g.shape[axis], -1)
    bc.syrk(rows, before, alpha=share, beta=keep, out=before)


def _turned(x: Any, matrices: list[Any]) -> Any:
    """x times a matrix along each axis, Σ x[…, i, …] q[i, j]; None leaves an axis."""
    for q in matrices:
        if q is None:
            x = x.movedim(0, -1)
            continue
        rest = x.shape[1:]
        x = bc.matmul(x.reshape(x.shape[0], -1).T, q).reshape(*rest, q.shape[1])
    return x


class Shampoo(_Preconditioned):
    """Shampoo (Gupta, Koren and Singer 2018, Preconditioned Stochastic Tensor Optimization); see `ByRule`.

    Of each axis of a tensor with k of them L ← L + g gᵀ, from eps · I on (with beta2: β2 L + (1 − β2) g gᵀ), and
    u = g times L^(−1 / 2k) along each; m ← momentum · m + u; p ← p (1 − lr · weight_decay) − lr m. Roots are by `eigh`,
    every update_freq steps. Axes longer than max_precond_dim are left; a tensor without any has s ← s + g² (or the mean
    by β2) and u = g / (sqrt(s) + eps). precondition_1d: vectors have a matrix, too.
    """

    states = {  # noqa: RUF012
        "momentum_buffer": "m", "square": "", **{f"gram_{i}": "" for i in _AXES}, **{f"root_{i}": "" for i in _AXES},
    }  # fmt: skip

    def __init__(
        self, params: Any, lr: float = 0.1, momentum: float = 0.0, weight_decay: float = 0.0, eps: float = 1e-4,
        update_freq: int = 1, *, beta2: float | None = None, max_precond_dim: int = 8192,
        precondition_1d: bool = True, maximize: bool = False,
    ) -> None:  # fmt: skip
        at_least("momentum", momentum)
        at_least("update_freq", update_freq, 1)
        at_least("max_precond_dim", max_precond_dim)
        if not eps > 0:
            raise InvalidProblemError(f"eps must be above 0, got {eps}")
        if beta2 is not None:
            at_least("beta2", beta2, below=1.0)
        self._made(
            params, lr=lr, momentum=momentum, weight_decay=weight_decay, eps=eps, update_freq=int(update_freq),
            beta2=beta2, max_precond_dim=int(max_precond_dim), precondition_1d=bool(precondition_1d),
            maximize=bool(maximize),
        )  # fmt: skip

    def held(self, group: dict[str, Any]) -> tuple[str, ...]:
        """What all tensors have; see `begun`."""
        return ("momentum_buffer",) if group["momentum"] else ()

    def begun(self, group: dict[str, Any], p: Any) -> dict[str, Any]:
        """Matrices of the axes, or squares."""
        made, axes = super().begun(group, p), self.axes(group, p)
        for i in axes:
            made[f"gram_{i}"] = group["eps"] * torch.eye(p.shape[i], dtype=acc(p), device=p.device)
        if not axes:
            made["square"] = torch.zeros_like(p, dtype=acc(p))
        return made

    def alike(self, group: dict[str, Any]) -> list[list[Any]]:
        """As elsewhere; what only some tensors have is begun here."""
        for p in group["params"]:
            if p.grad is not None and not self.state[p] and not p.grad.is_sparse and not p.is_complex():
                self.state[p].update(self.begun(group, p))
        return super().alike(group)

    def direction(self, group: dict[str, Any], p: Any, state: dict[str, Any], t: int, scale: Any) -> Any:
        """The gradient between the roots."""
        g, axes = p.grad.to(acc(p)) * scale, self.axes(group, p)
        beta2 = group["beta2"]
        keep, share = (1.0, 1.0) if beta2 is None else (beta2, 1 - beta2)
        if axes:
            for i in axes:
                _gram(g, i, state[f"gram_{i}"], keep, share)
                if (t - 1) % group["update_freq"] == 0 or f"root_{i}" not in state:
                    state[f"root_{i}"] = bc.inverse_root(state[f"gram_{i}"], 2 * len(axes), eps=group["eps"] * 1e-6)
            u = _turned(g, [state.get(f"root_{i}") for i in range(p.dim())])
        else:
            state["square"].mul_(keep).addcmul_(g, g, value=share)
            u = _OF_SQUARES(g=g, s=state["square"], eps=group["eps"])
        if not group["momentum"]:
            return u
        state["momentum_buffer"].mul_(group["momentum"]).add_(u)
        return state["momentum_buffer"]


class SOAP(_Preconditioned):
    """SOAP (Vyas et al. 2024, Improving and Stabilizing Shampoo using Adam); see `ByRule`.

    Adam in the eigenvectors Q of Shampoo's matrices L ← β L + (1 − β) g gᵀ, β being shampoo_beta or betas[1]: moments
    of g turned by Q, the step turned back. The first step makes Q by `eigh` and moves nothing; every
    precondition_frequency steps Q is the Q of a QR of L Q, columns by descending diagonals of Qᵀ L Q, and moments
    follow. p ← p (1 − lr · weight_decay) − lr u, u = sqrt(1 − β2ᵗ) / (1 − β1ᵗ) · m / (sqrt(v) + eps) (correct_bias).
    Keywords are those of the authors. Axes longer than max_precond_dim are left; vectors, too, unless precondition_1d:
    those take Adam's step.
    """

    states = {  # noqa: RUF012
        "exp_avg": "m", "exp_avg_sq": "v", **{f"gram_{i}": "" for i in _AXES}, **{f"basis_{i}": "" for i in _AXES},
    }  # fmt: skip

    def __init__(
        self, params: Any, lr: float = 3e-3, betas: tuple[float, float] = (0.95, 0.95), shampoo_beta: float = -1.0,
        eps: float = 1e-8, weight_decay: float = 0.01, precondition_frequency: int = 10, max_precond_dim: int = 10000,
        *, precondition_1d: bool = False, correct_bias: bool = True, maximize: bool = False,
    ) -> None:  # fmt: skip
        at_least("eps", eps)
        at_least("precondition_frequency", precondition_frequency, 1)
        at_least("max_precond_dim", max_precond_dim)
        at_least("shampoo_beta", shampoo_beta, -1.0, 1.0)
        self._made(
            params, lr=lr, betas=tuple(map(float, betas)), shampoo_beta=shampoo_beta, eps=eps,
            weight_decay=weight_decay, precondition_frequency=int(precondition_frequency),
            max_precond_dim=int(max_precond_dim), precondition_1d=bool(precondition_1d),
            correct_bias=bool(correct_bias), maximize=bool(maximize),
        )  # fmt: skip

    def held(self, group: dict[str, Any]) -> tuple[str, ...]:
        """The moments; axes have more, see `direction`."""
        return ("exp_avg", "exp_avg_sq")

    def direction(self, group: dict[str, Any], p: Any, state: dict[str, Any], t: int, scale: Any) -> Any:
        """Adam's direction in the basis, turned back; None for the step that makes the basis."""
        g, axes = p.grad.to(acc(p)) * scale, self.axes(group, p)
        b1, b2 = group["betas"]
        beta = group["shampoo_beta"] if group["shampoo_beta"] >= 0 else b2
        if any(f"gram_{i}" not in state for i in axes):
            for i in axes:
                gram = state[f"gram_{i}"] = torch.zeros(p.shape[i], p.shape[i], dtype=g.dtype, device=g.device)
                _gram(g, i, gram, 0.0, 1 - beta)
                state[f"basis_{i}"] = bc.eigh(gram)[1].flip(-1).contiguous()
            return None
        t = t - 1 if axes else t  # steps of Adam
        bases = [state.get(f"basis_{i}") for i in range(p.dim())]
        turned, m, v = _turned(g, bases) if axes else g, state["exp_avg"], state["exp_avg_sq"]
        m.lerp_(turned, 1 - b1)
        v.mul_(b2).addcmul_(turned, turned, value=1 - b2)
        u = _OF_SQUARES(g=m, s=v, eps=group["eps"])
        if axes:
            u = _turned(u, [None if q is None else q.T for q in bases])
            for i in axes:
                _gram(g, i, state[f"gram_{i}"], beta, 1 - beta)
            if t % group["precondition_frequency"] == 0:
                self._refreshed(state, axes, p.dim())
        return u * ((1 - b2**t) ** 0.5 / (1 - b1**t)) if group["correct_bias"] else u

    @staticmethod
    def _refreshed(state: dict[str, Any], axes: list[int], rank: int) -> None:
        """Bases by a step of orthogonal iteration, and the moments in them."""
        turns: list[Any] = [None] * rank
        for i in axes:
            gram, basis = state[f"gram_{i}"], state[f"basis_{i}"]
            ahead = bc.matmul(gram, basis)
            order = (basis * ahead).sum(0).argsort(descending=True)
            state["exp_avg_sq"].copy_(state["exp_avg_sq"].index_select(i, order))
            made = bc.qr(ahead.index_select(1, order))[0].contiguous()
            turns[i], state[f"basis_{i}"] = bc.matmul(basis.T, made), made
        state["exp_avg"].copy_(_turned(state["exp_avg"], turns))


__all__ = ["SOAP", "Shampoo"]
