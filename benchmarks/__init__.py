"""Measurements against JAX's own CPU backend, in CPU time; see each module."""
