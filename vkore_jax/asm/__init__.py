"""Assembler and disassembler: the text form of a Program, derived from the ISA."""

from vkore_jax.asm.text import assemble, disassemble

__all__ = ["assemble", "disassemble"]
