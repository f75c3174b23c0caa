"""config.xml and users.xml of a stack's ClickHouse.

Receives a directory with its password file, and ports; gives files that their owner alone
can read.
"""

from __future__ import annotations

import hashlib
import uuid
from pathlib import Path
from xml.sax.saxutils import escape

from relay.dev.clickhouse import NAME, USER, password_file, write_private
from relay.dev.layout import HOST
from relay.dev.process import log_file

_CONFIG = """<clickhouse>
    <listen_host>{host}</listen_host>
    <http_port>{http_port}</http_port>
    <tcp_port>{tcp_port}</tcp_port>
    <users_config>{users}</users_config>
    <logger>
        <log>{log}</log>
        <errorlog>{errors}</errorlog>
        <size>20M</size>
        <count>2</count>
    </logger>
    <!-- Local mode has a name of its own for the level. -->
    <log-level>warning</log-level>
    <!-- Machines for development have few cores: INSERTs and queries go before merges, which
         otherwise take half of them whenever tables of the same size are merged together. -->
    <os_threads_nice_value_merge_mutate>10</os_threads_nice_value_merge_mutate>
    <!-- Local mode has two threads for what is due at some time, and pauses what wants both. -->
    <background_schedule_pool_size>16</background_schedule_pool_size>
    <!-- Brokers, Spark and a browser live on the same machine. -->
    <max_server_memory_usage_to_ram_ratio>0.5</max_server_memory_usage_to_ram_ratio>
    <mark_cache_size>268435456</mark_cache_size>
    <primary_index_cache_size>268435456</primary_index_cache_size>
    <!-- For tables of the engine Kafka: partitions of a server that was killed come back after 6 s,
         not 45. -->
    <kafka><session_timeout_ms>6000</session_timeout_ms></kafka>
    <!-- What the loader may ask when it does not know what became of a statement. -->
{logs}</clickhouse>
"""
"""The server's configuration, where it is not the default."""

_LOG = """    <{name}>
        <database>system</database>
        <table>{name}</table>
        <flush_interval_milliseconds>500</flush_interval_milliseconds>
        <engine>ENGINE = MergeTree PARTITION BY event_date ORDER BY (event_date, event_time)
            TTL event_date + INTERVAL 3 DAY SETTINGS ttl_only_drop_parts = 1</engine>
    </{name}>
"""
LOGS = ("query_log", "part_log", "query_views_log")
"""Tables of `system` that the server writes."""

_USERS = """<clickhouse>
    <profiles>
        <default/>
        <local><max_sessions_for_user>1</max_sessions_for_user></local>
    </profiles>
    <quotas><default/></quotas>
    <users>
        <!-- Local mode opens a session as `default` without a password, from 127.0.0.1, and that
             cannot be changed. So this name may have one session, which is that one for as long as
             the server runs (nobody else gets in), and may do nothing but what starts it. -->
        <default>
            <no_password/>
            <networks><ip>{host}</ip></networks>
            <profile>local</profile>
            <quota>default</quota>
            <grants><query>GRANT SYSTEM FLUSH LOGS, SYSTEM LISTEN ON *.*</query></grants>
        </default>
        <!-- All rights; READ ON FILE among them, which local mode wants for `input()`. -->
        <{user}>
            <password_sha256_hex>{digest}</password_sha256_hex>
            <networks><ip>{host}</ip></networks>
            <profile>default</profile>
            <quota>default</quota>
            <access_management>1</access_management>
            <named_collection_control>1</named_collection_control>
        </{user}>
    </users>
</clickhouse>
"""


def configure(directory: Path, http_port: int, tcp_port: int) -> Path:
    """Write config.xml and users.xml for a stack; return the directory that holds them.

    Also makes the database `system` one that is kept, as a server has it.
    """
    place = server_directory(directory)
    place.mkdir(parents=True, exist_ok=True)
    secret = password_file(directory).read_text(encoding="utf-8").strip()
    digest = hashlib.sha256(secret.encode()).hexdigest()
    users = place / "users.xml"
    write_private(users, _USERS.format(host=HOST, user=USER, digest=digest))
    config = _CONFIG.format(
        host=HOST,
        http_port=http_port,
        tcp_port=tcp_port,
        users=escape(str(users)),
        log=escape(str(log_file(directory, f"{NAME}-server"))),
        errors=escape(str(log_file(directory, f"{NAME}-errors"))),
        logs="".join(_LOG.format(name=name) for name in LOGS),
    )
    write_private(place / "config.xml", config)
    _keep_system(directory / NAME / "metadata" / "system.sql")
    return place


def server_directory(directory: Path) -> Path:
    """Return where a stack's server has its configuration; it also reads config.d there."""
    return directory / f"{NAME}-server"


def _keep_system(path: Path) -> None:
    """Local mode has `system` in memory, and forgets the logs in it, unless it finds it here."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        text = f"ATTACH DATABASE _ UUID '{uuid.uuid4()}'\nENGINE = Atomic\n"
        partial = path.with_suffix(".part")
        partial.write_text(text, encoding="utf-8")
        partial.rename(path)
