"""A pipeline whose values are made up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from numamirror_build.pipeline import Request
from numamirror_build.regress.run import Regression
from numamirror_build.regress.steps import PinResult, Step
from numamirror_build.upstreams.pins import find_pin

PLAN = SimpleNamespace(
    sites=["site"] * 5,
    hooks=lambda: {"a": 1, "b": 2},
    scope="cpu",
    counts=lambda: {"a.c": {"read": 2, "write": 1}, "b.c": {"read": 2}},
)


class Pipeline:
    """What the steps ask of the real one; an exception in the place of a value is raised."""

    def __init__(self, *unused: Any, **values: Any) -> None:
        self.pin = find_pin("llama.cpp", "0.3.36")
        self.request = Request("llama.cpp", "0.3.36")
        self.asked: list[str] = []
        self._values = {
            "checkout": SimpleNamespace(seconds=1.5, fresh=False, verified=True),
            "plan": PLAN,
            "lock_report": SimpleNamespace(locked=True, lock="0.3.36"),
            "patched_tree": SimpleNamespace(seconds=2.5, fresh=True, key="key"),
            "patched_build": SimpleNamespace(seconds=3.5, fresh=True, programs={"a": 1}),
            "audit": SimpleNamespace(seconds=4.5, fresh=True, compiled=["a", "b"]),
            "wheel": SimpleNamespace(seconds=5.5, fresh=True, path=SimpleNamespace(name="w.whl")),
            "verification": SimpleNamespace(
                seconds=6.5,
                fresh=True,
                passed=True,
                report="r",
                counts=lambda: {"pass": 7, "skip": 1, "fail": 0},
            ),
            **values,
        }

    def __getattr__(self, name: str) -> Any:
        value = self.__dict__["_values"][name]
        self.asked.append(name)
        if isinstance(value, Exception):
            raise value
        return value


def result(pin: str, *steps: Step, by_file: dict[str, dict[str, int]] | None = None) -> PinResult:
    """The result of a pin."""
    by_file = by_file or {}
    sites: dict[str, int] = {}
    for counts in by_file.values():
        for kind, number in counts.items():
            sites[kind] = sites.get(kind, 0) + number
    return PinResult("llama.cpp", pin, "c" * 40, "2026-01-02T03:04:05+00:00", steps, sites, by_file)


PASSED = Step("checkout", "pass", 1.25, facts="content checked")
FAILED = Step(
    "plan", "fail", 0.5, error={"exit_code": 14, "what": "It <failed>", "where": "a.c", "why": "x\ny"}
)
NOT_RUN = Step("apply", "not run")

REGRESSION = Regression(
    "plan",
    (
        result("1", PASSED, by_file={"a.c": {"read": 2}, "b.c": {"read": 1}}),
        result("2", PASSED, by_file={"a.c": {"read": 5, "write": 1}}),
        result("3", PASSED, FAILED, NOT_RUN),
    ),
    12.0,
)
