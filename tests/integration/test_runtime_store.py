"""Replicas that outlive the process: files on tmpfs or hugetlbfs that a second start maps."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gguf
import pytest

from tests.integration.test_runtime_memory import (
    ENV,
    MODELS,
    drive,
    driver,
    free_pages,
    loader,
    models,
    on,
    pool,
    run,
    stopped,
)
from tests.machines import GIB, MIB, Machine, Node

if TYPE_CHECKING:
    from numamirror_build.building.build import Build

__all__ = ["driver", "loader", "models", "pool"]  # fixtures

pytestmark = [pytest.mark.sources, pytest.mark.build]

LOAD = f"load:model:{5 * MIB},{3 * MIB}"
HALF = LOAD.replace("load", "half")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """An empty store on tmpfs."""
    path = Path(f"/dev/shm/numamirror-test-{os.getpid()}-{tmp_path.name}")
    if not path.parent.is_dir():
        pytest.skip("this machine has no /dev/shm")
    path.mkdir(mode=0o700)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def mounted(kind: str, path: Path, options: str) -> Iterator[Path]:
    """A file system of its own."""
    path.mkdir()
    done = subprocess.run(["mount", "-t", kind, "-o", options, "none", path], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"a {kind} can only be mounted by root: {done.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", path], check=True)


def entries(folder: Path) -> list[Path]:
    """The entries of a store, finished or not."""
    return sorted(folder.iterdir())


def records(folder: Path, *, was_there: bool) -> list[dict[str, Any]]:
    """What the status record says of the one entry of a store."""
    [entry] = entries(folder)
    size = sum(path.stat().st_size for path in entry.iterdir())
    return [{"path": str(entry), "bytes": size, "was_there": was_there}]


def contents(folder: Path) -> dict[str, str]:
    """What is in a store: the digest of each file."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def own_pages(pid: int, folder: Path) -> list[int]:
    """What a process has copied of the files of a store that it maps: KiB, area by area."""
    areas = Path(f"/proc/{pid}/smaps").read_text().split(str(folder))[1:]
    return [int(area.split("Anonymous:")[1].split()[0]) for area in areas]


@pytest.mark.parametrize("name", MODELS)
def test_second_start_gives_the_same_answers(
    loader: Path, models: dict[str, Path], folder: Path, name: str
) -> None:
    """Logits are those without a store; the second start changes no file, and sees where the pages are."""
    env = {"GGML_NUMA_MIRROR_STORE": str(folder)}
    plain = run(loader, models[name])
    assert plain["status"]["store"] == []
    first = run(loader, models[name], **env)
    written = contents(folder)
    second = run(loader, models[name], **env)
    assert contents(folder) == written
    assert first["logits"] == second["logits"] == plain["logits"]
    assert first["status"]["store"] == records(folder, was_there=False)
    assert second["status"]["store"] == records(folder, was_there=True)
    assert second["progress"] == 1
    for node in second["status"]["nodes"]:
        assert set(node["pages"]) == {"0"}, "all pages are in memory"


def test_second_start_does_not_read_the_weights(loader: Path, models: dict[str, Path], folder: Path) -> None:
    """What the second start reads of the model's file is its header."""
    read = []
    for _ in range(2):
        with stopped(loader, models["dense-f16"], "stop", GGML_NUMA_MIRROR_STORE=str(folder)) as process:
            io = Path(f"/proc/{process.pid}/io").read_text()
            read.append(int(io.split("rchar:")[1].split()[0]))
    assert read[0] > models["dense-f16"].stat().st_size
    assert read[1] < models["dense-f16"].stat().st_size / 2


def test_stored_pages_are_no_need(
    loader: Path, models: dict[str, Path], folder: Path, tmp_path: Path
) -> None:
    """A machine that has room for a model once can start it again and again: its pages are there."""
    machine = Machine({0: Node("0", total=GIB, free=32 * MIB, cache=0)}).write(tmp_path / "large")
    full = Machine({0: Node("0", total=GIB, free=4 * MIB, cache=0)}).write(tmp_path / "full")
    env = {"GGML_NUMA_MIRROR_STORE": str(folder)}
    refused = run(loader, models["dense-q8_0"], GGML_NUMA_MIRROR_ROOT=str(full), **env)
    assert refused["status"]["error"]["code"] == "no-memory"
    assert entries(folder) == []
    assert run(loader, models["dense-q8_0"], GGML_NUMA_MIRROR_ROOT=str(machine), **env)["loaded"]
    assert run(loader, models["dense-q8_0"], GGML_NUMA_MIRROR_ROOT=str(full), **env)["loaded"]


def test_store_without_memory_policy(
    loader: Path, models: dict[str, Path], folder: Path, tmp_path: Path
) -> None:
    """Where the kernel takes no policy for a node, a store works as the rest does, and the record says so."""
    cpu = sorted(os.sched_getaffinity(0))[0]
    env = on(Machine({0: Node(str(cpu)), 7: Node(str(cpu))}), tmp_path)
    plain = run(loader, models["dense-q4_0"], "plain")["logits"]
    for was_there in (False, True):
        result = run(loader, models["dense-q4_0"], GGML_NUMA_MIRROR_STORE=str(folder), **env)
        assert result["logits"] == plain
        assert result["status"]["store"][0]["was_there"] == was_there
        assert result["status"]["memory_policy"]["error"]
        assert [node["id"] for node in result["status"]["nodes"]] == [0, 7]


def test_what_decides_on_the_content_decides_on_the_entry(
    loader: Path, models: dict[str, Path], folder: Path, tmp_path: Path
) -> None:
    """Another time of the file, another copy, number of nodes, or setting of upstream is another entry."""
    model = tmp_path / "model.gguf"
    shutil.copy(models["dense-q4_0"], model)
    env = {"GGML_NUMA_MIRROR_STORE": str(folder)}
    run(loader, model, **env)
    run(loader, model, **env)
    assert len(entries(folder)) == 1
    os.utime(model, ns=(1, 1))
    run(loader, model, **env)
    assert len(entries(folder)) == 2
    shutil.copy(model, tmp_path / "copy.gguf")
    run(loader, tmp_path / "copy.gguf", **env)
    assert len(entries(folder)) == 3
    run(loader, model, GGML_NUMA_MIRROR_NODES="3", **env)
    assert len(entries(folder)) == 4
    run(loader, model, GGML_CPU_SOMETHING="1", **env)
    assert len(entries(folder)) == 5
    run(loader, model, "mlock", GGML_NUMA_MIRROR_PAGES="small", **env)
    assert len(entries(folder)) == 5


@pytest.mark.parametrize("library", ["libggml-cpu.so.0", "libggml-base.so.0"])
def test_other_code_is_another_entry(
    loader: Path, models: dict[str, Path], patched_build: Build, folder: Path, tmp_path: Path, library: str
) -> None:
    """Libraries that are not the same to the byte never share an entry; copies of the same do."""
    libraries = tmp_path / "libraries"
    libraries.mkdir()
    for path in patched_build.libraries.glob("lib*.so*"):
        if path.is_symlink() or path.suffix != ".so":
            shutil.copy(path, libraries / path.name)
    env = {"GGML_NUMA_MIRROR_STORE": str(folder)}
    run(loader, models["dense-q4_0"], **env)
    assert run(loader, models["dense-q4_0"], LD_LIBRARY_PATH=str(libraries), **env)["status"]["store"][0][
        "was_there"
    ]
    code = (libraries / library).read_bytes()
    text = b"fatal error"  # a constant that does nothing here
    place = code.index(text)
    (libraries / library).write_bytes(code[:place] + text.swapcase() + code[place + len(text) :])
    changed = run(loader, models["dense-q4_0"], LD_LIBRARY_PATH=str(libraries), **env)
    assert not changed["status"]["store"][0]["was_there"]


def test_all_parts_of_a_model_count(
    loader: Path, models: dict[str, Path], folder: Path, tmp_path: Path
) -> None:
    """A model in parts is stored as one, and any part's change makes another entry."""
    source = gguf.GGUFReader(models["dense-q4_0"])
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "llama", split_max_tensors=20)
    for field in source.fields.values():
        if not field.name.startswith("GGUF.") and field.name != "general.architecture":
            array = field.types[0] == gguf.GGUFValueType.ARRAY
            writer.add_key_value(
                field.name, field.contents(), field.types[0], sub_type=field.types[-1] if array else None
            )
    for tensor in source.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    first, second = sorted(tmp_path.glob("model-*.gguf"))
    env = {"GGML_NUMA_MIRROR_STORE": str(folder)}
    plain = run(loader, models["dense-q4_0"])["logits"]
    assert run(loader, first, **env)["logits"] == plain
    assert run(loader, first, **env)["logits"] == plain
    assert len(entries(folder)) == 1
    os.utime(second, ns=(1, 1))
    assert run(loader, first, **env)["logits"] == plain
    assert len(entries(folder)) == 2


def resize(path: Path) -> None:
    """Cut a file off, and make it as long as before."""
    size = path.stat().st_size
    os.truncate(path, 4096)
    os.truncate(path, size)


def link(path: Path) -> None:
    """Put a symbolic link to a copy in a file's place."""
    path.rename(path.with_name("copy"))
    path.symlink_to("copy")


def replace_by_folder(path: Path) -> None:
    """Put a folder in a file's place."""
    path.unlink()
    path.mkdir()


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "shorter": (lambda path: os.truncate(path, 4096), "damaged"),
    "longer": (lambda path: os.truncate(path, 1 << 30), "damaged"),
    "holes": (resize, "damaged"),
    "gone": (lambda path: path.unlink(), "cannot be opened"),
    "writable": (lambda path: path.chmod(0o666), "others may write"),
    "linked": (link, "cannot be opened"),
    "folder": (replace_by_folder, "no file"),
    "foreign": (lambda path: os.chown(path, 12345, 12345), "somebody else"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_files_are_not_mapped(driver: Path, folder: Path, damage: str) -> None:
    """A file that is not as it was left is an error that names it, and nothing of the entry is used."""
    if damage == "foreign" and os.geteuid() != 0:
        pytest.skip("only root can give files away")
    env = {"GGML_NUMA_MIRROR_STORE": str(folder)}
    assert drive(driver, LOAD, **env) == [[False, False]]
    [entry] = entries(folder)
    change, reason = DAMAGES[damage]
    change(entry / "1-1")
    error, status = drive(driver, LOAD, "status", **env)
    assert status["error"]["code"] == "store"
    assert error == status["error"]["message"]
    assert f"its file {entry.name}/1-1" in error and reason in error
    assert error.partition("; remove the entry, ")[2].startswith(f"rm -r {entry}")
    assert status["bytes_per_replica"] == 0
    shutil.rmtree(entry)
    assert drive(driver, LOAD, "whole:0,2", "whole:1,2", **env) == [[False, False], True, True]


@pytest.mark.parametrize("part", ["", ".part"])
@pytest.mark.parametrize("change", ["foreign", "writable", "linked", "file"])
def test_foreign_entries_are_not_used(
    driver: Path, folder: Path, tmp_path: Path, part: str, change: str
) -> None:
    """An entry, finished or not, that is somebody else's, open to others or no folder is an error."""
    if change == "foreign" and os.geteuid() != 0:
        pytest.skip("only root can give files away")
    env = {"GGML_NUMA_MIRROR_STORE": str(folder)}
    drive(driver, LOAD, **env)
    [finished] = entries(folder)
    entry = finished.rename(finished.with_name(finished.name + part))
    if change == "foreign":
        os.chown(entry, 12345, 12345)
    elif change == "writable":
        entry.chmod(0o777)
    else:
        entry.rename(
            tmp_path / "elsewhere"
        ) if folder.stat().st_dev == tmp_path.stat().st_dev else shutil.move(entry, tmp_path / "elsewhere")
        if change == "linked":
            entry.symlink_to(tmp_path / "elsewhere")
        else:
            entry.write_text("")
    before = contents(folder)
    error, status = drive(driver, LOAD, "status", **env)
    assert status["error"]["code"] == "store" and str(folder) in error
    assert contents(folder) == before


@pytest.mark.parametrize("change", ["foreign", "writable", "linked", "file", "disk", "nowhere"])
def test_unsafe_folders_are_not_used(driver: Path, folder: Path, tmp_path: Path, change: str) -> None:
    """The store's folder is the user's own, nobody else writes to it, and it is in memory."""
    wanted = folder
    if change == "foreign":
        if os.geteuid() != 0:
            pytest.skip("only root can give files away")
        os.chown(folder, 12345, 12345)
    elif change == "writable":
        folder.chmod(0o770)
    elif change == "linked":
        wanted = tmp_path / "link"
        wanted.symlink_to(folder)
    elif change == "file":
        wanted = folder / "file"
        wanted.write_text("")
    elif change == "disk":
        wanted = tmp_path / "new"
    else:
        wanted = folder / "no" / "folder"
    error, status = drive(driver, LOAD, "status", GGML_NUMA_MIRROR_STORE=str(wanted))
    assert status["error"] == {"code": "store", "message": error}
    assert error.startswith(f"numa mirror: the store {wanted} cannot be used: ")
    assert not (tmp_path / "new").exists()


def test_folder_is_made(driver: Path, folder: Path) -> None:
    """A folder that is not there is made, for the user alone."""
    assert drive(driver, LOAD, GGML_NUMA_MIRROR_STORE=str(folder / "new")) == [[False, False]]
    assert (folder / "new").stat().st_mode & 0o777 == 0o700


def test_full_file_system_is_refused(driver: Path, tmp_path: Path) -> None:
    """A tmpfs that is too small is an error with the numbers; nothing is left on it."""
    with mounted("tmpfs", tmp_path / "small", "size=12m,mode=700") as path:
        error, status = drive(driver, LOAD, "status", GGML_NUMA_MIRROR_STORE=str(path))
        assert status["error"]["code"] == "store"
        assert "2 replicas need 20 MiB there, it has 12 MiB left" in error
        assert entries(path) == []


def test_what_is_written_later_stays_in_the_process(driver: Path, folder: Path) -> None:
    """Writes to weights, in the process that stored them and in one that mapped them, reach no file."""
    env = {"GGML_NUMA_MIRROR_STORE": str(folder)}
    assert drive(driver, LOAD, "write:0,1000,2", **env) == [[False, False], True]
    written = contents(folder)
    results = drive(driver, LOAD, "whole:0,2", "write:0,1000,2", "whole:0,2", "whole:1,2", **env)
    assert results == [[True, True], True, True, False, True]
    assert contents(folder) == written
    assert drive(driver, LOAD, "whole:0,2", **env) == [[True, True], True]


def test_killed_process_leaves_nothing_that_counts(driver: Path, folder: Path) -> None:
    """What a killed process has begun is begun anew by the next that wants it, and removed by others."""
    env = {"GGML_NUMA_MIRROR_STORE": str(folder)}
    for load, left in ((LOAD, 1), (LOAD.replace("model", "other"), 1)):
        with stopped(driver, HALF, "stop", **env) as process:
            [part] = (path for path in entries(folder) if path.suffix == ".part")
            process.send_signal(signal.SIGKILL)
            process.wait()
        assert part.exists()
        assert drive(driver, load, "whole:0,2", "whole:1,2", **env) == [[False, False], True, True]
        assert [path.suffix for path in entries(folder)] == [""] * left
        shutil.rmtree(entries(folder)[0])


def test_load_that_goes_on_without_the_store_is_left_alone(driver: Path, folder: Path) -> None:
    """Where an entry cannot be finished and one goes on, the next load leaves its blocks alone."""
    env = {"GGML_NUMA_MIRROR_STORE": str(folder), "GGML_NUMA_MIRROR_FALLBACK": "warn"}
    steps = [HALF, "stop", "rest", LOAD.replace("model", "other")]
    steps += [f"whole:{number},2" for number in range(4)] + ["write:0,1000,2", "whole:2,2"]
    with stopped(driver, *steps, **env) as process:
        [part] = entries(folder)
        shutil.rmtree(part)
        output, _ = process.communicate()
    assert json.loads(output)[2:] == [True, [False, False], True, True, True, True, True, True]
    [entry] = entries(folder)
    assert entry.name != part.stem


def test_entry_that_was_removed_is_not_taken_for_anothers(driver: Path, folder: Path) -> None:
    """Who finishes an entry that was removed meanwhile leaves the one that another has begun since alone."""
    env = {"GGML_NUMA_MIRROR_STORE": str(folder)}
    steps = (HALF, "stop", "rest")
    with stopped(driver, *steps, **env) as first:
        [part] = entries(folder)
        shutil.rmtree(part)
        with stopped(driver, *steps, **env) as second:
            assert json.loads(first.communicate()[0])[2] is False
            assert entries(folder) == [part]
            assert json.loads(second.communicate()[0])[2] is True
    assert drive(driver, LOAD, "whole:0,2", "whole:1,2", **env) == [[True, True], True, True]


def test_unusable_store_is_done_without(driver: Path, folder: Path) -> None:
    """Where the store cannot be used and the fallback is to go on, the replicas are made all the same."""
    folder.chmod(0o770)
    env = {"GGML_NUMA_MIRROR_STORE": str(folder), "GGML_NUMA_MIRROR_FALLBACK": "warn"}
    loaded, first, second, status = drive(driver, LOAD, "whole:0,2", "whole:1,2", "status", **env)
    assert loaded == [False, False] and first and second
    assert status["error"]["code"] == "store"
    assert status["store"] == [] and entries(folder) == []


def test_locked_load_that_ends_early_copies_nothing(driver: Path, folder: Path) -> None:
    """A load that maps locked replicas and is given up does not copy them on its way out."""
    env = {"GGML_NUMA_MIRROR_STORE": str(folder)}
    drive(driver, LOAD, **env)
    with stopped(driver, "lock", HALF, "end", "stop", **env) as process:
        own = own_pages(process.pid, folder)
    assert len(own) >= 2
    assert not any(own)


def test_living_process_keeps_what_it_has_begun(driver: Path, folder: Path) -> None:
    """Others do not remove what a living process writes, and it is finished after them."""
    env = {"GGML_NUMA_MIRROR_STORE": str(folder)}
    with stopped(driver, HALF, "stop", **env):
        drive(driver, LOAD.replace("model", "other"), **env)
        assert sorted(path.suffix for path in entries(folder)) == ["", ".part"]


@pytest.mark.parametrize("ends", ["killed", "given up", "finished"])
def test_second_process_waits_for_the_first(driver: Path, folder: Path, ends: str) -> None:
    """Who wants what another process is writing waits, and writes it himself if that one ends without it."""
    env = {"GGML_NUMA_MIRROR_STORE": str(folder)}
    steps = [HALF, "stop", *(["rest"] if ends == "finished" else [])]
    with (
        stopped(driver, *steps, **env) as first,
        subprocess.Popen([driver, LOAD], env={**ENV, **env}, stdout=subprocess.PIPE) as second,
    ):
        time.sleep(0.5)
        assert second.poll() is None, "it waits"
        if ends == "killed":
            first.kill()
        elif first.stdin:
            first.stdin.close()
        output, _ = second.communicate()
    assert json.loads(output) == [[ends == "finished"] * 2]
    assert drive(driver, LOAD, "whole:0,2", "whole:1,2", **env) == [[True, True], True, True]


def test_many_at_once_make_one_entry(loader: Path, models: dict[str, Path], folder: Path) -> None:
    """Of processes that start together one writes, the others map; all give the same answers."""
    env = {"GGML_NUMA_MIRROR_STORE": str(folder)}
    with ThreadPoolExecutor(6) as executor:
        results = list(executor.map(lambda _: run(loader, models["dense-q4_0"], **env), range(6)))
    assert len({result["logits"] for result in results}) == 1
    assert sorted(result["status"]["store"][0]["was_there"] for result in results) == [False] + [True] * 5
    assert len(entries(folder)) == 1


def test_two_models_of_one_process_share_an_entry(
    loader: Path, models: dict[str, Path], folder: Path
) -> None:
    """A process that loads a model twice at once has its pages once."""
    result = run(loader, models["dense-q4_0"], "two", GGML_NUMA_MIRROR_STORE=str(folder))
    assert result["logits"] == result["other"]
    assert [entry["was_there"] for entry in result["status"]["store"]] == [False, True]


def test_locked_replica_is_not_copied(loader: Path, models: dict[str, Path], folder: Path) -> None:
    """mlock holds for the first replica at both starts, and makes no copies of stored pages."""
    for _ in range(2):
        env = {"GGML_NUMA_MIRROR_STORE": str(folder)}
        with stopped(loader, models["dense-f16"], "mlock", "stop", **env) as process:
            status = Path(f"/proc/{process.pid}/status").read_text()
            own = own_pages(process.pid, folder)
        locked = int(status.split("VmLck:")[1].split()[0]) * 1024
        assert locked >= 6 * MIB
        assert len(own) >= 2
        assert not any(own)


def test_locking_that_is_not_allowed_is_no_error(loader: Path, models: dict[str, Path], folder: Path) -> None:
    """Where a process may lock no memory, a start goes on as upstream's does."""
    command = ["prlimit", "--memlock=65536:65536"]
    command += ["setpriv", "--bounding-set=-ipc_lock"] if os.geteuid() == 0 else []
    if not all(map(shutil.which, ("prlimit", "setpriv"))):
        pytest.skip("prlimit and setpriv are not installed")
    for was_there in (False, True):
        done = subprocess.run(
            [*command, loader, models["dense-f16"], "mlock"],
            env={**ENV, "GGML_NUMA_MIRROR_STORE": str(folder)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert "failed to mlock" in done.stderr
        result = json.loads(done.stdout)
        assert result["status"]["store"][0]["was_there"] == was_there
        assert result["logits"] == run(loader, models["dense-f16"])["logits"]


def test_cancelled_load_leaves_nothing(loader: Path, models: dict[str, Path], folder: Path) -> None:
    """A load that the program's own callback stops leaves no entry."""
    result = run(loader, models["dense-f16"], "cancel", GGML_NUMA_MIRROR_STORE=str(folder))
    assert not result["loaded"]
    assert entries(folder) == []


def test_cancelled_second_start_is_cancelled(loader: Path, models: dict[str, Path], folder: Path) -> None:
    """The callback can stop a load that only maps, too."""
    env = {"GGML_NUMA_MIRROR_STORE": str(folder)}
    assert run(loader, models["dense-f16"], **env)["loaded"]
    assert not run(loader, models["dense-f16"], "cancel", **env)["loaded"]
    assert run(loader, models["dense-f16"], **env)["loaded"]


def test_tensors_are_checked_when_asked_for(
    loader: Path, models: dict[str, Path], folder: Path, tmp_path: Path
) -> None:
    """check_tensors looks at the model's file even if the weights come from the store."""
    model = tmp_path / "model.gguf"
    shutil.copy(models["dense-q8_0"], model)
    tensor = next(t for t in gguf.GGUFReader(model).tensors if t.name == "blk.1.ffn_up.weight")
    with model.open("r+b") as stream:
        stream.seek(int(tensor.data_offset))
        stream.write(b"\x00\x7e")  # the scale of the first block is no number
    env = {"GGML_NUMA_MIRROR_STORE": str(folder)}
    assert run(loader, model, **env)["loaded"]
    assert run(loader, model, **env)["loaded"]
    assert not run(loader, model, "check", **env)["loaded"]
    assert run(loader, models["dense-q8_0"], "check", **env)["loaded"]
    assert run(loader, models["dense-q8_0"], "check", **env)["status"]["store"][0]["was_there"]


@pytest.mark.usefixtures("pool")
def test_store_on_hugetlbfs(loader: Path, models: dict[str, Path], tmp_path: Path) -> None:
    """On hugetlbfs stored replicas are huge pages: taken once, kept when the process ends."""
    with mounted("hugetlbfs", tmp_path / "huge", "pagesize=2M,mode=700") as path:
        env = {"GGML_NUMA_MIRROR_STORE": str(path)}
        first = run(loader, models["dense-q4_0"], **env)
        taken = 64 - free_pages()
        assert taken == first["status"]["store"][0]["bytes"] // (2 * MIB)
        second = run(loader, models["dense-q4_0"], "mlock", **env)
        assert second["status"]["store"][0]["was_there"]
        assert first["logits"] == second["logits"] == run(loader, models["dense-q4_0"], "plain")["logits"]
        assert 64 - free_pages() == taken


@pytest.mark.usefixtures("pool")
def test_pool_too_small_for_the_store_is_refused(driver: Path, tmp_path: Path) -> None:
    """On hugetlbfs the room is that of the pool."""
    with mounted("hugetlbfs", tmp_path / "huge", "pagesize=2M,mode=700") as path:
        error, status = drive(driver, f"load:model:{100 * MIB}", "status", GGML_NUMA_MIRROR_STORE=str(path))
        assert status["error"]["code"] == "no-memory"
        assert "not enough huge pages of 2.0 MiB; the machine needs 100, has 64 free" in error
        assert entries(path) == []
