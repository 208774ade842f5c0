"""`python -m tests.mutation`: run mutants, say which survive, write the report.

    python -m tests.mutation                      # all that are not yet known
    python -m tests.mutation simplify cost.py     # whose name has one of the words
    python -m tests.mutation --fresh              # forget what is known
    python -m tests.mutation --report docs/mutation.md

Results are kept in a file (`--state`), each with a hash of the mutated file and of its
tests, so that a run that was stopped goes on, and one after a change repeats what the
change may touch.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from tests.mutation import report, runner
from tests.mutation.record import ROOT, Mutant
from tests.mutation.runner import Outcome
from tests.mutation.tables import MUTANTS


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("tests.mutation", description=__doc__)
    parser.add_argument("words", nargs="*", help="parts of names; none: all mutants")
    parser.add_argument("--state", type=Path, default=ROOT / "runs/mutation.json")
    parser.add_argument("--tree", type=Path, help="where the copy is made")
    parser.add_argument("--seconds", type=int, default=240, help="CPU time of one run")
    parser.add_argument("--fresh", action="store_true", help="forget earlier results")
    parser.add_argument("--survivors", action="store_true", help="try survivors again")
    parser.add_argument("--list", action="store_true", help="run nothing")
    parser.add_argument("--report", type=Path, help="write the table there")
    return parser.parse_args(arguments)


def _load(path: Path) -> dict[str, dict[str, object]]:
    return json.loads(path.read_text()) if path.exists() else {}


def _known(
    state: Mapping[str, Mapping[str, object]], mutant: Mutant, digest: str
) -> Outcome | None:
    row = state.get(mutant.name)
    if row is None or row["digest"] != digest:
        return None
    return Outcome(str(row["verdict"]), str(row["by"]), float(str(row["seconds"])))


def _say(text: str) -> None:
    print(text, flush=True)


def _run(
    todo: Sequence[Mutant],
    args: argparse.Namespace,
    state: dict[str, dict[str, object]],
) -> None:
    runner.preload()
    with tempfile.TemporaryDirectory(prefix="mutants-") as temporary:
        tree = args.tree or Path(temporary) / "tree"
        runner.copy_tree(tree)
        killers: dict[str, list[Mutant]] = {}
        for i, mutant in enumerate(todo, 1):
            found = runner.judge(mutant, tree, args.seconds)
            _keep(args.state, state, mutant, found, tree)
            _say(
                f"[{i}/{len(todo)}] {found.verdict:9}{found.seconds:6.1f} s  "
                f"{mutant.name}  {mutant.summary}  {found.by}"
            )
            if found.verdict == "killed":
                killers.setdefault(found.by, []).append(mutant)
        for test in runner.confirm(list(killers), tree, 20 * args.seconds, _say):
            for mutant in killers[test]:
                found = Outcome("broken", f"{test} fails without any mutant")
                _keep(args.state, state, mutant, found, tree)
                _say(f"broken: {mutant.name}: {found.by}")


def _keep(
    path: Path,
    state: dict[str, dict[str, object]],
    mutant: Mutant,
    found: Outcome,
    tree: Path,
) -> None:
    state[mutant.name] = {**asdict(found), "digest": mutant.digest(tree)}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(state, indent=1, sort_keys=True))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; the exit status is 1 when a row is stale or broken, or a mutant survives."""
    args = _parse(arguments)
    chosen = [
        m
        for m in MUTANTS
        if not args.words or any(w in f"{m.name} {m.summary}" for w in args.words)
    ]
    state = {} if args.fresh else _load(args.state)
    outcomes = {m: _known(state, m, m.digest(ROOT)) for m in chosen}
    again = {"broken", "stale", *(["survived"] if args.survivors else [])}
    todo = [
        m
        for m, known in outcomes.items()
        if not m.equivalent and (known is None or known.verdict in again)
    ]
    if args.list:
        for m in chosen:
            known = outcomes[m]
            _say(f"{known.verdict if known else '?':9} {m.name}  {m.summary}")
        return 0
    if todo:
        _run(todo, args, state)
    final = {m: _known(state, m, m.digest(ROOT)) for m in chosen}
    counts = Counter(f.verdict for f in final.values() if f is not None)
    counts["equivalent"] = sum(bool(m.equivalent) for m in chosen)
    _say(report.score(counts))
    for m, found in final.items():
        if found is not None and found.verdict not in ("killed", "timeout"):
            _say(f"  {found.verdict}: {m.name}: {m.summary} {found.by}")
    if args.report:
        args.report.write_text(report.text(final))
    return int(any(counts[v] for v in ("survived", "stale", "broken")))


if __name__ == "__main__":
    sys.exit(main())
