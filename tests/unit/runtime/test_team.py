"""Teams of threads and their barrier."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from numamirror_build import data
from numamirror_build.patching.render import render_files

pytestmark = pytest.mark.build

DRIVER = r"""
#include "ggml-numa-team.h"
#include <cstdio>
#include <cstdlib>
#include <thread>

// One pool, graphs with changing numbers of threads: all of a graph come to a barrier before one gets past.
int main() {
    const int n_pool = 5, n_graphs = 400, n_barriers = 5;
    const std::vector<int> weights = { 1, 1, 1 };
    ggml_numa_team_barrier barrier(weights.size());
    std::atomic<int> graph { -1 }, n_done { 0 }, n_arrived { 0 }, n_wrong { 0 };
    const auto threads_of = [](int g) { return 1 + g * 7 % n_pool; };
    const auto compute = [&](int ith, int g) {
        const int nth = threads_of(g);
        ggml_numa_team team = ggml_numa_team_of(weights, ith, nth);
        for (int b = 1; b <= n_barriers; b++) {
            n_arrived.fetch_add(1);
            barrier.wait(team);
            n_wrong.fetch_add(n_arrived.load() < b * nth);
            barrier.wait(team);
        }
    };
    std::vector<std::thread> pool;
    for (int ith = 1; ith < n_pool; ith++) {
        pool.emplace_back([&, ith] {
            for (int g = 0; g < n_graphs; g++) {
                while (graph.load() < g) {
                    std::this_thread::yield();
                }
                if (ith < threads_of(g)) {
                    compute(ith, g);
                }
                n_done.fetch_add(1);
            }
        });
    }
    for (int g = 0; g < n_graphs; g++) {
        n_arrived.store(0);
        graph.store(g);
        compute(0, g);
        if (g % 3 == 0) { // else the others may still be on their way out of the last barrier
            while (n_done.load() < (g + 1) * (n_pool - 1)) {
                std::this_thread::yield();
            }
        }
    }
    for (auto & thread : pool) {
        thread.join();
    }
    printf("%d", n_wrong.load());
    return 0;
}
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that says how often a thread got past a barrier too early."""
    folder = tmp_path_factory.mktemp("team")
    names = {kind: f"ggml-numa-team.{kind}" for kind in ("h", "cpp")}
    facts = {"render": [{"template": f"ggml/{name}.j2", "path": name} for name in names.values()]}
    for path, content in render_files(data.templates(), facts).items():
        (folder / path).write_bytes(content)
    (folder / "main.cpp").write_text(DRIVER)
    program = folder / "team"
    options = ["-std=c++17", "-O2", "-g", "-Wall", "-Werror", "-pthread"]
    sources = [folder / "main.cpp", folder / names["cpp"]]
    subprocess.run(["g++", *options, "-o", program, *sources], check=True)
    return program


def test_nobody_passes_a_barrier_early_when_teams_change(driver: Path) -> None:
    """Threads are in other teams from graph to graph: no barrier leaks, none is waited at for ever."""
    for _ in range(5):
        done = subprocess.run([driver], capture_output=True, text=True, timeout=120, check=True)
        assert done.stdout == "0"
