"""Performs the faults of servers and of the network; see tests.chaos.faults."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import psutil
from confluent_kafka import KafkaException

from relay import names
from relay.dev import broker, process
from tests.chaos import coordinator
from tests.chaos.program_faults import REACH_SECONDS, one, restarted_at, when
from tests.chaos.proxy_wire import Api

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.chaos.campaign import Campaign, Task
    from tests.chaos.schedule import Fault

_COMMIT_SECONDS = 45.0
"""A member that was started anew comes to its first commit, on a busy machine: within 12 s only
4 of 56 did at a load of 30."""


def restart_endpoint(campaign: Campaign, fault: Fault) -> Sequence[Task]:
    campaign.servers.end_endpoint(kill=fault.detail == "kill")
    return [(fault.seconds, "undo endpoint", campaign.servers.start_endpoint)]


def bounce_broker(campaign: Campaign, fault: Fault) -> Sequence[Task]:
    """One broker down and up again; never a second one beside it."""
    servers = campaign.servers
    index = fault.target % servers.brokers
    if not all_brokers_run(campaign):
        return ()
    end = broker.kill if fault.detail == "kill" else broker.stop
    end(servers.place, index)
    return [(fault.seconds, "undo broker", lambda: started(campaign, index))]


def all_brokers_run(campaign: Campaign) -> bool:
    place, count = campaign.servers.place, campaign.servers.brokers
    return all(process.find(place, broker.name(index)) for index in range(count))


def started(campaign: Campaign, index: int) -> None:
    """Start a broker, and wait until it answers."""
    broker.start(campaign.servers.place, index)


def grow_source(campaign: Campaign, _fault: Fault) -> Sequence[Task]:
    """A partition is added to the source, and filled from the next batch on."""
    if all_brokers_run(campaign):
        try:
            campaign.source.grow(campaign.servers.grow())
        except KafkaException as error:  # a broker that just came back: the next one looks again
            campaign.history.write("not grown", error=repr(error))
    return ()


def coordinator_kill(campaign: Campaign, fault: Fault) -> Sequence[Task]:
    """SIGKILL for the broker that coordinates a member's transaction, while it commits.

    The member waits at its gate until then; `Campaign.heal` opens every gate.
    """
    if not all_brokers_run(campaign):
        return ()
    program = one(campaign.members, fault)
    gate = campaign.directory / f"{program.name}.gate"
    held = gate.with_name(f"{gate.name}.reached")
    gate.touch()
    held.unlink(missing_ok=True)
    restarted_at(campaign, program, f"before_commit:wait={gate}:{fault.nth}")

    def strike() -> Sequence[Task]:
        index = coordinator.of(campaign.servers, program.name.removeprefix("relay-"))
        gate.unlink(missing_ok=True)
        time.sleep(fault.target % 20 / 1000)  # before EndTxn arrives, inside, after its answer
        broker.kill(campaign.servers.place, index)
        campaign.performed["coordinator_killed_in_commit"] += 1
        return [(fault.seconds, "undo broker", lambda: started(campaign, index))]

    def open_gate() -> Sequence[Task]:  # the member has nothing to commit
        gate.unlink(missing_ok=True)
        return ()

    return when(held.exists, strike, time.monotonic() + _COMMIT_SECONDS, open_gate)


def broker_disk_full(campaign: Campaign, fault: Fault) -> Sequence[Task]:
    """No file of a broker may grow any more: it gives its log directory up, and ends."""
    servers = campaign.servers
    index = fault.target % servers.brokers
    found = process.find(servers.place, broker.name(index))
    if found is None or not all_brokers_run(campaign):
        return ()
    limits = found.rlimit(psutil.RLIMIT_FSIZE)
    found.rlimit(psutil.RLIMIT_FSIZE, (1, limits[1]))

    def space() -> None:
        if found.is_running():
            broker.kill(servers.place, index)
        started(campaign, index)

    return [(fault.seconds, "undo disk", space)]


def network(campaign: Campaign, fault: Fault) -> Sequence[Task]:
    """The way between programs and one broker."""
    if not campaign.servers.proxies:
        return ()
    proxies = campaign.servers.proxies
    proxy = proxies[fault.target % len(proxies)]
    match fault.detail:
        case "delay":
            proxy.delay(fault.target % 500)
        case "cut":
            proxy.cut()
        case "half_open":
            proxy.half_open(True)
        case "lossy":
            proxy.lossy(0.01, fault.target)
        case "drop_end_txn":
            proxy.drop_answers(Api.END_TXN, 1 + fault.target % 2)
    return [(fault.seconds, "undo network", proxy.heal)]


def stale_end_txn(campaign: Campaign, fault: Fault) -> Sequence[Task]:
    """A member's EndTxn is lost on the way, sent again, and let go inside its next transaction.

    The member dies before that transaction has its offsets: what the late EndTxn committed
    stays committed, and nothing else of it.
    """
    if not campaign.servers.proxies or not all_brokers_run(campaign):
        return ()
    program = one(campaign.members, fault)
    member = program.name.removeprefix("relay-")
    client = names.transactional_id(campaign.servers.app, member)
    proxy = campaign.servers.proxies[coordinator.of(campaign.servers, member)]
    stale = proxy.hold(Api.END_TXN, client)

    def lost() -> Sequence[Task]:
        stale.cut_client()
        offsets = proxy.hold(Api.ADD_OFFSETS_TO_TXN, client)

        def inside() -> Sequence[Task]:
            stale.release()
            return when(lambda: stale.is_settled, strike, time.monotonic() + REACH_SECONDS, strike)

        def strike() -> Sequence[Task]:
            program.kill()
            campaign.performed["stale_end_txn_let_go_in_next"] += 1
            return ()

        undo = (REACH_SECONDS, "undo offsets", offsets.release)
        return [undo, *when(lambda: offsets.is_held, inside, time.monotonic() + REACH_SECONDS)]

    def undo() -> None:
        proxy.heal()
        stale.release()

    looking = when(lambda: stale.is_held, lost, time.monotonic() + REACH_SECONDS)
    return [*looking, (2 * REACH_SECONDS, "undo stale end", undo)]
