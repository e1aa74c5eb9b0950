"""Compile the arithmetic of rows where that can be done; everything else is in pyproject.toml."""

import platform
import sys

from setuptools import Extension, setup

# Without it, or if no compiler is found, numpy does the same, somewhat slower.
KERNELS = Extension(
    "unjoined._compiled._kernels",
    sources=["src/unjoined/_compiled/kernels.c"],
    depends=["src/unjoined/_compiled/kernels.h", "src/unjoined/_compiled/ridges.h"],
    extra_compile_args=["-O3", "-fno-math-errno", "-fno-trapping-math", "-fvisibility=hidden"],
    optional=True,
)
POSSIBLE = sys.platform != "win32" and platform.machine() == "x86_64"

setup(ext_modules=[KERNELS] if POSSIBLE else [])
