"""fused_moving_avg_obs_fake_quant: fake quantisation by a running range, as in quantisation-aware training."""

from __future__ import annotations

from typing import Any

from ...core import Array, InvalidProblemError, Scalar, UnsupportedError
from ...core.checked import truth, whole
from ...calls.entries import entry
from ...core.views import reshaped, shape_of
from ...interop.packages import package_name
from ..layout.moves import copy
from ..reduce.reduce_pair import aminmax
from .fake import fake_quantize
from .fake_quantize import FakeQuantizePlan
from .moving_average_qparams import moving_average_qparams


@entry(FakeQuantizePlan)
def fused_moving_avg_obs_fake_quant(
    x: Array, observer_on: Any, fake_quant_on: Any, running_min: Array, running_max: Array, scale: Array,
    zero_point: Array, averaging_const: Scalar, quant_min: int, quant_max: int, ch_axis: int,
    per_row_fake_quant: bool = False, symmetric_quant: bool = False, *, return_mask: bool = False, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """x fake quantised by a range that moves with it (torch.fused_moving_avg_obs_fake_quant); see `FakeQuantizePlan`.

    running_min, running_max, scale (float32) and zero_point (int32) have one item, or with per_row_fake_quant one for
    each place along ch_axis. With observer_on the ends of x move the running ones by averaging_const, infinite ones all
    the way, and scale and zero_point become those of the running range (`MovingAverageQParamsPlan`), all in place. With
    fake_quant_on the result is `fake_quantize` of x by them, else x; its gradient is dy in the range. observer_on and
    fake_quant_on are True or False: flags on the device are not read back. return_mask: also whether each integer is in
    the range.
    """
    options = {"stream": stream, "preference": preference}
    shape, rows = shape_of(x, "x"), truth("per_row_fake_quant", per_row_fake_quant)
    axis = _axis(shape, ch_axis) if rows else None
    held = {"running_min": running_min, "running_max": running_max, "scale": scale, "zero_point": zero_point}
    flat = _flat(held, 1 if axis is None else shape[axis])
    if truth("observer_on", observer_on):
        if package_name(type(running_min)) == "jax":
            raise UnsupportedError(
                "running_min would be moved in place, and JAX arrays are immutable: give what aminmax returns to "
                "moving_average_qparams, which returns new ones, and these to fake_quantize"
            )
        _observe(x, shape, axis, flat, averaging_const, quant_min, quant_max, symmetric_quant, options)
    wanted = truth("return_mask", return_mask)
    if not truth("fake_quant_on", fake_quant_on):
        if wanted:
            raise InvalidProblemError("return_mask needs fake_quant_on: of x as it is there is no mask")
        return copy(x, out=out, **options)
    wide = tuple(n if a == axis else 1 for a, n in enumerate(shape))
    block = tuple(1 if a == axis else 0 for a in range(len(shape)))
    return fake_quantize(
        x, *(reshaped(flat[name], wide, name) for name in ("scale", "zero_point")), quant_min=quant_min,
        quant_max=quant_max, block_shape=block, return_mask=wanted, out=out, **options,
    )  # fmt: skip


def _axis(shape: tuple[int, ...], ch_axis: int) -> int:
    if not shape:
        raise InvalidProblemError("x must have an axis of channels, got shape ()")
    return whole("ch_axis", ch_axis, -len(shape), len(shape) - 1) % len(shape)


def _flat(held: dict[str, Any], count: int) -> dict[str, Any]:
    """Arrays of `count` items as vectors."""
    made = {}
    for name, one in held.items():
        own = shape_of(one, name)
        if own != (count,) and not (own == () and count == 1):
            raise InvalidProblemError(f"{name} must have shape ({count},), got {own}")
        made[name] = reshaped(one, (count,), name)
    return made


def _observe(
    x: Any, shape: tuple[int, ...], axis: int | None, flat: dict[str, Any], constant: Any, quant_min: int,
    quant_max: int, symmetric: bool, options: dict[str, Any],
) -> None:  # fmt: skip
    """Move the running range, and make scale and zero point of it."""
    if 0 in shape:
        raise InvalidProblemError(f"x must have elements where observer_on, got shape {shape}")
    seen = x.detach() if hasattr(x, "detach") else x  # the range is a constant to autograd
    ends = aminmax(seen, axis=tuple(a for a in range(len(shape)) if a != axis), **options)
    low, high = (reshaped(end, (1,) if axis is None else (shape[axis],), "x") for end in ends)
    moving_average_qparams(
        low, high, *flat.values(), quant_min=quant_min, quant_max=quant_max,
        symmetric=truth("symmetric_quant", symmetric), averaging_const=constant, **options,
    )  # fmt: skip
