from __future__ import annotations

from pathlib import Path

import pytest

from numamirror_build.errors import ConfigError
from numamirror_build.patching.scope import OutOfScope, TreeFiles, scope_from_table, select_sources

TABLES = {
    "cpu": {
        "include": [{"glob": "*.c", "reason": "C"}, {"glob": "*.h", "reason": "C"}],
        "exclude": [
            {"glob": "ggml/src/ggml-gpu/*", "reason": "for GPUs"},
            {"glob": "tests/*", "reason": "not delivered"},
            {"glob": "vendor/*", "reason": "no tensors"},
        ],
    }
}
FILES = {
    "ggml/src/ggml.c": b"struct ggml_tensor;",
    "ggml/src/ggml-gpu/deep/k.c": b"struct ggml_tensor;",
    "ggml/src/ggml-gpu/k.h": b"struct kernel;",
    "ggml/src/ggml-gpu-like.c": b"",
    "tests/t.c": b"struct ggml_tensor;",
    "vendor/v.h": b"",
    "README.md": b"ggml_tensor",
}


def test_everything_is_in_scope_that_no_rule_leaves_out() -> None:
    """Targets are all sources but the excluded ones; those stay available, for the types they declare."""
    sources = select_sources(FILES, scope_from_table("cpu", TABLES))
    assert sources.targets == ("ggml/src/ggml-gpu-like.c", "ggml/src/ggml.c")
    assert sorted(sources.all) == sorted(set(FILES) - {"README.md"})


def test_what_is_out_of_scope_is_listed_with_its_reason() -> None:
    """The list names each rule that matters, its reason, and the files that name tensors."""
    sources = select_sources(FILES, scope_from_table("cpu", TABLES))
    assert sources.out_of_scope == (
        OutOfScope("ggml/src/ggml-gpu/*", "for GPUs", ("ggml/src/ggml-gpu/deep/k.c",)),
        OutOfScope("tests/*", "not delivered", ("tests/t.c",)),
    )


def test_unknown_scope_is_an_error() -> None:
    """Asking for a scope that is not there names those that are."""
    with pytest.raises(ConfigError, match="the scopes are: cpu"):
        scope_from_table("gpu", TABLES)


def test_tree_files(tmp_path: Path) -> None:
    """A tree's files are found below folders, in a fixed order, without links and git's own files."""
    for name in ("b/c.c", "a.c", "b.c", ".git/config", ".github/x.yml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "link.c").symlink_to("a.c")
    files = TreeFiles(tmp_path)
    assert list(files) == ["a.c", "b.c", ".github/x.yml", "b/c.c"]
    assert files["b/c.c"] == b"b/c.c"
    assert len(files) == 4
    assert "b" not in files and "none.c" not in files and "a.c/x" not in files
