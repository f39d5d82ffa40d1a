"""Moving to other commits: what a release would change, and listing it as a pin."""
