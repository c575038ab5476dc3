"""drop_block2d, drop_block3d: dropout of blocks of places of every channel (Ghiasi, Lin and Le 2018)."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from ...calls.entries import entry
from ...core import Array, Scalar
from ...core.arrays import read
from ...core.checked import real, truth, whole
from ...core.errors import InvalidProblemError
from ...core.views import constant
from ...expressions.elementwise import elementwise
from ..pooling.reduce_window import reduce_window
from ..random.distributions import RandomKind
from ..random.dropout import dropout
from ..random.random_fill import RandomPlan
from ..random.random_functions import bernoulli, seeded  # type: ignore[attr-defined]
from ..reduce.reduce import count_nonzero  # type: ignore[attr-defined]

KEPT = "where(dropped == 0, x * (places / (eps + (places - count))), 0)"  # count: how many places are dropped


@cache
def _kept(element: Any) -> Any:
    return elementwise(f"{element}({KEPT})")


def _of_images(name: str, spatial: int) -> Any:
    """DropBlock of images or volumes."""

    def call(
        x: Array, p: float = 0.5, block_size: int = 3, *, seed: Scalar = None, offset: Scalar = 0, eps: float = 1e-6,
        training: bool = True, out: Any = None, stream: Any = None, preference: Any = None,
    ) -> Any:  # fmt: skip
        view = read(x, "x")
        if len(view.shape) != spatial + 2 or 0 in view.shape[2:]:
            raise InvalidProblemError(
                f"{name} needs x of shape [batch, channel, …] with {spatial} axes of 1 place or more, got {view.shape}"
            )
        p, eps = real("p", p), real("eps", eps)
        if not 0 <= p <= 1:
            raise InvalidProblemError(f"p must be from 0 to 1, got {p}")
        if not (eps >= 0 and math.isfinite(eps)):
            raise InvalidProblemError(f"eps must be finite and 0 or more, got {eps}")
        lead, space = view.shape[:2], view.shape[2:]
        block = min(whole("block_size", block_size, 1), *space)
        options = {"stream": stream, "preference": preference}
        if not truth("training", training) or p == 0 or 0 in view.shape:
            return dropout(x, 0.0, training=False, out=out, **options)
        starts = [n - block + 1 for n in space]
        chance = p * math.prod(space) / (block**spatial * math.prod(starts))
        seed = seeded(name, seed, stream, x)
        begun = bernoulli(
            min(chance, 1.0),
            shape=(*lead, *starts),
            seed=seed,
            offset=offset,
            element="uint8",
            like=constant(x),
            **options,
        )
        dropped = reduce_window(
            begun, "max", window_dimensions=(1, 1, *[block] * spatial),
            padding=((0, 0), (0, 0), *[(block - 1, block - 1)] * spatial), **options,
        )  # fmt: skip
        return _kept(view.element)(
            x=x, dropped=dropped, count=count_nonzero(dropped, **options), places=float(math.prod(view.shape)), eps=eps,
            out=out, **options,
        )  # fmt: skip

    axes = "height, width" if spatial == 2 else "depth, height, width"
    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"""x with blocks of places set to 0, the others scaled (torchvision.ops.{name}; Ghiasi et al. 2018).

    x: [batch, channel, {axes}]. Of each channel a block of block_size places along every axis, at most as long as the
    shortest, begins at each place where it fits with the probability that drops p of all places if no two overlap:
    p · places / (block_size^{spatial} · places where it fits). The others are times (places of x) / (eps + places
    kept), whose count stays on the device. Blocks of an even size, too, stand where they fit. What is dropped is 0
    whatever it was. seed, offset: as of `dropout`, the stream of a draw for each place where a block may begin.
    training=False: a copy. The gradient is dropped and scaled alike. Four launches.
    """
    return entry(RandomPlan, kind=RandomKind.BERNOULLI)(call)


drop_block2d = _of_images("drop_block2d", 2)
drop_block3d = _of_images("drop_block3d", 3)
