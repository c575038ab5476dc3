"""The documents: generated sections are current, figures of all GPUs stand side by side, links lead somewhere."""

from __future__ import annotations

import functools
import inspect
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest
from scripts import ROOT, tool

import baracuda_py
from baracuda_py._exports import EXPORTS
from baracuda_py.core import config, registry

DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]
OPS = "op,shape,us,rate,unit,fraction,peer,peer_us"
ATTENTION = "direction,head_dim,length,mask,heads,variant,us,tflops,flash,cudnn,vs_flash"


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """The pages of ops and functions, which are made with the site, by their place below `docs/`."""
    tool("docs")  # whose folder the other tools are found in
    made: dict[str, str] = tool("ops_reference").pages()
    return made | tool("function_reference").pages()


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """`tools/measured.py` on results of our own."""
    made = tool("measured")
    monkeypatch.setattr(made, "RESULTS", tmp_path)
    return made


def keep(folder: Path, name: str, *rows: str) -> None:
    (folder / f"{name}.csv").write_text("\n".join(rows) + "\n")


def test_they_are_current() -> None:
    for path, text in tool("docs").render().items():
        assert path.read_text() == text, f"{path.relative_to(ROOT)} is stale: python tools/docs.py"


def test_a_stale_one_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--check` writes nothing and fails; without it the section is renewed, and what is written by hand stays."""
    made = tool("docs")
    monkeypatch.setattr(made, "ROOT", tmp_path)
    monkeypatch.setattr(made, "SECTIONS", {"a.md": {"x": lambda: "new"}})
    (tmp_path / "a.md").write_text("hand\n<!-- x -->\nold\n<!-- /x -->\nhand\n")
    for arguments, status, told in ((["--check"], 1, "old"), ([], 0, "new"), (["--check"], 0, "new")):
        monkeypatch.setattr(sys, "argv", ["docs", *arguments])
        assert made.main() == status
        assert (tmp_path / "a.md").read_text() == f"hand\n<!-- x -->\n{told}\n<!-- /x -->\nhand\n"
    (tmp_path / "a.md").write_text("no section\n")
    with pytest.raises(SystemExit, match=r"a\.md must have one section"):
        made.main()


def test_the_reference_has_every_op(pages: dict[str, str]) -> None:
    """Its rows, and its gradient in either direction."""
    texts = [text for name, text in pages.items() if name.startswith("ops/") and name != "ops/formulas.md"]
    entries = {part.split("`")[1]: part for text in texts for part in text.split("\n## ")[1:]}
    assert set(entries) == set(registry.plans())
    for name, plan in registry.plans().items():
        assert entries[name].startswith(f"{plan.op}\n")
        for row in plan.table():
            assert f"| {row.name} | {row.design.value} | {row.backend.value} |" in entries[name]
        if "vjp" in vars(plan) and plan.vjp:
            assert f"* Gradient: `{plan.vjp.plan}`" in entries[name]
            assert re.search(rf"^\* The gradient of .*`{name}`", entries[plan.vjp.plan], re.MULTILINE)


def test_kaios_operations_take_what_their_table_says() -> None:
    """Twelve names, each an entry of the plan and op beside it, with a gradient of these operands."""
    rows = re.findall(
        r"^\| `(\w+)` \| `(\w+)` \| `([\w.]+)` \|.*\| (.*) \|$", (ROOT / "docs/kaio.md").read_text(), re.M
    )
    assert len(rows) == 12 == len({name for name, *_ in rows})
    for name, plan, op, operands in rows:
        taken = getattr(baracuda_py, name).plan
        assert name in EXPORTS and (taken.__name__, taken.op) == (plan, op)
        grads = {} if taken.vjp is None else taken.vjp.grads
        named = [] if operands.startswith("none") else operands.replace(", ", " ").split()
        of_plan = {"matmul_int4": {"a": "x"}}.get(name, {})
        assert all(of_plan.get(one, one) in grads for one in named) and bool(named) == bool(grads)


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 140


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    families = {plan.op.partition(".")[0] for plan in registry.plans().values()}
    folders = {module.split(".")[1] for module in EXPORTS.values() if module.startswith("ops.")} | {"others"}
    made = {f"docs/ops/{name}.md" for name in (*families, "formulas")} | {f"docs/functions/{n}.md" for n in folders}
    check_links(path, path.read_text(), dict.fromkeys(map(ROOT.joinpath, made), ""))


def test_links_of_the_reference_lead_somewhere(pages: dict[str, str]) -> None:
    made = {ROOT / "docs" / name: text for name, text in pages.items()}
    for path, text in made.items():
        check_links(path, text, made)


def check_links(path: Path, text: str, made: Mapping[Path, str]) -> None:
    """Those of a document's text, to files that exist or are made with the site, and to their headings."""
    for link in re.findall(r"(?<!\\)\]\(([^)\s]+)\)", text):
        target, _, anchor = link.partition("#")
        if target.startswith("http"):
            continue
        to = Path(os.path.normpath(path.parent / target))
        assert to.exists() or to in made, link
        if anchor:
            there = text if not target else made[to] if to in made else to.read_text()
            assert not there or anchor in anchors(there), link


def test_torchs_names_lead_to_functions(pages: dict[str, str]) -> None:
    """Those of a same name that means something else are left out."""
    path = ROOT / "docs" / "torch-names.md"
    text = path.read_text()
    check_links(path, text, {ROOT / "docs" / name: one for name, one in pages.items()})
    assert text.count("](functions/") > 500 and "`torch.nn.ReLU`" in text and "`torch.nn.Identity`" not in text
    spaces = dict(part.split("\n", 1) for part in text.split("\n### ")[1:])
    assert "[`norm`]" not in spaces["torch.linalg"] and "`exponential`" not in spaces["torch.signal.windows"]
    assert "[`select`]" not in spaces["torch"] and "[`rms_norm`]" in spaces["torch.nn.functional"]


@functools.cache
def anchors(text: str) -> frozenset[str]:
    """Of a document's headings."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return frozenset(heading.lower().replace(" ", "-").replace(".", "") for heading in headings)


def test_every_function_has_an_entry_with_an_example_and_its_plan(pages: dict[str, str]) -> None:
    """And the plan's entry leads back."""
    texts = [text for page, text in pages.items() if page.startswith("functions/")]
    entries = dict(part.split("\n", 1) for text in texts for part in text.split("\n## ")[1:])
    functions = {name: getattr(baracuda_py, name) for name in EXPORTS}
    assert entries.keys() == {name for name, value in functions.items() if not inspect.isclass(value)}
    for name in entries:
        plan = getattr(functions[name], "plan", None)
        if isinstance(plan, type):
            assert "For example\n\n```python\n" in entries[name] and f"[`{plan.op}`]" in entries[name], name
            assert f"[`{name}`](../functions/" in pages[f"ops/{plan.op.partition('.')[0]}.md"]


def test_the_site_has_every_page_that_is_made(pages: dict[str, str]) -> None:
    named = re.findall(r"^ +- ((?:ops|functions)/\w+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(named) == sorted(pages)


# -- figures --------------------------------------------------------------------------------------------------------


def test_two_gpus_stand_side_by_side(measured: ModuleType, tmp_path: Path) -> None:
    """Also where one has a row that the other lacks; and each has a section of its own."""
    norm, silu = 'norm.rms_norm,"[32768, 4096] bf16"', "elementwise.unary,silu 134M bf16"
    keep(tmp_path, "nvidia_h100", OPS, f"{norm},200,3.10,TB/s,0.931,torch,300")
    keep(tmp_path, "nvidia_h200", OPS, f"{silu},128,4.20,TB/s,0.976,,", f"{norm},100,4.08,TB/s,0.953,torch,200")
    keep(tmp_path, "nvidia_h200_attention", ATTENTION, "forward,128,16384,causal,16/16,,1,744,324,634,2.3")
    table = measured.headline().splitlines()
    assert table[0] == "|  | NVIDIA H200 | NVIDIA H100 |"
    assert "| `unary` silu 134M bf16 | 4.20 TB/s, 98 % of the ceiling |  |" in table
    both = "4.08 TB/s, 95 % of the ceiling; 2.00× torch | 3.10 TB/s, 93 % of the ceiling; 1.50× torch"
    assert f"| `rms_norm` [32768, 4096] bf16 | {both} |" in table
    assert "| `flash_sdpa` causal, head_dim 128, 16384 tokens, bf16 | 744 TFLOP/s; 1.17× torch's cuDNN |  |" in table
    assert re.findall("^## (.*)$", measured.measured(), re.MULTILINE) == ["NVIDIA H200", "NVIDIA H100"]


def test_one_gpu_is_enough(measured: ModuleType, tmp_path: Path) -> None:
    keep(tmp_path, "nvidia_h100_train_step", "candidate,ms,tokens_per_s,peak_gb,held_out,seconds",
         "baracuda_py,20,1600000,5,,", "torch compile,30,1000000,5,,")  # fmt: skip
    assert measured.headline().splitlines()[0] == "|  | NVIDIA H100 |"
    assert "20.0 ms; 1.50× torch compile" in measured.headline()


def test_no_figures(measured: ModuleType) -> None:
    assert measured.headline() == measured.measured() == "No figures are on file yet."


def test_kinds_of_results(measured: ModuleType, tmp_path: Path) -> None:
    """A kind without a table of its own is shown as it is, and belongs to its GPU."""
    for gpu in ("nvidia_h200", "nvidia_h200_nvl"):
        keep(tmp_path, gpu, OPS, "a.b,c,128,4.20,TB/s,0.976,,")
    for kind in ("nvidia_h200_attention_terms", "nvidia_h200_first_call", "nvidia_h200_nvl_first_call"):
        keep(tmp_path, kind, "op,seconds,commit,versions", "rms_norm,0.4,abc,x")
    assert {gpu: set(kinds) for gpu, kinds in measured.files().items()} == {
        "nvidia_h200": {"", "attention_terms", "first_call"}, "nvidia_h200_nvl": {"", "first_call"},
    }  # fmt: skip
    shown = measured._plain_table(tmp_path / "nvidia_h200_first_call.csv")
    assert shown.endswith("| op | seconds |\n| --- | --- |\n| rms_norm | 0.4 |")


def test_every_named_formula_has_an_entry(pages: dict[str, str]) -> None:
    text = pages["ops/formulas.md"]
    named = [name for name in EXPORTS if isinstance(getattr(baracuda_py, name), baracuda_py.Expression)]
    assert "squareplus" in named
    for name in named:
        assert f"## {name}\n" in text and getattr(baracuda_py, name).text in text


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_settings_have_values_that_they_take(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in re.findall(r"\b(BARACUDA_[A-Z_]+)=([\w./~-]+)", path.read_text()):
        monkeypatch.setenv(name, value)
        config.get(name)
