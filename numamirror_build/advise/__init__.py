"""What a model costs and brings on a machine: bytes per token, memory, and the speed to expect."""
