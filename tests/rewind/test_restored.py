"""ClickHouse restored from a backup that is older than a rewind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from relay.config.settings_file import load as load_config
from relay.errors import ContractBroken
from tests.broker.conftest import pipeline  # noqa: F401 - a fixture
from tests.loader.restored import Backup
from tests.loader.unsparked import load
from tests.rewind.test_live import KILLED, Site, site  # noqa: F401 - a fixture

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client


def sent(site: Site, first: int) -> None:  # noqa: F811
    """A hundred rows, in both partitions."""
    site.pipeline.send(range(first, first + 50), partition=0)
    site.pipeline.send(range(first + 50, first + 100), partition=1)


@pytest.mark.long  # 104 s: a restore, a rewind, and loaders of their own
def test_rows_come_once(site: Site, client: Client) -> None:  # noqa: F811
    settings = load_config(site.config)
    sent(site, 0)
    site.relayed()
    load(settings)
    backup = Backup(client, site.pipeline.table, f"{settings.loader.database}.ledger")
    sent(site, 100)
    site.relayed()
    load(settings)
    status, said = site.person("rewind", "--all", "--to-offset", "0", "--run")
    assert status == 0, said
    site.relayed()
    load(settings)
    assert site.rows() == site.pipeline.sent
    backup.restore()
    for _ in range(2):
        with pytest.raises(ContractBroken, match=r"2 rewinds .* has no note") as told:
            load(settings)
        assert "`relay rewind CONFIG --run`" in told.value.next_step
    status, said = site.person("rewind")
    assert (status, said.count("has no note of the rewind at n=")) == (0, 2), said
    for name in ("before_remove", "rewind_noted"):  # in the loader's process below it
        assert site.person("rewind", "--run", failpoint=name)[0] == 4
        with pytest.raises(ContractBroken):
            load(settings)
    status, said = site.person("rewind", "--run")
    assert (status, "start the loader again" in said) == (0, True), said
    load(settings)
    assert site.rows() == site.pipeline.sent
    assert site.person("rewind", "--run")[0] == 2
    site.verified()


@pytest.mark.long
def test_a_slow_loader_a_kept_table_and_a_lost_ledger(site: Site, client: Client) -> None:  # noqa: F811
    """A loader that stands before a rewind that has ended goes on; kept rows are never removed."""
    settings = load_config(site.config)
    sent(site, 0)
    site.relayed()
    load(settings)
    sent(site, 100)
    site.relayed()
    again = ("rewind", "--all", "--to-offset", "0", "--run")
    assert site.person(*again)[0] == 0
    site.relayed()
    assert not load(settings)
    assert site.rows() == site.pipeline.sent

    client.command(f"TRUNCATE TABLE {settings.loader.database}.ledger")
    with pytest.raises(ContractBroken, match="has no position"):
        load(settings)
    with pytest.raises(ContractBroken, match="has no note"):
        load(settings, lost=True)
    assert site.person("rewind", "--run")[0] == 0
    with pytest.raises(ContractBroken, match="has no position"):
        load(settings)
    load(settings, lost=True)
    assert site.rows() == site.pipeline.sent

    kept = site.rows()
    assert site.person(*again, "--keep-rows", site.pipeline.table)[0] == 0
    client.command(f"TRUNCATE TABLE {settings.loader.database}.ledger")
    assert site.person("rewind", "--run")[0] == 0
    assert site.rows() == kept


@pytest.mark.long  # 108 s
def test_a_backup_of_the_midst_of_a_rewind(site: Site, client: Client) -> None:  # noqa: F811
    """Relays wait, and the loader has read the rewind's record: its position is behind that."""
    settings = load_config(site.config)
    sent(site, 0)
    site.relayed()
    again = ("rewind", "--all", "--to-offset", "0", "--run")
    assert site.person(*again, failpoint="person_committed")[0] == KILLED
    load(settings)
    assert site.rows() == site.pipeline.sent
    backup = Backup(client, site.pipeline.table, f"{settings.loader.database}.ledger")
    assert site.person("rewind", "--run")[0] == 0
    site.relayed()
    load(settings)
    backup.restore()
    with pytest.raises(ContractBroken, match="2 rewinds"):
        load(settings)
    assert site.person("rewind", "--run")[0] == 0
    load(settings)
    assert site.rows() == site.pipeline.sent
