"""Scaling recipes of fp8: `Fp8Recipe`, delayed scaling by arrays on the device, and `fp8_quantize`, current scaling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core import Array, ElementKind
from ...core.checked import whole
from ...core.errors import InvalidProblemError
from ...calls.exported import exported
from ...calls.entries import entry
from ...core.outputs import each_of
from ...core.views import shape_of
from ...interop.packages import package_name
from ..elementwise.unary import reciprocal  # type: ignore[attr-defined]
from ..layout.creation import ones, zeros
from ..reduce.amax_scale import amax_scale
from .fp8_cast import Fp8CastPlan, fp8_cast
from .fp8_cast_transpose import fp8_cast_transpose
from .fp8_scale_update import Fp8ScaleUpdateDescriptor, fp8_scale_update

_ARRAYS = ("history", "scale", "scale_inv")


@exported
class Fp8Recipe:
    """Delayed scaling of several tensors: the scale of a step comes from the largest sizes of the steps before it.

    history [slots, tensors], scale [tensors] and scale_inv [tensors] are float32 arrays of like's package and device
    (CuPy's, or NumPy's, without one). Casts raise the newest slot of their tensor, on the device, and `update`, once a
    step, makes the scales of all tensors of it in one launch: nothing is read back, and a graph may hold both. Rules
    are those of NVIDIA's Transformer Engine (`DelayedScaling`), see `Fp8ScaleUpdatePlan`; scales begin at 1. Gradients
    want a recipe of their own, of float8_e5m2. On several devices take the maximum of `history[0]` over them first.

        weights, inputs = bc.Fp8Recipe(1, like=w), bc.Fp8Recipe(1, like=x)
        x8, x_inv = inputs.cast(0, x)
        w8, w_inv = weights.cast(0, w)                        # w [n, k]
        y = bc.scaled_mm(x8, w8.T, x_inv, w_inv, element="float8_e4m3fn")
        inputs.update(), weights.update()                     # for the next step
    """

    def __init__(
        self, tensors: int, *, slots: int = 1024, to_element: Any = "float8_e4m3fn", margin: int = 0,
        algorithm: str = "max", like: Any = None,
    ) -> None:  # fmt: skip
        known = Fp8ScaleUpdateDescriptor(
            slots=slots, tensors=tensors, to_element=to_element, margin=margin, algorithm=algorithm
        )
        if like is not None and package_name(type(like)) == "jax":
            raise InvalidProblemError("like must be an array that can be written to, got one of JAX")
        self.to_element: ElementKind = known.to_element
        self.margin, self.algorithm = known.margin, known.algorithm
        self.history = zeros((known.slots, known.tensors), like=like)
        self.scale = ones((known.tensors,), like=like)
        self.scale_inv = ones((known.tensors,), like=like)

    def __repr__(self) -> str:
        slots, tensors = shape_of(self.history, "history")
        return f"<Fp8Recipe of {tensors} tensors to {self.to_element}, {self.algorithm} of {slots} slots>"

    def _place(self, tensor: int) -> slice:
        at = whole("tensor", tensor, 0, shape_of(self.scale, "scale")[0] - 1)
        return slice(at, at + 1)

    def amax(self, tensor: int) -> Array:
        """The newest slot of a tensor: a 0-d view, which casts raise."""
        return self.history[0, self._place(tensor)].reshape(())

    def scale_of(self, tensor: int) -> Array:
        """What a tensor is multiplied by: a 0-d view."""
        return self.scale[self._place(tensor)].reshape(())

    def inverse_of(self, tensor: int) -> Array:
        """What its fp8 numbers are multiplied by: a 0-d view, which belongs to them until the next `update`."""
        return self.scale_inv[self._place(tensor)].reshape(())

    def cast(self, tensor: int, x: Array, **options: Any) -> tuple[Array, Array]:
        """(y, scale_inv): x as fp8 by the scale of a tensor, whose amax it raises; options as of `fp8_cast`."""
        amax, scale = self.amax(tensor), self.scale_of(tensor)
        return fp8_cast(x, amax, scale=scale, to_element=self.to_element, **options), self.inverse_of(tensor)

    def cast_transpose(self, tensor: int, x: Array, **options: Any) -> tuple[Array, Array, Array]:
        """(y, yt, scale_inv): as `cast`, with the transpose; options as of `fp8_cast_transpose`."""
        amax, scale = self.amax(tensor), self.scale_of(tensor)
        y, yt = fp8_cast_transpose(x, amax, scale=scale, to_element=self.to_element, **options)
        return y, yt, self.inverse_of(tensor)

    def update(self, *, stream: Any = None) -> None:
        """Ends a step: scales from the history, which goes on by a slot."""
        fp8_scale_update(
            self.history, self.scale, self.scale_inv, to_element=self.to_element, margin=self.margin,
            algorithm=self.algorithm, stream=stream,
        )  # fmt: skip

    def state_dict(self) -> dict[str, Any]:
        """The arrays themselves, and the settings."""
        settings = {"to_element": str(self.to_element), "margin": self.margin, "algorithm": self.algorithm}
        return {**{name: getattr(self, name) for name in _ARRAYS}, **settings}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Copies the arrays of a state into these, and takes its settings."""
        if missing := {*_ARRAYS, "to_element", "margin", "algorithm"} - {*state}:
            raise InvalidProblemError(f"the state of a recipe has {', '.join(sorted(missing))}, which this one lacks")
        shapes = [shape_of(self.history, "history")] + [shape_of(self.scale, "scale")] * 2
        for name, shape in zip(_ARRAYS, shapes, strict=True):
            if shape_of(state[name], name) != shape:
                raise InvalidProblemError(f"{name} must have shape {shape}, got {shape_of(state[name], name)}")
        slots, tensors = shapes[0]
        settings = {name: state[name] for name in ("to_element", "margin", "algorithm")}
        known = Fp8ScaleUpdateDescriptor(slots=slots, tensors=tensors, **settings)
        for name in _ARRAYS:
            getattr(self, name)[...] = state[name]
        self.to_element, self.margin, self.algorithm = known.to_element, known.margin, known.algorithm


@entry(Fp8CastPlan)
def fp8_quantize(
    x: Array, *, to_element: Any = "float8_e4m3fn", power_of_two: bool = False, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """(y, scale_inv): x as fp8 by the scale that its own largest size gives; y · scale_inv is x but for rounding.

    Current scaling, the other recipe of Transformer Engine: `amax_scale`, `fp8_cast` and 1 / scale, which is 0-d; x is
    read twice. Where the largest size is 0, infinite or NaN the scale is 1. power_of_two: scales that multiply exactly.
    """
    options, outs = {"stream": stream, "preference": preference}, each_of(out, 2)
    goal = ElementKind.of(to_element)
    scale, _ = amax_scale(x, target=goal, power_of_two=power_of_two, **options)
    y = fp8_cast(x, scale=scale, to_element=goal, out=outs[0], **options)
    return y, reciprocal(scale, out=outs[1], **options)
