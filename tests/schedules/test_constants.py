"""Numbers that a kernel and its launch share: they stand once, on the page, and every unit that names one has it."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from baracuda_py.core import Params, registry
from baracuda_py.core.params import constants
from baracuda_py.core.warm import jobs
from baracuda_py.jit import source
from baracuda_py.ops.attention.paged.page_tables import APPEND_TABLES, PAGE_TABLES, READ_TABLES
from baracuda_py.ops.elementwise.cast import CODES

ROOT = Path(__file__).resolve().parents[2]
_NAME = re.compile(r"[A-Za-z_]\w*")
_NO_CODE = re.compile(r"//[^\n]*|^#[^\n]*", re.MULTILINE)


@functools.lru_cache(None)
def _words(text: str) -> frozenset[str]:
    """What a part of a file names, after the numbers of its first line."""
    return frozenset(_NAME.findall(_NO_CODE.sub("", text.partition("\n")[2])))


def test_a_number_is_a_constant_of_the_unit() -> None:
    params = Params("Sample", x="ptr", n="i64", sample_threads=256, Mode=("wide", "narrow"))
    assert params.constants == {"sample_threads": 256, "Mode": ("wide", "narrow")} and set(params.slots) == {"x", "n"}
    assert "sample_threads" not in params.cpp
    assert constants([params, Params("Other", sample_threads=256, sample_stages=3)]) == [
        "constexpr int sample_threads = 256;",
        "enum class Mode { wide, narrow };",
        "constexpr int sample_stages = 3;",
    ]


def test_a_number_beyond_32_bits_is_one_of_64() -> None:
    assert constants([Params("Sample", most=2**31 - 1, beyond=2**40)]) == [
        "constexpr int most = 2147483647;",
        "constexpr long long beyond = 1099511627776;",
    ]


def test_a_name_has_one_number() -> None:
    with pytest.raises(TypeError, match="Other: sample_threads is 128, another struct of the unit has 256"):
        constants([Params("Sample", sample_threads=256), Params("Other", sample_threads=128)])


def test_units_have_the_constants_they_name() -> None:
    """A header that comes by way of another one may name constants that no struct of the unit declares."""
    heads: dict[str, set[str]] = {}  # what stands before the kernel → the constants there
    known: set[str] = set()
    for job in jobs(registry.plans().values()):
        given = {name for kernel in job.variant.kernels for name in kernel.params.constants}
        heads.setdefault(job.unit.text.partition('extern "C"')[0], given)
        known |= given
    assert known
    used: set[str] = set()
    for head, given in heads.items():
        kernel = re.sub(rf"(?:constexpr (?:int|long long)|enum class) (?:{'|'.join(given)})\b[^;]*;\n", "", head)
        words = set().union(*map(_words, source.flatten(kernel).split("\n#line ")))
        assert not words & known - given, head
        used |= words & known
    assert used == known, "some constants are in no kernel"


# -- numbers that stand twice ---------------------------------------------------------------------------------------

# Enumerations of a kernel's file that most units hold and few ops name: printed, ElementCode would stand in 2790 units,
# and PagedTable in those of attention without pages. Their pages' order is theirs: (file, enumeration) → names.
_SHARED = {
    ("include/baracuda/convert.cuh", "ElementCode"): [
        *(f"code_{kind.name.lower().removeprefix('fp8').removeprefix('fp4')}" for kind in CODES), "element_codes",
    ],
    ("attention/pages.cuh", "PagedTable"): [*PAGE_TABLES, "own_tables"],
    ("attention/cache/paged_places.cuh", "OwnTable"): [*APPEND_TABLES[len(PAGE_TABLES) :]],
    ("attention/paged.cuh", "PrefillTable"): [*READ_TABLES[len(PAGE_TABLES) :]],
    ("attention/paged/batch_paged_decode.cu", "OwnTable"): [*READ_TABLES[len(PAGE_TABLES) :]],
    ("attention/listed.cuh", "List"): ["list_pages", "list_sequences", "own_lists"],
    ("attention/mla/latent_pages.cuh", "LatentTable"): [*READ_TABLES[len(PAGE_TABLES) :]],
}  # fmt: skip
_ENUMERATION = re.compile(r"\benum (?:class )?(\w*) *(?:: *\w+ *)?\{([^}]*)\}")


def _enumerations(file: Path) -> dict[str, list[str]]:
    """Those that stand in a file of kernels, and their names."""
    found = _ENUMERATION.findall(_NO_CODE.sub("", file.read_text()))
    return {name: [part.partition("=")[0].strip() for part in names.split(",")] for name, names in found}


@pytest.mark.parametrize(("file", "name"), _SHARED)
def test_an_enumeration_of_a_file_has_the_order_of_its_page(file: str, name: str) -> None:
    assert _enumerations(ROOT / "kernels" / file)[name] == _SHARED[file, name]


def test_no_other_enumeration_stands_on_a_page_too() -> None:
    """Such a one is an enumeration of a struct: `Mode=("constant", "reflect")`."""
    modules = [path for folder in ("schedules", "ops") for path in (ROOT / "baracuda_py" / folder).rglob("*.py")]
    tuples = {names for path in modules for names in _tuples_of_names(ast.parse(path.read_text()))}
    twice = [
        (str(file.relative_to(ROOT)), name, names)
        for file in sorted((ROOT / "kernels").rglob("*.cu*"))
        for name, names in _enumerations(file).items()
        if (str(file.relative_to(ROOT / "kernels")), name) not in _SHARED
        and any(_same(names, other) for other in tuples)
    ]
    assert twice == []


def _tuples_of_names(tree: ast.AST) -> Iterator[tuple[str, ...]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Tuple) and len(node.elts) > 2:
            names = [one.value for one in node.elts if isinstance(one, ast.Constant) and isinstance(one.value, str)]
            if len(names) == len(node.elts):
                yield tuple(names)


def _same(names: list[str], of_page: tuple[str, ...]) -> bool:
    """Whether the names begin with those of a page, as they are or without the word that all begin with."""
    word = names[0].partition("_")[0] + "_"
    bare = [one.removeprefix(word) for one in names] if all(one.startswith(word) for one in names) else names
    return [*of_page] in (names[: len(of_page)], bare[: len(of_page)])


_MIRRORED = re.compile(
    r"\bas (?:in|there\b|the kernel)[^.;]*(?:kernels?\b|\.cuh?\b)|\bas there\b|\bas [`\w/<>]+ (?:in|of) [\w/]+\.cuh?\b"
    r"|\bas [`\w/]+\.cuh? has\b|\.cuh? has (?:it|them|these numbers),? too|^#? ?`?\w+`? in the kernel$"
    r"|\bin the order of `?[\w/]+(?:\.cuh?\b|`? (?:in|of) [\w/]+\.cuh?\b)"
)
_OTHER_SIDE = re.compile(
    r"\.py ha(?:s|ve) (?:it|them|this number|these numbers)\b|^\W*`?[A-Z_]+`?(?: and `?[A-Z_]+`?)? of [\w/]+\.py"
    r"|\b(?:order of|[Nn]umbered as) `?[A-Z_]+`? (?:in|of) [\w/]+\.py\b"
)


@pytest.mark.parametrize("comment", [
    "# as in kernels/gemm/mma.cuh", "# of tiles, as kernels/quant_gemm/int8_tile.cuh has them", "# as in pad.cu",
    "# `run_unroll` in the kernel", "# bytes of a chunk, as in the kernel", "# elements a thread, as there",
    "# as `Strided` in map.cuh", "# in the order of kernels/gemm/epilogue.cuh",
    "# of tiles; kernels/gemm/mma.cuh has these numbers too",
])  # fmt: skip
def test_mirrored_numbers_are_found(comment: str) -> None:
    assert _MIRRORED.search(comment)


@pytest.mark.parametrize(
    "comment",
    [
        "// schedules/w4a8.py has these numbers too.",
        "// `IN_FLIGHT` of ops/block_diag.py",
        "// The order of `CODES` in baracuda_py/ops/elementwise/cast.py.",
        "// Numbered as TABLES of page_tables.py",
    ],
)
def test_mirrored_numbers_are_found_in_kernels(comment: str) -> None:
    assert _OTHER_SIDE.search(comment.removeprefix("//"))


def test_no_comment_says_that_a_number_stands_elsewhere_too() -> None:
    """Such a number is a constant of a struct, or a template argument."""
    lines = [
        f"{path.relative_to(ROOT)}:{number}: {comment}"
        for folder in ("schedules", "ops")
        for path in sorted((ROOT / "baracuda_py" / folder).rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if (comment := line.partition("  #")[2] or (line if line.lstrip().startswith("#") else ""))
        and _MIRRORED.search(comment)
    ]
    lines += [
        f"{path.relative_to(ROOT)}:{number}: {comment}"
        for path in sorted((ROOT / "kernels").rglob("*.cu*"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if (comment := line.partition("//")[2]) and _OTHER_SIDE.search(comment)
    ]
    assert not lines
