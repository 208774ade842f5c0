"""Build of the C bridge; everything else about the package is in pyproject.toml."""

from glob import glob

from setuptools import Extension, setup

SOURCES = "vkore_jax/pjrt/csrc"

setup(
    ext_modules=[
        Extension(
            "vkore_jax.pjrt._bridge",
            sources=sorted(glob(f"{SOURCES}/*.c")),
            depends=sorted(glob(f"{SOURCES}/*.h")),
            extra_compile_args=["-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra"],
            extra_link_args=["-pthread"],
            libraries=["m"],
        )
    ]
)
