"""A user's environment that would spoil whatever git does, if git saw it."""

from __future__ import annotations

from pathlib import Path

import pytest

_GLOBAL = """
[core]
	autocrlf = true
	hooksPath = {folder}/hooks
	excludesFile = {folder}/ignore
	fsmonitor = {folder}/fsmonitor
	symlinks = false
	fileMode = false
[status]
	showUntrackedFiles = no
[commit]
	gpgSign = true
[url "{folder}/nowhere"]
	insteadOf = file://
[fetch]
	fsckObjects = true
[fsck]
	skipList = {folder}/missing
[protocol "file"]
	allow = never
[extensions]
	objectFormat = sha256
"""


def make(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set it up: configuration, ignore and attribute files, hooks, and every kind of ``GIT_*`` variable."""
    home = folder / "home"
    (home / ".config/git").mkdir(parents=True)
    (home / ".gitconfig").write_text(_GLOBAL.format(folder=folder))
    (home / ".config/git/ignore").write_text("*\n")
    (home / ".config/git/attributes").write_text("* text eol=crlf ident\n")
    (folder / "ignore").write_text("*.c\n")
    (folder / "hooks").mkdir()
    for name in ("hooks/post-checkout", "hooks/reference-transaction", "fsmonitor"):
        (folder / name).write_text(f"#!/bin/sh\ntouch {folder}/ran\nexit 1\n")
        (folder / name).chmod(0o755)
    variables = {
        "HOME": str(home),
        "GIT_DIR": str(folder / "no-such-repository"),
        "GIT_WORK_TREE": str(folder / "no-such-tree"),
        "GIT_INDEX_FILE": str(folder / "no-such-index"),
        "GIT_OBJECT_DIRECTORY": str(folder / "no-such-objects"),
        "GIT_COMMON_DIR": str(folder / "no-such-common"),
        "GIT_NAMESPACE": "foreign",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.eol",
        "GIT_CONFIG_VALUE_0": "crlf",
        "GIT_CONFIG_PARAMETERS": "'core.autocrlf'='true'",
        "GIT_CONFIG_GLOBAL": str(home / ".gitconfig"),
        "GIT_CONFIG_SYSTEM": str(home / ".gitconfig"),
        "GIT_ALLOW_PROTOCOL": "none",
        "GIT_TEMPLATE_DIR": str(folder / "hooks"),
        "GIT_DEFAULT_HASH": "sha256",
        "GIT_LITERAL_PATHSPECS": "0",
        "GIT_CEILING_DIRECTORIES": "/",
        "GIT_PYTHON_GIT_EXECUTABLE": "/no/such/git",
        "GIT_PYTHON_REFRESH": "raise",
        "GIT_EXEC_PATH": str(folder / "hooks"),
        "GIT_TRACE": str(folder / "trace"),
    }
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
