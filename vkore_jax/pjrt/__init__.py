"""The PJRT plugin: a thin C bridge (`_bridge`) and the Python behind it."""
