"""Optimizers whose states have 8 bits an element, in blocks of 256 with a scale each (Dettmers et al. 2022)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.checked import shown
from ...core.errors import InvalidProblemError
from ...core.memo import memo
from ...expressions.update import UpdateRule
from ...expressions.update_shape import BLOCK
from ..untyped import torch
from .by_rule import ByRule
from .others import Lion
from .rules import SGD, Adam

CODES = {"dynamic": ("signed", "unsigned"), "linear": ("linear", "unsigned_linear"), "fp8": ("fp8", "fp8")}
"""What `state_code` may be: the kinds of a state of either sign, and of one that is never below 0."""


class _EightBit(ByRule):
    """States of tensors of at least `min_8bit_size` elements are codes, uint8, beside `<state>_scale`, float32.

    state_code, a group's option: "dynamic" and "linear" are bitsandbytes' maps, "fp8" is float8_e4m3fn.
    """

    signs: Mapping[str, bool] = {}
    """Whether a state has either sign, by its name in torch."""
    min_8bit_size: int
    defaults: dict[str, Any]

    def _sized(self, least: Any) -> None:
        if isinstance(least, bool) or not isinstance(least, int) or least < 0:
            raise InvalidProblemError(f"min_8bit_size must be a whole number, 0 or more, got {least}")
        self.min_8bit_size = least

    def _coded(self, state_code: Any) -> None:
        """The groups' code, where they have none of their own."""
        self.defaults["state_code"] = state_code
        for group in self.param_groups:
            group.setdefault("state_code", state_code)
            _code(group)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As torch's."""
        if "state_code" in param_group:
            _code(param_group)
        super().add_param_group(param_group)

    def coded(self, p: Any) -> bool:
        """Whether a tensor's states have 8 bits: it is large enough, dense, and no float64."""
        return bool(p.numel() >= self.min_8bit_size and p.is_contiguous() and p.dtype != torch.float64)

    def begun(self, group: dict[str, Any], p: Any) -> dict[str, Any]:
        """Codes and scales of 0."""
        made = super().begun(group, p)
        if not self.coded(p):
            return made
        for name in self.held(group):
            made[name] = torch.zeros(p.shape, dtype=torch.uint8, device=p.device)
            made[f"{name}_scale"] = torch.zeros(-(-p.numel() // BLOCK), dtype=torch.float32, device=p.device)
        return made

    def key(self, group: dict[str, Any], state: dict[str, Any]) -> Any:
        """Those of codes stand apart."""
        of_codes = any(getattr(state.get(name), "dtype", None) == torch.uint8 for name in self.signs)
        return super().key(group, state), of_codes

    def alike(self, group: dict[str, Any]) -> list[list[Any]]:
        """As elsewhere; states are begun first, as the key asks what they are."""
        for p in group["params"]:
            if p.grad is not None and not p.grad.is_sparse and self.coded(p):
                missing = {n: x for n, x in self.begun(group, p).items() if n not in self.state[p]}
                self.state[p].update(missing)
        return super().alike(group)

    def listed(self, group: dict[str, Any]) -> tuple[str, ...]:
        """The states, and their scales."""
        held = self.held(group)
        return (*held, *(f"{name}_scale" for name in held))

    def settled(self, group: dict[str, Any]) -> bool:
        """The key asks what the states are, which are compared."""
        return True

    def called(
        self, group: dict[str, Any], made: UpdateRule, lists: dict[str, Any], numbers: dict[str, Any], scale: Any
    ) -> None:
        """The step, of codes with their scales."""
        held = self.held(group)
        if held and self.batch.lists[held[0]][0].dtype == torch.uint8:
            signed, unsigned = _code(group)
            kinds = tuple((self.states[name], signed if self.signs[name] else unsigned) for name in held)
            made = _recoded(made, kinds)
            for name in held:
                lists[f"{self.states[name]}_scale"] = self.batch.lists[f"{name}_scale"]
        super().called(group, made, lists, numbers, scale)


def _code(group: dict[str, Any]) -> tuple[str, str]:
    name = group.get("state_code", "dynamic")
    if name not in CODES:
        raise InvalidProblemError(f"state_code must be one of {', '.join(map(repr, CODES))}, got {shown(name)}")
    return CODES[name]


@memo()
def _recoded(made: UpdateRule, kinds: tuple[tuple[str, str], ...]) -> UpdateRule:
    return UpdateRule(made.formula, made.defaults, states8bit=kinds)


_MOMENTS = {"exp_avg": True, "exp_avg_sq": False}


class Adam8bit(_EightBit, Adam):
    """`Adam` with moments in 8 bits (bitsandbytes' Adam8bit): a quarter of float32's memory; see `ByRule`.

    States of tensors below min_8bit_size elements, of float64, or that are not dense stay as in `Adam`. state_code:
    "dynamic" and "linear" are bitsandbytes' maps, "fp8" is float8_e4m3fn; a group's own is in its state_dict.
    """

    signs = _MOMENTS

    def __init__(
        self, params: Any, lr: Any = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0.0, *, min_8bit_size: int = 4096, maximize: bool = False, capturable: bool = False,
        decoupled_weight_decay: bool = False, state_code: str = "dynamic",
    ) -> None:  # fmt: skip
        self._sized(min_8bit_size)
        super().__init__(
            params, lr, betas, eps, weight_decay, maximize=maximize, capturable=capturable,
            decoupled_weight_decay=decoupled_weight_decay,
        )  # fmt: skip
        self._coded(state_code)


class AdamW8bit(Adam8bit):
    """AdamW with moments in 8 bits (bitsandbytes' AdamW8bit); see `Adam8bit`."""

    def __init__(
        self, params: Any, lr: Any = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 1e-2, *, min_8bit_size: int = 4096, maximize: bool = False, capturable: bool = False,
        state_code: str = "dynamic",
    ) -> None:  # fmt: skip
        super().__init__(
            params, lr, betas, eps, weight_decay, min_8bit_size=min_8bit_size, maximize=maximize,
            capturable=capturable, decoupled_weight_decay=True, state_code=state_code,
        )  # fmt: skip


class Lion8bit(_EightBit, Lion):
    """`Lion` with its momentum in 8 bits (bitsandbytes' Lion8bit); see `Adam8bit`."""

    signs = {"exp_avg": True}  # noqa: RUF012

    def __init__(
        self, params: Any, lr: Any = 1e-4, betas: tuple[float, float] = (0.9, 0.99), weight_decay: float = 0.0, *,
        min_8bit_size: int = 4096, maximize: bool = False, state_code: str = "dynamic",
    ) -> None:  # fmt: skip
        self._sized(min_8bit_size)
        super().__init__(params, lr, betas, weight_decay, maximize=maximize)
        self._coded(state_code)


class SGD8bit(_EightBit, SGD):
    """`SGD` with its momentum in 8 bits (bitsandbytes' SGD8bit); see `Adam8bit`."""

    signs = {"momentum_buffer": True}  # noqa: RUF012

    def __init__(
        self, params: Any, lr: Any = 1e-3, momentum: float = 0.9, dampening: float = 0.0, weight_decay: float = 0.0,
        nesterov: bool = False, *, min_8bit_size: int = 4096, maximize: bool = False, state_code: str = "dynamic",
    ) -> None:  # fmt: skip
        self._sized(min_8bit_size)
        super().__init__(params, lr, momentum, dampening, weight_decay, nesterov, maximize=maximize)
        self._coded(state_code)
