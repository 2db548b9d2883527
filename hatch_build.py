"""Builds the native tier (processor/core/native, mostly) when the package is installed.

It is an extra: the reference tier does the same in more time. So where there is no C compiler the package is installed
without it, and says so; `gforce doctor` says it too. GFORCE_NATIVE=required makes that an error (for CI and images),
GFORCE_NATIVE=no leaves it out on purpose. At run time the variable chooses the tier. It was GFORCE_COMPILED up to 0.2.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

CORE = "processor/core/native"
SOURCES = (
    *(f"{CORE}/{name}.pyx" for name in ("decode", "encode", "hashes", "join", "monitor", "solver")),
    "processor/adapters/kafka/native_runs.pyx",
)
# A fused multiply-add rounds once where Python rounds twice: floats must come out the same as in the reference.
FLAGS = ["-O3", "-ffp-contract=off"]
DIRECTIVES = {"language_level": 3, "boundscheck": False, "wraparound": False, "cdivision": True}


class NativeTier(BuildHookInterface):  # type: ignore[type-arg]
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        wanted = os.environ.get("GFORCE_NATIVE") or os.environ.get("GFORCE_COMPILED")
        if self.target_name != "wheel" or wanted == "no":
            return
        try:
            built = compile_in_place(Path(self.root))
        except Exception as problem:
            if wanted == "required":
                raise
            self.app.display_warning(
                f"The native modules could not be built ({problem}): the core will take about three times the CPU. "
                "Install a C compiler and Python's headers (Debian: gcc python3-dev), then install the package again."
            )
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["artifacts"] += [f"/{path.as_posix()}" for path in built]


def compile_in_place(root: Path) -> list[Path]:
    """Put the extension modules beside their sources; their paths from the root."""
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension
    from setuptools.command.build_ext import build_ext

    before = Path.cwd()
    os.chdir(root)
    try:
        extensions = [
            Extension(
                source.removesuffix(".pyx").replace("/", "."), [source], include_dirs=[CORE], extra_compile_args=FLAGS
            )
            for source in SOURCES
        ]
        modules = cythonize(extensions, build_dir="build", quiet=True, compiler_directives=DIRECTIVES)
        command = build_ext(Distribution({"ext_modules": modules}))
        command.build_temp = "build"
        command.inplace = True
        command.ensure_finalized()
        command.run()
        return [Path(command.get_ext_filename(extension.name)) for extension in extensions]
    finally:
        os.chdir(before)


if __name__ == "__main__":
    compile_in_place(Path(__file__).parent)
