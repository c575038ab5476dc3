"""Optimizers whose states have 8 bits an element, in blocks of 256 with a scale each (Dettmers et al. 2022)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.errors import InvalidProblemError
from ...core.memo import memo
from ...expressions.update import UpdateRule
from ...expressions.update_shape import BLOCK
from ..untyped import torch
from .by_rule import ByRule
from .others import Lion
from .rules import SGD, Adam


class _EightBit(ByRule):
    """States of tensors of at least `min_8bit_size` elements are codes, uint8, beside `<state>_scale`, float32."""

    kinds: Mapping[str, str] = {}
    """The kind of each state's codes, by its name in torch."""
    min_8bit_size: int

    def _sized(self, least: Any) -> None:
        if isinstance(least, bool) or not isinstance(least, int) or least < 0:
            raise InvalidProblemError(f"min_8bit_size must be a whole number, 0 or more, got {least}")
        self.min_8bit_size = least

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
        of_codes = any(getattr(state.get(name), "dtype", None) == torch.uint8 for name in self.kinds)
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
            made = _recoded(made, tuple((self.states[name], self.kinds[name]) for name in held))
            for name in held:
                lists[f"{self.states[name]}_scale"] = self.batch.lists[f"{name}_scale"]
        super().called(group, made, lists, numbers, scale)


@memo()
def _recoded(made: UpdateRule, kinds: tuple[tuple[str, str], ...]) -> UpdateRule:
    return UpdateRule(made.formula, made.defaults, states8bit=kinds)


_MOMENTS = {"exp_avg": "signed", "exp_avg_sq": "unsigned"}


class Adam8bit(_EightBit, Adam):
    """`Adam` with moments in 8 bits (bitsandbytes' Adam8bit): a quarter of float32's memory; see `ByRule`.

    States of tensors below min_8bit_size elements, of float64, or that are not dense stay as in `Adam`.
    """

    kinds = _MOMENTS

    def __init__(
        self, params: Any, lr: Any = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0.0, *, min_8bit_size: int = 4096, maximize: bool = False, capturable: bool = False,
        decoupled_weight_decay: bool = False,
    ) -> None:  # fmt: skip
        self._sized(min_8bit_size)
        super().__init__(
            params, lr, betas, eps, weight_decay, maximize=maximize, capturable=capturable,
            decoupled_weight_decay=decoupled_weight_decay,
        )  # fmt: skip


class AdamW8bit(Adam8bit):
    """AdamW with moments in 8 bits (bitsandbytes' AdamW8bit); see `Adam8bit`."""

    def __init__(
        self, params: Any, lr: Any = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 1e-2, *, min_8bit_size: int = 4096, maximize: bool = False, capturable: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(
            params, lr, betas, eps, weight_decay, min_8bit_size=min_8bit_size, maximize=maximize,
            capturable=capturable, decoupled_weight_decay=True,
        )  # fmt: skip


class Lion8bit(_EightBit, Lion):
    """`Lion` with its momentum in 8 bits (bitsandbytes' Lion8bit); see `Adam8bit`."""

    kinds = {"exp_avg": "signed"}  # noqa: RUF012

    def __init__(
        self, params: Any, lr: Any = 1e-4, betas: tuple[float, float] = (0.9, 0.99), weight_decay: float = 0.0, *,
        min_8bit_size: int = 4096, maximize: bool = False,
    ) -> None:  # fmt: skip
        self._sized(min_8bit_size)
        super().__init__(params, lr, betas, weight_decay, maximize=maximize)


class SGD8bit(_EightBit, SGD):
    """`SGD` with its momentum in 8 bits (bitsandbytes' SGD8bit); see `Adam8bit`."""

    kinds = {"momentum_buffer": "signed"}  # noqa: RUF012

    def __init__(
        self, params: Any, lr: Any = 1e-3, momentum: float = 0.9, dampening: float = 0.0, weight_decay: float = 0.0,
        nesterov: bool = False, *, min_8bit_size: int = 4096, maximize: bool = False,
    ) -> None:  # fmt: skip
        self._sized(min_8bit_size)
        super().__init__(params, lr, momentum, dampening, weight_decay, nesterov, maximize=maximize)
