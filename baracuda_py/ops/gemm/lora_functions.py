"""lora_matmul and its gradients: x and base by one plan, the adapters by products of tokens in their order."""

from __future__ import annotations

from functools import cache
from typing import Any

from ...core import Array, ElementKind, registry
from ...calls.functional import functional
from ...calls.composed import composed, may_grow
from ...core.errors import InvalidProblemError
from ...calls.entries import entry
from ...core.outputs import beside, each_of
from ...core.views import broadcast, shape_of, transposed, with_axis
from ...expressions.elementwise import elementwise
from ...core.arrays import read
from .grouped_inner_gemm import grouped_inner_gemm
from .lora_matmul import LoraMatmulPlan
from .lora_matmul_backward import LoraMatmulBackwardPlan

_forward = functional(LoraMatmulPlan, "lora_matmul")
_backward = functional(LoraMatmulBackwardPlan, "lora_matmul_backward")
_formula = cache(elementwise)
_GRADIENTS = ("dx", "dbase", "da", "db", "dscale")


def _trained(value: Any) -> bool:
    """Whether the gradient of an adapter is wanted, as far as its array tells."""
    return value is not None and may_grow(value)


def _vjp(dy: Array, x: Array, a: Array, b: Array, scale: Array | None, base: Array | None, **given: Any) -> Any:
    """The gradients for x, a, b, scale and base, where they are wanted."""
    wanted = {"dx": x, "dbase": base, "da": a, "db": b, "dscale": scale}
    flags = {f"return_{name}": _trained(value) for name, value in wanted.items()}
    made = iter(each_of(lora_matmul_backward(dy, a, b, scale=scale, x=x, **flags, **given), sum(flags.values())))
    found = {name: next(made) if flags[f"return_{name}"] else None for name in _GRADIENTS}
    return tuple(found[name] for name in ("dx", "da", "db", "dscale", "dbase"))


@composed(_vjp, "x", "a", "b", "scale", "base", where=lambda held: any(_trained(held[n]) for n in ("a", "b", "scale")))
@entry(LoraMatmulPlan)
def lora_matmul(
    x: Array, a: Array, b: Array, ids: Array, offsets: Array | None = None, scale: Array | None = None,
    ranks: Array | None = None, base: Array | None = None, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """y[t] = base[t] + scale[i] (x[t] @ a[i]ᵀ) @ b[i]ᵀ with the adapter i of token t, or of the segment it is in.

    x [tokens, in_features], a [adapters, max_rank, in_features], b [adapters, out_features, max_rank], ids [tokens],
    or with offsets [num_ids + 1] one for each segment. scale: float32 [adapters]; ranks: [adapters]. x, a, b, scale and
    base have gradients, see `lora_matmul_backward`. See `LoraMatmulPlan`.
    """
    options = {"out": out, "stream": stream, "preference": preference}
    return _forward(x, a, b, ids, offsets, scale, ranks, base, **options)


@entry(LoraMatmulBackwardPlan)
def lora_matmul_backward(
    dy: Array, a: Array, b: Array, ids: Array, offsets: Array | None = None, scale: Array | None = None,
    ranks: Array | None = None, x: Array | None = None, *, return_dx: bool = True, return_dbase: bool = True,
    return_da: bool = False, return_db: bool = False, return_dscale: bool = False, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """The gradients of `lora_matmul` that are asked for, in the order dx, dbase, da, db, dscale.

    dx and dbase are one plan, `LoraMatmulBackwardPlan`. The others read x. Tokens are put into the order of their
    adapters by `segment_order`, and each adapter's sums are those of its tokens in that order: two products through the
    rank, rounded to the element, and one `grouped_inner_gemm` each. What is beyond a rank has a gradient of 0, and so
    has an adapter without tokens.
    """
    flags = dict(zip(_GRADIENTS, (return_dx, return_dbase, return_da, return_db, return_dscale), strict=True))
    names = [name for name, flag in flags.items() if flag]
    if not names:
        raise InvalidProblemError("no gradient is asked for; give one of return_dx, return_dbase, return_da, …")
    if return_dscale and scale is None:
        raise InvalidProblemError("scale is None, and return_dscale asks for its gradient")
    options = {"stream": stream, "preference": preference}
    to = dict(zip(names, each_of(out, len(names)), strict=True))
    made: dict[str, Any] = {}
    if first := [name for name in names if name in ("dx", "dbase")]:
        given = {name: to[name] for name in first if to[name] is not None}
        found = _backward(
            dy, a, b, ids, offsets, scale, ranks, return_dx=return_dx, return_dbase=return_dbase, out=given or None,
            **options,
        )  # fmt: skip
        made |= zip(first, each_of(found, len(first)), strict=True)
    if rest := {name for name in names if name not in made}:
        if x is None:
            raise InvalidProblemError(f"x is None; the gradients {', '.join(sorted(rest))} need the x of the call")
        made |= _of_adapters(dy, x, a, b, ids, offsets, scale, ranks, rest, to, options)
    results = tuple(made[name] for name in names)
    return results[0] if len(results) == 1 else results


def _of_adapters(
    dy: Any, x: Any, a: Any, b: Any, ids: Any, offsets: Any, scale: Any, ranks: Any, wanted: set[str],
    to: dict[str, Any], options: dict[str, Any],
) -> dict[str, Any]:  # fmt: skip
    """da = Σ scale (b[i]ᵀ dy[t]) x[t]ᵀ, db = Σ dy[t] scale (a[i] x[t])ᵀ and dscale, sums over the tokens t of i."""
    adapters, rank, _ = shape_of(a, "a")
    order, bounds = registry.public("segment_order")(
        _owners(ids, offsets, shape_of(x, "x")[0], options), num_segments=adapters, others=True, **options
    )
    order = _formula("maximum(o, 0)")(order, **options)  # those of no adapter are behind the last bound
    select = registry.public("index_select")
    x, dy = select(x, order, **options), select(dy, order, **options)
    with beside(x, options["stream"]):
        every = registry.public("arange")(adapters, like=order)
        one = registry.public("eye")(rank, element=read(x, "x").element, like=x)
    one = broadcast(one, (adapters, rank, rank), "one")

    def through(rows: Any, down: Any, factor: Any) -> Any:
        """The rows times their adapters' matrices [rank, …], what is beyond a rank 0."""
        return _forward(rows, down, one, every, bounds, factor, ranks, **options)

    up, made = transposed(b, "b"), {}
    if "da" in wanted:
        g = through(dy, up, scale)
        made["da"] = grouped_inner_gemm(transposed(g, "g"), x, bounds, groups=adapters, out=to["da"], **options)
    if "db" in wanted:
        h = through(x, a, scale)
        made["db"] = grouped_inner_gemm(transposed(dy, "dy"), h, bounds, groups=adapters, out=to["db"], **options)
    if "dscale" in wanted:
        wide, cast = read(x, "x").element.acc, registry.public("cast")
        h, g = (cast(one, wide, **options) for one in (through(x, a, None), through(dy, up, None)))
        dots = with_axis(registry.public("vecdot")(h, g, **options), 1, "dots")
        sums = registry.public("segment_sum")(dots, bounds, by="offsets", **options)
        sums = registry.public("reshape")(sums, (adapters,))
        made["dscale"] = cast(sums, ElementKind.F32, out=to["dscale"], **options)
    return made


def _owners(ids: Any, offsets: Any, tokens: int, options: dict[str, Any]) -> Any:
    """The adapter of each token; a number outside [0, adapters) is none."""
    if offsets is None:
        return ids
    (count,) = shape_of(ids, "ids")
    bounds, _ = registry.public("cummax")(_formula("clamp(o, 0, n)")(offsets, tokens, **options), **options)
    with beside(bounds, options["stream"]):
        token = registry.public("arange")(tokens, element=read(bounds, "offsets").element, like=bounds)
    at = registry.public("searchsorted")(bounds, token, right=True, **options)  # 0 is before the first
    if not count:
        return _formula("p * 0 - 1")(at, **options)
    held = registry.public("index_select")(ids, _formula("clamp(p - 1, 0, n - 1)")(at, count, **options), **options)
    return _formula("i if (p > 0) and (p <= n) else -1")(i=held, p=at, n=count, **options)
