"""Operands whose matrix products are sums in one chain of multiply-adds, as a kernel takes them: see `Chained`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

_PIECES = 2**24  # terms in a piece where there is but one


class _InChains(np.ndarray):
    """An array that stays of this class in NumPy's functions, and multiplies matrices by `chain`."""

    scale: float
    piece: int

    def __array_finalize__(self, source: Any) -> None:
        self.scale, self.piece = getattr(source, "scale", 1.0), getattr(source, "piece", _PIECES)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        own = [_plain(x) for x in inputs]
        out = options.pop("out", ())
        if out:
            options["out"] = tuple(map(_plain, out))
        if "where" in options:
            options["where"] = _plain(options["where"])
        if ufunc is np.matmul and not out and min(own[0].ndim, own[1].ndim) > 1 and own[0].dtype.kind == "f":
            result: Any = chain(own[0], own[1], self.scale, self.piece)
        else:
            result = getattr(ufunc, method)(*own, **options)
        if out:
            return out[0] if len(out) == 1 else out
        return tuple(map(self._alike, result)) if isinstance(result, tuple) else self._alike(result)

    def _alike(self, x: Any) -> Any:
        if not isinstance(x, np.ndarray):
            return x
        made = x.view(_InChains)
        made.scale, made.piece = self.scale, self.piece
        return made


def _plain(x: Any) -> Any:
    return x.view(np.ndarray) if isinstance(x, _InChains) else x


def chain(x: np.ndarray, y: np.ndarray, scale: float = 1.0, piece: int = _PIECES) -> np.ndarray:
    """x @ y with one multiply-add for each term, in their order, of terms times `scale`, which the sum is divided by.

    Every `piece` terms a new chain begins; what they come to is added up in the end.
    """
    kind = np.result_type(x, y)
    wide: Any = np.longdouble if kind == np.float64 else np.float64  # holds a product of two numbers of `kind`
    x, y = x.astype(wide), y.astype(wide) * wide(scale)
    shape = (*np.broadcast_shapes(x.shape[:-2], y.shape[:-2]), x.shape[-2], y.shape[-1])
    sums = [np.zeros(shape, kind)]
    for start in range(0, x.shape[-1], piece):
        total = np.zeros(shape, kind)
        for j in range(start, min(start + piece, x.shape[-1])):
            total = (total + x[..., :, j, None] * y[..., None, j, :]).astype(kind)
        sums.append(total)
    return np.asarray(np.sum(sums, axis=0, dtype=kind) / wide(scale), kind)


def in_chains(piece: int | None, count: int) -> list[Callable[[np.ndarray], np.ndarray]]:
    """Changes of operands (`testing.reference.values`) that have a reference take its products in chains.

    Of each the terms lie elsewhere in their binades, so that every sum is rounded anew.
    """

    def change(scale: float) -> Callable[[np.ndarray], np.ndarray]:
        def made(x: np.ndarray) -> np.ndarray:
            view = x.view(_InChains)
            view.scale, view.piece = scale, piece or _PIECES
            return view

        return made

    return [change(scale) for scale in np.exp2(np.arange(count) / count).tolist()]
