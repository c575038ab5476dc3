"""Averages of a model's weights for torch.optim.swa_utils.AveragedModel: one launch for all tensors that are alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..untyped import torch
from .by_rule import at_least, number, rule


def get_ema_multi_avg_fn(decay: float = 0.999) -> Callable[[Any, Any, Any], None]:
    """average ← decay · average + (1 − decay) · p (torch.optim.swa_utils.get_ema_multi_avg_fn).

        model = swa_utils.AveragedModel(net, multi_avg_fn=optim.get_ema_multi_avg_fn(0.999))

    decay: from 0 to 1. Averages may be float32 beside 16-bit parameters. Integers are cut off.
    """
    at_least("decay", decay, 0.0, 1.0 + 1e-12)

    def ema_update(averages: list[Any], params: list[Any], count: Any) -> None:
        if not _whole(averages):
            _averaged("ema", averages, params, decay=float(decay))
            return
        for average, p in zip(averages, params, strict=True):
            average.copy_(average * decay + p * (1 - decay))

    return ema_update


def get_swa_multi_avg_fn() -> Callable[[Any, Any, Any], None]:
    """average ← average + (p − average) / (n + 1) (Izmailov et al. 2018; torch.optim.swa_utils.get_swa_multi_avg_fn).

    n, how many have been averaged, may be a 0-d tensor, which stays where it is. Integers are cut off.
    """

    def swa_update(averages: list[Any], params: list[Any], count: Any) -> None:
        if _whole(averages):
            for average, p in zip(averages, params, strict=True):
                average.copy_(average + (p - average) / (count + 1))
            return
        if isinstance(count, torch.Tensor) and averages:
            count = count.to(averages[0].device)
        _averaged("swa", averages, params, n=number(count))

    return swa_update


def _whole(averages: list[Any]) -> bool:
    return bool(averages) and not averages[0].is_floating_point()


@torch.no_grad()  # type: ignore[untyped-decorator]
def _averaged(name: str, averages: list[Any], params: list[Any], **numbers: Any) -> None:
    if averages:
        rule(name)(average=[x.detach() for x in averages], p=[x.detach() for x in params], **numbers)


__all__ = ["get_ema_multi_avg_fn", "get_swa_multi_avg_fn"]
