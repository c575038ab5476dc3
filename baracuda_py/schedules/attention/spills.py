"""Which instances of attention's kernels spill registers, by kernel: `locks/` says how much. No other may."""

from __future__ import annotations

from ...core import ElementKind, where
from ...core.variant import Spills
from .score_terms import LEVELS

F16, BF16, F32, F64 = ElementKind.F16, ElementKind.BF16, ElementKind.F32, ElementKind.F64
_WIDE = where(WIDE=True)

FORWARD: Spills = {
    **{f"wgmma_{d}{level}": True for d in (64, 128, 192, 256) for level in LEVELS.values()},
    **{f"mma_{d}_masks": True for d in (64, 96, 128, 192, 512)},
    **{f"mma_wide_{d}_masks": True for d in (64, 96, 128, 192, 256)},
    **dict.fromkeys(
        ("wgmma_64", "mma_96_terms", "mma_128", "mma_128_terms", "mma_256", "mma_256_terms", "mma_wide_128_terms"),
        _WIDE,
    ),
    "mma_64": True, "simt_wide": where(D=256), "simt_wide_terms": where(D=256),
    "simt_wide_masks": where(element=F32, D=(96, 128, 192, 256)) | where(element=F64, D=(192, 256)),
}  # fmt: skip
PACKED: Spills = {
    **{f"wgmma_{d}": True for d in (128, 192, 256)}, "wgmma_64": _WIDE, "mma_64": True,
    **{f"mma_{d}": _WIDE for d in (96, 128, 256)}, "simt_wide": where(element=F32, D=256),
}  # fmt: skip
PAGED: Spills = {**PACKED, "wgmma_64": True}
SPARSE: Spills = {
    "whole_128": True, "cut_32": True, "simt_wide": where(element=F32, D=(192, 256)) | where(element=F64, D=256),
}  # fmt: skip
_SPLIT_F64 = where(element=F64, D=(64, 96, 128, 192, 256), HEADS=4)
DECODING: Spills = {"split": _SPLIT_F64 | where(element=F32, D=(128, 192, 256), HEADS=4)}
PAGED_DECODING: Spills = {"split": _SPLIT_F64}
DECODING_BYTES: Spills = {  # of a cache of bytes
    "mma_128": True, "mma_96_8": where(element=F16, C=ElementKind.FP8E5M2),
    "mma_128_8": where(element=BF16, C=ElementKind.FP8E5M2),
}  # fmt: skip

# Of kernels named `gradients_<name>`, <name>.
_GRADIENTS = ("wgmma_128", "wgmma_256", "wide_64", "wide_128", "narrow_96", "narrow_128", "narrow_256")
BACKWARD: Spills = {
    **{name + level: True for name in _GRADIENTS for level in LEVELS.values()},
    **dict.fromkeys(("wgmma_64", "wgmma_64_terms", "wgmma_256_rising"), True),
    **dict.fromkeys(("wide_96_terms", "wide_192_terms", "narrow_192_terms", "wide_192_masks"), True),
    "dkv_terms": where(element=F32, D=(96, 192)) | where(element=F64, D=(64, 192)),
    "dq_masks": where(element=F32, D=(32, 64, 96, 128)) | where(element=F64, D=(32, 64)),
    "dkv_masks": where(element=F32, D=(64, 96, 128, 192, 256)) | where(element=F64, D=(32, 64, 192, 256)),
}
PACKED_BACKWARD: Spills = dict.fromkeys(
    ("wgmma_64", "wgmma_128", "wgmma_256", "wgmma_256_rising", "wide_32", "wide_64", "wide_128", "wide_192",
     "narrow_256"), True,
)  # fmt: skip
SPARSE_BACKWARD: Spills = {
    "whole_128": True, "cut_128": True, "dkv": where(element=F32, D=(96, 256)) | where(element=F64, D=256),
}  # fmt: skip
