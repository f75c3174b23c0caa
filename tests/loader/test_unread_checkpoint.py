"""A checkpoint that cannot be read, here or on a file system of Spark's: no bug of block-relay."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from py4j.protocol import Py4JJavaError, Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.errors import IllegalArgumentException

from loader.journal.checkpoint import Checkpoint
from loader.journal.startup import _found
from relay.errors import ConfigError, Refused, Unavailable
from tests.loader.blocks import Journal

URL = "hdfs://there/checkpoint"
TRACE = "\n\nJVM stacktrace:\n\tat org.apache.hadoop"


def thrown(text: str) -> Exception:
    """As py4j raises what Java throws."""
    java = MagicMock(_target_id="o1")
    java.toString.return_value = text
    error: Exception = Py4JJavaError("An error occurred while calling o1.exists.\n", java)
    return error


def elsewhere(call: str, error: Exception) -> Checkpoint:
    """A checkpoint of whose file system this call fails."""
    spark = MagicMock()
    path = spark.sparkContext._jvm.org.apache.hadoop.fs.Path.return_value
    files: Any = path.getFileSystem.return_value
    setattr(path if call == "getFileSystem" else files, call, MagicMock(side_effect=error))
    return Checkpoint(URL, lambda: spark)


@pytest.mark.parametrize("call", ["getFileSystem", "exists", "listStatus"])
@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            thrown("java.net.ConnectException: Call From a to b failed\n see there"),
            "java.net.ConnectException: Call From a to b failed",
        ),
        (
            IllegalArgumentException(f"java.net.UnknownHostException: there{TRACE}"),
            "java.net.UnknownHostException: there",
        ),
    ],
)
def test_a_file_system_that_is_away_is_named(call: str, error: Exception, said: str) -> None:
    """Red before: status 70, and a stack trace of Java's."""
    checkpoint = elsewhere(call, error)
    with pytest.raises(Unavailable) as ended:
        _found(checkpoint)
    assert ended.value.message == f"cannot read checkpoint {URL}: {said}"
    assert ended.value.next_step
    with pytest.raises(Refused, match=f"cannot move the checkpoint {URL} aside: {said}"):
        checkpoint.set_aside()


def test_a_jvm_that_ended_is_no_file_system_that_is_away() -> None:
    """Negative control: loader.spark.one_app says what that is."""
    with pytest.raises(Py4JNetworkError):
        _found(elsewhere("exists", Py4JNetworkError("Answer from Java side is empty")))


def test_a_file_that_this_user_may_not_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Red before with several pipelines: a bug, and begun again and again."""

    def denied(*_: object) -> None:
        raise PermissionError(13, "Permission denied", f"{tmp_path}/offsets")

    monkeypatch.setattr("loader.journal.checkpoint.Here.names", denied)
    with pytest.raises(ConfigError, match=f"cannot read checkpoint {tmp_path}: .*denied") as ended:
        _found(Checkpoint(str(tmp_path)))
    assert ended.value.next_step


@pytest.mark.long
@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("nofs://there/checkpoint", "UnsupportedFileSystemException: No FileSystem for scheme"),
        ("hdfs://nowhere.invalid/checkpoint", "java.net.UnknownHostException: nowhere.invalid"),
    ],
)
def test_the_whole_loader_without_the_checkpoints_file_system(
    journal: Journal, where: str, said: str
) -> None:
    status, printed = journal.run("run", "--once", "--checkpoint", where)
    assert status == 4, printed
    assert f"cannot read checkpoint {where}: " in printed
    assert said in printed
    assert "Traceback" not in printed
    assert "a bug" not in printed
