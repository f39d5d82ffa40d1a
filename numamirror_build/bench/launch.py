"""Chooses CPUs and a memory policy, and becomes another program: what numactl does, without it.

usage: python -m numamirror_build.bench.launch CPUS POLICY:NODES PROGRAM [ARGUMENTS...]
CPUS is a list such as 0-3,8; POLICY is bind or interleave.
"""

from __future__ import annotations

import os
import sys

from numamirror_build.machine.files import ids
from numamirror_build.machine.policy import set_policy


def main(words: list[str]) -> None:
    """Carry out a command line; it does not return."""
    cpus, policy, *command = words
    name, _, nodes = policy.partition(":")
    os.sched_setaffinity(0, ids(cpus))
    set_policy(name, ids(nodes))
    os.execv(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
