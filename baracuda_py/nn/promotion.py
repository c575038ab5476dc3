"""Which operands torch brings to one dtype before it computes, and to which: `nn.functional` casts them alike.

Arrays with axes decide, then arrays without, then numbers: those that come later count where they are of a higher
category (bool, integer, float, complex), and then bring the default dtype of it. Among equals the wider dtype is taken,
float32 of float16 and bfloat16. So int64 + 2.5 is float32, float16 + 2.5 is float16, and float32 + float64 is float64.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ..core.arrays import read
from ..core.element import ALL, UNSIGNED, ElementKind
from ..core.errors import BaracudaError
from ..interop.packages import package_name
from ..ops.elementwise.binary_numbers import NUMBERS, promoted
from ..ops.elementwise.cast import cast

# "rule our operands: functions". common: all operands, or all items of a list, have the dtype that is found as said
# above; float: and where that is of integers or bool, the default float dtype; whole: and where that is bool, int64;
# first: all have the dtype of the first. each: arrays without axes count as those with, to which they are broadcast.
_RULES = """
float x: acos acosh arccos arccosh arcsin arcsinh arctan arctanh asin asinh atan atanh corrcoef cos cosh cov deg2rad \
digamma erf erfc erfinv exp exp2 expm1 gradient i0 lgamma log log10 log1p log2 logit logsumexp mvlgamma polygamma \
rad2deg reciprocal rsqrt sigmoid sin sinc sinh softsign sqrt tan tanh tanhshrink
float a b: arctan2 atan2 copysign div divide ldexp true_divide xlogy
float x1 x2: pairwise_distance
float each x1 x2: cosine_similarity
float y x: cumulative_trapezoid trapezoid trapz
float x target: hinge_embedding_loss kl_div poisson_nll_loss soft_margin_loss
common a b: add bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor dist eq floor_divide fmax \
fmin fmod gcd ge greater greater_equal gt hypot igamma igammac lcm le less less_equal logaddexp logaddexp2 logical_and \
logical_or logical_xor lt maximum minimum mul multiply ne nextafter not_equal pow remainder rsub sub \
subtract where
common each a b: kron
common a b c: addcdiv addcmul
common x min max: clamp clamp_max clamp_min clip
common x target: binary_cross_entropy_with_logits
common each x target: l1_loss mse_loss smooth_l1_loss
common xs: block_diag cat column_stack concat concatenate dstack hstack row_stack stack vstack
common sorted_sequence values: searchsorted
common x boundaries: bucketize
common x test_elements: isin
first x target: huber_loss
first x value: index_fill masked_fill
whole x: square
"""
RULES = {
    name: tuple(words.split())
    for words, _, names in (line.partition(":") for line in _RULES.strip().splitlines())
    for name in names.split()
}


def brought_together(name: str, passed: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments of a function, by our names, with its operands cast as torch casts them."""
    rule = RULES.get(name)
    if rule is None:
        return passed
    how, *operands = rule
    each = operands[0] == "each"
    held = {n: passed[n] for n in operands if passed.get(n) is not None}
    if _settled(how, held.values()):
        return passed
    items = [one for v in held.values() for one in (v if isinstance(v, (list, tuple)) else (v,))]
    kind = common_kind(items, each)
    if kind is None:
        return passed
    if how == "float" and not kind.is_inexact and passed.get("rounding_mode") is None:
        kind = default_float(held.values())
    if how == "first":
        kind = read(items[0]).element
    if how == "whole" and kind is ElementKind.BOOL:
        kind = ElementKind.I64
    return {**passed, **{n: _cast(value, kind) for n, value in held.items()}}


def _settled(how: str, values: Collection[Any]) -> bool:
    """Whether operands have one dtype already, as nearly all do, and it is one to compute in."""
    dtypes = {getattr(value, "dtype", None) for value in values}
    if len(dtypes) != 1 or None in dtypes:
        return False
    return how == "common" or (how == "float" and ElementKind.of(dtypes.pop()).is_inexact)


def common_kind(values: Iterable[Any], each: bool = False) -> ElementKind | None:
    """The element that torch gives the result of these operands (torch.result_type); None where one has none.

    each: arrays without axes count as others do.
    """
    found: list[ElementKind | None] = [None, None, None]  # of arrays with axes, of those without, of numbers
    values = list(values)
    for value in values:
        if type(value) in NUMBERS:
            place, kind = 2, _number_kind(value, values)
        else:
            try:
                reading = read(value)
            except BaracudaError:  # a symbol of a formula, or what the function itself refuses
                return None
            place, kind = 0 if reading.shape or each else 1, reading.element
        if kind not in ALL:
            return None
        before = found[place]
        found[place] = kind if before in (None, kind) else promoted(before, kind)
    return _outranked(found[0], _outranked(found[1], found[2]))


def kind_of(x: Any) -> ElementKind | None:
    """The element of an array; None of a symbol of a formula, and of what the function itself refuses."""
    try:
        return read(x).element
    except BaracudaError:
        return None


def default_float(values: Iterable[Any]) -> ElementKind:
    """The float dtype of what is no float: torch's default dtype for its tensors, else float32."""
    of_torch = any(package_name(type(value)) == "torch" for value in values)
    return ElementKind.of(sys.modules["torch"].get_default_dtype()) if of_torch else ElementKind.F32


def _number_kind(value: Any, beside: Iterable[Any]) -> ElementKind:
    if isinstance(value, complex):
        return default_float(beside).paired or ElementKind.C64
    if isinstance(value, float):
        return default_float(beside)
    return ElementKind.BOOL if isinstance(value, bool) else ElementKind.I64


def _outranked(higher: ElementKind | None, lower: ElementKind | None) -> ElementKind | None:
    """The element of operands that decide and of some that only count by their category."""
    if higher is None or lower is None:
        return higher or lower
    if higher.is_float and lower.is_complex:
        return higher.paired or ElementKind.C64
    if higher is ElementKind.BOOL or (lower.is_inexact and not higher.is_inexact):
        return promoted(higher, lower)
    return higher


def _cast(value: Any, kind: ElementKind) -> Any:
    if isinstance(value, (list, tuple)):
        return [_cast(one, kind) for one in value]
    if type(value) in NUMBERS:
        return wrapped(value, kind)
    return value if read(value).element is kind else cast(value, kind)


def wrapped(value: Any, kind: ElementKind) -> Any:
    """A number that meets unsigned integers: of a negative one what is congruent to it, as in torch."""
    most = kind.limits.max if kind in UNSIGNED else 0
    return value + int(most) + 1 if isinstance(value, int) and -most <= value < 0 else value
