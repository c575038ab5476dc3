"""conv1d, 2d, 3d, their transposed forms, convolution and conv_tbc, as torch has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...core import Array, registry
from ...core.checked import shown, wholes
from ...core.errors import InvalidProblemError
from ...core.keywords import unexpected
from ...core.numbers import plain
from ...calls.entries import entry
from ...core.views import permuted, shape_of
from .conv import ConvPlan, conv_nd


_NONE: Mapping[str, Any] = {}


def each_axis(name: str, value: Any, rank: int, minimum: int) -> tuple[int, ...]:
    """A number for each axis, given one for all or in a list of one."""
    value = plain(value)
    found = wholes(name, value if isinstance(value, Sequence) and not isinstance(value, str) else (value,))
    found = found * rank if len(found) == 1 else found
    if len(found) != rank or min(found) < minimum:
        raise InvalidProblemError(f"{name} must be an integer, or {rank}, not below {minimum}, got {shown(value)}")
    return found


def check_shapes(x: Any, weight: Any, bias: Any, rank: int, groups: Any, transposed: bool) -> tuple[int, ...]:
    """The shape of x, of a batch or not; what does not fit it is refused by the words of these functions."""
    shape, w = shape_of(x, "x"), shape_of(weight, "weight")
    if len(shape) not in (rank + 1, rank + 2) or len(w) != rank + 2:
        raise InvalidProblemError(
            f"x must be [batch, channels, {rank} axes] or without batch, and weight have {rank + 2} axes, got shapes "
            f"{shape} and {w}"
        )
    (count,) = wholes("groups", (groups,), 1)
    channels, own = shape[-rank - 1], w[0] if transposed else w[1] * count
    if channels != own or w[0] % count:
        raise InvalidProblemError(
            f"groups must divide the channels, and weight fit them: x has {channels} channels, weight has shape {w}, "
            f"groups is {count}"
        )
    outputs = (w[1] * count if transposed else w[0],)
    if bias is not None and shape_of(bias, "bias") != outputs:
        raise InvalidProblemError(f"bias must have shape {outputs}, got {shape_of(bias, 'bias')}")
    return shape


def _padding(padding: Any, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> Any:
    rank = len(kernel)
    if isinstance(padding, str):
        if padding not in ("same", "valid"):
            raise InvalidProblemError(f"padding must be numbers, 'same' or 'valid', got {shown(padding)}")
        if padding == "valid":
            return ((0, 0),) * rank
        if max(stride) > 1:
            raise InvalidProblemError(f"padding='same' is for a stride of 1, got {tuple(stride)}; give numbers")
        both = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
        return tuple((n // 2, n - n // 2) for n in both)
    return tuple((n, n) for n in each_axis("padding", padding, rank, 0))


def _only_of_formulas(epilogue: Any, operands: Mapping[str, Any], rank: int, transposed: bool) -> None:
    """Other keywords are a formula's operands, and without one mistakes."""
    if epilogue is None and operands:
        raise unexpected(_FORMS[rank - 1][transposed], operands)


def _forward(
    rank: int, x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: Any, activation: Any,
    math_precision: str, out: Any, stream: Any, preference: Any, epilogue: Any = None,
    operands: Mapping[str, Any] = _NONE,
) -> Any:  # fmt: skip
    _only_of_formulas(epilogue, operands, rank, False)
    shape, kernel = check_shapes(x, weight, bias, rank, groups, False), shape_of(weight, "weight")[2:]
    step, apart = each_axis("stride", stride, rank, 1), each_axis("dilation", dilation, rank, 1)
    pads = _padding(padding, kernel, step, apart)
    for axis, (n, k, d, pair) in enumerate(zip(shape[-rank:], kernel, apart, pads, strict=True)):
        if n + sum(pair) < d * (k - 1) + 1:
            raise InvalidProblemError(
                f"weight must fit into the padded x: along spatial axis {axis} its window reaches over "
                f"{d * (k - 1) + 1} places, x has {n} and padding {pair}"
            )
    facts = {"stride": step, "padding": pads, "dilation": apart, "groups": groups, "math_precision": math_precision}
    where = {"out": out, "stream": stream, "preference": preference}
    return _finished(x, weight, bias, activation, facts | where, epilogue, operands)


def _transposed(
    rank: int, x: Any, weight: Any, bias: Any, stride: Any, padding: Any, output_padding: Any, groups: Any,
    dilation: Any, activation: Any, math_precision: str, out: Any, stream: Any, preference: Any, epilogue: Any = None,
    operands: Mapping[str, Any] = _NONE,
) -> Any:  # fmt: skip
    _only_of_formulas(epilogue, operands, rank, True)
    shape, kernel = check_shapes(x, weight, bias, rank, groups, True), shape_of(weight, "weight")[2:]
    step, apart = each_axis("stride", stride, rank, 1), each_axis("dilation", dilation, rank, 1)
    less, more = each_axis("padding", padding, rank, 0), each_axis("output_padding", output_padding, rank, 0)
    pads = []
    for axis, (n, k, s, d, p, m) in enumerate(zip(shape[-rank:], kernel, step, apart, less, more, strict=True)):
        if m >= max(s, d):
            raise InvalidProblemError(
                f"output_padding must be less than stride or dilation, got {m} for stride {s} and dilation {d}"
            )
        size = (n - 1) * s - 2 * p + d * (k - 1) + m + 1
        if n < 1 or size < 1:
            raise InvalidProblemError(
                f"the result would have {size} places along spatial axis {axis}, of {n} of x; give less padding"
            )
        pads.append((d * (k - 1) - p, d * (k - 1) - p + m))
    facts = {
        "padding": pads, "dilation": apart, "input_dilation": step, "groups": groups, "transposed": True,
        "math_precision": math_precision,
    }  # fmt: skip
    where = {"out": out, "stream": stream, "preference": preference}
    return _finished(x, weight, bias, activation, facts | where, epilogue, operands)


def _finished(
    x: Any, weight: Any, bias: Any, activation: Any, facts: dict[str, Any], epilogue: Any, operands: Mapping[str, Any]
) -> Any:
    """The convolution by the plan, or by the function of a formula, which has the bias and the activation in it."""
    if epilogue is None:
        return conv_nd(x, weight, bias, activation="none" if activation is None else activation, **facts)
    if activation is not None:
        raise InvalidProblemError(f"activation is written into the formula of epilogue=, got {shown(activation)}")
    given = operands if bias is None else {"bias": bias, **operands}
    return registry.public("conv_formula")(epilogue)(x, weight, **given, **facts)


@entry(ConvPlan)
def conv1d(
    x: Array, weight: Array, bias: Array | None = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    groups: int = 1, *, activation: str | None = None, math_precision: str = "element", out: Any = None,
    stream: Any = None, preference: Any = None, epilogue: Any = None, **operands: Any,
) -> Any:  # fmt: skip
    """The convolution of x [batch, channels, length], or without batch; see `conv2d`."""
    return _forward(
        1, x, weight, bias, stride, padding, dilation, groups, activation, math_precision, out, stream, preference,
        epilogue, operands,
    )  # fmt: skip


@entry(ConvPlan)
def conv2d(
    x: Array, weight: Array, bias: Array | None = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    groups: int = 1, *, activation: str | None = None, math_precision: str = "element", out: Any = None,
    stream: Any = None, preference: Any = None, epilogue: Any = None, **operands: Any,
) -> Any:  # fmt: skip
    """y = act(Σ_k Σ_c x[n, c, stride p - padding + dilation k] weight[o, c, k] + bias[o]) (torch's conv2d).

    x [batch, channels, height, width], or without batch, in any strides: channels last gives channels last. weight
    [outputs, channels / groups, *kernel], bias [outputs]. stride, padding, dilation: an integer, or one for each axis;
    padding may be "same" (a stride of 1) or "valid". activation: None, "relu", "gelu", "gelu_tanh" or "silu".
    math_precision: "tf32" for float32 on tensor cores. A window that does not fit is refused. Deterministic, and the
    same bits in every batch. epilogue may be a formula of the convolution x, epilogue="relu(x + bias) + r", whose
    arrays and numbers are given by keyword, and `out_element`, too (int8 and fp8 saturate): see `conv_formula`, whose
    function has the gradient.
    """
    return _forward(
        2, x, weight, bias, stride, padding, dilation, groups, activation, math_precision, out, stream, preference,
        epilogue, operands,
    )  # fmt: skip


@entry(ConvPlan)
def conv3d(
    x: Array, weight: Array, bias: Array | None = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    groups: int = 1, *, activation: str | None = None, math_precision: str = "element", out: Any = None,
    stream: Any = None, preference: Any = None, epilogue: Any = None, **operands: Any,
) -> Any:  # fmt: skip
    """The convolution of x [batch, channels, depth, height, width], or without batch; see `conv2d`."""
    return _forward(
        3, x, weight, bias, stride, padding, dilation, groups, activation, math_precision, out, stream, preference,
        epilogue, operands,
    )  # fmt: skip


@entry(ConvPlan)
def conv_transpose1d(
    x: Array, weight: Array, bias: Array | None = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
    groups: int = 1, dilation: Any = 1, *, activation: str | None = None, math_precision: str = "element",
    out: Any = None, stream: Any = None, preference: Any = None, epilogue: Any = None, **operands: Any,
) -> Any:  # fmt: skip
    """The transposed convolution of x [batch, channels, length], or without batch; see `conv_transpose2d`."""
    return _transposed(
        1, x, weight, bias, stride, padding, output_padding, groups, dilation, activation, math_precision, out, stream,
        preference, epilogue, operands,
    )  # fmt: skip


@entry(ConvPlan)
def conv_transpose2d(
    x: Array, weight: Array, bias: Array | None = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
    groups: int = 1, dilation: Any = 1, *, activation: str | None = None, math_precision: str = "element",
    out: Any = None, stream: Any = None, preference: Any = None, epilogue: Any = None, **operands: Any,
) -> Any:  # fmt: skip
    """What the convolution of these numbers makes of a gradient x, as a forward pass (torch's conv_transpose2d).

    x [batch, channels, height, width], or without batch; weight [channels, outputs / groups, *kernel], bias [outputs].
    The result has (n - 1) stride - 2 padding + dilation (kernel - 1) + output_padding + 1 places along an axis;
    output_padding is less than stride or dilation. activation, math_precision, epilogue: as in `conv2d`.
    """
    return _transposed(
        2, x, weight, bias, stride, padding, output_padding, groups, dilation, activation, math_precision, out, stream,
        preference, epilogue, operands,
    )  # fmt: skip


@entry(ConvPlan)
def conv_transpose3d(
    x: Array, weight: Array, bias: Array | None = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
    groups: int = 1, dilation: Any = 1, *, activation: str | None = None, math_precision: str = "element",
    out: Any = None, stream: Any = None, preference: Any = None, epilogue: Any = None, **operands: Any,
) -> Any:  # fmt: skip
    """The transposed convolution of x [batch, channels, depth, height, width]; see `conv_transpose2d`."""
    return _transposed(
        3, x, weight, bias, stride, padding, output_padding, groups, dilation, activation, math_precision, out, stream,
        preference, epilogue, operands,
    )  # fmt: skip


@entry(ConvPlan)
def convolution(
    x: Array, weight: Array, bias: Array | None, stride: Any, padding: Any, dilation: Any, transposed: bool,
    output_padding: Any, groups: int, *, math_precision: str = "element", out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """`conv1d` to `conv3d`, or with `transposed` conv_transpose1d to 3d, by the axes of weight (torch.convolution)."""
    rank = len(shape_of(weight, "weight")) - 2
    if not 1 <= rank <= 3:
        raise InvalidProblemError(f"weight must have 3 to 5 axes, got shape {shape_of(weight, 'weight')}")
    if transposed:
        return _transposed(
            rank, x, weight, bias, stride, padding, output_padding, groups, dilation, None, math_precision, out, stream,
            preference,
        )  # fmt: skip
    return _forward(
        rank, x, weight, bias, stride, padding, dilation, groups, None, math_precision, out, stream, preference
    )


@entry(ConvPlan)
def conv_tbc(
    x: Array, weight: Array, bias: Array, pad: int = 0, *, math_precision: str = "element", out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """y [time, batch, outputs] of x [time, batch, channels] and weight [kernel, channels, outputs] (torch.conv_tbc)."""
    shape, w = shape_of(x, "x"), shape_of(weight, "weight")
    if len(shape) != 3 or len(w) != 3 or shape_of(bias, "bias") != w[2:]:
        raise InvalidProblemError(
            f"x must be [time, batch, channels], weight [kernel, channels, outputs] and bias [outputs], got shapes "
            f"{shape}, {w} and {shape_of(bias, 'bias')}"
        )
    y = conv1d(
        permuted(x, (1, 2, 0), "x"), permuted(weight, (2, 1, 0), "weight"), bias, padding=pad,
        math_precision=math_precision, out=None if out is None else permuted(out, (1, 2, 0), "out"), stream=stream,
        preference=preference,
    )  # fmt: skip
    return permuted(y, (2, 0, 1), "y") if out is None else out


_FORMS = ((conv1d, conv_transpose1d), (conv2d, conv_transpose2d), (conv3d, conv_transpose3d))
