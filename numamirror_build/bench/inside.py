"""Carries out a job that another process wrote down: in the lab, whose machine is slow to load anything else.

usage: python -m numamirror_build.bench.inside JOB.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from numamirror_build.bench.job import job_of
from numamirror_build.errors import NumaMirrorError
from numamirror_build.machine.state import read_state
from numamirror_build.progress import Lines


def main(file: str) -> int:
    """Carry out the job of a file; an exit status."""
    try:
        job_of(json.loads(Path(file).read_text())).carry_out(read_state, Lines(sys.stderr))
    except NumaMirrorError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
