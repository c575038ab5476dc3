"""torch.optim's elementwise optimizers by update rules; keywords and states are torch's."""

from __future__ import annotations

from typing import Any

from ...expressions.update import UpdateRule
from ..untyped import torch
from .by_rule import ByRule, acc, counts, rule


def _betas(group: dict[str, Any]) -> dict[str, Any]:
    b1, b2 = map(float, group["betas"])
    return {"b1": b1, "b2": b2, "eps": group["eps"]}


class Adam(ByRule, torch.optim.Adam):  # type: ignore[misc]
    """torch.optim.Adam (Kingma and Ba 2015; amsgrad: Reddi et al. 2018); see `ByRule`."""

    states = {"exp_avg": "m", "exp_avg_sq": "v", "max_exp_avg_sq": "vmax"}  # noqa: RUF012

    def held(self, group: dict[str, Any]) -> tuple[str, ...]:
        """The largest second moment only with amsgrad."""
        return tuple(self.states) if group["amsgrad"] else ("exp_avg", "exp_avg_sq")

    def rule(self, group: dict[str, Any]) -> UpdateRule:
        """adam, or adamw with decoupled_weight_decay."""
        return rule("adamw" if group.get("decoupled_weight_decay") else "adam", amsgrad=bool(group["amsgrad"]))

    def numbers(self, group: dict[str, Any], states: list[dict[str, Any]], t: Any) -> dict[str, Any]:
        """The betas and eps."""
        return _betas(group)


class Adamax(ByRule, torch.optim.Adamax):  # type: ignore[misc]
    """torch.optim.Adamax (Kingma and Ba 2015); see `ByRule`."""

    states = {"exp_avg": "m", "exp_inf": "u"}  # noqa: RUF012

    def rule(self, group: dict[str, Any]) -> UpdateRule:
        """adamax."""
        return rule("adamax")

    def numbers(self, group: dict[str, Any], states: list[dict[str, Any]], t: Any) -> dict[str, Any]:
        """The betas and eps."""
        return _betas(group)


class NAdam(ByRule, torch.optim.NAdam):  # type: ignore[misc]
    """torch.optim.NAdam (Dozat 2016); see `ByRule`."""

    states = {"exp_avg": "m", "exp_avg_sq": "v"}  # noqa: RUF012

    def begun(self, group: dict[str, Any], p: Any) -> dict[str, Any]:
        """The moments, and the product of the momenta until now."""
        on = p.device if group["capturable"] else "cpu"
        product = torch.ones((), dtype=counts(), device=on)
        return {**super().begun(group, p), "mu_product": product}

    def key(self, group: dict[str, Any], state: dict[str, Any]) -> Any:
        """Steps, and products, which may have begun elsewhere."""
        held = super().key(group, state)
        return held if group["capturable"] or "mu_product" not in state else (held, float(state["mu_product"]))

    def rule(self, group: dict[str, Any]) -> UpdateRule:
        """nadam."""
        return rule("nadam", decoupled=bool(group["decoupled_weight_decay"]))

    def numbers(self, group: dict[str, Any], states: list[dict[str, Any]], t: Any) -> dict[str, Any]:
        """The product of the momenta, this step's included."""
        b1, decay = float(group["betas"][0]), group["momentum_decay"]
        momentum = b1 * (1.0 - 0.5 * (0.96 ** (t * decay)))
        for state in states:
            state["mu_product"] *= momentum
        product = states[0]["mu_product"]
        found = product if group["capturable"] else float(product)
        return {**_betas(group), "momentum_decay": decay, "mu_product": found}


class RAdam(ByRule, torch.optim.RAdam):  # type: ignore[misc]
    """torch.optim.RAdam (Liu et al. 2020); see `ByRule`."""

    states = {"exp_avg": "m", "exp_avg_sq": "v"}  # noqa: RUF012

    def rule(self, group: dict[str, Any]) -> UpdateRule:
        """radam."""
        return rule("radam", decoupled=bool(group["decoupled_weight_decay"]))

    def numbers(self, group: dict[str, Any], states: list[dict[str, Any]], t: Any) -> dict[str, Any]:
        """The betas and eps."""
        return _betas(group)


class SGD(ByRule, torch.optim.SGD):  # type: ignore[misc]
    """torch.optim.SGD, with momentum, dampening and Nesterov's form (Sutskever et al. 2013); see `ByRule`."""

    states = {"momentum_buffer": "m"}  # noqa: RUF012
    counted = False

    def held(self, group: dict[str, Any]) -> tuple[str, ...]:
        """A buffer with momentum; one that is not there yet, or None as torch saves it, is begun by the first step."""
        return tuple(self.states) if group["momentum"] else ()

    def alike(self, group: dict[str, Any]) -> list[list[Any]]:
        """As elsewhere; tensors without a buffer take their first step apart."""
        if not group["momentum"]:
            return super().alike(group)
        first = {p for p in group["params"] if p.grad is not None and self.state[p].get("momentum_buffer") is None}
        for p in first:
            self.state[p].pop("momentum_buffer", None)
        self._first = first
        parts = ([p for p in one if p in first] for one in super().alike(group))
        rest = ([p for p in one if p not in first] for one in super().alike(group))
        return [one for one in (*parts, *rest) if one]

    def settled(self, group: dict[str, Any]) -> bool:
        """No tensor takes its first step."""
        return not group["momentum"] or not self._first

    def update(self, group: dict[str, Any], params: list[Any], grad_scale: Any) -> None:
        """One step of tensors that are alike."""
        self._begins = bool(group["momentum"]) and params[0] in self._first
        super().update(group, params, grad_scale)

    def rule(self, group: dict[str, Any]) -> UpdateRule:
        """sgd."""
        return rule("sgd", momentum=bool(group["momentum"]), nesterov=bool(group["nesterov"]))

    def numbers(self, group: dict[str, Any], states: list[dict[str, Any]], t: Any) -> dict[str, Any]:
        """The first step is the one that begins the buffer."""
        return {"beta": group["momentum"], "dampening": group["dampening"], "t": 1 if self._begins else 2}


class Adagrad(ByRule, torch.optim.Adagrad):  # type: ignore[misc]
    """torch.optim.Adagrad (Duchi, Hazan and Singer 2011); see `ByRule`."""

    states = {"sum": "s"}  # noqa: RUF012

    def alike(self, group: dict[str, Any]) -> list[list[Any]]:
        """As elsewhere; torch's constructor begins sums in the parameters' dtype."""
        for p in group["params"]:
            if "sum" in (state := self.state.get(p, {})):
                state["sum"] = state["sum"].to(acc(p))
        return super().alike(group)

    def begun(self, group: dict[str, Any], p: Any) -> dict[str, Any]:
        """The first sum is the initial value."""
        return {"sum": torch.full_like(p, group["initial_accumulator_value"], dtype=acc(p))}

    def rule(self, group: dict[str, Any]) -> UpdateRule:
        """adagrad."""
        return rule("adagrad")

    def numbers(self, group: dict[str, Any], states: list[dict[str, Any]], t: Any) -> dict[str, Any]:
        """The decay of the rate and eps."""
        return {"lr_decay": group["lr_decay"], "eps": group["eps"]}


class Adadelta(ByRule, torch.optim.Adadelta):  # type: ignore[misc]
    """torch.optim.Adadelta (Zeiler 2012); see `ByRule`."""

    states = {"square_avg": "v", "acc_delta": "delta"}  # noqa: RUF012

    def rule(self, group: dict[str, Any]) -> UpdateRule:
        """adadelta."""
        return rule("adadelta")

    def numbers(self, group: dict[str, Any], states: list[dict[str, Any]], t: Any) -> dict[str, Any]:
        """rho and eps."""
        return {"rho": group["rho"], "eps": group["eps"]}


class RMSprop(ByRule, torch.optim.RMSprop):  # type: ignore[misc]
    """torch.optim.RMSprop (Tieleman and Hinton 2012; centered: Graves 2013); see `ByRule`."""

    states = {"square_avg": "v", "momentum_buffer": "m", "grad_avg": "mean"}  # noqa: RUF012

    def held(self, group: dict[str, Any]) -> tuple[str, ...]:
        """What the group's options need."""
        more = (("momentum_buffer", group["momentum"] > 0), ("grad_avg", group["centered"]))
        return ("square_avg", *(name for name, needed in more if needed))

    def rule(self, group: dict[str, Any]) -> UpdateRule:
        """rmsprop."""
        return rule("rmsprop", centered=bool(group["centered"]), momentum=group["momentum"] > 0)

    def numbers(self, group: dict[str, Any], states: list[dict[str, Any]], t: Any) -> dict[str, Any]:
        """alpha, eps and the momentum."""
        return {"alpha": group["alpha"], "eps": group["eps"], "beta": group["momentum"]}


class Rprop(ByRule, torch.optim.Rprop):  # type: ignore[misc]
    """torch.optim.Rprop (Riedmiller and Braun 1993); see `ByRule`."""

    states = {"prev": "last", "step_size": "size"}  # noqa: RUF012

    def begun(self, group: dict[str, Any], p: Any) -> dict[str, Any]:
        """Steps begin as long as lr says."""
        made = super().begun(group, p)
        made["step_size"].fill_(float(group["lr"]))
        return made

    def rule(self, group: dict[str, Any]) -> UpdateRule:
        """rprop."""
        return rule("rprop")

    def numbers(self, group: dict[str, Any], states: list[dict[str, Any]], t: Any) -> dict[str, Any]:
        """Factors and ends of the steps."""
        (shrink, grow), (low, high) = group["etas"], group["step_sizes"]
        return {"shrink": shrink, "grow": grow, "low": low, "high": high}


class ASGD(ByRule, torch.optim.ASGD):  # type: ignore[misc]
    """torch.optim.ASGD (Polyak and Juditsky 1992); see `ByRule`."""

    states = {"ax": "ax"}  # noqa: RUF012

    def begun(self, group: dict[str, Any], p: Any) -> dict[str, Any]:
        """The average, and the rates that torch keeps."""
        kind, lr = torch.get_default_dtype(), float(group["lr"])
        rates = {
            "eta": torch.tensor(lr, dtype=kind, device=p.device),
            "mu": torch.ones((), dtype=kind, device=p.device),
        }
        return {**super().begun(group, p), **rates}

    def key(self, group: dict[str, Any], state: dict[str, Any]) -> Any:
        """Steps and rates, which are numbers of a launch."""
        held = super().key(group, state)
        if group["capturable"] or "eta" not in state:
            return held
        return held, float(state["eta"]), float(state["mu"])

    def rule(self, group: dict[str, Any]) -> UpdateRule:
        """asgd."""
        return rule("asgd")

    def numbers(self, group: dict[str, Any], states: list[dict[str, Any]], t: Any) -> dict[str, Any]:
        """This step's rates, which are read before those of the next one are written."""
        lambd, lr, capturable = group["lambd"], group["lr"], group["capturable"]
        now = [states[0][name].clone() if capturable else float(states[0][name]) for name in ("eta", "mu")]
        lr = float(lr) if not capturable else lr
        eta = lr / (1 + lambd * lr * t) ** group["alpha"]
        mu = 1 / (t - group["t0"]).clamp(min=1) if capturable else 1 / max(1, t - group["t0"])
        for state in states:
            for name, value in (("eta", eta), ("mu", mu)):
                state[name].copy_(value if isinstance(value, torch.Tensor) else torch.as_tensor(value))
        return {"eta": now[0], "mu": now[1], "lambd": lambd}
