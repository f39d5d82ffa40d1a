"""Where upstream's files come from: pins, sources, verified checkouts."""
