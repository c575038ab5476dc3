"""mla_kv_append_fp8: mla_kv_append into FlashMLA's fp8 records, which `mla_decode_fp8` and `mla_sparse_fp8` read.

The parts of records are operands of their own, views of a cache [pages, page_size, 656] of bytes: codes are its columns
[: 512], scales [512 : 528] as float32, and rope [528 :] as bfloat16.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....core import (
    Array, ElementKind, Geometry, Guarantee, Kernel, Params, PerOutput, Plan, Problem, Relative, Step, Ulp, Variant,
    element, extent, inout,
)  # fmt: skip
from ....calls.functional import functional
from ....core.benchmark import BYTES, Benchmark
from ....core.element import cast as cast_values
from ....core.element import decode, encode
from ....schedules.norms import affine_elements
from ..cache.paged_kv_append import BEFORE, paged_tables
from ..paged.page_tables import TABLES, placed
from ..rope.rotary import angles, rotate
from .mla_kv_append import (
    THREADS, MlaKvAppendDescriptor, MlaKvAppendPlan, NewLatents, append_fields, append_params,
)  # fmt: skip
from .records import GROUP, LARGEST, LEAST, check_groups, record

E = ElementKind


@dataclass(frozen=True, kw_only=True)
class MlaKvAppendFp8Descriptor(MlaKvAppendDescriptor):
    """As MlaKvAppendDescriptor; d_latent is a multiple of 128."""

    batch_size: int = extent()
    element: ElementKind = element((E.BF16,))

    def validate(self) -> None:
        super().validate()
        check_groups(self.d_latent)

    @property
    def groups(self) -> int:
        """Scales of a cell."""
        return self.d_latent // GROUP


@dataclass(slots=True, kw_only=True)
class MlaKvAppendFp8Args(NewLatents):
    """As MlaKvAppendArgs, but for the cache: codes of float8_e4m3fn (uint8, or an fp8 dtype), scales and rope."""

    codes: Array = inout("num_pages page_size d_latent", element=E.FP8E4M3, layout="inner")
    scales: Array = inout("num_pages page_size groups", element=E.F32)
    rope: Array = inout("num_pages page_size d_rope", layout="inner")


def _single(value: Any) -> Any:
    return np.asarray(value, np.float32).astype(np.float64)


def reference(
    desc: Any, *, latent: Any, k_rope: Any, weight: Any, positions: Any, inv_freq: Any, codes: Any, scales: Any,
    rope: Any, scale: Any, **tables: Any,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in float64; normalised latents, scales and quotients are float32 numbers. The cache is updated in place."""
    token, page, cell, place, _ = placed(desc, **{name: tables.get(name) for name in TABLES})
    x, turned = (decode(a, desc.element).astype(np.float64)[token] for a in (latent, k_rope))
    where = place if positions is None else np.asarray(positions)[token]
    with np.errstate(all="ignore"):
        if weight is not None and x.size:
            factor = decode(weight, desc.weight_element).astype(np.float64)
            x = _single(x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + desc.eps) * factor)
        x = x.reshape(len(token), desc.groups, GROUP)
        most = _single(np.abs(x).max(-1, initial=0) / LARGEST)
        most = np.where(most < LEAST, LEAST, most)
        quotient = _single(x / most[..., None]).reshape(len(token), desc.d_latent)
        cos, sin = angles(
            desc, np.dtype(np.float64), positions=where, inv_freq=inv_freq, cos=None, sin=None, scale=scale
        )
        turned = rotate(desc, turned, cos[0, 0], sin[0, 0])
        codes[page, cell] = np.asarray(encode(cast_values(quotient, E.FP8E4M3, True), E.FP8E4M3)).view(codes.dtype)
        scales[page, cell] = most.astype(np.float32)
        rope[page, cell] = encode(cast_values(turned, desc.element), desc.element)
    return {"codes": codes, "scales": scales, "rope": rope}


PARAMS = Params(
    "MlaKvAppendFp8Params", codes="ptr", scales="ptr", rope="ptr", codes_stride="i64[2]", scales_stride="i64[3]",
    rope_out_stride="i64[2]", **append_fields(),
)  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    if max(desc.d_latent, desc.d_rope) >= 2**20:
        return "rows of 2^20 columns or more"
    params = {
        **append_params(p), "codes_stride": p.codes.strides[:-1], "scales_stride": p.scales.strides,
        "rope_out_stride": p.rope.strides[:-1],
    }  # fmt: skip
    wide = p.latent.inner_dense and p.latent.aligned(16) and p.codes.inner_dense and p.codes.aligned(8)
    grid = max(1, -(-desc.num_tokens // (THREADS // 32)))
    step = Step("mla_kv_append_fp8", (grid, 1, 1), params, {"WIDE": wide}, THREADS)
    dense = all(v.dense for v in (p.latent, p.k_rope, p.codes, p.rope))
    return Geometry((step,), layout="contiguous" if dense else "inner_contiguous")


_KERNEL = Kernel(
    "mla_kv_append_fp8", "mla_kv_append_fp8<{T}, {WIDE}>", PARAMS, {"WIDE": (True, False)}, threads=THREADS
)


def _benchmark(batch: int, new: int, page: int) -> Benchmark:
    each = -(-(BEFORE + new) // page)
    return Benchmark(
        f"{batch} x {new} tokens, pages of {page}, bf16", batch_size=batch, num_tokens=batch * new,
        num_pages=batch * each, page_size=page, d_latent=512, d_rope=64, element="bfloat16", max_pages=each,
        make=paged_tables, work=BYTES, target=0.9, peers=(),
    )  # fmt: skip


class MlaKvAppendFp8Plan(Plan):
    """codes, scales [page, cell] = rms_norm(latent[t]) · weight; rope[page, cell] = rope(k_rope[t]): `MlaKvAppendPlan`.

    The scale of 128 columns is their largest magnitude / 448, at least 2⁻¹²⁶; codes are quotients in float32, rounded
    to nearest, ties to even, and saturating. Normalised latents are in float32 and never rounded to the element.
    """

    op = "attention.mla_kv_append_fp8"
    descriptor = MlaKvAppendFp8Descriptor
    args = MlaKvAppendFp8Args
    reference = staticmethod(reference)
    raw = True
    value_policy = MlaKvAppendPlan.value_policy
    variants = (
        Variant(
            "tokens", _geometry, source="attention/mla/mla_kv_append_fp8.cu", kernels=(_KERNEL,), elements=(E.BF16,),
            guarantee=Guarantee(
                PerOutput((("codes", Relative(2)), ("scales", Ulp(8)), ("rope", Relative(2)))), batch_invariant=True
            ),
        ),
    )  # fmt: skip
    benchmarks = (_benchmark(64, 512, 64), _benchmark(128, 1, 64))

    @staticmethod
    def case(draw: Any) -> MlaKvAppendFp8Descriptor:
        drawn = MlaKvAppendPlan.case(draw)
        facts = {name: getattr(drawn, name) for name in drawn.__dataclass_fields__}
        kind = draw.choice(affine_elements(draw.element))
        return MlaKvAppendFp8Descriptor(**facts | {"d_latent": draw.sizes(128, 0, 256, 512), "weight_element": kind})

    check = MlaKvAppendPlan.check
    complete = MlaKvAppendPlan.complete
    check_values = MlaKvAppendPlan.check_values

    @classmethod
    def bytes(cls, desc: Any) -> int:
        return int(desc.num_tokens * (desc.width * desc.element.itemsize + record(desc.d_latent, desc.d_rope)))


mla_kv_append_fp8 = functional(MlaKvAppendFp8Plan)
