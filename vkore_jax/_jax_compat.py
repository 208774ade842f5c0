"""Every use of JAX's private interfaces, each behind a guard.

JAX has no public way to register a backend from Python, to allow donation on it or to
emit host callbacks for it.  What is used of `jax._src` is listed in `REQUIRED`; `check`
says at start-up, in one message, what is missing, rather than failing somewhere later.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.core
import numpy as np
from jaxlib.version import __version__ as _JAXLIB_VERSION

from vkore_jax import linalg
from vkore_jax.callbacks import (
    CALLBACKS,
    NOT_STORED,
    TARGET,
    HostBuffer,
    HostContext,
)
from vkore_jax.errors import (
    UnsupportedOp,
    UnsupportedPrimitive,
    VersionMismatch,
    VkoreError,
    status_code,
)
from vkore_jax.pjrt import bound, container

TESTED_MIN = (0, 10, 2)
"""Oldest JAX that the tests run with."""
TESTED_BELOW = (0, 13, 0)
"""First JAX version that nobody has tried."""

REQUIRED: tuple[tuple[str, str], ...] = (
    ("jax._src.xla_bridge", "register_plugin"),
    ("jax._src.xla_bridge", "_nonexperimental_plugins"),
    ("jax._src.interpreters.mlir", "_platforms_with_donation"),
    ("jax._src.interpreters.mlir", "custom_call"),
    ("jax._src.interpreters.mlir", "aval_to_ir_type"),
    ("jax._src.interpreters.mlir", "register_lowering"),
    ("jax._src.interpreters.mlir", "lower_fun"),
    ("jax._src.interpreters.mlir", "lower_per_platform"),
    ("jax._src.interpreters.mlir", "_platforms_for_eqn"),
    ("jax._src.lax.linalg", "eig_p"),
    ("jax._src.lax.linalg", "eigh_p"),
    ("jax._src.lax.linalg", "geqp3_p"),
    ("jax._src.lax.linalg", "hessenberg_p"),
    ("jax._src.lax.linalg", "lu_p"),
    ("jax._src.lax.linalg", "_lu_python"),
    ("jax._src.lax.linalg", "schur_p"),
    ("jax._src.lax.linalg", "svd_p"),
    ("jax._src.lax.linalg", "tridiagonal_p"),
    ("jax._src.lax.linalg", "tridiagonal_solve_p"),
    ("jax._src.callback", "emit_python_callback"),
    ("jax._src.compilation_cache", "is_cache_used"),
    ("jax._src.compilation_cache", "get_executable_and_time"),
    ("jax._src.compilation_cache", "put_executable_and_time"),
    ("jax._src.debugging", "debug_callback_p"),
    ("jax._src.debugging", "debug_callback_lowering"),
    ("jax._src.array", "ArrayImpl"),
    ("jax._src.dlpack", "DLDeviceType"),
    ("jax._src.checkify", "check_p"),
    ("jax._src.checkify", "check_lowering_rule"),
    ("jax._src.dtypes", "canonicalize_value"),
    ("jaxlib._jax.Client", "deserialize_executable"),
    ("jaxlib._jax.Client", "serialize_executable"),
    ("jaxlib._jax.LoadedExecutable", "serialize"),
    ("jax._src.source_info_util", "current_name_stack"),
    ("jax._src.source_info_util", "user_context"),
    ("jax._src.source_info_util", "user_frames"),
    ("jax._src.util", "register_cache"),
)
"""(module, attribute) pairs that must exist."""


def parse_version(text: str) -> tuple[int, ...]:
    """Return the leading numbers of a version such as ``0.12.0.dev1``."""
    numbers: list[int] = []
    for part in text.split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)


def version_problem(jax_version: str, jaxlib_version: str) -> str | None:
    """Return why a pair of versions cannot be used, or None."""
    for version in (jax_version, jaxlib_version):
        if not TESTED_MIN <= parse_version(version)[:3] < TESTED_BELOW:
            low, high = (".".join(map(str, v)) for v in (TESTED_MIN, TESTED_BELOW))
            return (
                f"vkore_jax is tested with jax and jaxlib >={low},<{high}; found jax "
                f"{jax_version} and jaxlib {jaxlib_version}. Install a version in that "
                'range, for instance: pip install "jax>='
                f'{low},<{high}"'
            )
    return None


def check() -> None:
    """Refuse versions that were not tested.

    Raises:
        VersionMismatch: the message has the tested range and both versions found.
    """
    problem = version_problem(jax.__version__, _JAXLIB_VERSION)
    if problem is None:
        missing = [f"{m}.{n}" for m, n in REQUIRED if not _has(m, n)]
        if missing:
            problem = (
                f"jax {jax.__version__} / jaxlib {_JAXLIB_VERSION} lack "
                f"{', '.join(missing)}, which vkore_jax needs; please report this"
            )
    if problem is not None:
        raise VersionMismatch(problem)


def register(platform: str, capsule: Any, priority: int) -> None:
    """Register a PJRT_Api capsule as a backend: not experimental, with donation."""
    from jax._src import xla_bridge
    from jax._src.interpreters import mlir

    # Before register_plugin, which decides then whether to warn "is experimental".
    xla_bridge._nonexperimental_plugins.add(platform)
    if platform not in mlir._platforms_with_donation:
        mlir._platforms_with_donation.append(platform)
    xla_bridge.register_plugin(platform, c_api=capsule, priority=priority)


def enable_cache(platform: str) -> None:
    """Let the persistent compilation cache serve this platform.

    JAX has a fixed list of platforms.  The answer is computed once and remembered in
    module globals, so the question is asked on behalf of a platform in the list.
    """
    from jax._src import compilation_cache

    original = compilation_cache.is_cache_used

    class AsCpu:
        platform = "cpu"
        supports_executable_serialization = True

    @functools.wraps(original)
    def is_cache_used(backend: Any) -> bool:
        if backend.platform == platform:
            return original(AsCpu())  # pyright: ignore[reportArgumentType]
        return original(backend)

    compilation_cache.is_cache_used = is_cache_used
    put = compilation_cache.put_executable_and_time
    get = compilation_cache.get_executable_and_time

    @functools.wraps(get)
    def get_executable_and_time(
        cache_key: str, compile_options: Any, backend: Any, *rest: Any, **more: Any
    ) -> tuple[Any, int | None]:
        if backend.platform == platform:
            backend = bound.Client(backend, cache_key)
        return get(cache_key, compile_options, backend, *rest, **more)

    @functools.wraps(put)
    def put_executable_and_time(
        cache_key: str, module_name: str, executable: Any, backend: Any, *rest: Any
    ) -> None:
        if backend.platform == platform:
            executable = bound.Executable(executable, cache_key)
        try:
            put(cache_key, module_name, executable, backend, *rest)
        except jax.errors.JaxRuntimeError as error:
            # A program with host callbacks is bound to its process: not an accident
            # that deserves the warning which JAX would print.
            if NOT_STORED not in str(error):
                raise

    compilation_cache.put_executable_and_time = put_executable_and_time
    compilation_cache.get_executable_and_time = get_executable_and_time


def enable_storage(platform: str) -> None:
    """Seal the executables of a platform when they are stored.

    jaxlib puts a head of its own (types, shapes, memory kinds of the results) before
    the bytes that the plugin makes, and believes it when it loads: a wrong shape in it
    shows foreign memory, a wrong memory kind ends the process.  So all of it gets a
    checksum.
    """
    from jaxlib import _jax  # pyright: ignore[reportAttributeAccessIssue]

    serialize = _jax.LoadedExecutable.serialize
    by_client = _jax.Client.serialize_executable
    load = _jax.Client.deserialize_executable

    @functools.wraps(serialize)
    def sealed(self: Any) -> bytes:
        stored: bytes = serialize(self)
        ours = self.client.platform == platform
        return container.seal(_STORED, stored) if ours else stored

    @functools.wraps(by_client)
    def sealed_by_client(self: Any, executable: Any) -> bytes:
        stored: bytes = by_client(self, executable)
        return container.seal(_STORED, stored) if self.platform == platform else stored

    @functools.wraps(load)
    def unsealed(self: Any, serialized: bytes, *args: Any, **kwargs: Any) -> Any:
        if self.platform == platform:
            try:
                serialized = container.unseal(_STORED, serialized)
            except VkoreError as error:
                code = status_code(error).name
                raise jax.errors.JaxRuntimeError(f"{code}: {error}") from error
        return load(self, serialized, *args, **kwargs)

    _jax.LoadedExecutable.serialize = sealed
    _jax.Client.serialize_executable = sealed_by_client
    _jax.Client.deserialize_executable = unsealed


_STORED = b"VKSTOR"


def enable_views(
    platform: str, export_buffers: Callable[[type, Callable[[Any], Any]], None]
) -> None:
    """Let other libraries read arrays of a platform: DLPack, the buffer protocol.

    Both hand out host memory, so what they get is a copy, as from `np.asarray`.  A
    consumer of DLPack may write into it.
    """
    from jax._src import array
    from jax._src.dlpack import DLDeviceType

    host = (DLDeviceType.kDLCPU, 0)
    export = array.ArrayImpl.__dlpack__
    place = array.ArrayImpl.__dlpack_device__

    def ours(x: Any) -> bool:
        devices = x.sharding.device_set
        return len(devices) == 1 and next(iter(devices)).platform == platform

    @functools.wraps(export)
    def __dlpack__(self: Any, **wanted: Any) -> Any:
        if not ours(self):
            return export(self, **wanted)
        device, copy = wanted.get("dl_device"), wanted.get("copy")
        if device is not None and tuple(map(int, device)) != tuple(map(int, host)):
            raise BufferError(
                f"an array on {platform} can be read into host memory {host} only, "
                f"device {tuple(device)} is asked for"
            )
        if copy is False:
            raise BufferError(
                f"an array on {platform} lies in the chip's memory: to share it takes "
                "a copy, call without copy=False"
            )
        values = np.array(self)
        with jax.enable_x64(True):
            shared = jax.device_put(values, jax.local_devices(backend="cpu")[0])
        return export(shared, max_version=wanted.get("max_version"))

    @functools.wraps(place)
    def __dlpack_device__(self: Any) -> tuple[Any, int]:
        return host if ours(self) else place(self)

    def read(x: Any) -> np.ndarray | None:
        if not ours(x):
            return None
        if x.dtype.isbuiltin != 1:
            raise BufferError(
                f"the buffer protocol has no code for {x.dtype}: use np.asarray(x)"
            )
        return np.asarray(x.__array__())

    array.ArrayImpl.__dlpack__ = __dlpack__
    array.ArrayImpl.__dlpack_device__ = __dlpack_device__
    export_buffers(array.ArrayImpl, read)


class _Clearing:
    """Looks to JAX like one of its caches."""

    def __init__(self, clear: Callable[[], None]) -> None:
        self.cache_clear = clear

    def cache_info(self) -> None:
        """Say nothing: JAX prints it only."""

    def cache_keys(self) -> list[Any]:
        """Say nothing."""
        return []


_clearings: list[_Clearing] = []


def on_clear_caches(clear: Callable[[], None]) -> None:
    """Call a function whenever `jax.clear_caches` is called."""
    from jax._src import util

    _clearings.append(_Clearing(clear))  # JAX itself has only a weak reference
    util.register_cache(_clearings[-1], "vkore_jax")


def enable_callbacks(platform: str) -> None:
    """Lower `pure_callback`, `io_callback`, `debug.*` and `checkify` on a platform.

    All of them go through `emit_python_callback`, which refuses unknown platforms.
    """
    import jax.interpreters.mlir as public_mlir
    from jax._src import callback, checkify, debugging
    from jax._src.interpreters import mlir

    original = callback.emit_python_callback

    @functools.wraps(original)
    def emit(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        if tuple(ctx.module_context.platforms) == (platform,):
            return _emit(ctx, *args, **kwargs)
        return original(ctx, *args, **kwargs)

    callback.emit_python_callback = emit
    if hasattr(public_mlir, "emit_python_callback"):
        public_mlir.emit_python_callback = emit
    rules = [
        (debugging.debug_callback_p, debugging.debug_callback_lowering),
        (checkify.check_p, checkify.check_lowering_rule),
    ]
    if hasattr(debugging, "debug_print_p"):  # a primitive of its own since 0.7
        rules.append((debugging.debug_print_p, debugging.debug_print_lowering_rule))
    for primitive, rule in rules:
        mlir.register_lowering(primitive, rule, platform=platform)
    if _has("jax._src.buffer_callback", "buffer_callback_p"):
        from jax._src import buffer_callback

        primitive = buffer_callback.buffer_callback_p
        mlir.register_lowering(primitive, _buffer_callback, platform=platform)


def _buffer_callback(
    ctx: Any,
    *operands: Any,
    callback: Callable[..., None],
    in_tree: Any,
    out_tree: Any,
    has_side_effect: bool,
    input_output_aliases: Sequence[tuple[int, int]],
    **_: Any,
) -> Sequence[Any]:
    """Lower a callback that writes its results into buffers it is given."""
    from jax._src import buffer_callback

    avals = ctx.avals_out
    context = HostContext(buffer_callback.ExecutionStage.EXECUTE)

    def function(*arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        operands = [np.asarray(x) for x in arrays]
        results = [np.zeros(a.shape, a.dtype) for a in avals]
        for source, target in input_output_aliases:  # one memory, as JAX promises
            operands[source] = results[target] = operands[source].copy()
        given = [HostBuffer(x, writeable=False) for x in operands]
        args, kwargs = jax.tree.unflatten(in_tree, given)
        written = [HostBuffer(x, writeable=True) for x in results]
        outs = jax.tree.unflatten(out_tree, written)
        if callback(context, outs, *args, **kwargs) is not None:
            raise ValueError("buffer_callback callback must not return any values.")
        return tuple(results)

    results, _, _ = _emit(
        ctx,
        function,
        None,
        operands,
        ctx.avals_in,
        avals,
        has_side_effect=has_side_effect,
    )
    return results


_DENSE = "convert the matrix to jax.experimental.sparse.BCOO and multiply with @"
_ATTENTION = (
    "call jax.nn.dot_product_attention without `implementation`, or "
    "vkore_jax.primitives.attention"
)
INSTEAD: dict[str, str] = {
    "spsolve": "solve the dense system with jnp.linalg.solve, iterate with "
    "jax.scipy.sparse.linalg.cg or gmres, or call scipy.sparse.linalg.spsolve in a "
    "jax.pure_callback",
    "pallas_call": "a Pallas kernel is code for a GPU or TPU: pass interpret=True to "
    "run its meaning here, or write it with jnp (the compiler fuses), or use "
    "vkore_jax.primitives",
    "scaled_matmul": "scale the operands with jnp and multiply with jnp.matmul",
    "csr_spmm": _DENSE,
    "csr_spmv": _DENSE,
    "coo_spmm": _DENSE,
    "coo_spmv": _DENSE,
    "dot_product_attention_fwd": _ATTENTION,
    "dot_product_attention_bwd": _ATTENTION,
    "dot_product_attention_fp8_fwd": _ATTENTION,
    "dot_product_attention_fp8_bwd": _ATTENTION,
}
"""Primitive that JAX has for other platforms only -> what to write instead.

The rest of JAX's primitives have a rule here, by StableHLO or in `enable_linalg`; what
other packages define is answered in general terms.
"""


def explain_missing_rules(platform: str) -> None:
    """Say what to write instead of a primitive that has no rule for a platform."""
    from jax._src.interpreters import mlir

    original = mlir.lower_per_platform

    @functools.wraps(original)
    def lower(
        ctx: Any, description: str, rules: Any, default: Any, *args: Any, **kwargs: Any
    ) -> Any:
        lacking = default is None and platform not in rules
        if lacking and tuple(mlir._platforms_for_eqn(ctx)) == (platform,):
            raise UnsupportedPrimitive(_no_rule(ctx, description, platform))
        return original(ctx, description, rules, default, *args, **kwargs)

    mlir.lower_per_platform = lower


def _no_rule(ctx: Any, name: str, platform: str) -> str:
    types = ", ".join(a.str_short() for a in ctx.avals_in)
    place = _user_place(getattr(ctx, "traceback", None))
    at = f"\n  at {place}" if place else ""
    instead = INSTEAD.get(
        name,
        "write it with jnp or lax functions, run it on the host with "
        "jax.pure_callback, or give it a rule of jnp functions with "
        f"jax.interpreters.mlir.register_lowering(..., platform={platform!r})",
    )
    return (
        f"JAX primitive {name!r} has no lowering rule for platform {platform!r}; "
        f"{instead}\n  operands: {types}{at}"
    )


def enable_linalg(platform: str) -> None:
    """Lower the factorisations that JAX has on LAPACK, cuSOLVER or the TPU only."""
    from jax._src.interpreters import mlir
    from jax._src.lax import linalg as lax_linalg

    def eigh_rule(x: Any, *, lower: bool, **params: Any) -> tuple[Any, Any]:
        wanted = params.get("subset_by_index")
        return linalg.eigh(x, lower=lower, subset_by_index=wanted)

    def svd_rule(
        x: Any, *, full_matrices: bool, compute_uv: bool, **params: Any
    ) -> tuple[Any, ...]:
        return linalg.svd(
            x,
            full_matrices=full_matrices,
            compute_uv=compute_uv,
            subset_by_index=params.get("subset_by_index"),
        )

    def pivoted_rule(x: Any, order: Any, **_: Any) -> tuple[Any, Any, Any]:
        return linalg.pivoted_qr(x)

    def eig_rule(
        x: Any,
        *,
        compute_left_eigenvectors: bool,
        compute_right_eigenvectors: bool,
        **_: Any,
    ) -> tuple[Any, ...]:
        return linalg.eig(
            x,
            compute_left_eigenvectors=compute_left_eigenvectors,
            compute_right_eigenvectors=compute_right_eigenvectors,
        )

    def schur_rule(
        x: Any, *, compute_schur_vectors: bool, sort_eig_vals: bool, **_: Any
    ) -> tuple[Any, ...]:
        if sort_eig_vals:
            raise UnsupportedOp(
                "schur: sorting the eigenvalues is not built (nor is it on the CPU); "
                "call it with sort_eig_vals=False"
            )
        return linalg.schur(x, compute_schur_vectors=compute_schur_vectors)

    def solve_rule(*operands: Any, perturb_singular: bool, **_: Any) -> tuple[Any]:
        return (linalg.tridiagonal_solve(*operands, perturb_singular=perturb_singular),)

    made: dict[str, Callable[..., Any]] = {
        "eig_p": eig_rule,
        "eigh_p": eigh_rule,
        "geqp3_p": pivoted_rule,
        "hessenberg_p": linalg.hessenberg,
        "lu_p": lax_linalg._lu_python,
        "schur_p": schur_rule,
        "svd_p": svd_rule,
        "tridiagonal_p": linalg.tridiagonal,
        "tridiagonal_solve_p": solve_rule,
    }
    for name, function in made.items():
        rule = _unvarying(mlir.lower_fun(function, multiple_results=True))
        mlir.register_lowering(getattr(lax_linalg, name), rule, platform=platform)


def _unvarying(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Let a rule made of JAX functions see plain arrays inside `shard_map`.

    There the types of arrays name the mesh axes over which they vary.  The loops of the
    function start from constants, which vary over none, and so would have a carry that
    changes its type.  JAX's own rule for `lu` has the same fault.
    """

    def lower(ctx: Any, *args: Any, **params: Any) -> Any:
        plain = [jax.core.ShapedArray(a.shape, a.dtype) for a in ctx.avals_in]
        return rule(ctx.replace(avals_in=plain), *args, **params)

    return lower


def _emit(
    ctx: Any,
    function: Callable[..., Sequence[Any]],
    token: Any,
    operands: Sequence[Any],
    operand_avals: Sequence[Any],
    result_avals: Sequence[Any],
    *,
    has_side_effect: bool,
    returns_token: bool = True,
    partitioned: bool = False,
    sharding: Any = None,
) -> tuple[Sequence[Any], Any, Any]:
    """Emit `custom_call @vkore.py_callback(token?, operands) -> (token?, results)`."""
    from jax._src.interpreters import mlir
    from jax._src.lib.mlir.dialects import hlo

    del returns_token, operand_avals  # the token is there exactly when one came in
    if partitioned and result_avals:
        raise ValueError("Partitioned callback not supported with return values.")
    entry = CALLBACKS.add(_checked(function, tuple(result_avals)))
    ctx.module_context.add_keepalive(entry)
    types = [mlir.aval_to_ir_type(ctx.module_context, a) for a in result_avals]
    values = list(operands)
    if token:
        types.insert(0, hlo.TokenType.get())
        values.insert(0, token)
    call = mlir.custom_call(
        TARGET,
        result_types=types,
        operands=values,
        backend_config=str(entry.index),
        has_side_effect=has_side_effect,
    )
    # A sharding only says on which of several partitions to call; `sharding` is dropped
    # because programs of this backend run on one device.
    del sharding
    results = list(call.results)
    if token:
        token, *results = results
    return results, token, function


def _checked(
    function: Callable[..., Sequence[Any]], avals: tuple[Any, ...]
) -> Callable[..., Sequence[Any]]:
    """Wrap a callback: NumPy in and out, shapes and dtypes as declared."""
    from jax._src import dtypes

    def call(*arrays: Any) -> tuple[Any, ...]:
        outputs = function(*arrays)
        if len(outputs) != len(avals):
            raise RuntimeError(
                "Mismatched number of outputs from callback. "
                f"Expected: {len(avals)}, Actual: {len(outputs)}"
            )
        values = tuple(dtypes.canonicalize_value(np.asarray(x)) for x in outputs)
        for i, (value, aval) in enumerate(zip(values, avals, strict=True)):
            if value.shape != aval.shape:
                raise RuntimeError(
                    f"Incorrect output shape for return value #{i}: "
                    f"Expected: {aval.shape}, Actual: {value.shape}"
                )
            if value.dtype != aval.dtype:
                raise RuntimeError(
                    f"Incorrect output dtype for return value #{i}: "
                    f"Expected: {aval.dtype}, Actual: {value.dtype}"
                )
        return values

    return call


LIBRARIES = ("flax", "optax", "haiku", "equinox", "jax", "vkore_jax")
"""Packages whose frames are skipped when a user's line is looked for."""


@contextlib.contextmanager
def equation_context(eqn: Any) -> Iterator[None]:
    """Bind anew what an equation bound: same source, name stack and settings."""
    from jax._src import source_info_util

    info = eqn.source_info
    stack = source_info_util.current_name_stack() + info.name_stack
    with (
        source_info_util.user_context(info.traceback, name_stack=stack),
        eqn.ctx.manager,
    ):
        yield


def equation_place(eqn: Any) -> str:
    """Return "file:line" of the user's code that made an equation, "" if unknown.

    Frames of neural-network libraries only count where there are no others.
    """
    return _user_place(None if eqn is None else eqn.source_info.traceback)


def _user_place(traceback: Any) -> str:
    """Return "file:line" of the user's innermost frame, "" if unknown."""
    from jax._src import source_info_util

    if traceback is None:
        return ""
    frames = list(source_info_util.user_frames(traceback))
    own = [
        f
        for f in frames
        if not any(f"/site-packages/{name}/" in f.file_name for name in LIBRARIES)
    ]
    for frame in (own or frames)[:1]:
        return f"{frame.file_name}:{frame.start_line}"
    return ""


def function_name(jaxpr: Any) -> str:
    """Return the name of the function that a jaxpr was traced from, "" if unknown."""
    info = getattr(jaxpr.debug_info, "func_src_info", None) or ""
    return info.partition(" at ")[0]


def in_jax(jaxpr: Any) -> bool:
    """Whether a traced function is defined in JAX itself."""
    info = getattr(jaxpr.debug_info, "func_src_info", None) or ""
    return f"{os.sep}jax{os.sep}_src{os.sep}" in info


def _has(place: str, name: str) -> bool:
    """Whether a module, or a class "module.Class", has an attribute."""
    module, _, last = place.rpartition(".")
    try:
        if last[0].isupper():
            return hasattr(getattr(importlib.import_module(module), last, None), name)
        return hasattr(importlib.import_module(place), name)
    except ImportError:
        return False
