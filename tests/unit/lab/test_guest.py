from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from numamirror_build.errors import ConfigError, ToolMissingError
from numamirror_build.lab.guest import Command, make_guest, passed_environment


def guest(tmp_path: Path, command: Command) -> dict[str, bytes]:
    """The files of a guest by path."""
    busybox = shutil.which("busybox")
    if not busybox:
        pytest.skip("needs busybox to unpack")
    (tmp_path / "fake").write_bytes(b"busybox")
    (tmp_path / "a.ko").write_bytes(b"module a")
    (tmp_path / "b.ko").write_bytes(b"module b")
    data = make_guest(command, busybox=tmp_path / "fake", modules=[tmp_path / "b.ko", tmp_path / "a.ko"])
    folder = tmp_path / "unpacked"
    folder.mkdir()
    subprocess.run([busybox, "cpio", "-i"], input=data, cwd=folder, check=True, capture_output=True)
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def test_the_callers_variables_for_computing_are_passed() -> None:
    """Variables of ggml, OpenMP and this program, and those every program needs; no others."""
    environ = {
        "GGML_NUMA_MIRROR": "all",
        "OMP_NUM_THREADS": "2",
        "PATH": "/bin",
        "SECRET": "x",
        "LLAMA_X": "1",
    }
    assert passed_environment(environ, []) == {k: v for k, v in environ.items() if k != "SECRET"}


def test_given_variables_count_more() -> None:
    """NAME=VALUE is a value, NAME the caller's own; an equals sign in the value is part of it."""
    environ = {"GGML_A": "1", "B": "2"}
    assert passed_environment(environ, ["GGML_A=x=y", "B", "C="]) == {"GGML_A": "x=y", "B": "2", "C": ""}


@pytest.mark.parametrize(
    ("item", "what"), [("A-B=1", "Not a variable"), ("=1", "Not a variable"), ("N", "no variable N")]
)
def test_what_is_no_variable_is_refused(item: str, what: str) -> None:
    """The message names the option."""
    with pytest.raises(ConfigError, match=what) as caught:
        passed_environment({}, [item])
    assert caught.value.where == "option --env"


def test_words_and_variables_come_through_as_they_are(tmp_path: Path) -> None:
    """Spaces, quotes, newlines, dollars and bytes that are no text reach the command unchanged."""
    words = (
        "printf",
        r"%s|",
        "two words",
        "it's",
        "$HOME `x`",
        "a\nb",
        b"\xff\xfe".decode(errors="surrogateescape"),
    )
    files = guest(tmp_path, Command(words, {"A": "x'\n$y"}, tmp_path))
    script = files["command"] + b"\n"
    done = subprocess.run(["sh"], input=script, capture_output=True, check=True)
    assert done.stdout == b"two words|it's|$HOME `x`|a\nb|\xff\xfe|"
    shown = subprocess.run(
        ["sh"],
        input=script.replace(b"exec ", b'printf %s "$A"; pwd; exit; exec '),
        capture_output=True,
        check=True,
    )
    assert shown.stdout == f"x'\n$y{tmp_path}\n".encode()


@pytest.mark.parametrize(("name", "run"), [("ls", "{}/b/ls"), ("./ls", "./ls"), ("a/ls", "a/ls")])
def test_a_name_is_that_of_the_hosts_program(tmp_path: Path, name: str, run: str) -> None:
    """The first on the command's PATH is run, not what busybox has of that name; a path stays as it is."""
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "ls").write_text("")
    (tmp_path / "b/ls").chmod(0o755)
    command = Command((name, "-l"), {"PATH": f"{tmp_path}/a:{tmp_path}/b"}, tmp_path)
    assert guest(tmp_path, command)["command"].decode().endswith(f"exec {run.format(tmp_path)} -l\n")


def test_a_program_that_is_not_there_is_an_error_at_once(tmp_path: Path) -> None:
    """No machine is started for it; the message has the name, and where it was looked for."""
    with pytest.raises(ToolMissingError, match="There is no program numactl") as caught:
        guest(tmp_path, Command(("numactl", "-H"), {"PATH": "/nowhere"}, tmp_path))
    assert caught.value.where == "the folders /nowhere"


def test_the_first_process_loads_modules_in_order(tmp_path: Path) -> None:
    """The script has a banner, loads what it is told in that order, and is valid for a shell."""
    init = guest(tmp_path, Command(("true",), {}, tmp_path))["init"].decode()
    assert "templates/lab/init.sh.j2" in init.splitlines()[1]
    assert init.index("insmod /modules/b.ko") < init.index("insmod /modules/a.ko")
    assert "cache=mmap" not in init
    subprocess.run(["sh", "-n"], input=init, text=True, check=True)


@pytest.mark.parametrize("broken", ["mkdir", "cp"])
def test_a_command_that_cannot_be_put_in_place_is_a_failure_of_the_guest(tmp_path: Path, broken: str) -> None:
    """It is not taken for the command's own status: the script's last part, with what it calls made up."""
    init = guest(tmp_path, Command(("true",), {}, tmp_path))["init"].decode()
    words = init[init.index("say() {") : init.index("# the device of a port")]
    last = init[init.index("ip link set lo up") :]
    calls = {"ip": ":", "mkdir": ":", "cp": ":", "chroot": "return 3", "sync": ":", "poweroff": "exit 0"}
    calls[broken] = "return 1"
    functions = "".join(f"{name}() {{ {body}; }}\n" for name, body in calls.items())
    script = f"control=/dev/stdout stdout=/dev/null stderr=/dev/null\n{words}{functions}{last}"
    done = subprocess.run(["sh"], input=script, text=True, capture_output=True, check=True)
    [said] = done.stdout.splitlines()
    assert said.startswith(f"failed {broken} ") and "/world/run/lab" in said


def test_the_scratch_folder_is_mounted_where_the_host_has_it(tmp_path: Path) -> None:
    """A path with spaces and quotes is one word."""
    command = Command(("true",), {}, tmp_path, scratch=Path("/x/it's here"))
    init = guest(tmp_path, command)["init"].decode()
    assert """cache=mmap scratch /world'/x/it'"'"'s here'""" in init
    subprocess.run(["sh", "-n"], input=init, text=True, check=True)
