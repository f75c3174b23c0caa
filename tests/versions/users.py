"""Users of a server, as its users.xml says them; pure text.

A server has them as users. An engine behind the front has one user for everybody, so there each
is a role that this user takes on for the request: what is granted and what is refused is the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

ALL = ("GRANT ALL ON *.* WITH GRANT OPTION",)
"""What an administrator may."""
STRICT = (
    "<access_control_improvements>"
    "<users_without_row_policies_can_read_rows>true</users_without_row_policies_can_read_rows>"
    "<on_cluster_queries_require_cluster_grant>true</on_cluster_queries_require_cluster_grant>"
    "<select_from_system_db_requires_grant>true</select_from_system_db_requires_grant>"
    "<select_from_information_schema_requires_grant>true"
    "</select_from_information_schema_requires_grant>"
    "<settings_constraints_replace_previous>true</settings_constraints_replace_previous>"
    "<table_engines_require_grant>true</table_engines_require_grant>"
    "</access_control_improvements>"
)
"""Of config.xml: what ClickHouse's packages switch on, and that engines are granted, too."""
SPOOL = "front_spool"
"""The role that may read the file in which data is sent to an engine behind the front."""


@dataclass(frozen=True)
class User:
    """Somebody who may ask.

    Attributes:
        name: a plain identifier.
        password: of it.
        grants: GRANT statements without TO.
        settings: of the user's profile.
        policies: row policies: `database.table` to a condition.
        constant: settings of the profile that the user may not change.
        least: settings that the user may change, to this or more.
    """

    name: str
    password: str
    grants: tuple[str, ...] = ALL
    settings: Mapping[str, str] = field(default_factory=dict)
    policies: Mapping[str, str] = field(default_factory=dict)
    constant: tuple[str, ...] = ()
    least: Mapping[str, str] = field(default_factory=dict)


def of_server(users: Iterable[User]) -> str:
    """users.xml with each as a user.

    `default` is whom local mode itself runs as, without a password: it may only start the listener.
    """
    every = list(users)
    local = _element("password", "") + _rest("default", _element("ip", "127.0.0.1"))
    local += _granted(("GRANT SYSTEM LISTEN ON *.*",))
    parts = [_element("default", local)]
    for user in every:
        open_ = _element("password", escape(user.password)) + _rest(
            f"of_{user.name}", _element("ip", "127.0.0.1")
        )
        # A user whose current database is `default` needs READ ON FILE for input(), which is so
        # in local mode only.
        inside = open_ + _element("default_database", "system") + _granted(user.grants)
        parts.append(_element(user.name, inside + _policies(user.policies)))
    profiles = "".join(_element(f"of_{user.name}", _settings(user)) for user in every)
    return _file(_element("default", "") + profiles, "", "".join(parts))


def of_engine(users: Iterable[User]) -> str:
    """users.xml with each as a role of the one user; role SPOOL reads what was sent."""
    every = list(users)
    roles = "".join(_element(user.name, _granted(user.grants)) for user in every)
    roles += _element(SPOOL, _granted(("GRANT CREATE TEMPORARY TABLE, FILE ON *.*",)))
    names = ", ".join([*(user.name for user in every), SPOOL])
    inside = _element("password", "") + _rest("default", _element("ip", "::/0"))
    inside += _granted((f"GRANT {names}",))
    return _file(_element("default", ""), roles, _element("default", inside))


def _file(profiles: str, roles: str, users: str) -> str:
    body = _element("profiles", profiles) + (_element("roles", roles) if roles else "")
    body += _element("users", users) + _element("quotas", _element("default", ""))
    return _element("clickhouse", body)


def _rest(profile: str, networks: str) -> str:
    return (
        _element("profile", profile) + _element("quota", "default") + _element("networks", networks)
    )


def _granted(grants: Iterable[str]) -> str:
    return _element("grants", "".join(_element("query", escape(grant)) for grant in grants))


def _settings(user: User) -> str:
    given = "".join(_element(name, escape(value)) for name, value in user.settings.items())
    fixed = "".join(_element(name, "<const/>") for name in user.constant)
    fixed += "".join(_element(name, _element("min", one)) for name, one in user.least.items())
    return given + (_element("constraints", fixed) if fixed else "")


def _policies(policies: Mapping[str, str]) -> str:
    """The `databases` section: tables with a condition that a row must meet to be seen."""
    if not policies:
        return ""

    def tables() -> Iterator[str]:
        for place, condition in policies.items():
            database, _, table = place.partition(".")
            filter_ = _element("filter", escape(condition))
            yield _element(database, _element(table, filter_))

    return _element("databases", "".join(tables()))


def _element(name: str, inside: str) -> str:
    return f"<{name}>{inside}</{name}>"
