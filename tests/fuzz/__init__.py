"""Mutated programs: nothing that decodes crashes, nothing that verifies misbehaves."""
