"""What ranks with a GPU each check, in a module that new processes import; with `xp` NumPy it runs on threads, too.

A check returns the labels of what was wrong. host: the ranks' communicator of the host; link: that of their arrays.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

import baracuda_py as bc

D = bc.distributed
ELEMENTS = (
    "float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64", "bool", "complex64",
)  # fmt: skip


class Checks:
    """Collects labels of what has other bits than wanted."""

    def __init__(self) -> None:
        self.wrong: list[str] = []

    def same(self, label: str, got: Any, want: Any) -> None:
        got, want = host_of(got), host_of(want)
        if got.shape != want.shape or got.tobytes() != want.tobytes():
            self.wrong.append(f"{label}: {got.shape} {_far(got, want)}")

    def near(self, label: str, got: Any, want: Any, bound: float) -> None:
        got, want = (host_of(one).astype(np.float64) for one in (got, want))
        if not np.abs(got - want).max() <= bound * np.abs(want).max():
            self.wrong.append(f"{label}: {_far(got, want)}")


def _far(got: np.ndarray, want: np.ndarray) -> str:
    if got.shape != want.shape:
        return f"for {want.shape}"
    with np.errstate(all="ignore"):
        apart = np.abs(got.astype(np.complex128) - want.astype(np.complex128))
    return f"{int((apart != 0).sum())} of {apart.size} differ, by {float(apart.max(initial=0.0)):g} at most"


def host_of(x: Any) -> np.ndarray:
    """An array of the host."""
    if type(x).__module__.partition(".")[0] == "torch":
        x = x.detach().float() if str(x.dtype) == "torch.bfloat16" else x.detach()
        return x.cpu().numpy()
    return np.asarray(x.get() if hasattr(x, "get") else x)


def placed(x: np.ndarray, xp: Any, element: str = "float32") -> Any:
    """Numbers as an array of `xp` in an element."""
    if element == "bfloat16":
        return bc.cast(xp.asarray(np.ascontiguousarray(x.astype(np.float32))), "bfloat16")
    return xp.asarray(np.ascontiguousarray(x).astype(element))


def numbers(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def part(x: np.ndarray, comm: Any, axis: int) -> np.ndarray:
    return np.ascontiguousarray(np.split(x, comm.size, axis)[comm.rank])


@contextlib.contextmanager
def linked(comm: Any, directory: str, timeout: float = 60.0) -> Iterator[Any]:
    """A communicator of NCCL on this rank's GPU."""
    import cupy

    cupy.cuda.Device(comm.rank).use()
    with D.communicator(directory, rank=comm.rank, size=comm.size, engine="nccl", peers=True, timeout=timeout) as link:
        yield link


def on_gpu(comm: Any, directory: str, checks: list[Any], *given: Any) -> list[str]:
    """Several checks on this rank's GPU."""
    import cupy

    wrong = []
    with linked(comm, directory) as link:
        for check in checks:
            started = time.monotonic()
            wrong += [f"{check.__name__}: {one}" for one in check(comm, link, cupy, *given)]
            print(f"rank {comm.rank} {check.__name__} {time.monotonic() - started:.1f} s", flush=True)
    return wrong


def _drawn(comm: Any, element: str, *shape: int) -> np.ndarray:
    dtype = ml_dtypes.bfloat16 if element == "bfloat16" else np.dtype(element)
    x = np.random.default_rng(comm.rank).standard_normal(shape) * 50
    return (x > 0 if element == "bool" else x).astype(dtype)


def _on(x: np.ndarray, xp: Any, element: str) -> Any:
    return placed(x.astype(np.float32), xp, "bfloat16") if element == "bfloat16" else xp.asarray(x)


def collectives(host: Any, link: Any, xp: Any, wide: int) -> list[str]:
    """Every collective and element has the bits of the host's row, for a small array and a large one."""
    checks, size, rank = Checks(), link.size, link.rank
    ring = [(r, (r + 1) % size) for r in range(size)]
    counts = [[(r + 2 * s) % 3 for s in range(size)] for r in range(size)]
    calls: dict[str, Any] = {
        "all_gather": lambda x, c: D.all_gather(x, c), "all_gather along 1": lambda x, c: D.all_gather(x, c, 1),
        "broadcast": lambda x, c: D.broadcast(x, c, size - 1), "all_to_all": lambda x, c: D.all_to_all(x, c),
        "all_to_all across": lambda x, c: D.all_to_all(x, c, 0, 1), "permute": lambda x, c: D.permute(x, c, ring[:-1]),
        "send_receive": lambda x, c: D.send_receive(x, c, (rank + 1) % size, (rank - 1) % size),
        "all_to_all_v": lambda x, c: D.all_to_all_v(
            x[: sum(counts[rank])], counts[rank], [counts[r][rank] for r in range(size)], c
        ),
    }  # fmt: skip
    sums: dict[str, Any] = {
        f"{name} {op}": (lambda x, c, f=function, op=op: f(x, c, op))
        for name, function in (("all_reduce", D.all_reduce), ("reduce_scatter", D.reduce_scatter), ("reduce", D.reduce))
        for op in ("sum", "mean", "max", "prod")
    }
    for element in ELEMENTS:
        some = calls | (sums if element not in ("bool", "complex64") else {})
        if element not in ("float32", "bfloat16", "int64"):  # every op of every element is a kernel to compile
            some = {name: call for name, call in some.items() if name.rpartition(" ")[2] not in ("mean", "max", "prod")}
        for columns in (3, wide):
            x = _drawn(host, element, 3 * size, columns)
            given = _on(x, xp, element)
            for name, call in some.items():
                if not np.issubdtype(x.dtype, np.inexact) and element != "bfloat16" and name.endswith("mean"):
                    continue
                if columns == wide and element not in ("float32", "bfloat16", "int64"):
                    continue
                want, got = call(x, host), call(given, link)
                if want is not None:
                    checks.same(f"{name} of {element} [{columns}]", got, want)
    x = _on(_drawn(host, "float32", 4 * size, 6), xp, "float32")
    want = host_of(D.all_reduce(host_of(x), host))
    checks.same("strided", D.all_reduce(x.T, link), want.T)
    out = xp.zeros_like(x)
    checks.same("out", D.all_reduce(x, link, out=out), want)
    checks.same("in place", D.all_reduce(out, link, "max", out=out), want)
    fast = bc.PlanPreference(deterministic=False)
    checks.near("NCCL's own order", D.all_reduce(x, link, preference=fast), want, 1e-5)
    return checks.wrong


def _row(x: Any, w: Any, b: Any, dy: Any, comm: Any, **given: Any) -> tuple[Any, ...]:
    made = D.row_parallel_linear(x, w, b, comm, **given)
    return made, *D.row_parallel_linear_backward(dy, x, w, b, comm, dweight_element="float32", **given)


def _column(x: Any, w: Any, b: Any, dy: Any, comm: Any, **given: Any) -> tuple[Any, ...]:
    made = D.column_parallel_linear(x, w, b, comm, **given)
    return made, *D.column_parallel_linear_backward(dy, x, w, b, comm, dweight_element="float32", **given)


def layers(host: Any, link: Any, xp: Any, rows: int, features: int, outs: int) -> list[str]:
    """Layers have the bits of one GPU, forward and backward, whatever the chunks that exchanges overlap by."""
    checks = Checks()
    x, w, b, dy = numbers(0, rows, features), numbers(1, outs, features), numbers(2, outs), numbers(3, rows, outs)
    for element in ("bfloat16", "float32"):

        def at(one: np.ndarray, axis: int | None = None, element: str = element) -> Any:
            return placed(one if axis is None else part(one, link, axis), xp, element)

        alone = [[host_of(one) for one in layer(at(x), at(w), at(b), at(dy), None)] for layer in (_row, _column)]
        for scattered in (False, True):
            lead = 0 if scattered else None
            for overlap, by_nccl in ((1, False), (2, True), (2, False), (5, False), (None, False)):
                given = {"sequence_parallel": scattered, "overlap": overlap}
                held = link.lanes.pop("copies", None)
                if by_nccl or held is not None:  # NCCL's kernels in place of the copy engines
                    link.lanes["copies"] = "left out" if by_nccl else held
                row = _row(at(x, 1), at(w, 1), at(b), at(dy, lead), link, **given)
                column = _column(at(x, lead), at(w, 0), at(b, 0), at(dy, 1), link, **given)
                for name, made, axes, want in (
                    ("row", row, (lead, 1, 1, None), alone[0]), ("column", column, (1, lead, 0, 0), alone[1]),
                ):  # fmt: skip
                    for what, axis, got, whole in zip(("y", "dx", "dweight", "dbias"), axes, made, want, strict=True):
                        label = f"{name} {what} {element} scattered={scattered} overlap={overlap} nccl={by_nccl}"
                        checks.same(label, got, whole if axis is None else part(whole, link, axis))
                if by_nccl:
                    link.lanes.pop("copies")
                    if held is not None:
                        link.lanes["copies"] = held
    return checks.wrong


def losses(host: Any, link: Any, xp: Any, rows: int, features: int, classes: int) -> list[str]:
    """Vocabularies over ranks have the bits of one GPU."""
    checks = Checks()
    logits, x, w = 4 * numbers(0, rows, classes), numbers(1, rows, features), numbers(2, classes, features) / 8
    targets = np.random.default_rng(3).integers(0, classes, rows)
    targets[1] = -100

    def work(comm: Any, element: str) -> list[Any]:
        def at(one: np.ndarray, axis: int) -> Any:
            return placed(one if comm is None else part(one, comm, axis), xp, element)

        aims, table = xp.asarray(targets), at(w, 0)
        made = D.vocab_parallel_cross_entropy(
            at(logits, 1), aims, comm, label_smoothing=0.1, z_loss=1e-3, return_dlogits=True
        )
        fused = D.vocab_parallel_linear_cross_entropy(
            placed(x, xp, element), table, aims, None, comm, return_dx=True, return_dweight=True
        )
        found = D.vocab_parallel_embedding(aims, table, comm)
        return [*made, *fused, found, D.vocab_parallel_embedding_backward(found, aims, table, comm)]

    for element in ("bfloat16", "float32"):
        names, axes = ("loss", "dlogits", "fused", "dx", "dweight", "rows", "dtable"), (None, 1, None, None, 0, None, 0)
        for name, axis, got, want in zip(names, axes, work(link, element), work(None, element), strict=True):
            whole = host_of(want)
            checks.same(f"{name} {element}", got, whole if axis is None else part(whole, link, axis))
    return checks.wrong


def states(host: Any, link: Any, xp: Any) -> list[str]:
    """ZeRO's step has the bits of one GPU: parameters, from gradients that ranks average."""
    checks, shapes = Checks(), ((100, 33), (77,), (5, 3, 8))

    def work(comm: Any) -> list[Any]:
        held = [placed(numbers(n, *shape), xp, "bfloat16") for n, shape in enumerate(shapes)]
        kept = [xp.zeros(D.zero_shard_size(held, comm), np.float32) for _ in "mv"]
        master = D.zero_shard(held, comm, element="float32")
        for step in (1, 2, 3):
            slopes = [xp.asarray(numbers(10 * step + n, *shape)) for n, shape in enumerate(shapes)]
            slopes = slopes if comm is None else D.all_reduce_gradients(slopes, comm)
            D.distributed_adam_step(held, slopes, *kept, comm, lr=0.1, step=step, master=master)
        return held

    for n, (got, want) in enumerate(zip(work(link), work(None), strict=True)):
        checks.same(f"parameter {n}", got, want)
    return checks.wrong


def sequences(host: Any, link: Any, xp: Any, length: int, width: int) -> list[str]:
    """Attention in a ring and by heads, experts, recurrences: beside one GPU."""
    checks, heads = Checks(), 8
    q, k, v, dy = (placed(numbers(n, 1, heads, length, width), xp, "float16") for n in range(4))
    facts: dict[str, Any] = {"is_causal": True}
    y, lse = bc.flash_sdpa(q, k, v, **facts, return_lse=True)
    want = (y, lse, *bc.flash_sdpa_backward(q, k, v, y, lse, dy, **facts))
    own = [D.shard_sequence(one, link) for one in (q, k, v, dy)]
    made, sums = D.ring_attention(*own[:3], link, return_lse=True, **facts)
    grads = D.ring_attention_backward(*own[:3], made, sums, own[3], link, **facts)
    for name, got, wanted in zip(("y", "lse", "dq", "dk", "dv"), (made, sums, *grads), want, strict=True):
        checks.near(f"ring {name}", D.gather_sequence(got, link), wanted, 0.01)
    own = [D.shard_sequence(one, link, layout="contiguous") for one in (q, k, v)]
    by_heads = D.ulysses_attention(*own, link, **facts)
    checks.same("heads", D.gather_sequence(by_heads, link, layout="contiguous"), y)

    def mine(one: Any, axis: int = 0) -> Any:
        return D.shard_sequence(one, link, axis=axis, layout="contiguous")

    tokens, d, experts = length, 2 * width, 8
    shapes = ((tokens, d), (experts, 2 * d, d), (experts, d, d))
    x, gate_up, down = (placed(numbers(n, *shape) / 8, xp, "float16") for n, shape in enumerate(shapes))
    rng = np.random.default_rng(5)
    for chosen in (experts, 2):  # the second leaves ranks without a token
        indices = xp.asarray(rng.integers(0, chosen, (tokens, 2)).astype(np.int32))
        weights = xp.asarray(rng.random((tokens, 2), np.float32))
        got = D.expert_parallel_moe(mine(x), mine(indices), mine(weights), mine(gate_up), mine(down), link)
        wanted = bc.moe(x, indices, weights, gate_up, down)
        checks.same(f"experts {chosen}", D.gather_sequence(got, link, axis=0, layout="contiguous"), wanted)
    q, k, v = (placed(numbers(n, 1, length, 4, width) / 8, xp, "float16") for n in range(3))
    g = xp.asarray(-rng.random((1, length, 4), np.float32))
    wanted = bc.simple_gla(q, k, v, g)
    for method in ("sequential", "prefix"):
        own = [mine(one, 1) for one in (q, k, v, g)]
        got = D.context_linear_attention(*own[:3], link, kind="scalar", g=own[3], method=method)
        checks.near(f"states {method}", D.gather_sequence(got, link, axis=1, layout="contiguous"), wanted, 0.01)
    return checks.wrong


def graphs(host: Any, link: Any, xp: Any) -> list[str]:
    """On a device: collectives and a layer in a graph, by CuPy's capture and torch's; new calls are refused there."""
    checks = Checks()
    x = xp.asarray(numbers(link.rank, 1000, 64))
    y, want = xp.zeros_like(x), host_of(D.all_reduce(host_of(x), host))
    D.all_reduce(x, link, out=y)
    stream = xp.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        D.all_reduce(x, link, out=y)
        graph = stream.end_capture()
    for _ in range(3):
        y[...] = 0
        xp.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        checks.same("replayed", y, want)
    refused = False
    with stream:
        stream.begin_capture()
        try:
            D.all_reduce(x[:7], link, out=y[:7])
        except bc.CaptureError as error:
            refused = "once before the capture" in str(error)
        finally:
            stream.end_capture()
    if not refused:
        checks.wrong.append("a new call under capture is not refused")
    return checks.wrong + _graph_of_torch(link)


def _graph_of_torch(link: Any) -> list[str]:
    try:
        import torch
    except ImportError:
        return []
    if not torch.cuda.is_available():
        return []
    checks, place = Checks(), f"cuda:{link.device}"
    with torch.cuda.device(link.device):
        x = torch.from_numpy(numbers(link.rank, 2048, 512)).to(place, torch.bfloat16)
        w = torch.from_numpy(numbers(7 + link.rank, 1024, 512)).to(place, torch.bfloat16)
        for overlap in (1, 4):

            def call(overlap: int = overlap) -> Any:
                return D.row_parallel_linear(x, w, None, link, overlap=overlap)

            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                want = [call() for _ in range(3)][-1]
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=side):
                made = call()
            for _ in range(2):
                made.zero_()
                graph.replay()
                torch.cuda.synchronize()
                checks.same(f"torch's graph overlap={overlap}", made, want)
    return checks.wrong


def autograd(host: Any, link: Any, xp: Any) -> list[str]:
    """torch's autograd through a layer has the bits of the functions by hand."""
    try:
        import torch
    except ImportError:
        return []
    if not torch.cuda.is_available():
        return []
    checks, place = Checks(), f"cuda:{link.device}"
    with torch.cuda.device(link.device):
        x = torch.from_numpy(part(numbers(0, 2048, 512), link, 1)).to(place, torch.bfloat16).requires_grad_()
        w = torch.from_numpy(part(numbers(1, 512, 512), link, 1)).to(place, torch.bfloat16).requires_grad_()
        dy = torch.from_numpy(numbers(2, 2048, 512)).to(place, torch.bfloat16)
        D.row_parallel_linear(x, w, None, link, overlap=2).backward(dy)
        dx, dw, _ = D.row_parallel_linear_backward(dy, x.detach(), w.detach(), None, link, overlap=1)
        torch.cuda.synchronize()
        checks.same("dx", x.grad, dx)
        checks.same("dweight", w.grad, dw)
    return checks.wrong


def copied(host: Any, link: Any, xp: Any) -> list[str]:
    """On a device: whether the copy engines carry layers' exchanges, or why NCCL does."""
    found = link.lanes.get("copies")
    print(f"rank {link.rank}: copies {found if isinstance(found, str) else 'by the copy engines'}", flush=True)
    return [] if found is not None else ["no layer has looked for copies"]
