"""The table of engine cases: every command, stage and micro-op, and their corners."""

from __future__ import annotations

from tests.sim import (
    cases_core,
    cases_fft,
    cases_flow,
    cases_group,
    cases_large,
    cases_micro,
    cases_move,
)
from tests.sim.case import SimCase

CASES: tuple[SimCase, ...] = (
    *cases_move.CASES,
    *cases_micro.CASES,
    *cases_group.CASES,
    *cases_core.CASES,
    *cases_fft.CASES,
    *cases_flow.CASES,
    *cases_large.CASES,
)

_ids = [c.id for c in CASES]
if len(set(_ids)) != len(_ids):
    raise ValueError(
        f"two cases share an id: {sorted({i for i in _ids if _ids.count(i) > 1})}"
    )
