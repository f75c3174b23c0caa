"""Errors that a document says more about name it, and `relay docs` prints it."""

from __future__ import annotations

import importlib
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from clickhouse_connect.driver.exceptions import DatabaseError
from confluent_kafka import KafkaError

from loader.clickhouse import ledger_table, servers
from loader.clickhouse.client import failure
from loader.core.positions import Noted
from loader.journal import begin_plan
from loader.journal.checkpoint import CheckpointPositions, used
from loader.operate import resolve
from loader.spark.one_app import _from_spark
from relay import errors
from relay.cli.docs import docs
from relay.config.settings import ClickHouse
from relay.core import step, takeover
from relay.core.effects import Exit
from relay.core.events import Failed, Failure
from relay.core.state import Fencing, Phase
from relay.errors import ErrorPage, RelayError
from relay.intake.membership import MemberFenced
from relay.kafka.errors import answered
from relay.operate.rewind.servers import _error as of_supersede
from relay.process.suitability.brake import Brake
from relay.schema.catalogue import translated
from relay.schema.dead_reason import DeadKind, DeadReason
from tests.core.build import in_phase

if TYPE_CHECKING:
    from collections.abc import Callable

SERVER = ClickHouse(url="http://c:8123")
WRONG_PASSWORD = DatabaseError("Code: 516. DB::Exception: loader: Authentication failed")
WRONG_PASSWORD.code = 516


def lost(**changes: Any) -> RelayError:
    """What a start is told whose ledger has no position."""
    checkpoint = CheckpointPositions("J", {0: 7})
    found = begin_plan.StartFacts(
        "shop", "relay.ledger", "J", Noted({}), {0: (0, 9)}, checkpoint, "there"
    )
    with pytest.raises(RelayError) as stopped:
        begin_plan.decide(replace(found, **changes))
    return stopped.value


def braked() -> RelayError:
    brake = Brake(on=True)
    brake.begun()
    brake.add(0, "", [(DeadReason(DeadKind.NO_TABLE, "topic looks like JSON"), 1)])
    return brake.error("rows")


def several_servers() -> RelayError:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(servers, "servers", lambda _: ("a", "b"))
        with pytest.raises(RelayError) as refused:
            servers.several(SERVER, "MergeTree")
    return refused.value


def not_kept() -> RelayError:
    with pytest.raises(RelayError) as refused:
        ledger_table.check_engine("relay.ledger", "Distributed")
    return refused.value


def wrong_credentials_under_way() -> RelayError:
    _, (exit_,) = step.step(in_phase(Phase.PRODUCING), Failed(Failure.CREDENTIALS, "x"))
    assert isinstance(exit_, Exit)
    assert exit_.error is not None
    return exit_.error


def left_parked() -> RelayError:
    parked = importlib.import_module("loader.cli.parked")  # the package has a command of this name
    with pytest.MonkeyPatch.context() as patch:
        for name in ("settings_of", "ledger_of"):
            patch.setattr(parked, name, lambda _: None)
        patch.setattr(resolve, "resolve", lambda *_: [("b", "parked", "no rows")])
        done = CliRunner().invoke(parked.resolve, ["x.toml", "b", "--retry"], env={})
    assert isinstance(done.exception, RelayError), done.output
    return done.exception


NAMED: dict[str, tuple[Callable[[], RelayError], ErrorPage]] = {
    "lost ledger": (lost, ErrorPage.LEDGER),
    "lost ledger, and the journal's beginning": (
        lambda: lost(checkpoint=None, bounds={0: (3, 9)}),
        ErrorPage.LEDGER,
    ),
    "a ledger that keeps no rows": (not_kept, ErrorPage.LEDGER_TABLE),
    "a checkpoint of another journal": (lambda: lost(journal="K"), ErrorPage.LEDGER),
    "a ledger of another journal": (
        lambda: lost(noted=Noted({("K", 0): 3}), checkpoint=None),
        ErrorPage.LEDGER,
    ),
    "offsets moved, or a gap": (
        lambda: takeover._stop(SimpleNamespace(partition=0), "x"),  # type: ignore[arg-type]
        ErrorPage.ACCEPT,
    ),
    "the brake": (braked, ErrorPage.WRONG_TOPIC),
    "a fenced relay": (lambda: step._fenced(Fencing.GROUP, "x"), ErrorPage.START),
    "a fenced member": (lambda: MemberFenced("x", ()), ErrorPage.START),
    "the checkpoint's lock": (lambda: used("there"), ErrorPage.START),
    "two that write one checkpoint, as Spark says": (
        lambda: _from_spark(ValueError("[CONCURRENT_STREAM_LOG_UPDATE]"), "c") or RelayError(""),
        ErrorPage.START,
    ),
    "parked blocks": (left_parked, ErrorPage.PARKED),
    "several servers": (several_servers, ErrorPage.REPLICAS),
    "Kafka's credentials": (
        lambda: answered("x", KafkaError(KafkaError._AUTHENTICATION), ""),
        ErrorPage.CREDENTIALS,
    ),
    "Kafka's credentials, under way": (
        wrong_credentials_under_way,
        ErrorPage.CREDENTIALS,
    ),
    "ClickHouse's credentials, of the loader": (
        lambda: failure(WRONG_PASSWORD, "x"),
        ErrorPage.CREDENTIALS,
    ),
    "ClickHouse's credentials, of the relay": (
        lambda: translated(WRONG_PASSWORD, SERVER, "read it"),
        ErrorPage.CREDENTIALS,
    ),
}


@pytest.mark.parametrize("page", ErrorPage)
def test_each_page_is_printed(page: ErrorPage) -> None:
    done = CliRunner().invoke(docs, [page], catch_exceptions=False)
    assert done.exit_code == 0
    assert done.output.startswith("#")


@pytest.mark.parametrize("name", NAMED)
def test_an_error_names_its_page(name: str) -> None:
    make, page = NAMED[name]
    assert str(make()).splitlines()[-1] == f"  more: relay docs {page}"


def test_an_error_without_a_page_has_no_such_line() -> None:
    """Negative control: neither of a right, nor of a server that is away."""
    for error in (errors.Refused("no", "grant it"), errors.Unavailable("away")):
        assert "more:" not in str(error)


def test_what_was_printed_is_an_error_again() -> None:
    """Behind Spark's traceback, behind a worker's outcome, and behind a child process."""
    error = errors.ContractBroken("lost it", "find it", page=ErrorPage.LEDGER)
    traceback = f"Traceback\nrelay.errors.ContractBroken: {error}\n\tat Java"
    for again in (
        _from_spark(ValueError(traceback), "c"),
        errors.Refused.printed(str(error)),
        of_supersede(6, f"loader: {error}\n"),
    ):
        assert again is not None
        assert (again.message, again.page) == ("lost it", ErrorPage.LEDGER)
        assert again.next_step.startswith("find it")
        assert "more" not in again.next_step
