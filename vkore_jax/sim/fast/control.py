"""Control flow and host calls.

Regions see the values of the blocks around them.  What must leave a region besides its
results is threaded: a counter for every dynamic body (how often a WHILE body or a CASE
branch ran, for the ledger), and the token that keeps effects in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vkore_jax.cost import blocks_of, dynamic_bodies
from vkore_jax.dtypes import BOOL, I32, I64, DType
from vkore_jax.isa import Block, Carry, Case, Host, Loop, While
from vkore_jax.sim.fast.emitter import TOKEN, Shape, Val, ints, tensor_type
from vkore_jax.sim.fast.state import TOKEN_KEY, HostCall, Key, State

RunBlock = Callable[[State, Block], None]
CALL_TARGET = "xla_ffi_python_cpu_callback"


def loop(s: State, cmd: Loop, run: RunBlock) -> None:
    """A counted loop; XLA recognizes the trip count.  Up to one trip needs no loop."""
    first = s.next_body
    if cmd.trips == 0:
        s.next_body += dynamic_bodies(cmd.body)
        for c in cmd.carries:
            s.write(c.leave, s.read(c.enter))
        return
    if cmd.trips == 1:
        _once(s, cmd, run)
        return
    keys = _keys(first, dynamic_bodies(cmd.body), cmd.body)
    word = I32 if cmd.trips < 2**31 else I64
    inits = [s.e.scalar(word, 0), *_enter(s, cmd.carries, keys)]

    def condition(index: Val, *rest: Val) -> list[Val]:
        trips = s.e.scalar(word, cmd.trips)
        text = f"stablehlo.compare LT, {index.name}, {trips.name}, SIGNED : "
        text += f"({index.type}, {trips.type}) -> tensor<i1>"
        return [s.e.op(text, BOOL, ())]

    def body(index: Val, *rest: Val) -> list[Val]:
        with s.inner():
            _bind(s, cmd.carries, keys, rest)
            run(s, cmd.body)
            one = s.e.scalar(word, 1)
            text = f"stablehlo.add {index.name}, {one.name} : {index.type}"
            return [s.e.op(text, word, ()), *_leave(s, cmd.carries, keys)]

    outs = _while(s, inits, condition, body)[1:]
    _after(s, cmd.carries, keys, outs)


def _once(s: State, cmd: Loop, run: RunBlock) -> None:
    keys = _keys(s.next_body, dynamic_bodies(cmd.body), cmd.body)
    inits = _enter(s, cmd.carries, keys)
    with s.inner():
        _bind(s, cmd.carries, keys, inits)
        run(s, cmd.body)
        outs = _leave(s, cmd.carries, keys)
    _after(s, cmd.carries, keys, outs)


def while_(s: State, cmd: While, run: RunBlock) -> None:
    """A loop with a computed condition."""
    own = s.next_body
    s.next_body += 1
    in_cond, in_body = dynamic_bodies(cmd.cond), dynamic_bodies(cmd.body)
    keys = _keys(own, 1 + in_cond + in_body, cmd.cond, cmd.body)
    inits = _enter(s, cmd.carries, keys)
    if in_cond or _has_effect(cmd.cond):
        outs = _tested_inside(s, cmd, run, own, keys, inits)
    else:

        def condition(*args: Val) -> list[Val]:
            with s.inner():
                _bind(s, cmd.carries, keys, args)
                run(s, cmd.cond)
                return [s.scalar(cmd.predicate)]

        def body(*args: Val) -> list[Val]:
            with s.inner():
                _bind(s, cmd.carries, keys, args)
                s.count(own)
                run(s, cmd.body)
                return _leave(s, cmd.carries, keys)

        outs = _while(s, inits, condition, body)
    _after(s, cmd.carries, keys, outs)


def _tested_inside(
    s: State, cmd: While, run: RunBlock, own: int, keys: list[Key], inits: list[Val]
) -> Sequence[Val]:
    """Test inside the body, which then runs or does not, and carry the outcome.

    Nothing but the predicate can leave a condition region, and this condition has
    effects or counters that must.  Each block is written once: a condition written
    before the loop and in it doubles the module with every loop inside a condition.
    """

    def turn(going: Val, *args: Val) -> list[Val]:
        with s.inner():
            _bind(s, cmd.carries, keys, args)
            run(s, cmd.cond)
            again = s.scalar(cmd.predicate)
            kept = [*args[: len(cmd.carries)], *map(s.thread, keys)]

            def taken() -> list[Val]:
                with s.inner():
                    s.count(own)
                    run(s, cmd.body)
                    return _leave(s, cmd.carries, keys)

            types = [(v.dtype, v.logical) for v in kept]
            regions = f"{s.e.region([], taken)}, {s.e.region([], lambda: kept)}"
            spelled = ", ".join(tensor_type(*t) for t in types)
            text = f'"stablehlo.if"({again.name}) ({regions}) : ({again.type}) -> '
            return [again, *s.e.ops(f"{text}({spelled})", types)]

    start = [s.e.scalar(BOOL, True), *inits]
    return _while(s, start, lambda going, *rest: [going], turn)[1:]


def case(s: State, cmd: Case, run: RunBlock) -> None:
    """Run one branch; StableHLO's rule for an index out of range is the ISA's."""
    own = s.next_body
    s.next_body += len(cmd.branches)
    nested = sum(map(dynamic_bodies, cmd.branches))
    keys = _keys(own, len(cmd.branches) + nested, *cmd.branches)
    for key in keys:
        s.thread(key)

    def branch(number: int) -> list[Val]:
        with s.inner():
            s.count(own + number)
            run(s, cmd.branches[number])
            results = [s.full(m.srcs[number]) for m in cmd.merges]
            return [*results, *map(s.thread, keys)]

    index = s.e.convert(s.scalar(cmd.index), I32)
    regions = ", ".join(
        s.e.region([], lambda n=n: branch(n)) for n in range(len(cmd.branches))
    )
    types: list[tuple[DType, Shape]] = [(m.dst.dtype, m.dst.shape) for m in cmd.merges]
    types += [(s.threads[k].dtype, ()) for k in keys]
    spelled = ", ".join(tensor_type(t, shape) for t, shape in types)
    text = f'"stablehlo.case"({index.name}) ({regions}) : ({index.type}) -> ({spelled})'
    outs = s.e.ops(text, types)
    for merge, val in zip(cmd.merges, outs):
        s.write(merge.dst, val)
    s.threads.update(zip(keys, outs[len(cmd.merges) :]))


def host(s: State, cmd: Host) -> None:
    """Call the user's function; effects are ordered by a token.

    Operands and results are row major: the function gets plain NumPy arrays.
    """
    args = [s.full(v) for v in cmd.srcs]
    types: list[tuple[DType, Shape]] = [(v.dtype, v.shape) for v in cmd.dsts]
    if cmd.effect:
        args, types = [s.thread(TOKEN_KEY), *args], [(TOKEN, ()), *types]
    attributes = (
        f"api_version = 4 : i32, backend_config = {{index = {len(s.calls)} : ui64}}, "
        f"has_side_effect = {'true' if cmd.effect else 'false'}, "
        f"operand_layouts = [{_layouts([v.shape for v in args])}], "
        f"result_layouts = [{_layouts([shape for _, shape in types])}]"
    )
    names = ", ".join(v.name for v in args)
    text = (
        f"stablehlo.custom_call @{CALL_TARGET}({names}) {{{attributes}}} : "
        f"({', '.join(v.type for v in args)}) -> "
        f"({', '.join(tensor_type(*t) for t in types)})"
    )
    results = tuple((v.dtype, v.shape) for v in cmd.dsts)
    s.calls.append(HostCall(cmd.callback, cmd.kind, cmd.effect, results))
    outs = s.e.ops(text, types)
    if cmd.effect:
        s.threads[TOKEN_KEY] = outs.pop(0)
    for dst, val in zip(cmd.dsts, outs):
        s.write(dst, val)


def _layouts(shapes: Sequence[Shape]) -> str:
    return ", ".join(
        f"dense<{ints(range(len(x) - 1, -1, -1)) if x else ''}> : "
        f"tensor<{len(x)}xindex>"
        for x in shapes
    )


# ------------------------------------------------------------------------------ helpers


def _keys(first: int, count: int, *blocks: Block) -> list[Key]:
    """Return what a region with these blocks must thread."""
    effect = any(map(_has_effect, blocks))
    return [*range(first, first + count), *([TOKEN_KEY] if effect else [])]


def _has_effect(block: Block) -> bool:
    return any(
        (isinstance(x.cmd, Host) and x.cmd.effect)
        or any(map(_has_effect, blocks_of(x.cmd)))
        for x in block
    )


def _enter(s: State, carries: Sequence[Carry], keys: Sequence[Key]) -> list[Val]:
    return [*(s.full(c.enter) for c in carries), *map(s.thread, keys)]


def _bind(
    s: State, carries: Sequence[Carry], keys: Sequence[Key], vals: Sequence[Val]
) -> None:
    for c, val in zip(carries, vals):
        s.bind(c.current, val)
    s.threads.update(zip(keys, vals[len(carries) :]))


def _leave(s: State, carries: Sequence[Carry], keys: Sequence[Key]) -> list[Val]:
    return [*(s.full(c.next) for c in carries), *map(s.thread, keys)]


def _after(
    s: State, carries: Sequence[Carry], keys: Sequence[Key], vals: Sequence[Val]
) -> None:
    for c, val in zip(carries, vals):
        s.write(c.leave, val)
    s.threads.update(zip(keys, vals[len(carries) :]))


def _while(
    s: State,
    inits: Sequence[Val],
    condition: Callable[..., list[Val]],
    body: Callable[..., list[Val]],
) -> list[Val]:
    types = [(v.dtype, v.shape) for v in inits]
    regions = f"{s.e.region(types, condition)}, {s.e.region(types, body)}"
    names = ", ".join(v.name for v in inits)
    spelled = ", ".join(v.type for v in inits)
    text = f'"stablehlo.while"({names}) ({regions}) : ({spelled}) -> ({spelled})'
    return s.e.ops(text, types)
