"""A few queries a sequence over pages of keys: batch_paged_extend against one query's decoding, prefill and cuDNN.

    python benchmarks/attention_extend.py [--csv [FILE]] [--rounds 6] [--only "8x32768"]

bf16, 64/8 heads of 128, pages of 16 dealt out at random, causal at the end. "decode" is batch_paged_decode of one
query, "prefill" batch_paged_prefill, "cudnn" the paged attention of nvidia-cudnn-frontend, where it is installed. TB/s
count the keys and values once. Each result is checked against the others'. "bits" says whether the last query's output
of a call with more queries has the bits that it has alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any

import checkout  # noqa: F401
import torch
from attention import check
from attention_varlen import bound
from record import Results, add_options
from timing import interleaved

import baracuda_py as bc

HEADS, KV_HEADS, D, PAGE = 64, 8, 128, 16
SHAPES = ((1, 2048), (1, 8192), (1, 131072), (8, 2048), (8, 32768), (32, 2048), (32, 8192), (128, 8192))
QUERIES = (1, 2, 4, 8, 16)
Calls = dict[str, list[Callable[[], Any]]]


class Problem:
    """Sequences of one length, in pages."""

    def __init__(self, batch: int, length: int) -> None:
        self.batch, self.length, self.each = batch, length, length // PAGE
        count = batch * self.each
        self.k, self.v = (
            torch.randn(count, KV_HEADS, PAGE, D, device="cuda", dtype=torch.bfloat16) for _ in range(2)
        )  # fmt: skip
        self.table = torch.randperm(count, device="cuda").int().view(batch, self.each)
        self.lengths = torch.full((batch,), length, device="cuda", dtype=torch.int32)
        self.bytes = self.k.nbytes + self.v.nbytes
        self.sizes = {
            "batch_size": batch, "num_heads": HEADS, "num_kv_heads": KV_HEADS, "num_pages": count, "page_size": PAGE,
            "d_k": D, "d_v": D, "max_pages": self.each, "element": "bfloat16",
        }  # fmt: skip
        self.tables = {"k_cache": self.k, "v_cache": self.v, "page_table": self.table, "lengths": self.lengths}
        self.kept: list[Any] = []
        self.q = torch.randn(batch, max(QUERIES), HEADS, D, device="cuda", dtype=torch.bfloat16)

    def keep(self, launch: Callable[[], Any], args: Any) -> Callable[[], Any]:
        """The launch; its operands live as long as the problem, as a bound launch holds none."""
        self.kept.append(args)
        return launch

    def newest(self, n: int) -> torch.Tensor:
        """The last n of the queries, packed."""
        return self.q[:, -n:].reshape(self.batch * n, HEADS, D).contiguous()

    def ours(self, n: int, plan: str) -> tuple[Callable[[], Any], torch.Tensor]:
        """A launch of n queries a sequence, and what it writes."""
        q = self.newest(n)
        y = torch.empty_like(q)
        bounds = torch.arange(self.batch + 1, device="cuda", dtype=torch.int32) * n
        facts = {"total_q": self.batch * n, "max_seqlen_q": n, "is_causal": True}
        desc = getattr(bc, f"{plan}Descriptor")(**self.sizes, **facts)
        args = getattr(bc, f"{plan}Args")(q=q, qo_indptr=bounds, y=y, **self.tables)
        launch = bound(getattr(bc, f"{plan}Plan").select(desc), args)
        return self.keep(launch, args), y

    def decode(self) -> tuple[Callable[[], Any], torch.Tensor]:
        q = self.newest(1)
        y = torch.empty_like(q)
        args = bc.BatchPagedDecodeArgs(q=q, y=y, **self.tables)
        desc = bc.BatchPagedDecodeDescriptor(**self.sizes)
        return self.keep(bound(bc.BatchPagedDecodePlan.select(desc), args), args), y

    def cudnn(self, n: int) -> tuple[Callable[[], Any], torch.Tensor]:
        import cudnn

        graph = cudnn.pygraph(
            io_data_type=cudnn.data_type.BFLOAT16, intermediate_data_type=cudnn.data_type.FLOAT,
            compute_data_type=cudnn.data_type.FLOAT, handle=handle(),
        )  # fmt: skip
        q = self.newest(n).view(self.batch, n, HEADS, D).transpose(1, 2)
        y = torch.empty(self.batch, n, HEADS, D, device="cuda", dtype=torch.bfloat16).transpose(1, 2)
        table = self.table.view(self.batch, 1, self.each, 1)
        of_q = torch.full((self.batch, 1, 1, 1), n, device="cuda", dtype=torch.int32)
        of_k = self.lengths.view(self.batch, 1, 1, 1)
        arrays = [q, self.k, self.v, table, table.clone(), of_q, of_k]
        nodes = [graph.tensor_like(x) for x in arrays]
        causal = {"use_causal_mask_bottom_right": True} if n > 1 else {}
        out, _ = graph.sdpa(
            name="sdpa", q=nodes[0], k=nodes[1], v=nodes[2], generate_stats=False, attn_scale=D**-0.5,
            use_padding_mask=True, seq_len_q=nodes[5], seq_len_kv=nodes[6], paged_attention_k_table=nodes[3],
            paged_attention_v_table=nodes[4], paged_attention_max_seq_len_kv=self.length, **causal,
        )  # fmt: skip
        out.set_output(True).set_dim(list(y.shape)).set_stride(list(y.stride()))
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([cudnn.heur_mode.A])
        graph.check_support()
        graph.build_plans()
        workspace = torch.empty(graph.get_workspace_size(), device="cuda", dtype=torch.uint8)
        pack = dict(zip(nodes, arrays, strict=True)) | {out: y}

        def launch() -> None:
            cudnn.set_stream(handle=handle(), stream=torch.cuda.current_stream().cuda_stream)
            graph.execute(pack, workspace, handle=handle())

        launch()
        return launch, y.transpose(1, 2).reshape(self.batch * n, HEADS, D)


_HANDLE: list[Any] = []


def handle() -> Any:
    """cuDNN's, made once."""
    import cudnn

    if not _HANDLE:
        _HANDLE.append(cudnn.create_handle())
    return _HANDLE[0]


def rows(problem: Problem, rounds: int) -> Iterator[dict[str, Any]]:
    """A CSV row for each number of queries."""
    alone = None
    decode, of_decode = problem.decode()
    for n in QUERIES:
        calls: Calls = {}
        launch, y = problem.ours(n, "BatchPagedExtend")
        calls["extend"] = [launch]
        launch, other = problem.ours(n, "BatchPagedPrefill")
        calls["prefill"] = [launch]
        check("y of prefill", y, other)
        if n == 1:
            calls["decode"] = [decode]
            check("y of decode", y, of_decode)
        try:
            launch, other = problem.cudnn(n)
            check("y of cudnn", y, other)
            calls["cudnn"] = [launch]
        except Exception as error:
            print(f"cudnn left out: {type(error).__name__}: {str(error)[:200]}")
        last = y.view(problem.batch, n, HEADS, D)[:, -1]
        alone = last.clone() if alone is None else alone
        us = {name: t.median for name, t in interleaved(calls, rounds).items()}
        yield {
            "batch": problem.batch, "context": problem.length, "queries": n, "us": f"{us['extend']:.1f}",
            "tb_per_s": f"{problem.bytes * 1e-6 / us['extend']:.2f}", "decode_us": f"{us.get('decode', 0):.1f}",
            "prefill_us": f"{us['prefill']:.1f}", "cudnn_us": f"{us.get('cudnn', 0):.1f}",
            "bits": "same" if torch.equal(alone, last) else "differ",
        }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--only", default=None, help="batch x context, with commas")
    add_options(parser)
    options = parser.parse_args()
    results = Results(options, "attention_extend", ("batch", "context", "queries"))
    done: list[dict[str, Any]] = []
    shapes = [tuple(map(int, one.split("x"))) for one in options.only.split(",")] if options.only else SHAPES
    for batch, length in shapes:
        for row in rows(Problem(batch, length), options.rounds):
            done.append(row)
            print("  ".join(f"{value:>8}" for value in row.values()), flush=True)
        results.write(done)
        torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
