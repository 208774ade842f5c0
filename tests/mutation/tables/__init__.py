"""All mutants, room by room."""

from __future__ import annotations

from tests.mutation.tables import compiler, engines, machine, plugin, training

MUTANTS = (
    *compiler.MUTANTS,
    *machine.MUTANTS,
    *engines.MUTANTS,
    *training.MUTANTS,
    *plugin.MUTANTS,
)
