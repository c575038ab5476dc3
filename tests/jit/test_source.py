from __future__ import annotations

import os
from pathlib import Path

import pytest

from baracuda_py.core.errors import CompileError
from baracuda_py.jit import Unit, flatten
from baracuda_py.jit.source import kernel_root, system_includes


def test_each_file_once_and_lines_kept(kernels: Path) -> None:
    text = '#include <cuda_fp16.h>\n#include "demo/body.cu"\n#include <baracuda/scale.cuh>\nint last;\n'
    flat = flatten(text, "u.cu")
    assert flat.count("float scaled(") == 1
    assert "#pragma once" not in flat
    assert flat.startswith('#line 1 "u.cu"\n#include <cuda_fp16.h>\n')
    assert flat.endswith('#line 4 "u.cu"\nint last;\n')
    assert '#line 1 "demo/body.cu"' in flat and '#line 1 "include/baracuda/scale.cuh"' in flat
    assert str(kernels) not in flat, "a path of this machine would make the key differ between machines"
    assert system_includes(flat) == ("cuda_fp16.h",)


def test_a_sibling_is_found_and_cycles_end(kernels: Path) -> None:
    (kernels / "demo/a.cu").write_text('#pragma once\n#include "b.cu"\nint a;')
    (kernels / "demo/b.cu").write_text('#pragma once\n#include "a.cu"\nint b;')
    flat = flatten("#include <demo/a.cu>\n")
    assert flat.count("int a;") == flat.count("int b;") == 1


@pytest.mark.parametrize(
    "line", ["#include <baracuda/none.cuh>", '#include "demo/none.cu"', "# include <demo/none.cu>"]
)
def test_a_missing_file_names_who_included_it(kernels: Path, line: str) -> None:
    (kernels / "demo/bad.cu").write_text(f"\n{line}\n")
    with pytest.raises(CompileError, match=r"demo/bad\.cu\(2\).*none\.cuh? *.*names no file"):
        flatten("#include <demo/bad.cu>\n")


def test_an_include_of_ours_under_a_condition_is_refused(kernels: Path) -> None:
    with pytest.raises(CompileError, match=r"u\.cu\(2\).*inside #if"):
        flatten("#if X\n#include <demo/body.cu>\n#endif\n", "u.cu")
    assert "#include <mma.h>" in flatten("#ifdef X\n#include <mma.h>\n#endif\n")


def test_an_edit_is_seen_and_an_unchanged_file_is_not_read_again(
    kernels: Path, demo: Unit, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = flatten(demo.text)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_text", lambda *a, **k: pytest.fail("read again"))
        assert flatten(demo.text) == before
    header = kernels / "include/baracuda/scale.cuh"
    stamp = header.stat().st_mtime_ns
    header.write_text(header.read_text().replace("2.0f", "3.0f"))
    os.utime(header, ns=(stamp + 1, stamp + 1))
    assert flatten(demo.text) != before


def test_kernel_root_is_the_package_or_its_sibling() -> None:
    assert kernel_root().name in ("_kernels", "kernels")
