"""Build llama.cpp or ik_llama.cpp with one replica of the weights per NUMA node, and prove that it works."""

__version__ = "0.1.0"
