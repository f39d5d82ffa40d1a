"""No text that a user, a file or a network gave becomes a command of a shell."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted([*(ROOT / "numamirror_build").rglob("*.py"), *(ROOT / "ci").rglob("*.py")])
SCRIPTS = [ROOT / "numamirror-build", ROOT / "ci/environment.sh", ROOT / "ci/test", ROOT / ".ci/run"]

STARTERS = {"numamirror_build/proc.py", "ci/switches.py"}
"""What starts processes; git's own are started by GitPython, from a list of words."""
FORBIDDEN = re.compile(
    r"(os\.(system|popen)|subprocess\.(getoutput|getstatusoutput)"
    r"|asyncio\.create_subprocess_\w+|pty\.spawn|eval|exec|compile|__import__)"
)
SHELLS = {"sh", "bash", "dash", "ash", "busybox", "/bin/sh", "/bin/bash"}


def findings(source: str) -> Iterator[str]:
    """What in a program gives text to a shell, or starts something by another way than a list of words."""
    tree = ast.parse(source)
    texts = {
        name.id
        for node in tree.body
        if isinstance(node, ast.Assign) and _is_text(node.value, frozenset())
        for name in node.targets
        if isinstance(name, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            yield from _shell_words(node.args, frozenset(texts))
            if FORBIDDEN.fullmatch(called):
                yield f"{node.lineno}: {called}"
            for keyword in node.keywords:
                if keyword.arg == "shell" and ast.unparse(keyword.value) != "False":
                    yield f"{node.lineno}: shell={ast.unparse(keyword.value)}"
                if keyword.arg == "executable":
                    yield f"{node.lineno}: executable="
        elif isinstance(node, (ast.List, ast.Tuple)):
            yield from _shell_words(node.elts, frozenset(texts))


def _is_text(node: ast.expr, known: frozenset[str]) -> bool:
    return (isinstance(node, ast.Constant) and isinstance(node.value, str)) or (
        isinstance(node, ast.Name) and node.id in known
    )


def _shell_words(items: list[ast.expr], known: frozenset[str]) -> Iterator[str]:
    """Of words with a shell in them, whatever follows ``-c`` and is no constant of the module."""
    words = [item.value if isinstance(item, ast.Constant) else None for item in items]
    for place, given in enumerate(items[1:], 1):
        shell = SHELLS.intersection(word for word in words[: place - 1] if isinstance(word, str))
        if words[place - 1] == "-c" and shell and not _is_text(given, known):
            yield f"{given.lineno}: a shell gets {ast.unparse(given)}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_shell_gets_a_text_that_was_built(path: Path) -> None:
    """No shell=, no os.system and the like; what follows ``sh -c`` is a constant."""
    assert list(findings(path.read_text())) == []


def test_the_check_can_fail() -> None:
    """Each way to give text to a shell is found, and a constant that gets its input as words is not."""
    bad = [
        "subprocess.run(f'ls {x}', shell=True)",
        "subprocess.run(words, shell=flag)",
        "os.system('ls ' + x)",
        "os.popen(x)",
        "subprocess.getoutput(x)",
        "asyncio.create_subprocess_shell(x)",
        "proc.run(['sh', '-c', x])",
        "proc.run(('bash', '-e', '-c', f'ls {x}'))",
        "proc.run(['setpriv', '--', 'sh', '-c', 'ls ' + x])",
        "eval(x)",
        "os.execlp('sh', 'sh', '-c', x)",
        "X = f'ls {y}'\nproc.run(['sh', '-c', X])",
    ]
    assert [code for code in bad if not list(findings(code))] == []
    good = "X = 'exec \"$@\"'\nproc.run(['sh', '-c', X, 'sh', *words])\nre.compile(x)\n"
    assert list(findings(good)) == []


def test_one_module_starts_processes() -> None:
    """Nothing else calls Popen and the like, so what is true of that module is true of the package."""
    calls = re.compile(r"\bsubprocess\.(run|call|check_call|check_output|Popen)\(")
    found = {path.relative_to(ROOT).as_posix() for path in SOURCES if calls.search(path.read_text())}
    assert found == STARTERS


def test_ruff_looks_for_it_too() -> None:
    """The rules S602, S604 and S605 are on, nothing is exempted from them, and they pass."""
    ruff = shutil.which("ruff", path=str(Path(sys.executable).parent)) or shutil.which("ruff")
    if ruff is None:
        pytest.skip("ruff is not installed")
    command = [ruff, "check", "--select", "S602,S604,S605", "--ignore-noqa", "--no-cache", "."]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_shell_scripts_do_not_read_words_as_commands(path: Path) -> None:
    """No eval, no ``sh -c`` of something that is not constant, and arguments are handed on in quotes."""
    text = path.read_text()
    assert not re.search(r"\beval\b", text)
    assert not re.search(r"\bsh\s+-c\s+\"[^\"]*\$", text)
    assert not re.search(r"(?<!\")\$[@*]", text)
