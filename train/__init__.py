"""The training program: a small Llama-style decoder on small stories.

Everything here uses what any user could import: jax, flax, optax, orbax and friends.
The same command runs on every JAX backend; `JAX_PLATFORMS=cpu` is the reference run.
"""
