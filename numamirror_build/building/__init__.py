"""From a tree to programs, libraries and a wheel: CMake, Ninja, ccache, scikit-build-core."""
