"""Sources changed at random, and what the plan makes of them; ``python -m tests.mutants --help``."""
