"""The table of rules.

Larger patterns come first; a rule sees what the rules before it have put in.
"""

from vkore_jax.rewrite.rule import Rule
from vkore_jax.rewrite.rules.activations import GELU, SWIGLU
from vkore_jax.rewrite.rules.attention import ATTENTION_RULE
from vkore_jax.rewrite.rules.cross_entropy import CROSS_ENTROPY_RULE
from vkore_jax.rewrite.rules.linear import ACTIVATED_LINEAR, LINEAR
from vkore_jax.rewrite.rules.lookup import EMBEDDING
from vkore_jax.rewrite.rules.norms import RULES as NORMS
from vkore_jax.rewrite.rules.rope import ROPE_RULE

RULES: tuple[Rule, ...] = (
    ATTENTION_RULE,
    CROSS_ENTROPY_RULE,
    *EMBEDDING,
    *NORMS,
    ROPE_RULE,
    SWIGLU,
    *ACTIVATED_LINEAR,
    *LINEAR,
    *GELU,
)
"""Every rule, in the order in which they are tried."""
