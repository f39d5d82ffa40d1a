"""The machine: its nodes, its state, what its memory gives, and what stands in the mirror's way."""
