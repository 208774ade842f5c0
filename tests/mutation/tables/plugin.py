"""Mutants of the plugin: `vkore_jax/pjrt`, C and Python."""

from __future__ import annotations

from tests.mutation.record import Mutant, rows

_C = "vkore_jax/pjrt/csrc/"
_ARRAYS = (
    "tests/pjrt/test_arrays.py",
    "tests/pjrt/test_results.py",
    "tests/pjrt/test_tables.py",
)

MUTANTS: tuple[Mutant, ...] = (
    *rows(
        _C + "execute.c",
        _ARRAYS,
        (
            "        if (options->non_donatable_input_indices[i] == index)\n"
            "            return false;\n",
            "",
        ),
        (
            "            if (j != i && inputs[j] == inputs[i])",
            "            if (j > i && inputs[j] == inputs[i])",
        ),
        (
            "program->consumed[i] && !(donate && donate[i] && !buffer->external);",
            "program->consumed[i] && !(donate && donate[i]);",
        ),
        (
            "bool fresh = program->consumed[i] && !(donate",
            "bool fresh = false && !(donate",
        ),
        ("    needed = needed > freed ? needed - freed : 0;\n", ""),
        ("if (donate[i] && started)", "if (donate[i])"),
        ("            inputs[i]->deleted = true;\n", "            ;\n"),
        ("        if (inputs[i]->deleted)\n", "        if (false)\n"),
        (
            "        if (outputs[i]->error == NULL)\n",
            "        if (outputs[i]->error != NULL)\n",
        ),
    ),
    *rows(
        _C + "table.c",
        _ARRAYS[::-1],
        (
            "    if (!buffer->deleted && buffer->block != NULL)\n",
            "    if (buffer->block != NULL)\n",
        ),
        (
            "        buffer->data = table->blocks[i]->data;\n        table->blocks[i] = NULL;",
            "        buffer->data = table->blocks[0]->data;\n        table->blocks[i] = NULL;",
        ),
        (
            "memcpy(table->blocks[i]->data, frame->args.buffers[i + 1]->data,",
            "memcpy(table->blocks[i]->data, frame->args.buffers[i]->data,",
        ),
    ),
    *rows(
        "vkore_jax/pjrt/tiers.py",
        ("tests/pjrt/test_tiers.py",),
        ('return dtype.kind != "f" or dtype.bits >= 32', "return True"),
        ("and sum(b.nbytes for b in program.buffers) <= MAX_BYTES", "and True"),
        ("            self._left -= 1\n", ""),
    ),
    *rows(
        "vkore_jax/pjrt/backend.py",
        (
            "tests/pjrt/test_compiled.py",
            "tests/pjrt/test_interfaces.py",
            "tests/pjrt/test_abi.py",
        ),
        ('"flops": 2.0 * total.macs', '"flops": 1.0 * total.macs'),
        ("        return self.program.arena_bytes\n", "        return 0\n"),
    ),
    *rows(
        "vkore_jax/pjrt/container.py",
        ("tests/pjrt/test_abi.py", "tests/pjrt/test_compiled.py"),
    ),
)
