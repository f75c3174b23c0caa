"""protoc with all its generators, fetched from Maven Central as the broker's jars are.

The one in grpcio-tools generates Python alone. Received: nothing. Gives the path of the
program, of the same release as grpcio-tools' and so as the Python library.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

from relay.dev import jars
from relay.program import java

_SYSTEMS = {"Linux": "linux", "Darwin": "osx"}
_MACHINES = {"x86_64": "x86_64", "arm64": "aarch_64", "aarch64": "aarch_64"}


def version() -> str:
    """Of protoc, as 35.1; Java's library has a major of its own before it, Python's another."""
    said = subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", "--version"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return said.stdout.split()[-1]


def _tell(line: str) -> None:
    # Not to standard output: a test may be catching what the product prints there.
    print(line, file=sys.stderr)


def java_library() -> list[Path]:
    """protobuf-java for the code that this protoc generates."""
    return jars.resolve(f"com.google.protobuf:protobuf-java:4.{version()}", _tell)


def program(directory: Path) -> Path:
    """An executable copy in the directory; Ivy's cache has it from the second time on."""
    platform_name = f"{_SYSTEMS[platform.system()]}-{_MACHINES[platform.machine()]}"
    module = directory / "protoc.ivy.xml"
    module.write_text(
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="relay" module="test"/>'
        '<configurations><conf name="default"/></configurations><dependencies>'
        f'<dependency org="com.google.protobuf" name="protoc" rev="4.{version()}" '
        'conf="default->default">'
        f'<artifact name="protoc" type="exe" ext="exe" m:classifier="{platform_name}"/>'
        "</dependency></dependencies></ivy-module>",
        encoding="utf-8",
    )
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "block-relay"
    cache.mkdir(parents=True, exist_ok=True)
    settings = os.environ.get("RELAY_IVY_SETTINGS")
    command = [
        *(str(java.require()), "-jar", str(jars._ivy_jar()), "-ivy", str(module)),
        *("-cache", str(cache / "ivy"), "-confs", "default", "-types", "exe"),
        *(("-settings", settings) if settings else ()),
        *("-retrieve", f"{directory}/[artifact].[ext]"),
    ]
    with jars._lock(cache / "jars.lock", print):
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    found = directory / "protoc.exe"
    assert found.exists(), done.stdout + done.stderr
    found.chmod(0o755)
    return found
