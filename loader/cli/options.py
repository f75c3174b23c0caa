"""Defines what the subcommands of `loader` share: the configuration file."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from relay.config import settings_file
from relay.config.settings import Settings
from relay.errors import MissingTool, install
from relay.program.command import chosen_pipeline, pipeline_option
from relay.program.config_argument import config_file_argument

F = TypeVar("F", bound=Callable[..., Any])


def config_argument(command: F) -> F:
    """Add CONFIG, --config and --pipeline; the function gets `config_file`."""
    return config_file_argument(pipeline_option(command))


def settings_of(config_file: Path) -> Settings:
    """Return the settings of the file's one app, or of the pipeline that --pipeline names.

    Raises:
        ConfigError: as relay.config.settings_file.load.
    """
    return settings_file.load(config_file, pipeline=chosen_pipeline())


def require_spark() -> None:
    """Check that Spark is installed; relay and verifier do without it.

    Raises:
        MissingTool: it is not.
    """
    if importlib.util.find_spec("pyspark") is None:
        raise MissingTool(
            "pyspark is not installed, and `loader run` is a Spark job",
            install("loader"),
        )
