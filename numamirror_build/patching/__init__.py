"""From a checkout to a patched tree: plan the edits, compare them with a lock, apply them, export them."""
