"""What rotated tensors share: how angles are given, the descriptor's rotary fields, and the rotation in NumPy."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from ....core import ElementKind, derived, extents, flag, operand
from ....core.args import broadcasts_to, finite_only
from ....core.element import INDICES
from ....core.errors import InvalidProblemError
from ..layouts import LAYOUTS

FREQUENCIES = (ElementKind.F32, ElementKind.F64)
TABLES = ("cos", "sin")
MOST_AXES = 4  # of positions


@finite_only  # beside those that are not, sines of the smallest are 0 where a wider type has them
def random_frequencies(rng: Any, desc: Any, shape: tuple[int, ...]) -> Any:
    """Radians per position, as large and as small as usual ones."""
    return rng.uniform(1e-5, 1, shape)


def positions_operand() -> Any:
    """Of each row, or of each place in the sequence; with sections, along each of their axes."""
    return operand("*positions_shape", element=INDICES, optional=True, broadcast=True, values=(-64, 1_000_000))


def section_field() -> Any:
    """The field `mrope_section`: how many pairs turn by the positions along each axis."""
    return extents(())


def interleaved_field() -> Any:
    """The field `mrope_interleaved`: pairs of the axes in turn, in place of a section after the other."""
    return flag(False)


def frequencies_operand() -> Any:
    """Radians per position of each pair."""
    return operand("num_frequencies", element=FREQUENCIES, optional=True, values=random_frequencies)


def table_operand() -> Any:
    """Cosines or sines of each row's pairs; of any size, since a table may hold a scale of its own."""
    return operand("*table_shape", element="table_elements", optional=True, broadcast=True)


def tables_field() -> Any:
    """The field `table_shape`: by default a column a pair."""
    return extents(
        derived(lambda d: (d.batch_size, d.seq_len, d.num_frequencies), lambda d, given: d.whole_tables(given))
    )


class Rotary:
    """What the descriptors of rotated tensors share: `head_dim` columns, of which `rotary_dim` turn."""

    element: ElementKind
    head_dim: int
    rotary_dim: int | None
    base: float
    pairing: str
    batch_size: int
    seq_len: int
    table_shape: tuple[int, ...]
    mrope_section: tuple[int, ...] = ()
    mrope_interleaved: bool = False

    def validate(self) -> None:
        """Whole pairs, and tables of one column a pair or one a rotated column."""
        if self.rotary % 2 or self.rotary > self.head_dim:
            raise InvalidProblemError(
                f"rotary_dim must be even and at most head_dim, got {self.rotary} for head_dim {self.head_dim}"
            )
        sections = self.mrope_section
        if sections and (len(sections) > MOST_AXES or sum(sections) != self.num_frequencies):
            raise InvalidProblemError(
                f"mrope_section must be at most {MOST_AXES} sizes whose sum is {self.num_frequencies}, a half of the "
                f"{self.rotary} columns that turn, got {sections}"
            )
        if self.mrope_interleaved and not sections:
            raise InvalidProblemError("mrope_interleaved goes with mrope_section")

    @property
    def positions_shape(self) -> tuple[int, ...]:
        """The whole shape that positions broadcast to: with sections an axis stands in front, one entry a section."""
        axes = (len(self.mrope_section),) if self.mrope_section else ()
        return (*axes, self.batch_size, self.seq_len)

    @property
    def section_ends(self) -> tuple[int, ...]:
        """The pair before which each section ends; of interleaved ones axis a has pairs a, a + axes, … below it."""
        if self.mrope_interleaved:
            return tuple(len(self.mrope_section) * n for n in self.mrope_section)
        return tuple(itertools.accumulate(self.mrope_section))

    @property
    def pair_axes(self) -> Any:
        """The axis of positions that each pair turns by; of interleaved sections 0 where no other has the pair."""
        pair, ends = np.arange(self.num_frequencies), np.asarray(self.section_ends)
        if not self.mrope_interleaved:
            return np.searchsorted(ends, pair, "right")
        axis = pair % len(ends)
        return np.where(pair < ends[axis], axis, 0)

    def whole_tables(self, given: tuple[int, ...]) -> tuple[int, ...]:
        """The whole shape that tables of shape `given` broadcast to; an axis for heads may stand before the rows."""
        columns = self.rotary if given[-1:] == (self.rotary,) else self.num_frequencies
        shape = (self.batch_size, *(1,) * (len(given) == 4), self.seq_len, columns)
        if not broadcasts_to(given, shape):
            raise InvalidProblemError(
                f"cos and sin must have shape [sequence, columns] or [batch, sequence, columns], or with an axis of 1 "
                f"for heads before the sequence, and {self.num_frequencies} columns, one a pair, or {self.rotary}, one "
                f"a rotated column; got {given} for batch {self.batch_size} and sequence {self.seq_len}"
            )
        return shape

    @property
    def table_step(self) -> int:
        """From a pair to the next, columns of a table: a pair's two columns stand beside each other if interleaved."""
        doubled = self.rotary and self.table_shape[-1] == self.rotary
        return 2 if doubled and self.pairing == "interleaved" else 1

    @property
    def rotary(self) -> int:
        """Columns that are rotated."""
        return self.head_dim if self.rotary_dim is None else self.rotary_dim

    @property
    def num_frequencies(self) -> int:
        """Pairs, each with an angle of its own."""
        return self.rotary // 2

    @property
    def table_elements(self) -> tuple[ElementKind, ...]:
        """What cosines and sines may be given in."""
        return (self.element.acc,) if self.element is self.element.acc else (self.element.acc, self.element)


def check_angles(desc: Rotary, views: Mapping[str, Any]) -> None:
    """Tables come together, and instead of positions and frequencies; sections are of positions along several axes."""
    if (views["cos"] is None) != (views["sin"] is None):
        raise InvalidProblemError("cos and sin go together: give both or neither")
    both = [name for name in ("positions", "inv_freq") if views["cos"] is not None and views[name] is not None]
    if both:
        raise InvalidProblemError(f"cos and sin replace {' and '.join(both)}; give the ones or the others")
    if desc.mrope_section and (views["positions"] is None or len(views["positions"].shape) != 3):
        given = "none" if views["positions"] is None else f"shape {views['positions'].shape}"
        raise InvalidProblemError(
            f"with mrope_section positions must be given as [axes, batch or 1, sequence], here {desc.positions_shape}, "
            f"got {given}"
        )


def random_sections(draw: Any, pairs: int) -> dict[str, Any]:
    """For tests: sections of the pairs, one in four times."""
    if draw.integer(0, 3):
        return {}
    ends = sorted(draw.integer(0, pairs) for _ in range(draw.integer(0, MOST_AXES - 1)))
    sections = tuple(b - a for a, b in itertools.pairwise((0, *ends, pairs)))
    return {"mrope_section": sections, "mrope_interleaved": draw.flag()}


def settle_angles(desc: Rotary, arrays: dict[str, Any]) -> None:
    """For tests: of random operands those that may come together; tables where the sequence is odd."""
    tables = arrays["cos"] is not None and arrays["sin"] is not None and desc.seq_len % 2 == 1
    tables = tables and not desc.mrope_section
    arrays.update(dict.fromkeys(("positions", "inv_freq") if tables else ("cos", "sin")))
    if desc.mrope_section and (arrays["positions"] is None or arrays["positions"].ndim != 3):
        spread = np.arange(1, 1 + len(desc.mrope_section), dtype=np.int32)[:, None, None]
        arrays["positions"] = np.ascontiguousarray(spread * np.arange(desc.seq_len, dtype=np.int32))


def angles(
    desc: Rotary, dtype: Any, *, positions: Any, inv_freq: Any, cos: Any, sin: Any, scale: Any, offset: Any = 0
) -> tuple[Any, Any]:
    """cos and sin in `dtype`, broadcastable to [batch, heads, seq_len, pairs]; the angle stays in float64 or wider."""
    factor = np.dtype(dtype).type(scale)
    if cos is not None:
        tables = (np.broadcast_to(a.astype(dtype), desc.table_shape) for a in (cos, sin))
        pairs = (a[..., :: desc.table_step][..., : desc.num_frequencies] for a in tables)
        return tuple((a if a.ndim == 4 else a[:, None]) * factor for a in pairs)
    wide = np.result_type(dtype, np.float64)
    if inv_freq is None:
        inv_freq = wide.type(desc.base) ** (-np.arange(0, desc.rotary, 2).astype(wide) / wide.type(max(desc.rotary, 1)))
    places = np.arange(desc.seq_len) if positions is None else np.asarray(positions)
    places = np.atleast_2d(places.astype(np.int64) + np.int64(offset))
    if desc.mrope_section:
        places = np.broadcast_to(places, desc.positions_shape)[desc.pair_axes]
    places = np.moveaxis(places, 0, -1)[:, None] if desc.mrope_section else places[:, None, :, None]
    with np.errstate(invalid="ignore"):
        angle = places.astype(wide) * inv_freq.astype(wide)
        return np.cos(angle).astype(dtype) * factor, np.sin(angle).astype(dtype) * factor


def rotate(desc: Rotary, x: Any, cos: Any, sin: Any) -> Any:
    """x with every pair turned; columns from rotary_dim on are copied."""
    y = x.copy()
    if desc.pairing == "half":
        first, second = slice(0, desc.rotary // 2), slice(desc.rotary // 2, desc.rotary)
    else:
        first, second = slice(0, desc.rotary, 2), slice(1, desc.rotary, 2)
    a, b = x[..., first], x[..., second]
    with np.errstate(invalid="ignore"):
        y[..., first] = a * cos - b * sin
        y[..., second] = b * cos + a * sin
    return y


def angles_in_torch(
    torch: Any, desc: Rotary, x: Any, *, positions: Any, inv_freq: Any, cos: Any, sin: Any, scale: Any, offset: Any = 0
) -> tuple[Any, Any]:
    """cos and sin in the dtype of x, [batch or 1, 1, seq_len, pairs]."""
    if cos is not None:
        tables = (t.expand(desc.table_shape)[..., :: desc.table_step][..., : desc.num_frequencies] for t in (cos, sin))
        return tuple((t if t.ndim == 4 else t[:, None]).to(x.dtype) * scale for t in tables)
    wide = {"dtype": torch.float64, "device": x.device}
    if inv_freq is None:  # by NumPy: another power's last bit would be seen at large positions
        inv_freq = torch.as_tensor(desc.base ** (-np.arange(0, desc.rotary, 2) / max(desc.rotary, 1)), **wide)
    places = torch.arange(desc.seq_len, device=x.device) if positions is None else positions
    places = torch.atleast_2d(places) + offset
    if desc.mrope_section:
        places = places.expand(desc.positions_shape)[torch.as_tensor(desc.pair_axes, device=x.device)]
    places = places.movedim(0, -1)[:, None] if desc.mrope_section else places[:, None, :, None]
    angle = places.double() * inv_freq.double()
    return angle.cos().to(x.dtype) * scale, angle.sin().to(x.dtype) * scale


def rotate_in_torch(torch: Any, desc: Rotary, x: Any, cos: Any, sin: Any) -> Any:
    """x with every pair turned, differentiable."""
    turned, rest = x[..., : desc.rotary], x[..., desc.rotary :]
    half = desc.pairing == "half"
    a, b = turned.chunk(2, -1) if half else (turned[..., ::2], turned[..., 1::2])
    pair = (a * cos - b * sin, b * cos + a * sin)
    y = torch.cat(pair, -1) if half else torch.stack(pair, -1).flatten(-2)
    return torch.cat((y, rest), -1) if rest.shape[-1] else y


def check_tokens(shapes: Mapping[str, Any], tokens: str, others: tuple[str, ...], facts: dict[str, Any]) -> None:
    """Functional layer: refuse what is for another number of tokens than the operand `tokens`; settle `table_shape`.

    An array whose heads stand where the sequence should would be turned by its heads without a word.
    """
    if any(len(shapes.get(name, ())) != 4 for name in (tokens, *(n for n in others if n in shapes))):
        return
    count = shapes[tokens][2]
    axes = {"positions": (1, -1), "cos": (2, -2), "sin": (2, -2)} | dict.fromkeys(others, (4, 2))
    for name, (least, axis) in axes.items():
        shape = tuple(shapes.get(name, ()))
        if len(shape) >= least and shape[axis] not in ((count,) if name in others else (1, count)):
            raise InvalidProblemError(
                f"{name} of shape {shape} has {shape[axis]} tokens, {tokens} of shape {tuple(shapes[tokens])} has "
                f"{count}: they are on axis 2 of {tokens} by the default layout={LAYOUTS[0]!r}, on axis 1 by "
                f"layout={LAYOUTS[1]!r}"
            )
    if "cos" in shapes:
        facts.setdefault("table_shape", tuple(shapes["cos"]))
