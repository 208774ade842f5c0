"""Deliberate faults of the source, and a run that asks whether a test notices each."""
