"""Train the byte model of train_gpt on several ranks, with the loss and weights of one, bit for bit.

    python examples/train_parallel.py --gpus 2                  # on GPUs: a process each; on a CPU: threads
    python examples/train_parallel.py --gpus 4 --mode zero      # data, tensor (Megatron's layers) or zero (ZeRO-1)
    python examples/train_parallel.py --gpus 2 --compare        # then again on one rank: are all bits the same?
    python examples/train_parallel.py --gpus 4 --device cuda --mode data --preset small --peer torch  # beside DDP
    torchrun --nproc-per-node 2 examples/train_parallel.py      # ranks that something else has started

Prints the loss of every step, a digest of the trained weights, which does not depend on the number of ranks, and
tokens a second: of all ranks, in the median step of the second half, beside those of torch's DistributedDataParallel.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import statistics
import tempfile
import time
from typing import Any

import gpt_host  # noqa: F401  (before NumPy)
import numpy as np
from gpt_data import Corpus, load
from gpt_model import PRESETS, Preset
from gpt_parallel import MICRO_BATCHES, gathered, stepper
from gpt_train import learning_rate
from train_gpt import main as guarded

from baracuda_py import distributed

TINY = Preset(
    d=32, layers=2, heads=4, kv_heads=4, ffn=48, context=16, batch=8, steps=3, learning_rate=3e-3, compute="float32",
    eval_batches=1, warmup=2,
)  # fmt: skip
SMALL = Preset(
    d=1024, layers=12, heads=16, kv_heads=8, ffn=2816, context=1024, batch=64, steps=20, learning_rate=6e-4,
    compute="bfloat16", eval_batches=1, warmup=5,
)  # fmt: skip
CHOICES = PRESETS | {"tiny": TINY, "small": SMALL}
Trained = tuple[Any, str, float]
"""The losses, a digest of the weights, tokens a second."""


def on_gpu(comm: Any, meeting: str, *given: Any) -> Trained:
    """`work` on a GPU of this rank's own, with NCCL between them."""
    import cupy

    cupy.cuda.Device(comm.rank).use()
    with distributed.communicator(meeting, rank=comm.rank, size=comm.size, engine="nccl") as linked:
        return work(linked, cupy, *given)


def work(comm: Any, xp: Any, mode: str, preset: Preset, seed: int, corpus: Corpus, quiet: bool = False) -> Trained:
    """What a rank does, in NumPy or xp."""
    xp = np if xp is None else xp
    model, step = stepper(mode, preset, xp, comm, seed)
    rng, losses, times = np.random.default_rng(seed), [], []
    for number in range(preset.steps):  # every rank draws the whole batch
        tokens, targets = (xp.asarray(one) for one in corpus.batch(rng, preset.batch, preset.context))
        began = time.perf_counter()
        losses.append(float(step(tokens, targets, number + 1, learning_rate(preset, number))))
        times.append(time.perf_counter() - began)  # the loss has come, and the step before it is done
        if comm.rank == 0 and not quiet:
            print(f"step {number + 1:4}  loss {losses[-1]:.6f}", flush=True)
    found = hashlib.sha256()
    for name, weight in sorted(gathered(model, comm).items()):
        found.update(name.encode() + (weight if xp is np else xp.asnumpy(weight)).tobytes())
    seconds = statistics.median(times[len(times) // 2 :])
    return losses, found.hexdigest()[:16], preset.batch * preset.context / seconds


def options(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=2, metavar="N", help="ranks (default: 2)")
    parser.add_argument("--mode", choices=("data", "tensor", "zero"), default="tensor")
    parser.add_argument("--preset", choices=sorted(CHOICES), default="tiny")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--engine", choices=("threads", "processes"), default="threads", help="of ranks on a CPU")
    parser.add_argument("--steps", type=int, help="training steps (default: the preset's)")
    parser.add_argument("--text", metavar="FOLDER", help="train on this folder's text files")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--peer", choices=("torch",), help="train by torch's DistributedDataParallel, too")
    parser.add_argument("--compare", action="store_true", help="train on one rank, too, and compare")
    asked = parser.parse_args(argv)
    if asked.gpus < 1 or MICRO_BATCHES % asked.gpus:
        parser.error(f"--gpus must divide {MICRO_BATCHES}, got {asked.gpus}")
    return asked


def run(argv: list[str] | None = None) -> dict[str, Any]:
    """Train, report; returns the figures."""
    asked = options(argv)
    preset = CHOICES[asked.preset]
    if asked.steps:
        preset = Preset(**{**vars(preset), "steps": asked.steps})
    given = (asked.mode, preset, asked.seed, load(asked.text, preset.context))
    if "RANK" in os.environ:
        return of_this_process(asked.device, given)

    def ranks_of(count: int, quiet: bool) -> list[Any]:
        if asked.device == "cpu":
            return distributed.run_ranks(work, count, None, *given, quiet, engine=asked.engine)
        with tempfile.TemporaryDirectory() as meeting:
            return distributed.run_ranks(on_gpu, count, meeting, *given, quiet, engine="processes", timeout=600.0)

    ranks = ranks_of(asked.gpus, False)
    losses, digest, rate = ranks[0]
    assert all(one[:2] == ranks[0][:2] for one in ranks)
    print(f"{asked.mode} over {asked.gpus} ranks: weights {digest}, {rate:,.0f} tokens/s")
    found = {"losses": losses, "digest": digest, "tokens_per_second": rate}
    if asked.peer:
        with tempfile.TemporaryDirectory() as meeting:
            rates = distributed.run_ranks(
                by_torch, asked.gpus, meeting, asked.device, *given[1:], engine="processes", timeout=600.0
            )
        found["peer"] = min(rates)
        print(f"torch's DDP over {asked.gpus} ranks: {found['peer']:,.0f} tokens/s; ours {rate / found['peer']:.2f}x")
    if asked.compare:
        alone = ranks_of(1, True)[0]
        found["same"] = alone[:2] == ranks[0][:2]
        print("one rank: " + ("the same bits" if found["same"] else f"other bits, weights {alone[1]}"))
    return found


def by_torch(comm: Any, *given: Any) -> float:
    """The peer on this rank; torch is imported by who asks for it only."""
    from gpt_ddp import tokens_a_second

    return tokens_a_second(comm, *given)


def of_this_process(device: str, given: tuple[Any, ...]) -> dict[str, Any]:
    """The same where this process is a rank that torchrun or srun has started."""
    if device == "cuda":
        import cupy

        cupy.cuda.Device(int(os.environ.get("LOCAL_RANK", "0"))).use()
    with distributed.communicator(engine="processes" if device == "cpu" else "nccl") as comm:
        losses, digest, rate = work(comm, None if device == "cpu" else cupy, *given, comm.rank > 0)
        print(f"rank {comm.rank} of {comm.size}: weights {digest}, {rate:,.0f} tokens/s")
    return {"losses": losses, "digest": digest, "tokens_per_second": rate}


def main(argv: list[str] | None = None) -> int:
    """`run` with one line on stderr, and a non-zero exit, for whatever went wrong."""
    return guarded(argv, run)


if __name__ == "__main__":
    raise SystemExit(main())
