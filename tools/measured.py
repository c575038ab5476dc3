"""The tables of measured figures, from benchmarks/results: all of them by GPU, and the README's few side by side."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import geometric_mean

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks/results"
_LENGTHS = ("1024", "4096", "16384")  # of attention, as shown
_TOLD = ("commit", "versions")  # columns that are not figures

HEADLINE = (
    ("elementwise.unary", "silu 134M bf16"),
    ("norm.rms_norm", "[32768, 4096] bf16"),
    ("norm.layer_norm_backward", "[32768, 4096] bf16"),
    ("loss.cross_entropy", "loss [8192, 128256] bf16"),
    ("attention.flash_decoding", "64/8 heads, batch 16, context 32768 bf16"),
    ("attention.batch_paged_decode", "64/8 heads, batch 64, context 8192, pages of 16 bf16"),
    ("optimizer.adam_step", "AdamW, 64 x 4M f32"),
)


def files() -> dict[str, dict[str, Path]]:
    """GPU → kind of results ("" for the ops) → file."""
    found: dict[str, dict[str, Path]] = {}
    paths = sorted(RESULTS.glob("*.csv"))
    of_ops = [path.stem for path in paths if any("fraction" in row for row in _rows(path)[:1])]
    for path in paths:
        kind = "" if path.stem in of_ops else next((k for k in _TABLES if k and path.stem.endswith(f"_{k}")), None)
        gpu = path.stem if kind == "" else path.stem.removesuffix(f"_{kind}")
        if kind is None:  # one without a table of its own
            gpu = max((stem for stem in of_ops if path.stem.startswith(f"{stem}_")), key=len, default=path.stem)
            kind = path.stem[len(gpu) :].strip("_") or "figures"
        found.setdefault(gpu, {})[kind] = path
    return dict(sorted(found.items(), reverse=True))  # an H200 before an H100


def rows_of(op: str) -> dict[str, list[dict[str, str]]]:
    """GPU's name → what was measured of an op, where anything was."""
    found = {
        name_of(gpu): [row for row in _rows(kinds[""]) if row["op"] == op]
        for gpu, kinds in files().items()
        if "" in kinds
    }
    return {name: rows for name, rows in found.items() if rows}


def name_of(gpu: str) -> str:
    """A GPU's name as its results are filed, in words."""
    return gpu.replace("_", " ").upper()


def measured() -> str:
    """Every table and plot of the figures on file, a section a GPU."""
    parts = []
    for gpu, kinds in files().items():
        parts.append(f"## {name_of(gpu)}")
        for kind in (*(k for k in _TABLES if k in kinds), *sorted(set(kinds) - set(_TABLES))):
            parts.append(_TABLES.get(kind, _plain_table)(kinds[kind]) + _plot(kinds[kind]))
    return "\n\n".join(part for part in parts if part) or "No figures are on file yet."


def headline() -> str:
    """The README's table: a column a GPU."""
    gpus = files()
    columns = [_headline_of(kinds) for kinds in gpus.values()]
    rows = list(dict.fromkeys(row for column in columns for row in column))
    lines = [(row, *(column.get(row, "") for column in columns)) for row in rows]
    return _table("", ("", *map(name_of, gpus)), lines) or "No figures are on file yet."


def _headline_of(kinds: dict[str, Path]) -> dict[str, str]:
    """Row → figure of one GPU."""
    found: dict[str, str] = {}
    if "" in kinds:
        ops = {(row["op"], row["shape"]): row for row in _rows(kinds[""])}
        for key in HEADLINE:
            if key in ops:
                row = ops[key]
                said = f"{row['rate']} {row['unit']}, {100 * float(row['fraction']):.0f} % of the ceiling"
                if row["peer"]:
                    said += f"; {float(row['peer_us']) / float(row['us']):.2f}× {row['peer']}"
                name = key[0].partition(".")[2]
                found[f"`{name}` {key[1].removeprefix(f'{name} ')}"] = said
    if "attention" in kinds:
        for row in _rows(kinds["attention"]):
            at = (row["head_dim"], row["length"], row["mask"], row["variant"])
            if at == ("128", "16384", "causal", "") and len(set(row["heads"].split("/"))) == 1:
                name = "flash_sdpa" if row["direction"] == "forward" else "flash_sdpa_backward"
                peer, rate = ("cuDNN", row["cudnn"]) if row["cudnn"] else ("FLASH", row["flash"])
                ours = float(row["tflops"])
                said = f"{ours:.0f} TFLOP/s; {ours / float(rate):.2f}× torch's {peer}"
                found[f"`{name}` causal, head_dim 128, 16384 tokens, bf16"] = said
    if "train_step" in kinds:
        own, *peers = _rows(kinds["train_step"])
        best = min(peers, key=lambda row: float(row["ms"]), default=None)
        said = f"{float(own['ms']):.1f} ms"
        said += f"; {float(best['ms']) / float(own['ms']):.2f}× {best['candidate']}" if best else ""
        found["a training step of `examples/train_gpt.py --preset gpu`"] = said
    return found


def _plain_table(path: Path) -> str:
    """All columns of a file that has no table of its own."""
    rows = _rows(path)
    names = tuple(name for name in rows[0] if name not in _TOLD) if rows else ()
    return _table(path.stem, names, [tuple(row[name] for name in names) for row in rows])


def _op_table(path: Path) -> str:
    lines = [
        (
            row["op"], row["shape"], f"{float(row['us']):.1f}", f"{row['rate']} {row['unit']}",
            f"{100 * float(row['fraction']):.0f} %",
            f"{row['peer']} {float(row['peer_us']):.1f} µs" if row["peer"] else "",
            f"{float(row['peer_us']) / float(row['us']):.2f}×" if row["peer"] else "",
        )
        for row in _rows(path)
    ]  # fmt: skip
    title = (
        "TB/s or TFLOP/s, the fraction of the ceiling measured in the same run, and the fastest peer interleaved in "
        "that run (`benchmarks/run.py`)"
    )
    return _table(title, ("op", "shape", "µs", "rate", "of ceiling", "best peer", "speed-up"), lines)


def _plot(path: Path) -> str:
    """The plot drawn from a CSV, where there is one beside it."""
    image = path.with_suffix(".png")
    return f"\n\n![{path.stem.replace('_', ' ')}](../benchmarks/results/{image.name})" if image.exists() else ""


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def _table(title: str, head: tuple[str, ...], lines: Sequence[tuple[str, ...]]) -> str:
    """A table under its title, if it has one; nothing where there are no lines."""
    if not lines:
        return ""
    rows = (head, ("---",) * len(head), *lines)
    above = [f"{title}:", ""] if title else []
    return "\n".join([*above, *(f"| {' | '.join(cells)} |" for cells in rows)])


def _host_table(path: Path) -> str:
    lines = [(row["call"], row["us"], row["over_prepacked_us"]) for row in _rows(path)]
    return _table("Host cost of a call (`benchmarks/host.py`)", ("call", "µs", "over the prepacked launch"), lines)


def _attention_table(path: Path) -> str:
    points: dict[tuple[str, ...], dict[str, str]] = {}
    for row in _rows(path):
        key = row["head_dim"], row["heads"], row["length"], row["mask"]
        found = points.setdefault(key, {})
        found[row["direction"] + row["variant"]] = row["tflops"]
        found |= {f"{row['direction']} {peer}": row[peer] for peer in ("flash", "cudnn")}
    shown = (
        "forward",
        "forward flash",
        "forward cudnn",
        "backward",
        "backwardany order",
        "backward flash",
        "backward cudnn",
    )
    lines = [(*key, *(found.get(name, "") for name in shown)) for key, found in points.items() if key[2] in _LENGTHS]
    title = (
        "Attention in bf16, 16384 tokens and a hidden size of 2048, TFLOP/s (`benchmarks/attention.py`; its CSV has "
        'more lengths). Backward is deterministic; "any order" is what `PlanPreference(deterministic=False)` takes'
    )
    heads = ("forward", "torch FLASH", "torch cuDNN", "backward", "any order", "torch FLASH", "torch cuDNN")
    return _table(title, ("head_dim", "heads", "length", "mask", *heads), lines) + "\n\n" + _over_flash(path)


def _terms_table(path: Path) -> str:
    points: dict[tuple[str, ...], dict[str, str]] = {}
    for row in _rows(path):
        key = row["direction"], row["head_dim"], row["length"]
        points.setdefault(key, {})[row["term"]] = f"{100 * float(row['of_plain']):.0f} %"
    terms = [t for t in next(iter(points.values()), {}) if not t.startswith("plain")]
    lines = [(*key, *(found.get(t, "") for t in terms)) for key, found in points.items()]
    title = (
        "Throughput with a score term, of the plain causal row's at equal work (`benchmarks/attention_terms.py`): mask "
        "is [batch, 1, 1, keys] of bool, bias [1, heads, queries, keys] of bf16, the window 1024 keys"
    )
    return _table(title, ("direction", "head_dim", "length", *terms), lines)


def _varlen_table(path: Path) -> str:
    lines = [
        (
            f"{row['direction']} {row['variant']}".strip(), row["head_dim"], row["mix"], row["tflops"], row["flash"],
            f"{100 * float(row['vs_dense']):.0f} %",
        )
        for row in _rows(path)
    ]  # fmt: skip
    title = "Packed sequences, 32768 tokens, causal, TFLOP/s (`benchmarks/attention_varlen.py`)"
    return _table(title, ("", "head_dim", "lengths", "ours", "torch FLASH", "of the dense row"), lines)


def _extend_table(path: Path) -> str:
    lines = [
        (
            row["batch"], row["context"], row["queries"], row["us"], row["tb_per_s"],
            "" if row["decode_us"] == "0.0" else row["decode_us"],
            row["prefill_us"], row["cudnn_us"], row["bits"],
        )
        for row in _rows(path)
    ]  # fmt: skip
    title = (
        "A few queries a sequence over pages, 64/8 heads of 128, bf16, µs (`benchmarks/attention_extend.py`): "
        "`batch_paged_extend`, `batch_paged_decode` of one query, `batch_paged_prefill`, and cuDNN's paged attention. "
        "TB/s count the keys and values once; the last column says whether a query's bits are those it has alone"
    )
    heads = ("batch", "context", "queries", "extend", "TB/s", "decode", "prefill", "cuDNN", "bits")
    return _table(title, heads, lines)


def _over_flash(path: Path) -> str:
    """Geometric mean and worst of the ratio to FLASH over all points, by row."""
    ratios: dict[str, list[float]] = {}
    for row in _rows(path):
        ratios.setdefault(f"{row['direction']} {row['variant']}".strip(), []).append(float(row["vs_flash"]))
    lines = [(name, f"{geometric_mean(found):.2f}×", f"{min(found):.2f}×") for name, found in ratios.items()]
    title = "Over torch's FLASH in the same run, all points of the table's CSV"
    return _table(title, ("", "geometric mean", "worst"), lines)


def _train_step_table(path: Path) -> str:
    rows = _rows(path)
    lines = [
        (
            row["candidate"], f"{float(row['ms']):.2f}", f"{int(row['tokens_per_s']) / 1e6:.2f}", row["peak_gb"],
            row["held_out"], row["seconds"],
        )
        for row in rows
    ]  # fmt: skip
    title = (
        "`examples/train_gpt.py --preset gpu`, a step of 23.9 M parameters on 32 x 1024 bytes in bf16, and the same "
        "model in torch in that run (`benchmarks/train_step.py --full`)"
    )
    return _table(title, ("", "ms a step", "million tokens/s", "peak GB", "held-out nats/byte", "whole run, s"), lines)


def _kernels_table(path: Path) -> str:
    lines = [
        (
            row["op"], row["shape"], row["calls"], row["us"], row["floor_us"],
            f"{100 * float(row['of_floor']):.0f} %" if row["of_floor"] else "",
        )
        for row in _rows(path)
        if float(row["us"]) >= 100
    ]  # fmt: skip
    title = (
        "The same step by call, where a call's share is above 100 µs. The floor is the larger of its bytes at the copy "
        "bandwidth and its arithmetic at the matrix rate measured in that run"
    )
    return _table(title, ("op", "shape", "calls", "µs", "floor, µs", "of floor"), lines)


def _generate_table(path: Path) -> str:
    lines = [
        (
            row["batch"], row["context"], f"{int(row['tokens_per_s']):,}", f"{100 * float(row['of_floor']):.0f} %",
            f"{int(row['torch_tokens_per_s']):,}" if row["torch_tokens_per_s"] else "",
        )
        for row in _rows(path)
    ]  # fmt: skip
    title = (
        "Generation with that model, one captured step a token at the end of a full cache (`benchmarks/generate.py`); "
        "the ceiling is reading the weights and the cache once"
    )
    return _table(title, ("batch", "keys", "tokens/s", "of ceiling", "torch, tokens/s"), lines)


def models() -> str:
    """The README's table and plot of patched models, of the first GPU that has them."""
    found = next((kinds["transformers_train"] for kinds in files().values() if "transformers_train" in kinds), None)
    if found is None:
        return "No figures are on file yet."
    image = f"![tokens per second](benchmarks/results/{found.with_suffix('.png').name})"
    return f"{_patched_train_table(found)}\n\n{image}"


def _patched_train_table(path: Path) -> str:
    rows = _rows(path)
    lines = [
        (
            row["candidate"], f"{int(row['tokens_per_s']):,}", row["ms"], row["peak_gib"],
            row["first_step_s"], row["again_first_step_s"],
        )
        for row in rows
    ]  # fmt: skip
    one = rows[0]
    title = (
        f"Training steps of an unmodified `transformers` Llama, {one['layers']} layers of 2048, vocabulary 128256, "
        f"bf16, {one['batch']} x {one['context']} tokens, torch's fused AdamW, on an "
        f"{name_of(path.stem.removesuffix('_transformers_train'))} (`benchmarks/transformers_train.py`)"
    )
    heads = ("", "tokens/s", "ms a step", "peak GiB", "first step, s", "first step with caches, s")
    return _table(title, heads, lines)


def _patched_generate_table(path: Path) -> str:
    lines = [
        (row["candidate"], row["batch"], row["prompt"], row["ms_a_step"], row["tokens_per_s"], row["first_call_s"])
        for row in _rows(path)
    ]
    title = (
        "Decoding steps of an unmodified `transformers` Llama, 16 layers of 2048, bf16 "
        "(`benchmarks/transformers_generate.py`)"
    )
    return _table(title, ("", "batch", "prompt", "ms a step", "tokens/s", "first call, s"), lines)


def _fusions_table(path: Path) -> str:
    lines = [
        (row["fusion"], row["fused_us"], row["separate_us"], row["calls_a_step"], row["saved_us_a_step"])
        for row in _rows(path)
    ]
    title = "What each fusion of that step is worth, against this package's separate calls (`benchmarks/fusions.py`)"
    return _table(title, ("fusion", "µs", "separate, µs", "calls a step", "saved a step, µs"), lines)


def _linear_loss_table(path: Path) -> str:
    lines = [
        (
            row["shape"], f"{int(row['fused_us']):,}", f"{100 * float(row['of_products']):.0f} %",
            f"{int(row['torch_us']):,}" if row["torch_us"] else "", row["workspace_mb"], row["torch_mb"],
        )
        for row in _rows(path)
    ]  # fmt: skip
    title = (
        "Linear cross-entropy with both gradients, beside its three products alone through cuBLAS and the unfused loss "
        "in torch; memory beside operands and results (`benchmarks/linear_loss.py`)"
    )
    return _table(title, ("x × classes", "µs", "products' rate", "torch, µs", "MB", "torch, MB"), lines)


def _columns(title: str, **heads: str) -> Callable[[Path], str]:
    """A column for each of the fields, under its head."""
    return lambda path: _table(title, tuple(heads.values()), [tuple(row[f] for f in heads) for row in _rows(path)])


def _bias_table(path: Path) -> str:
    lines = [
        (row["head_dim"], row["length"], row["operand"], row["gradient"], row["us"], row["tflops"])
        for row in _rows(path)
    ]
    title = "The gradients of a mask, of slopes and of sinks beside the whole backward (`benchmarks/attention_bias.py`)"
    return _table(title, ("head_dim", "length", "operand", "gradient", "µs", "TFLOP/s"), lines)


def _gemm_table(path: Path) -> str:
    variants = ("plan", "batch invariant", "bias gelu plan", "swiglu plan")
    found: dict[tuple[str, ...], dict[str, dict[str, str]]] = {}
    for row in _rows(path):
        of = tuple(row[field] for field in ("group", "batch", "m", "n", "k"))
        found.setdefault(of, {})[row["variant"]] = row
    lines = [
        (
            *of, *(rows["plan"][field] for field in ("us", "tflops", "tb_s")),
            *(f"{float(rows[name]['vs_torch']):.2f}" if name in rows else "" for name in variants),
        )
        for of, rows in found.items()
    ]  # fmt: skip
    title = (
        "Products of bf16, and their speed as a share of torch's in that run: bare, with the bits of any batch, with a "
        "bias and GELU, and SwiGLU of two weights (`benchmarks/gemm.py`)"
    )
    head = ("", "batch", "m", "n", "k", "µs", "TFLOP/s", "TB/s", "bare", "any batch", "bias, GELU", "SwiGLU")
    return _table(title, head, lines)


def _points_table(title: str) -> Callable[[Path], str]:
    """What plans do, of results whose rows have a group, a problem and a variant."""

    def table(path: Path) -> str:
        lines = [
            tuple(row[field] for field in ("group", "problem", "us", "tflops", "tb_s", "torch_us", "vs_torch"))
            for row in _rows(path)
            if row["variant"] == "plan"
        ]
        return _table(title, ("", "problem", "µs", "TFLOP/s", "TB/s", "torch, µs", "of torch's speed"), lines)

    return table


_TABLES: dict[str, Callable[[Path], str]] = {
    "": _op_table,
    "attention": _attention_table,
    "attention_terms": _terms_table,
    "attention_bias": _bias_table,
    "attention_varlen": _varlen_table,
    "attention_extend": _extend_table,
    "host": _host_table,
    "train_step": _train_step_table,
    "train_step_kernels": _kernels_table,
    "fusions": _fusions_table,
    "linear_loss": _linear_loss_table,
    "attention_formulas": _columns(
        "Masks as formulas under block masks of 128 x 128, beside torch's compiled flex_attention under the same ones: "
        "bf16, 16384 tokens, a hidden size of 2048 (`benchmarks/attention_formulas.py`)",
        direction="",
        head_dim="head_dim",
        length="length",
        mask="mask",
        us="µs",
        tflops="TFLOP/s",
        of_dense="of the rate of dense",
        flex_us="flex, µs",
        flex="of flex's speed",
        blocks_us="block mask, µs",
    ),
    "moe_layers": _columns(
        "Layers of experts in bf16 beside torch's of the same routes by `_grouped_mm` (`benchmarks/moe_layers.py`)",
        group="",
        model="layer of",
        tokens="tokens",
        us="µs",
        torch_us="torch, µs",
        vs_torch="of torch's speed",
    ),
    "recurrent_layers": _columns(
        "Whole layers of recurrences, and the same of other packages (`benchmarks/recurrent_layers.py`)",
        layer="layer",
        shape="input",
        **{"pass": "pass"},
        us="µs",
        peer="peer",
        peer_us="its µs",
        vs_peer="of its speed",
    ),
    "transformers_train": _patched_train_table,
    "transformers_generate": _patched_generate_table,
    "generate": _generate_table,
    "gemm": _gemm_table,
    "products": _points_table("Experts, fp8 and few rows, beside torch (`benchmarks/products.py`)"),
    "quantised": _points_table("Products of quantised operands, beside torch's of bf16 (`benchmarks/quantised.py`)"),
}
