"""What each command answers: a JSON-like document, and a text for people."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numamirror_build.config import Settings, key_of

if TYPE_CHECKING:
    from numamirror_build.building.build import Build
    from numamirror_build.delivery import Product
    from numamirror_build.patching.into import Changed
    from numamirror_build.pipeline import Pipeline
    from numamirror_build.upstreams.pins import Pin
    from numamirror_build.verify.document import Verification


@dataclass(frozen=True)
class Answer:
    """The same answer for machines and for people, and what the program ends with."""

    document: Mapping[str, Any]
    text: str
    exit_code: int = 0


def printed(document: Mapping[str, Any]) -> str:
    """A document as it is printed; numbers that JSON does not have are a mistake of ours."""
    return json.dumps(document, indent=2, allow_nan=False)


def without_passwords(text: str) -> str:
    """A text that others may read: the addresses in it have neither users nor passwords."""
    return re.sub(r"://[^/@\s]+@", "://***@", text)


def job(pipeline: Pipeline, products: Sequence[Product]) -> Answer:
    """The table of what was made."""
    made = pipeline.verification
    rows = [
        [str(product.path), _size(product.size), product.sha256, _time(product.seconds, product.fresh)]
        for product in products
        if product.sha256
    ]
    document = {
        **_pin(pipeline),
        "checkout": _checkout(pipeline),
        "plan": _plan(pipeline),
        "audit": pipeline.audit.as_json(),
        "verification": _verification(made),
        "products": [product.as_json() for product in products],
        "warnings": _warnings(pipeline),
    }
    text = [
        *table(["path", "size", "sha256", "time"], rows, right=(1, 3)),
        "",
        f"audit: {pipeline.audit.summary().splitlines()[0]}",
        _checks(made.counts()),
        *(f"warning: {warning}" for warning in _warnings(pipeline)),
    ]
    return Answer(document, "\n".join(text))


def pins(listed: Sequence[Pin], default: str) -> Answer:
    """The listed pins."""
    rows = [
        [
            pin.name + (" (default)" if pin.name == default else ""),
            pin.commit,
            (pin.date or "")[:10],
            f"{pin.binding.package} {pin.binding.version}" if pin.binding else "",
        ]
        for pin in listed
    ]
    return Answer(
        {"default": default, "pins": [asdict(pin) for pin in listed]},
        "\n".join(table(["pin", "commit", "date", "binding"], rows)),
    )


def checkout(pipeline: Pipeline) -> Answer:
    """Where the checkout is, and whether its content is checked."""
    made = pipeline.checkout
    checked = (
        "content checked" if made.verified else "content NOT checked: nothing is known to check it against"
    )
    return Answer(
        {**_pin(pipeline), "checkout": _checkout(pipeline)},
        f"{made.path}\n{made.pin.upstream} {made.pin.commit} from {made.source}; {checked}",
    )


def plan(pipeline: Pipeline) -> Answer:
    """The plan's summary, and how it compares with the locks."""
    report = pipeline.lock_report
    lock = {"name": report.lock, "locked": report.locked, "differences": list(report.differences)}
    if report.locked:
        lines = [f"as locked in {report.lock}"]
    elif report.lock:
        lines = [f"not locked; against the nearest lock, {report.lock}:", *report.differences]
    else:
        lines = ["not locked, and there is no lock to compare with"]
    text = "\n".join([pipeline.plan.summary(), "", *lines])
    return Answer({**_pin(pipeline), "plan": _plan(pipeline), "lock": lock}, text)


def lock(pipeline: Pipeline, path: Path) -> Answer:
    """Which lock was written."""
    return Answer({**_pin(pipeline), "lock": str(path)}, f"{path}")


def tree(pipeline: Pipeline) -> Answer:
    """Where the patched tree is."""
    made = pipeline.patched_tree
    document = {
        "path": str(made.path),
        "key": made.key,
        "plan": made.plan.digest,
        "seconds": made.seconds,
        "fresh": made.fresh,
    }
    return Answer({**_pin(pipeline), "tree": document}, str(made.path))


def build(pipeline: Pipeline, *, pristine: bool) -> Answer:
    """The programs of a build."""
    made = pipeline.pristine_build if pristine else pipeline.patched_build
    return Answer({**_pin(pipeline), "build": _build(made)}, "\n".join(map(str, made.programs.values())))


def wheel(pipeline: Pipeline) -> Answer:
    """The wheel."""
    made = pipeline.wheel
    document = {
        "path": str(made.path),
        "version": made.version,
        "sha256": made.sha256,
        "key": made.key,
        "seconds": made.seconds,
        "fresh": made.fresh,
    }
    warnings = _warnings(pipeline)
    text = [str(made.path), *(f"warning: {warning}" for warning in warnings)]
    return Answer({**_pin(pipeline), "wheel": document, "warnings": warnings}, "\n".join(text))


def sources(pipeline: Pipeline, out: Path) -> Answer:
    """Where the sources of a wheel are, and what is next."""
    version = pipeline.write_sources(out)
    text = f"{out}: {version}, for cibuildwheel --platform linux --config-file cibuildwheel.toml there"
    return Answer({**_pin(pipeline), "sources": {"path": str(out), "version": version}}, text)


def checked_wheel(path: Path) -> Answer:
    """What a wheel says about itself, after it was checked."""
    from numamirror_build.building.wheel import check_made

    record = check_made(path)
    level = f", for {record['portable']}" if record["portable"] else ""
    text = f"{path}: {record['upstream']} {record['pin']}, plan {record['plan'][:12]}{level}: as it should be"
    return Answer({"wheel": {"path": str(path), "record": record}}, text)


def audit(pipeline: Pipeline) -> Answer:
    """What the audit has proven."""
    made = pipeline.audit
    return Answer({**_pin(pipeline), "audit": made.as_json()}, made.summary())


def verification(pipeline: Pipeline, made: Verification) -> Answer:
    """The checks and where the report is."""
    rows = [[check.status, check.id, check.reason or ""] for check in made.checks]
    figures = [line for one in made.tables for line in ("", one.title, *table(one.head, one.rows))]
    lines = [*table(["", "check", "reason"], rows), *figures, "", _checks(made.counts()), str(made.page)]
    document = {
        "verification": {
            **_verification(made),
            "checks": [one.as_json() for one in made.checks],
            "tables": [asdict(one) for one in made.tables],
        }
    }
    return Answer({**_pin(pipeline), **document}, "\n".join(lines))


def series(pipeline: Pipeline, patches: Sequence[Path]) -> Answer:
    """The exported patches."""
    paths = [str(path) for path in patches]
    return Answer({**_pin(pipeline), "patches": paths}, "\n".join(paths))


def workflow(path: Path) -> Answer:
    """The workflow that was written."""
    return Answer({"workflow": str(path)}, str(path))


def changed(pipeline: Pipeline, made: Changed) -> Answer:
    """What was changed in somebody's own tree, and what it has that the pin has not."""
    lines = [
        f"{made.path}: {len(made.plan.sites)} accesses and {len(made.plan.hooks())} hooks"
        f" in {len(made.edited)} files; nothing is staged or committed",
        "files added:",
        *(f"  {path}" for path in made.added),
        *(["accesses beside those of the pin:"] if made.beside else []),
        *(
            f"  {path}: " + ", ".join(f"{kind} {number:+}" for kind, number in kinds.items())
            for path, kinds in made.beside.items()
        ),
    ]
    document = {"changed": made.as_json(), "beside_the_pin": made.beside}
    return Answer({**_pin(pipeline), **document}, "\n".join(lines))


def settings(effective: Settings) -> Answer:
    """The settings with their origins; the document gets them in any case."""
    rows = [
        [key_of(name), _value(entry["value"]), entry["from"]] for name, entry in effective.as_json().items()
    ]
    return Answer({}, "\n".join(table(["setting", "value", "from"], rows)))


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> list[str]:
    """Lines with aligned columns; ``right`` names the columns that are aligned to the right."""
    lines = [list(head), *map(list, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return [
        "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]


def _pin(pipeline: Pipeline) -> dict[str, Any]:
    return {"upstream": pipeline.pin.upstream, "pin": asdict(pipeline.pin)}


def _checkout(pipeline: Pipeline) -> dict[str, Any]:
    made = pipeline.checkout
    return {
        "path": str(made.path),
        "source": made.source,
        "tree": made.tree,
        "verified": made.verified,
        "key": made.key,
        "seconds": made.seconds,
        "fresh": made.fresh,
    }


def _plan(pipeline: Pipeline) -> dict[str, Any]:
    made = pipeline.plan
    return {
        "digest": made.digest,
        "scope": made.scope,
        "sites": made.counts(),
        "hooks": made.hooks(),
        "new_files": [file.path for file in made.new_files],
    }


def _build(made: Build) -> dict[str, Any]:
    return {
        "path": str(made.path),
        "programs": {name: str(path) for name, path in made.programs.items()},
        "libraries": str(made.libraries),
        "key": made.key,
        "seconds": made.seconds,
        "fresh": made.fresh,
    }


def _verification(made: Verification) -> dict[str, Any]:
    return {
        "passed": made.passed,
        "counts": made.counts(),
        "report": str(made.report),
        "page": str(made.page),
        "key": made.key,
        "seconds": made.seconds,
        "fresh": made.fresh,
    }


def _warnings(pipeline: Pipeline) -> list[str]:
    """What a person should know before trusting what was made."""
    warnings = []
    if not pipeline.checkout.verified:
        warnings.append("the source's content is not checked: nothing is known to check it against")
    if pipeline.wheel.warning:
        warnings.append(pipeline.wheel.warning)
    return warnings


def _checks(counts: Mapping[str, int]) -> str:
    return f"verification: {counts['pass']} checks passed, {counts['fail']} failed, {counts['skip']} skipped"


def _size(size: int) -> str:
    return f"{size:,}"


def _time(seconds: float, fresh: bool) -> str:
    return f"{seconds:.1f} s" + ("" if fresh else ", cached")


def _value(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return " ".join(value)
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
