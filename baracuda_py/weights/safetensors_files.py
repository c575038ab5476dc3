"""read_safetensors: a file of the format safetensors, or the shards that an index names."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ..core.element import ElementKind
from ..core.errors import UnsupportedError
from .files import Names, Place, WeightsFileError, chosen, package, placed

INDEX, WHOLE = "model.safetensors.index.json", "model.safetensors"
ELEMENTS = {
    "BOOL": ElementKind.BOOL, "U8": ElementKind.U8, "I8": ElementKind.I8, "U16": ElementKind.U16,
    "I16": ElementKind.I16, "U32": ElementKind.U32, "I32": ElementKind.I32, "U64": ElementKind.U64,
    "I64": ElementKind.I64, "F16": ElementKind.F16, "BF16": ElementKind.BF16, "F32": ElementKind.F32,
    "F64": ElementKind.F64, "C64": ElementKind.C64, "F8_E4M3": ElementKind.FP8E4M3, "F8_E5M2": ElementKind.FP8E5M2,
    "F8_E8M0": ElementKind.E8M0,
}  # fmt: skip
BITS = {name: kind.bits for name, kind in ELEMENTS.items()} | {
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
}  # fmt: skip


def read_safetensors(path: str | os.PathLike[str], names: Names = None, *, place: Place = None) -> dict[str, Any]:
    """Tensors by their names, from a file, an index of shards, or a folder that has one of the two.

    Elements are kept, bfloat16 and 8-bit floats too. Arrays are views of the mapped file, which is read where they are
    used, and read-only; `place` (`cupy.asarray`) copies each from there to where it goes, and gets 8-bit floats as
    bytes. names: None for all, a pattern ("model.layers.0.*"), names, or a function of a name.

    WeightsFileError: a file is damaged. UnsupportedError: the package safetensors is missing, or a wanted tensor has an
    element that is in no array here. Torch's users have `safetensors.torch`: every function takes its tensors.
    """
    file = Path(path)
    if file.is_dir():
        file = file / (INDEX if (file / INDEX).exists() else WHOLE)
    if file.suffix != ".json":
        return dict(_read(file, names, place))
    shards = _shards(file)
    wanted = chosen(names, shards, file)
    made: dict[str, Any] = {}
    for shard in dict.fromkeys(shards[name] for name in wanted):
        own = [name for name in wanted if shards[name] == shard]
        found = dict(_read(file.parent / shard, own.__contains__, place))
        if missing := [name for name in own if name not in found]:
            raise WeightsFileError(f"{shard} has no tensor {missing[0]!r}, which {file.name} says it has")
        made |= found
    return {name: made[name] for name in wanted}


def _shards(file: Path) -> dict[str, str]:
    """The file of each name, which stands beside the index."""
    try:
        shards = json.loads(file.read_bytes())["weight_map"]
        named = all(isinstance(shard, str) for shard in shards.values())
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise WeightsFileError(f"{file.name} is no index of shards: {error!r}") from error
    wrong = [
        shard for shard in shards.values()
        if not named or Path(shard).name != shard or shard in ("", "..") or "\0" in shard
    ]  # fmt: skip
    if wrong:
        raise WeightsFileError(f"{file.name} names a shard {wrong[0]!r}, which is no file beside it")
    return dict(shards)


def _read(file: Path, names: Names, place: Place) -> Iterator[tuple[str, Any]]:
    """Names and arrays of a file. The package checks the header: tensors fill the file, none overlaps another."""
    safetensors = package("safetensors", file)
    with file.open("rb"):
        pass  # a file that is not there, or not to be read, is an OSError
    try:
        with safetensors.safe_open(str(file), framework="np") as held:
            known = {name: held.get_slice(name) for name in held.offset_keys()}
            facts = {name: (one.get_dtype(), tuple(one.get_shape())) for name, one in known.items()}
    except safetensors.SafetensorError as error:
        raise WeightsFileError(f"{file.name} is damaged: {error}") from error
    data, at, spans = np.memmap(file, np.uint8, "r"), 0, {}
    begin = 8 + int.from_bytes(data[:8].tobytes(), "little")
    for name, (element, shape) in facts.items():
        if element not in BITS:
            raise UnsupportedError(f"{file.name}: tensors of {element} are not known here")
        nbytes = prod(shape) * BITS[element] // 8
        spans[name] = slice(begin + at, begin + at + nbytes)
        at += nbytes
    if begin + at != len(data):
        raise WeightsFileError(f"{file.name} has {len(data)} bytes, and its tensors end at {begin + at}")
    for name in chosen(names, known, file):
        element, shape = facts[name]
        if element not in ELEMENTS:
            raise UnsupportedError(f"{file.name}: no array here holds {element}, which {name} is of")
        yield name, placed(data[spans[name]], ELEMENTS[element], shape, place)
