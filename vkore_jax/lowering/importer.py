"""StableHLO portable artifact -> tensor IR.

Owns the walk over the module: types, constants, locations, inlining of calls and of
composites without a rule, error context.  What an op means is in the rule modules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from jaxlib.mlir import ir as mlir

from vkore_jax import dtypes
from vkore_jax.chips import Chip
from vkore_jax.errors import (
    InternalError,
    InvalidArgument,
    NotYetImplemented,
    UnsupportedOp,
    VkoreError,
)
from vkore_jax.lowering import (
    collectives,
    composites,
    contraction,
    control_flow,
    convolution,
    custom_calls,
    data_movement,
    elementwise,
    fourier,
    gaps,
    indexing,
    ir,
    linalg,
    reduction,
    rng,
)
from vkore_jax.lowering.artifact import is_donated, read_module, reading
from vkore_jax.lowering.builder import Builder
from vkore_jax.lowering.ir import Value
from vkore_jax.lowering.locations import UNKNOWN, Locations
from vkore_jax.lowering.op import Op, TensorType, dense_elements, is_token
from vkore_jax.lowering.registry import ISSUES, Rule, RuleSet
from vkore_jax.lowering.storage import Named, check_storage
from vkore_jax.program import Location

RULES: RuleSet = RuleSet.union(
    elementwise.rules,
    data_movement.rules,
    contraction.rules,
    convolution.rules,
    reduction.rules,
    indexing.rules,
    control_flow.rules,
    rng.rules,
    linalg.rules,
    fourier.rules,
    composites.rules,
    custom_calls.rules,
    collectives.rules,
    gaps.rules,
)
"""Every lowering rule and known gap: the support table."""

RETURNS = frozenset({"func.return", "stablehlo.return", "sdy.return"})
CALLS = frozenset({"func.call", "call"})
TOKEN = TensorType(dtypes.BOOL, ())
Argument = Callable[[Any], Value | None]
"""What a block's argument is."""


def import_artifact(
    artifact: bytes, chip: Chip, rules: RuleSet = RULES, kernels: bool = True
) -> ir.Module:
    """Lower a program to tensor IR.

    Args:
        artifact: StableHLO portable artifact, MLIR bytecode or MLIR text.
        chip: the profile whose precision table and array types apply.
        rules: the rules to lower by.
        kernels: lower composites by rules of their own where there are any.

    Raises:
        InvalidArgument: the bytes are not such a module, or it is malformed.
        UnsupportedOp: the program asks for what the chip cannot do.
        NotYetImplemented: the compiler does not do it yet.
    """
    return import_module(read_module(artifact), chip, rules, kernels)


def import_module(
    module: Any, chip: Chip, rules: RuleSet = RULES, kernels: bool = True
) -> ir.Module:
    """Lower a parsed module (see `import_artifact`)."""
    with module.context:
        return _Walk(module, chip, rules, kernels).run()


class _Frame:
    """One activation of a function: its values and where it was called."""

    __slots__ = ("active", "caller", "values")

    def __init__(self, caller: Location, active: frozenset[str]) -> None:
        self.values: dict[Any, Value] = {}
        self.caller = caller
        self.active = active


class _Region:
    """A region of an op in a frame (see `op.Region`)."""

    __slots__ = ("_block", "_frame", "_walk")

    def __init__(self, walk: _Walk, frame: _Frame, region: Any) -> None:
        self._walk = walk
        self._frame = frame
        self._block = region.blocks[0]

    @property
    def argument_types(self) -> tuple[TensorType, ...]:
        return tuple(self._walk.type(a.type) for a in self._block.arguments)

    @property
    def unchanged(self) -> frozenset[int]:
        arguments = list(self._block.arguments)
        last = list(self._block.operations)[-1].operation
        same = (i for i, v in enumerate(last.operands) if v == arguments[i])
        return frozenset(same)

    def inline(self, b: Builder, args: Sequence[Value]) -> tuple[Value, ...]:
        loc = b.loc
        outs = self._walk.block(b, self._block, self._frame, args)
        b.loc = loc
        return outs

    def output(self, b: Builder, args: Sequence[Value], position: int) -> Value | None:
        loc = b.loc
        given = dict(zip(self._block.arguments, args))
        slice_ = _Slice(self._walk, b)
        value = slice_.returned(self._block, position, self._frame, given.get)
        b.loc = loc
        return value


class _Slice:
    """Lowers what a value needs, as long as that is a few ops without regions."""

    MOST = 16
    """Ops; a counter is advanced by one, inside a few calls at most."""

    def __init__(self, walk: _Walk, b: Builder) -> None:
        self._walk = walk
        self._b = b
        self._left = self.MOST

    def returned(
        self, block: Any, position: int, frame: _Frame, argument: Argument
    ) -> Value | None:
        """Return the value that a block returns at a position, None if it is costly."""
        last = block.operations[len(block.operations) - 1].operation
        return self._value(last.operands[position], block, frame, argument)

    def _value(
        self, v: Any, block: Any, frame: _Frame, argument: Argument
    ) -> Value | None:
        owner = v.owner
        if isinstance(owner, mlir.Block):
            return argument(v) if owner == block else frame.values.get(v)
        op = owner.operation
        # Regions have one block, and no value of a sibling region can be seen.
        if op.parent != block.owner:
            return frame.values.get(v)
        self._left -= 1
        if self._left < 0 or len(op.regions):
            return None
        walk, name = self._walk, op.name
        if name in CALLS:
            target, inner = walk.enter(str(op.attributes["callee"].value), op, frame)

            def outer(a: Any) -> Value | None:
                operand = op.operands[mlir.BlockArgument(a).arg_number]
                return self._value(operand, block, frame, argument)

            return self.returned(target, v.result_number, inner, outer)
        for operand in op.operands:
            found = self._value(operand, block, frame, argument)
            if found is None:
                return None
            frame.values[operand] = found
        if name == "stablehlo.composite":
            return None
        self._b.loc = walk.place(op, frame)
        walk.apply(self._b, op, name, frame)
        return frame.values[v]


class _Walk:
    """The import of one module."""

    def __init__(self, module: Any, chip: Chip, rules: RuleSet, kernels: bool) -> None:
        self.module = module
        self.chip = chip
        self.rules = rules
        self.kernels = kernels
        self.dots: dict[str, Any] = {}
        self.types: dict[Any, TensorType] = {}
        self.locations = Locations()
        self.functions: dict[str, Any] = {}
        for op in module.body.operations:
            operation = op.operation
            if operation.name == "func.func":
                with reading("the name of a function"):
                    name = operation.attributes["sym_name"].value
                self.functions[name] = operation

    def run(self) -> ir.Module:
        main, name, donated, kinds = self._interface()
        block = main.regions[0].blocks[0]
        b = Builder(self.chip, UNKNOWN)
        params = b.params([self.type(a.type) for a in block.arguments])
        outputs = self.block(b, block, _Frame(UNKNOWN, frozenset({"main"})), params)
        return ir.Module(
            name=name,
            graph=b.graph(params, outputs),
            donated=donated,
            result_memory_kinds=kinds,
            folded=tuple(b.shared.folded),
        )

    def _interface(self) -> tuple[Any, str, tuple[int, ...], tuple[str, ...]]:
        """Return `main`, the module's name, donated arguments and memory kinds."""
        with reading("the interface"):
            return self._read_interface()

    def _read_interface(self) -> tuple[Any, str, tuple[int, ...], tuple[str, ...]]:
        attributes = self.module.operation.attributes
        for count in ("mhlo.num_partitions", "mhlo.num_replicas"):
            found = (
                mlir.IntegerAttr(attributes[count]).value if count in attributes else 1
            )
            if found > 1:
                raise NotYetImplemented(
                    f"the program is for {found} devices ({count} = {found}); programs "
                    "for one device are compiled now: jit without a mesh or shardings "
                    "of several devices"
                )
        main = self.functions.get("main")
        if main is None:
            raise InvalidArgument("the module has no function `main`")
        block = main.regions[0].blocks[0]
        name = str(attributes["sym_name"].value) if "sym_name" in attributes else "main"
        check_storage(self.chip, name, self._taken(block), self._given(main))
        results = len(main.attributes["function_type"].value.results)
        donated = tuple(
            i
            for i, a in enumerate(
                _dictionaries(main, "arg_attrs", len(block.arguments))
            )
            if is_donated(a)
        )
        kinds = tuple(
            str(a["mhlo.memory_kind"].value) if "mhlo.memory_kind" in a else ""
            for a in _dictionaries(main, "res_attrs", results)
        )
        return main, name, donated, kinds

    def _taken(self, block: Any) -> list[Named]:
        """Return names, as JAX gives them, and types of the parameters."""
        out: list[Named] = []
        for i, argument in enumerate(block.arguments):
            loc, name = argument.location, f"parameter {i}"
            if isinstance(loc, mlir.NameLoc):
                name = loc.name_str
            out.append((name, self.type(argument.type)))
        return out

    def _given(self, main: Any) -> list[Named]:
        """Return names and types of the results."""
        types = main.attributes["function_type"].value.results
        out: list[Named] = []
        for i, named in enumerate(_dictionaries(main, "res_attrs", len(types))):
            key = "jax.result_info"
            name = named[key].value if key in named else f"result {i}"
            out.append((name, self.type(types[i])))
        return out

    # ------------------------------------------------------------------- types

    def type(self, mlir_type: Any) -> TensorType:
        """Return the type of a tensor or token.

        Raises:
            UnsupportedOp: dynamic extents or an element type that does not exist.
        """
        found = self.types.get(mlir_type)
        if found is None:
            found = self._read_type(mlir_type)
            self.types[mlir_type] = found
        return found

    def _read_type(self, mlir_type: Any) -> TensorType:
        if is_token(mlir_type):
            return TOKEN
        if not isinstance(mlir_type, mlir.RankedTensorType):
            raise UnsupportedOp(f"values of type {mlir_type} do not exist on the chip")
        if not mlir_type.has_static_shape:
            raise UnsupportedOp(
                f"{mlir_type} has no static shape; the chip runs static programs: jit "
                "the function for concrete shapes"
            )
        element = dtypes.by_short(str(mlir_type.element_type))
        return TensorType(element, tuple(mlir_type.shape))

    # -------------------------------------------------------------------- walk

    def block(
        self, b: Builder, block: Any, frame: _Frame, args: Sequence[Value]
    ) -> tuple[Value, ...]:
        """Lower a block into `b`; calls are inlined on an explicit stack."""
        frame.values.update(zip(block.arguments, args))
        stack: list[tuple[Any, _Frame, Any]] = []
        ops = iter(block)
        # `next`, not `for`: the bindings' iterators restart when iterated anew.
        while (view := next(ops, None)) is not None:
            op = view.operation
            name = op.name
            if name in RETURNS:
                values = tuple(frame.values[v] for v in op.operands)
                if not stack:
                    return values
                ops, frame, call = stack.pop()
                frame.values.update(zip(call.results, values))
                continue
            with reading(f"`{name}`"):
                callee = self._callee(op, name, frame)
            if callee is not None:
                target, inner = self.enter(callee, op, frame)
                taken = [frame.values[v] for v in op.operands]
                inner.values.update(zip(target.arguments, taken))
                stack.append((ops, frame, op))
                frame, ops = inner, iter(target)
                continue
            b.loc = self.place(op, frame)
            self.apply(b, op, name, frame)
        raise InvalidArgument("a block of the module has no terminator")

    def _callee(self, op: Any, name: str, frame: _Frame) -> str | None:
        if name in CALLS:
            return str(op.attributes["callee"].value)
        if name != "stablehlo.composite":
            return None
        attributes = op.attributes
        what = str(attributes["name"].value)
        version = int(attributes["version"].value) if "version" in attributes else 0
        shapes = [frame.values[v].shape for v in op.operands]
        known = composites.PREFIX + what in self.rules
        if known and composites.is_lowered(what, version, shapes, self.kernels):
            return None
        return str(attributes["decomposition"].value)

    def _dot(self, callee: str) -> Any:
        """Return the first matrix product of a function, in what it calls too."""
        if callee not in self.dots:
            self.dots[callee] = None
            found = self._first_dot(self.functions[callee].regions)
            self.dots[callee] = found
        return self.dots[callee]

    def _first_dot(self, regions: Any) -> Any:
        for region in regions:
            for block in region.blocks:
                for view in block.operations:
                    op = view.operation
                    found = None
                    if op.name == "stablehlo.dot_general":
                        return op
                    if op.name in CALLS:
                        found = self._dot(str(op.attributes["callee"].value))
                    found = found or self._first_dot(op.regions)
                    if found is not None:
                        return found
        return None

    def enter(self, callee: str, op: Any, frame: _Frame) -> tuple[Any, _Frame]:
        """Return the block of a function and its frame, without arguments."""
        name = op.name
        function = self.functions.get(callee)
        if function is None:
            raise InvalidArgument(f"{name} of {callee!r}, which is not in the module")
        if callee in frame.active:
            raise InvalidArgument(f"function {callee!r} calls itself")
        loc = self.place(op, frame)
        inner = _Frame(loc, frame.active | {callee})
        return function.regions[0].blocks[0], inner

    def place(self, op: Any, frame: _Frame) -> Location:
        """Return the user's line of an op."""
        with reading(f"the location of `{op.name}`"):
            return self.locations.read(op.location, op.name, frame.caller)

    def apply(self, b: Builder, mlir_op: Any, name: str, frame: _Frame) -> None:
        """Lower one op; the only place that adds context to errors."""
        values = frame.values
        operands = tuple(values[v] for v in mlir_op.operands)
        op: Op | None = None
        loc = b.loc
        try:
            results = mlir_op.results
            types = tuple(self.type(r.type) for r in results)
            if name == "stablehlo.constant":
                data = dense_elements(mlir_op, "value", types[0])
                values[results[0]] = b.constant(data, types[0].dtype)
                return
            regions = tuple(_Region(self, frame, r) for r in mlir_op.regions)
            dot = None
            if name == "stablehlo.composite":
                inner = self._dot(str(mlir_op.attributes["decomposition"].value))
                dot = Op(inner, inner.name, (), ()) if inner is not None else None
            op = Op(mlir_op, name, operands, types, regions, loc.op, dot)
            made = self._rule(op).apply(b, op)
            outs = made if isinstance(made, tuple) else (made,)
            found = tuple((v.dtype, v.shape) for v in outs)
            if found != types:
                raise InternalError(
                    f"this is a bug in vkore_jax: the rule of {name} made "
                    f"{[str(v) for v in outs]} instead of {[str(t) for t in types]}; "
                    "please report it with this message"
                )
            values.update(zip(results, outs))
        except VkoreError as error:
            if getattr(error, "located", False):
                raise
            raise _located(error, op, name, operands, loc) from error
        except RecursionError as error:
            raise _located(
                NotYetImplemented("control flow is nested too deeply"),
                op,
                name,
                operands,
                loc,
            ) from error
        except Exception as error:
            bug = InternalError(
                f"this is a bug in vkore_jax: {type(error).__name__}: {error}; please "
                "report it with this message"
            )
            raise _located(bug, op, name, operands, loc) from error

    def _rule(self, op: Op) -> Rule:
        key, what = op.name, f"there is no lowering rule for {op.name}"
        if op.name == "stablehlo.custom_call":
            target = op.text("call_target_name")
            key = custom_calls.PREFIX + target
            what = f"custom call to {target!r}: the chip has no such target"
        elif op.name == "stablehlo.composite":
            key = composites.PREFIX + op.text("name")
        rule = self.rules.get(key)
        if rule is not None:
            return rule
        if op.name == "stablehlo.custom_call":
            raise UnsupportedOp(
                f"{what}; use jnp code instead, or jax.pure_callback to run it on the "
                "host"
            )
        raise NotYetImplemented(f"{what}; {ISSUES}")


def _located(
    error: VkoreError,
    op: Op | None,
    name: str,
    operands: Iterable[Value],
    loc: Location,
) -> VkoreError:
    """Return the error with the op, its types and the user's line."""
    shown = str(op) if op else f"{name}({', '.join(str(v) for v in operands)})"
    place = f"{loc.file}:{loc.line}" if loc.file else "unknown source line"
    inside = f", in {loc.function}" if loc.function else ""
    path = f" [{loc.op}]" if loc.op and loc.op != name else ""
    text = f"{name}: {error.args[0]}\n  op: {shown}\n  at {place}{inside}{path}"
    made = type(error)(text)
    made.__dict__["located"] = True
    return made


def _dictionaries(function: Any, name: str, count: int) -> list[Any]:
    attributes = function.attributes
    if name not in attributes:
        return [{}] * count
    return list(attributes[name])
