"""The low-bit formats: a kind is a row that one of the modules of formats has."""

from __future__ import annotations

from ...core.kinds import TableKind
from . import codebook_formats as codebook
from . import float_formats as floats
from . import gguf_formats as gguf
from . import gguf_lattice_formats as lattice
from . import integer_formats as integer
from .format import Format


class FormatKind(TableKind):
    """What a stored matrix holds, by the names of those who made the formats."""

    INT8 = "int8", integer.INT8
    UINT8 = "uint8", integer.UINT8
    INT4 = "int4", integer.INT4
    UINT4 = "uint4", integer.UINT4
    UINT3 = "uint3", integer.UINT3
    UINT2 = "uint2", integer.UINT2
    NF4 = "nf4", codebook.NF4
    FP4 = "fp4", codebook.FP4
    FP8_E4M3 = "fp8_e4m3", floats.FP8_E4M3
    FP8_E5M2 = "fp8_e5m2", floats.FP8_E5M2
    MXFP8_E4M3 = "mxfp8_e4m3", floats.MXFP8_E4M3
    MXFP8_E5M2 = "mxfp8_e5m2", floats.MXFP8_E5M2
    MXFP6_E3M2 = "mxfp6_e3m2", floats.MXFP6_E3M2
    MXFP6_E2M3 = "mxfp6_e2m3", floats.MXFP6_E2M3
    MXFP4 = "mxfp4", floats.MXFP4
    NVFP4 = "nvfp4", floats.NVFP4
    Q4_0 = "q4_0", gguf.Q4_0
    Q4_1 = "q4_1", gguf.Q4_1
    Q5_0 = "q5_0", gguf.Q5_0
    Q5_1 = "q5_1", gguf.Q5_1
    Q8_0 = "q8_0", gguf.Q8_0
    Q8_1 = "q8_1", gguf.Q8_1
    Q2_K = "q2_k", gguf.Q2_K
    Q3_K = "q3_k", gguf.Q3_K
    Q4_K = "q4_k", gguf.Q4_K
    Q5_K = "q5_k", gguf.Q5_K
    Q6_K = "q6_k", gguf.Q6_K
    Q8_K = "q8_k", gguf.Q8_K
    IQ4_NL = "iq4_nl", gguf.IQ4_NL
    IQ4_XS = "iq4_xs", gguf.IQ4_XS
    GGUF_MXFP4 = "gguf_mxfp4", gguf.MXFP4
    TQ1_0 = "tq1_0", lattice.TQ1_0
    TQ2_0 = "tq2_0", lattice.TQ2_0
    IQ1_S = "iq1_s", lattice.IQ1_S
    IQ1_M = "iq1_m", lattice.IQ1_M
    IQ2_XXS = "iq2_xxs", lattice.IQ2_XXS
    IQ2_XS = "iq2_xs", lattice.IQ2_XS
    IQ2_S = "iq2_s", lattice.IQ2_S
    IQ3_XXS = "iq3_xxs", lattice.IQ3_XXS
    IQ3_S = "iq3_s", lattice.IQ3_S

    row: Format
