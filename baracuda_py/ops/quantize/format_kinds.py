"""The low-bit formats: a kind is a row that `integer_formats`, `codebook_formats` or `gguf_formats` has."""

from __future__ import annotations

from ...core.kinds import TableKind
from .codebook_formats import NF4_FORMAT
from .format import Format
from .gguf_formats import Q4_0_FORMAT
from .integer_formats import INT4_FORMAT, INT8_FORMAT, UINT4_FORMAT, UINT8_FORMAT


class FormatKind(TableKind):
    """What a stored matrix holds, by the names of those who made the formats."""

    INT8 = "int8", INT8_FORMAT
    UINT8 = "uint8", UINT8_FORMAT
    INT4 = "int4", INT4_FORMAT
    UINT4 = "uint4", UINT4_FORMAT
    NF4 = "nf4", NF4_FORMAT
    Q4_0 = "q4_0", Q4_0_FORMAT

    row: Format
