"""Unmodified models, with the primitives in place of what they cover.

`accelerate` traces a function and replaces, before it is differentiated, what the
primitives compute: linear layers with their activations, attention, normalisation,
rotary positions, embeddings, cross-entropy.
"""

from vkore_jax.rewrite.report import Report, Row
from vkore_jax.rewrite.rule import Match, Plan, Rule
from vkore_jax.rewrite.rules import RULES
from vkore_jax.rewrite.transform import Accelerated, accelerate

__all__ = [
    "Accelerated",
    "Match",
    "Plan",
    "RULES",
    "Report",
    "Row",
    "Rule",
    "accelerate",
]
