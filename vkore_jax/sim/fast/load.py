"""A translated program as an executable of the inner XLA client."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.core
import jaxlib.version
import numpy as np
from jaxlib import _jax, xla_client  # pyright: ignore[reportAttributeAccessIssue]
from jaxlib.mlir import ir
from jaxlib.mlir._mlir_libs import _jax_mlir_ext
from jaxlib.mlir.dialects import stablehlo

from vkore_jax import dtypes, program
from vkore_jax.callbacks import PREFIX, said
from vkore_jax.chips import Chip, named_chip
from vkore_jax.contexts import Contexts
from vkore_jax.cost import dynamic_bodies
from vkore_jax.dtypes import DType
from vkore_jax.errors import HostCallbackError, InternalError, InvalidArgument
from vkore_jax.sim.fast.code_cache import CodeCache
from vkore_jax.sim.fast.small import NOTHING, Small, small_arrays
from vkore_jax.sim.fast.translate import Translation, translate_program
from vkore_jax.sim.ledger import ledger
from vkore_jax.verify import verify

Array = Any
"""A single-device array of the inner client."""

Callback = Callable[..., Sequence[Any]]

_OPTIONS: tuple[tuple[str, str], ...] = (
    ("xla_allow_excess_precision", "False"),
    ("xla_disable_hlo_passes", "algsimp"),
)
"""Explicit roundings are part of the machine's arithmetic and must stay.  The algebraic
simplifier changes values (log(exp(x)) to x, sqrt(x * x) to |x|, x / 3 to x * (1 / 3)
...), forgets to clamp starts of nested slices and folds padding wrongly; what it does
for speed the compiler and the translation have done before."""

_UNCHECKED = (True,) if jaxlib.version.__version_info__[:2] <= (0, 10) else ()
"""`_skip_checks` of the result handlers; jaxlib 0.12 no longer has the argument."""

_EXACT: tuple[tuple[str, str], ...] = (("xla_backend_optimization_level", "0"),)
"""Stops the contraction of a * b + c into one rounding.  Of the eight settings
tried per compilation (the default, `xla_cpu_max_isa` at three levels, fast math ...)
the only one that does; with the others 24 % of such results differ."""


_FAILURES = 16
"""Errors of callbacks that wait for the thread whose execution they end."""


class FastProgram:
    """A program loaded on one inner device.

    Attributes:
        program: the decoded program.
        ledger: what it did so far.
        device: inner device that it runs on.
        executable: the inner executable.
        launch: `execute` without its last step, None when that is not all there is to
            it: what it returns makes the arrays by `consume_with_handlers(handlers)`.
        handlers: what wraps the results.
        small: parameters and results that `launch` neither takes nor returns.  Where
            there are any, its first argument is a scalar with a table's address, and
            there is no `execute`.
    """

    def __init__(
        self,
        data: bytes,
        client: Any,
        device: Any,
        callbacks: Mapping[int, Callback] | None = None,
        exact: bool = False,
        cache: CodeCache | None = None,
        tables: bool = False,
    ) -> None:
        """Translate, compile and load a program that the verifier has taken.

        Args:
            data: the encoded program.
            client: inner XLA client.
            device: one of its devices.
            callbacks: the user's functions by callback id.
            exact: keep every rounding of a * b + c (slow; for differential tests).
            cache: where code of the client may come from.
            tables: let small arrays go through a table where `launch` allows it.

        Raises:
            InvalidProgram: the bytes are damaged or inconsistent.
            InvalidArgument: a HOST command names a callback that is not there.
        """
        self.program = program.decode(data)
        plain = not callbacks and not dynamic_bodies(self.program.block)
        self.small = small_arrays(self.program) if tables and plain else NOTHING
        translation = translate_program(self.program, self.small)
        self._failures: deque[BaseException] = deque(maxlen=_FAILURES)
        host = _connect(translation, self.program, callbacks or {}, self._failures)
        overrides = _OPTIONS + _EXACT if exact else _OPTIONS
        self.executable = _compile(
            translation.text, client, device, host, overrides, cache
        )
        self.ledger = ledger().open(self.program, translation.host_compute)
        self._counters = translation.counters
        self._donated = frozenset(self.program.donated)
        self._run = self.executable.execute_sharded
        self.handlers = _handlers(self.program, self.small, self._counters, device)
        self._can_fail = bool(host)
        self.device = device
        self.launch = self._launcher() if plain else None

    def _launcher(self) -> Callable[[list[Array]], Any]:
        """Return the hot callable of the common case, without any test per call."""
        run, page = self._run, self.ledger

        def launch(args: list[Array]) -> Any:
            # No call in between, so no thread switch: CPython adds this atomically.
            page.executions += 1
            return run(args)

        return launch

    def execute(self, args: list[Array], keep: Collection[int] = ()) -> list[Array]:
        """Run once.

        Args:
            args: inner arrays on the device, one per parameter.
            keep: donated parameters that this call must not consume; they are copied.

        Returns:
            Inner arrays, one per result.

        Raises:
            HostCallbackError: a user's callback raised; it is the cause.
        """
        if self.small:
            raise InternalError("a program with a table of small arrays is launched")
        if keep:
            args = self._kept(args, keep)
        if self.launch is not None:
            return self.launch(args).consume_with_handlers(self.handlers)
        self.ledger.executions += 1
        if not self._can_fail:
            return self._split(self._run(args).consume_with_handlers(self.handlers))
        try:
            outcome = self._run(args, True)
            outcome.consume_token().block_until_ready()
            return self._split(outcome.consume_with_handlers(self.handlers))
        except _jax.JaxRuntimeError as error:
            cause = self._cause(str(error))
            if cause is None:
                raise
            raise HostCallbackError(str(error).removeprefix("INTERNAL: ")) from cause

    def _cause(self, message: str) -> BaseException | None:
        """Return what a callback of this execution raised.

        Other threads may be executing the same program: XLA's message ends with the
        text of the right one.
        """
        if PREFIX not in message:
            return None
        for failure in list(self._failures):
            if said(failure) in message:
                with contextlib.suppress(ValueError):  # another thread was faster
                    self._failures.remove(failure)
                return failure
        return None

    def _split(self, outs: list[Array]) -> list[Array]:
        if self._counters:
            self.ledger.note_counts(outs[-self._counters :])
            del outs[-self._counters :]
        return outs

    def _kept(self, args: list[Array], keep: Collection[int]) -> list[Array]:
        args = list(args)
        for number in self._donated.intersection(keep):
            args[number] = put(np.asarray(args[number]), self.device)
        return args


def _compile(
    text: str,
    client: Any,
    device: Any,
    host: list[Callback],
    overrides: tuple[tuple[str, str], ...],
    cache: CodeCache | None,
) -> Any:
    options = _jax.CompileOptions()
    options.device_assignment = xla_client.DeviceAssignment.create(
        np.array([[device.id]])
    )
    options.env_option_overrides = list(overrides)
    devices = _jax.DeviceList((device,))
    more: dict[str, Any] = {"host_callbacks": host} if host else {}
    # The name of a program is all of it that does not change the code.
    text = "module " + text[text.index("{") :]

    def compile_() -> Any:
        try:
            module = ir.Module.parse(text, _CONTEXTS.get(len(text)))
        except ir.MLIRError as error:
            raise InternalError(
                f"the translation is not valid StableHLO: {error}"
            ) from None
        return client.compile_and_load(module, devices, compile_options=options, **more)

    if cache is None or host:  # code that calls a function of this process is not kept
        return compile_()
    settings = (str(device.id), *(f"{name}={value}" for name, value in overrides))
    return cache.get(
        text,
        settings,
        compile_,
        lambda code: client.deserialize_executable(code, devices, options),
    )


def _new_context() -> ir.Context:
    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    context = ir.Context()
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    stablehlo.register_dialect(context)
    return context


_CONTEXTS = Contexts(_new_context)


def _handlers(
    decoded: program.Program, small: Small, counters: int, device: Any
) -> list[Any]:
    """Return the objects, written in C++, that wrap each result of the module."""
    types = [
        (spec.dtype, spec.shape)
        for number, spec in enumerate(decoded.results)
        if number not in small.stored
    ]
    types += [(dtypes.I64, ())] * counters
    sharding = _sharding(device)
    return [
        _jax.array_result_handler(_aval(dtype, shape), sharding, True, *_UNCHECKED)
        for dtype, shape in types
    ]


@lru_cache(maxsize=64)
def _sharding(device: Any) -> Any:
    return jax.sharding.SingleDeviceSharding(device)


@lru_cache(maxsize=4096)
def _aval(dtype: DType, shape: tuple[int, ...]) -> Any:
    return jax.core.ShapedArray(shape, dtype.numpy)


def put(values: np.ndarray, device: Any) -> Array:
    """Return an inner array with a copy of host values."""
    aval = _aval(dtypes.by_numpy(values.dtype), values.shape)
    sharding = _sharding(device)
    return _jax.batched_device_put(
        aval, sharding, [values], [device], force_copy=True, enable_x64=True
    )


def _connect(
    translation: Translation,
    decoded: program.Program,
    callbacks: Mapping[int, Callback],
    failures: deque[BaseException],
) -> list[Callback]:
    """Return the functions that the module calls, in order of index."""
    missing = sorted(set(translation.callbacks) - set(callbacks))
    if missing:
        raise InvalidArgument(
            f"program {decoded.name!r} calls host callbacks {missing}, which do not "
            "exist in this process: a program with callbacks runs only in the process "
            "that compiled it"
        )
    return [
        _guarded(callbacks[number], call.kind, call.effect, call.results, failures)
        for number, call in zip(translation.callbacks, translation.calls)
    ]


def _guarded(
    function: Callback,
    kind: str,
    ordered: bool,
    results: Sequence[tuple[DType, tuple[int, ...]]],
    failures: deque[BaseException],
) -> Callback:
    """Wrap a user's function: token through, results checked, failure kept."""

    def call(*args: Any) -> tuple[Any, ...]:
        token, arrays = (args[:1], args[1:]) if ordered else ((), args)
        try:
            outs = tuple(np.asarray(x) for x in function(*arrays))
            found = [(x.dtype, x.shape) for x in outs]
            wanted = [(t.numpy, shape) for t, shape in results]
            if found != wanted:
                raise HostCallbackError(
                    f"{kind}: the callback must return {wanted}, it returned {found}"
                )
        except BaseException as error:
            failures.append(error)
            raise
        return (*token, *outs)

    return call


@lru_cache(maxsize=1)
def own_client() -> Any:
    """The client of `run`; `own_client.cache_clear()` drops it."""
    return xla_client.make_cpu_client(asynchronous=False, num_devices=1)


def run(
    data: bytes,
    inputs: Sequence[np.ndarray],
    *,
    chip: Chip | None = None,
    callbacks: Mapping[int, Callback] | None = None,
    exact: bool = False,
) -> list[np.ndarray]:
    """Verify a program and execute it once on a client of our own.

    Args:
        data: the encoded program.
        inputs: one array per parameter.
        chip: profile to verify for; the program's own by default.
        callbacks: the user's functions by callback id.
        exact: keep every rounding of a * b + c.

    Returns:
        One array per result.

    Raises:
        InvalidProgram: malformed bytes, or a rule of the ISA is broken.
        ResourceExhausted: it does not fit the chip.
        InvalidArgument: number, dtype or shape of the inputs do not fit.
    """
    decoded = program.decode(data)
    verify(decoded, chip or named_chip(decoded.chip))
    client = own_client()
    device = client.local_devices()[0]
    loaded = FastProgram(data, client, device, callbacks, exact)
    params = loaded.program.params
    wanted = [(p.dtype.numpy, p.shape) for p in params]
    found = [(x.dtype, x.shape) for x in inputs]
    if wanted != found:
        raise InvalidArgument(f"the program takes {wanted}, the inputs are {found}")
    outs = loaded.execute([put(np.asarray(x), device) for x in inputs])
    return [np.asarray(x) for x in outs]
