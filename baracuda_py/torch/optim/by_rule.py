"""What optimizers of update rules share: lists of tensors that are alike, their states, a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...core.errors import InvalidProblemError, UnsupportedError
from ...core.memo import memo
from ...expressions.update import UpdateRule, optimizer
from ...interop.dynamo import uncompiled
from ..untyped import torch
from .batches import Batch, Found


@memo()
def rule(name: str, **options: Any) -> UpdateRule:
    """A rule of the table; made once."""
    return optimizer(name, **options)


def loss_of(closure: Callable[[], Any] | None) -> Any:
    """What the closure of a step gives, whose gradients are recorded; None without one."""
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()


STEP = "a step is a launch or a few of their own; compile what makes the gradients"
"""Why torch.compile's graph ends at a step."""


class ByRule:
    """A torch.optim.Optimizer whose step is an update rule: one launch for all tensors of a group that are alike.

    States are float32 (float64 of float64), also of 16-bit parameters, and state_dict has torch's keys: either loads
    the other's. lr may be a 0-d tensor on the device. capturable: steps are counted on the device, so that a CUDA graph
    can hold `step`. foreach and fused are taken, and the step is what it is in either case; with fused=True a
    `GradScaler` leaves it to `step` to unscale gradients and to skip one. differentiable, complex parameters and sparse
    gradients are refused.
    """

    states: Mapping[str, str] = {}
    """Names of states in torch → in the formula."""
    counted = True
    """Whether states have a step."""
    param_groups: list[dict[str, Any]]
    state: dict[Any, dict[str, Any]]
    batch: Batch
    """What is stepped now."""

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As torch's."""
        super().add_param_group(param_group)  # type: ignore[misc]
        self._refuse_differentiable(self.param_groups[-1:])

    def rule(self, group: dict[str, Any]) -> UpdateRule:
        """The rule of a group."""
        raise NotImplementedError

    def numbers(self, group: dict[str, Any], states: list[dict[str, Any]], t: Any) -> dict[str, Any]:
        """What the rule's numbers are, but lr, weight_decay and t, which it may take; `states` may be written."""
        return {}

    def begun(self, group: dict[str, Any], p: Any) -> dict[str, Any]:
        """The states of a tensor before its first step, those that the group has."""
        return {
            name: torch.zeros_like(p, dtype=acc(p), memory_format=torch.preserve_format) for name in self.held(group)
        }

    def held(self, group: dict[str, Any]) -> tuple[str, ...]:
        """The states that a group has."""
        return tuple(self.states)

    def listed(self, group: dict[str, Any]) -> tuple[str, ...]:
        """The states that a batch has lists of."""
        return self.held(group)

    def settled(self, group: dict[str, Any]) -> bool:
        """Whether the next step may find what this one has found: tensors go together by what `Found` compares."""
        return type(self).key is ByRule.key

    def key(self, group: dict[str, Any], state: dict[str, Any]) -> Any:
        """What tensors of one launch have in common besides kinds."""
        if not self.counted:
            return None
        return id(state["step"]) if group.get("capturable") else float(state["step"])

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step(self, closure: Callable[[], Any] | None = None, *, grad_scale: Any = 1.0) -> Any:
        """One step. grad_scale: a factor of the gradients, a number or a 0-d tensor, such as `global_norm`'s clip."""
        loss = loss_of(closure)
        found_inf, scaled = getattr(self, "found_inf", None), getattr(self, "grad_scale", None)  # by a GradScaler
        if found_inf is not None and float(found_inf):
            return loss
        if scaled is not None:
            grad_scale = grad_scale / scaled
        self.stepped(grad_scale)
        return loss

    @uncompiled(STEP)
    def stepped(self, grad_scale: Any) -> None:
        """The step of all groups."""
        for place, group in enumerate(self.param_groups):
            for batch in self.batches(place, group):
                self.batch = batch
                self.update(group, batch.params, -grad_scale if group.get("maximize") else grad_scale)
                batch.runs += 1

    def batches(self, place: int, group: dict[str, Any]) -> list[Batch]:
        """The parameters of a group that are stepped together, as found now or by the last step."""
        known: dict[int, Found] = vars(self).setdefault("_found", {})
        found = known.pop(place, None)
        if found is None or not found.holds(self, group):
            counted = self.counted and not group.get("capturable")
            lists, names = self.alike(group), self.listed(group)
            batches = [Batch(one, [self.state.get(p, {}) for p in one], names, counted) for one in lists]
            if not self.settled(group) or torch.is_inference_mode_enabled():
                return batches
            found = Found(self, group, batches)
        known[place] = found
        return found.batches

    def alike(self, group: dict[str, Any]) -> list[list[Any]]:
        """The parameters that have a gradient, in lists of one device, dtype and count of steps."""
        lists: dict[Any, list[Any]] = {}
        fresh: dict[Any, Any] = {}  # the counter of those that take their first step now
        for p in group["params"]:
            if p.grad is None:
                continue
            if p.grad.is_sparse or p.is_complex():
                raise UnsupportedError(f"{type(self).__name__} takes dense, real parameters and gradients")
            state = self.state[p] if self.counted or self.held(group) else {}
            if self.counted and "step" not in state:
                capturable = group.get("capturable")
                on = p.device if capturable else "cpu"
                if on not in fresh:
                    fresh[on] = torch.zeros((), dtype=counts(), device=on)
                state["step"] = fresh[on] if capturable else fresh[on].clone()
            if not all(name in state for name in self.held(group)):
                state.update({name: x for name, x in self.begun(group, p).items() if name not in state})
            lists.setdefault((p.device, p.dtype, p.grad.dtype, self.key(group, state)), []).append(p)
        return list(lists.values())

    def update(self, group: dict[str, Any], params: list[Any], grad_scale: Any) -> None:
        """One step of tensors that are alike."""
        states = self.batch.states
        t = self.counted_on(group, states)
        made = self.rule(group)
        numbers = {"lr": number(group.get("lr")), "weight_decay": group.get("weight_decay"), "t": t}
        numbers |= self.numbers(group, states, t)
        scale = grad_scale.to(params[0].device).reshape(()) if isinstance(grad_scale, torch.Tensor) else grad_scale
        lists = {self.states[name]: self.batch.lists[name] for name in self.held(group) if self.states[name]}
        lists |= {"p": params, "g": [p.grad for p in params]}
        used = {n: x for n, x in numbers.items() if n in made.inputs}
        self.called(group, made, lists, used, scale)

    def called(
        self, group: dict[str, Any], made: UpdateRule, lists: dict[str, Any], numbers: dict[str, Any], scale: Any
    ) -> None:
        """The step, of these lists and numbers."""
        kept = [name for name in lists if name != "g"] if self.batch.runs else ()
        made.stepped({**made.defaults, **lists, **numbers}, {"grad_scale": scale, "found_inf": 0.0}, kept=kept)

    def counted_on(self, group: dict[str, Any], states: list[dict[str, Any]]) -> Any:
        """The number of the step that is taken, from 1 on."""
        if not self.counted:
            return None
        if group.get("capturable"):
            states[0]["step"] += 1
            return states[0]["step"].to(torch.int64)
        return self.batch.counts()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As torch's, but states of 16-bit parameters stay float32, and steps that are equal are one tensor."""
        self._refuse_differentiable(state_dict["param_groups"])
        super().load_state_dict(state_dict)  # type: ignore[misc]
        given = [index for group in state_dict["param_groups"] for index in group["params"]]
        held = [p for group in self.param_groups for p in group["params"]]
        for index, p in zip(given, held, strict=True):
            for name, saved in state_dict["state"].get(index, {}).items():
                if not isinstance(saved, torch.Tensor) or name == "step":
                    continue
                wide = name.removesuffix("_scale") in self.states and saved.dtype != torch.uint8
                self.state[p][name] = saved.to(self.state[p][name].device, acc(p) if wide else saved.dtype, copy=True)
        for group in self.param_groups:
            shared: dict[Any, Any] = {}
            for p in group["params"]:
                if "step" not in self.state.get(p, {}):
                    continue
                capturable = group.get("capturable")
                step = self.state[p]["step"].to(p.device if capturable else "cpu", copy=True)
                same = shared.setdefault((p.device, float(step)), step) if capturable else step
                self.state[p]["step"] = same

    def _refuse_differentiable(self, groups: list[dict[str, Any]]) -> None:
        if any(group.get("differentiable") for group in groups):
            name = type(self).__name__
            theirs = f"torch.optim.{name}(differentiable=True)" if hasattr(torch.optim, name) else "torch's optimizer"
            raise UnsupportedError(
                "differentiable: the step writes parameters in place and takes no part in autograd; leave it out, or "
                f"take {theirs}"
            )


def acc(parameter: Any) -> Any:
    """The dtype of a parameter's states."""
    return torch.promote_types(parameter.dtype, torch.float32)


def counts() -> Any:
    """The dtype that torch keeps a step's number in: never one of 16 bits, which would stop counting."""
    return torch.promote_types(torch.get_default_dtype(), torch.float32)


def number(value: Any) -> Any:
    """A number, or a 0-d tensor."""
    return value.reshape(()) if isinstance(value, torch.Tensor) else value


def at_least(name: str, value: Any, low: float = 0.0, below: float = float("inf")) -> None:
    """Raise InvalidProblemError unless low <= value < below."""
    if not low <= value < below:
        raise InvalidProblemError(f"{name} must be in [{low:g}, {below:g}), got {value}")
