"""Quantised caches: the formats, and what of a cache of keys or values is stored as codes and scales.

`paged_kv_append_quantized` writes them, `batch_paged_extend_quantized` reads them. An element is its code times the
scale of its group: `group_size` neighbouring columns of a token and head, by default all of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....core import ElementKind, InvalidProblemError, choice, integer
from ....core.element import cast, encode
from ...elementwise.cast import CODES

E = ElementKind
LARGEST = {E.I8: 127.0, E.S4: 7.0, E.FP8E4M3: 448.0, E.FP8E5M2: 57344.0}
"""The formats, and what the largest number of a group becomes; of integers the code's size is at most that."""
FORMATS = tuple(map(str, LARGEST))
CODE_NUMBERS = tuple(CODES.index(kind) for kind in LARGEST)
GROUPS = (32, 64, 128)
"""Columns of a group of int4 besides all of a head's."""


def format_field() -> Any:
    """The field `format`."""
    return choice(FORMATS, "int8")


def group_field() -> Any:
    """The field `group_size`: None is one group for all columns of a head."""
    return integer(None, minimum=1)


class QuantizedCaches:
    """What descriptors of ops on quantised caches share, beside their own `format`, `group_size`, `d_k` and `d_v`."""

    format: str
    group_size: int | None
    d_k: int
    d_v: int

    def check_caches(self) -> None:
        """Refuse groups that the format has not, and heads that do not fall into whole bytes and groups."""
        size = self.group_size
        for name, d in (("d_k", self.d_k), ("d_v", self.d_v)):
            if self.code is E.S4 and d % 2:
                raise InvalidProblemError(f"two columns of int4 are a byte: {name} must be even, got {d}")
            if size is None or size == d:
                continue
            if self.code is not E.S4:
                raise InvalidProblemError(
                    f"{self.format} has one scale a token and head: leave out group_size, got {size} for {name} {d}"
                )
            if size not in GROUPS or d % size:
                raise InvalidProblemError(
                    f"group_size must be {', '.join(map(str, GROUPS))} and divide {name}, or be {name}; got {size} for "
                    f"{d}"
                )

    @property
    def code(self) -> ElementKind:
        """The element whose codes are stored."""
        return E.of(self.format)

    @property
    def code_element(self) -> ElementKind:
        """What the arrays of codes hold: bytes of two codes of int4."""
        return E.U8 if self.code is E.S4 else self.code

    @property
    def per_byte(self) -> int:
        """Codes in a byte."""
        return 2 if self.code is E.S4 else 1

    @property
    def k_bytes(self) -> int:
        """Bytes of a token and head of keys."""
        return self.d_k // self.per_byte

    @property
    def v_bytes(self) -> int:
        """Bytes of a token and head of values."""
        return self.d_v // self.per_byte

    @property
    def k_groups(self) -> int:
        """Scales of a token and head of keys."""
        return 1 if self.group_size is None else self.d_k // self.group_size

    @property
    def v_groups(self) -> int:
        """Scales of a token and head of values."""
        return 1 if self.group_size is None else self.d_v // self.group_size


def quantized(desc: QuantizedCaches, x: Any, groups: int) -> tuple[Any, Any]:
    """Bytes and scales of rows [..., d] that have `groups` groups each; all in float32, as the kernels compute."""
    kind, most = desc.code, np.float32(LARGEST[desc.code])
    x = np.asarray(x).astype(np.float32)
    width = x.shape[-1] // groups if groups else 1
    rows = x.reshape(*x.shape[:-1], groups, width)
    with np.errstate(all="ignore"):
        size = np.abs(rows).max(axis=-1, initial=0)
        scale = np.where(np.isfinite(size), size / most, np.float32(np.nan)).astype(np.float32)
        quotient = np.where(scale[..., None] > 0, rows / scale[..., None], np.float32(0)).reshape(x.shape)
    if kind in (E.FP8E4M3, E.FP8E5M2):
        return encode(cast(quotient, kind, saturate=True), kind), scale
    codes = np.clip(np.rint(quotient), -most, most).astype(np.int8)
    if kind is E.S4:
        codes = (codes[..., ::2] & 15) | (codes[..., 1::2] << 4)
    return codes.view(desc.code_element.carrier), scale
