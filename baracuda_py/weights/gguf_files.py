"""read_gguf: the tensors of a GGUF file, those in blocks as the bytes that products of stored weights take."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..core.element import ElementKind
from ..core.errors import UnsupportedError
from ..ops.quantize.format_kinds import FormatKind
from .files import Names, Place, WeightsFileError, chosen, package, placed

ELEMENTS = {
    "F16": ElementKind.F16, "BF16": ElementKind.BF16, "F32": ElementKind.F32, "F64": ElementKind.F64,
    "I8": ElementKind.I8, "I16": ElementKind.I16, "I32": ElementKind.I32, "I64": ElementKind.I64,
}  # fmt: skip
# Not q8_1, which no file has: products keep activations in it. The package counts 40 bytes for its blocks of 36.
KINDS = {
    kind.value.removeprefix("gguf_").upper(): kind
    for kind in FormatKind
    if not kind.row.scales and kind is not FormatKind.Q8_1
}


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of a GGUF file: its shape, and an array of it, or the blocks of a format.

    kind None: data has the shape and its element. Else data is uint8 [*shape[:-1], bytes of a row]: what
    `quantized_matmul`, `block_gemm` and `block_dequantize` take with that kind.
    """

    data: Any
    kind: FormatKind | None
    shape: tuple[int, ...]


def read_gguf(path: str | os.PathLike[str], names: Names = None, *, place: Place = None) -> dict[str, StoredTensor]:
    """Tensors by their names; shapes are row-major, the longest-strided axis first: [out, in] of a linear layer.

    Data are views of the mapped file, read-only; `place` (`cupy.asarray`) copies each to where it goes. names: None for
    all, a pattern ("blk.0.*"), names, or a function of a name.

    WeightsFileError: the file is damaged. UnsupportedError: the package gguf is missing, or a wanted tensor is in a
    format that no product here takes.
    """
    file = Path(path)
    gguf = package("gguf", file)
    with file.open("rb"):
        pass  # a file that is not there, or not to be read, is an OSError
    try:
        with np.errstate(all="ignore"):
            reader = gguf.GGUFReader(str(file))
    except Exception as error:  # of many types: the package takes what a file says at its word
        raise WeightsFileError(f"{file.name} is damaged: {error!r}") from error
    if reader.byte_order != "I":
        raise UnsupportedError(f"{file.name} is in the other byte order")
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    _check_spans(reader, file)
    return {name: _stored(tensors[name], file, place) for name in chosen(names, tensors, file)}


def _check_spans(reader: Any, file: Path) -> None:
    """Refuse tensors that reach beyond the file or share bytes; names, too, that reach into what is not theirs."""
    end = int(reader.data_offset)
    for tensor in sorted(reader.tensors, key=lambda one: (one.data_offset, one.n_bytes)):
        if tensor.data_offset < end:
            raise WeightsFileError(f"{file.name} is damaged: {tensor.name} begins within what stands before it")
        end = int(tensor.data_offset) + int(tensor.data.nbytes)
    if end > len(reader.data):
        raise WeightsFileError(f"{file.name} is cut off: its tensors end at {end}, it has {len(reader.data)} bytes")


def _stored(tensor: Any, file: Path, place: Place) -> StoredTensor:
    """A tensor of the package's reader as one here."""
    shape = tuple(int(extent) for extent in reversed(tensor.shape.tolist()))
    name, data = tensor.tensor_type.name, np.asarray(tensor.data)
    if name in ELEMENTS:
        return StoredTensor(placed(data.reshape(-1).view(np.uint8), ELEMENTS[name], shape, place), None, shape)
    if name not in KINDS:
        raise UnsupportedError(f"{file.name}: no product here takes {name}, which {tensor.name} is stored in")
    return StoredTensor(placed(data, ElementKind.U8, data.shape, place), KINDS[name], shape)
