"""What a model costs and brings on a machine: bytes per token, memory, and the speed to expect."""

# of K and V, as every pin of both upstreams takes them (--cache-type-k, --cache-type-v)
CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")
