"""Names in upstream's headers that are worth a look when they are new."""

from __future__ import annotations

from pathlib import Path

import pytest

from numamirror_build import data
from numamirror_build.errors import ConfigError
from numamirror_build.pinning.watch import load_watches, new_names

BEFORE = {
    "ggml/include/ggml.h": b"    enum ggml_op {\n        GGML_OP_NONE = 0,\n        GGML_OP_ADD,\n    };\n",
    "src/llama-kv-cache.h": b"class llama_kv_cache : public llama_memory_i {\n};\n",
}
AFTER = {
    "ggml/include/ggml.h": BEFORE["ggml/include/ggml.h"].replace(b"ADD,", b"ADD,\n        GGML_OP_NEW,"),
    "src/llama-kv-cache.h": BEFORE["src/llama-kv-cache.h"] + b"class llama_kv_cache_user;\n",
    "src/llama-kv-cache-new.h": b"class llama_kv_cache_new : public llama_memory_i {\n};\n",
    "src/llama-other.h": b"// GGML_OP_ELSEWHERE,\nstruct llama_vocab {\n};\n",
}


def test_what_is_new_is_named_by_sort() -> None:
    """A new operation and a new class; not what was there, is only named, or is of another sort."""
    assert new_names("llama.cpp", BEFORE, AFTER) == {
        "operations": ("GGML_OP_NEW",),
        "classes of caches": ("llama_kv_cache_new",),
    }
    assert new_names("llama.cpp", AFTER, AFTER) == {}


@pytest.mark.parametrize("upstream", data.upstream_names())
def test_every_upstream_has_sorts_with_hints(upstream: str) -> None:
    """Each upstream's list can be read, and each sort says what a new name may need."""
    watches = load_watches(upstream)
    assert {watch.name for watch in watches} >= {"operations", "types of tensors", "classes of caches"}
    assert all(watch.hint and watch.pattern.groups == 1 for watch in watches)


def test_a_damaged_list_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pattern that is none is an error of the data file's."""
    (tmp_path / "watch.toml").write_text("[[watch]]\nname='a'\nfiles='b'\npattern='('\nhint='c'\n")
    monkeypatch.setattr(data, "patches", lambda upstream: tmp_path)
    with pytest.raises(ConfigError, match="not valid"):
        load_watches("llama.cpp")
