"""A rank of `distributed.py`: its device, communicators of ours and torch's, and times that all ranks agree on."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import checkout  # noqa: F401
import numpy as np
import torch
import torch.distributed as dist

from baracuda_py import distributed as D

ROUNDS = 5
LONG = 0.02
"""Seconds that the calls of a round take together, where a call takes less."""


class Place:
    """host: the ranks' communicator of the host; comm: that of their arrays. All ranks make the same calls."""

    def __init__(self, host: Any, meeting: str, device: str) -> None:
        self.host, self.size, self.cuda = host, host.size, device == "cuda"
        self.device = torch.device("cuda", host.rank) if self.cuda else torch.device("cpu")
        if self.cuda:
            import cupy

            cupy.cuda.Device(host.rank).use()
            torch.cuda.set_device(host.rank)
            self.comm = D.communicator(
                f"{meeting}/ours", rank=host.rank, size=host.size, engine="nccl", peers=True, timeout=600.0
            )
        else:
            self.comm = host
        dist.init_process_group(
            "nccl" if self.cuda else "gloo", init_method=f"file://{meeting}/torch", rank=host.rank,
            world_size=host.size, **({"device_id": self.device} if self.cuda else {}),
        )  # fmt: skip
        self.group = dist.group.WORLD.group_name
        torch.manual_seed(host.rank)

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *_: Any) -> None:
        if self.cuda:
            torch.cuda.synchronize()
            self.comm.close()
        dist.destroy_process_group()

    def random(self, *shape: int) -> Any:
        """bfloat16 numbers on this rank's device."""
        return torch.randn(shape, device=self.device, dtype=torch.bfloat16 if self.cuda else torch.float32).bfloat16()

    # --- what ranks say to one another -------------------------------------------------------------------------------

    def most(self, value: float) -> float:
        """The largest of the ranks' values."""
        return float(D.all_reduce(np.array([value]), self.host, "max")[0])

    def any(self, value: bool) -> bool:
        """Whether any rank says so."""
        return self.most(float(value)) > 0

    def works(self, call: Callable[[], Any]) -> bool:
        """Whether a call runs on every rank; the first rank says why not."""
        why = ""
        try:
            call()
            self.settle()
        except Exception as error:
            why = f"{type(error).__name__}: {error}".splitlines()[0]
        failed = self.any(bool(why))
        if why and self.host.rank == 0:
            print(f"left out: {why[:160]}", flush=True)
        return not failed

    def settle(self) -> None:
        if self.cuda:
            torch.cuda.synchronize()

    # --- times -------------------------------------------------------------------------------------------------------

    def modes(self, calls: dict[str, Any], captured: bool) -> Iterator[tuple[str, dict[str, Any]]]:
        """The calls that work, as they are and each in a CUDA graph."""
        held = {name: call for name, call in calls.items() if self.works(call)}
        yield "eager", held
        if self.cuda and captured:
            graphs: dict[str, Any] = {}
            for name, call in held.items():
                kept: list[Any] = []
                if self.works(lambda call=call, kept=kept: kept.append(_graph(call))):
                    graphs[name] = kept[0]
            yield "graph", graphs

    def timed(self, calls: dict[str, Any]) -> dict[str, float]:
        """Microseconds of a call on the slowest rank: medians of rounds, in which the candidates take turns."""
        counts, samples = {}, {name: [] for name in calls}
        for name, call in calls.items():
            self._once(call, 1)
            counts[name] = int(min(50, max(1, LONG / max(1e-6, self._once(call, 2))))) if self.cuda else 1
        for _ in range(ROUNDS if self.cuda else 1):
            for name, call in calls.items():
                samples[name].append(self._once(call, counts[name]))
        return {name: 1e6 * statistics.median(found) for name, found in samples.items()}

    def _once(self, call: Any, count: int) -> float:
        """Seconds of a call among `count`, of the slowest rank, begun together."""
        self.settle()
        D.barrier(self.host)
        if self.cuda:
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            for _ in range(count):
                call()
            stop.record()
            stop.synchronize()
            return self.most(start.elapsed_time(stop) * 1e-3 / count)
        begun = time.perf_counter()
        for _ in range(count):
            call()
        return self.most((time.perf_counter() - begun) / count)

    # --- torch -------------------------------------------------------------------------------------------------------

    def collectives_of_torch(self, name: str, x: Any, y: Any) -> dict[str, Callable[[], Any]]:
        """NCCL's collective through torch, and symmetric memory's where there is one."""
        if name == "all_gather":
            return {"torch nccl": lambda: dist.all_gather_into_tensor(y, x)}
        if name == "reduce_scatter":
            return {"torch nccl": lambda: dist.reduce_scatter_tensor(y, x)} if self.cuda else {}
        calls = {"torch nccl": lambda: dist.all_reduce(y)}
        return calls | (self._symmetric(x) if self.cuda else {})

    def _symmetric(self, x: Any) -> dict[str, Callable[[], Any]]:
        held: list[Any] = []

        def make() -> None:
            import torch.distributed._symmetric_memory as symmetric

            mine = symmetric.empty(x.numel(), dtype=x.dtype, device=self.device)
            symmetric.rendezvous(mine, self.group)
            mine.copy_(x)
            held.append(mine)

        if x.numel() * x.element_size() > 1 << 28 or not self.works(make):
            return {}
        ops, mine = torch.ops.symm_mem, held[0]
        calls = {"torch two_shot": lambda: ops.two_shot_all_reduce_(mine, "sum", self.group)}
        if x.numel() * x.element_size() <= 1 << 24:
            calls["torch one_shot"] = lambda: ops.one_shot_all_reduce(mine, "sum", self.group)
        return calls

    def products_of_torch(self, kind: str, x: Any, w: Any) -> dict[str, Callable[[], Any]]:
        """torch.matmul and NCCL, and the fused ops of symmetric memory where they are."""
        made = torch.empty((x.shape[0], w.shape[0]), dtype=x.dtype, device=x.device)
        if kind == "all_reduce":

            def reduced() -> Any:
                dist.all_reduce(torch.matmul(x, w.T, out=made))
                return made

            return {"torch nccl": reduced}
        if not self.cuda:
            return {}
        ops = torch.ops.symm_mem
        if kind == "reduce_scatter":
            part = torch.empty((x.shape[0] // self.size, w.shape[0]), dtype=x.dtype, device=x.device)

            def scattered() -> Any:
                dist.reduce_scatter_tensor(part, torch.matmul(x, w.T, out=made))
                return part

            fused = lambda: ops.fused_matmul_reduce_scatter(x, w.T, "sum", 0, self.group)  # noqa: E731
            return {"torch nccl": scattered, "torch fused": fused}
        whole = torch.empty((x.shape[0] * self.size, x.shape[1]), dtype=x.dtype, device=x.device)

        def gathered() -> Any:
            dist.all_gather_into_tensor(whole, x)
            return torch.matmul(whole, w.T)

        return {
            "torch nccl": gathered,
            "torch fused": lambda: ops.fused_all_gather_matmul(x, [w.T], 0, self.group, return_A=False),
        }


def _graph(call: Callable[[], Any]) -> Callable[[], Any]:
    """A call, warmed up, as a CUDA graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        call()
    return graph.replay
