"""Compile the arithmetic of rows where that can be done; everything else is in pyproject.toml."""

import sys

from setuptools import Extension, setup

# Without a compiler numpy does the same, somewhat slower; `unjoined --version` tells.
FLAGS = (
    ["/O2"]
    if sys.platform == "win32"
    else ["-O3", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math"]
)
KERNELS = Extension(
    "unjoined._compiled._rows",
    sources=["src/unjoined/_compiled/kernels.c"],
    depends=["src/unjoined/_compiled/kernels.h"],
    extra_compile_args=["/O2"] if sys.platform == "win32" else FLAGS,
    py_limited_api=True,
    optional=True,
)

setup(ext_modules=[KERNELS], options={"bdist_wheel": {"py_limited_api": "cp311"}})
