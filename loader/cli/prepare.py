"""`loader prepare`: lets Spark start in half the time on this machine."""

from __future__ import annotations

import click

from loader.cli.options import require_spark
from relay.program import java
from relay.program.json_output import print_json


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def prepare(*, as_json: bool) -> None:
    """Let `loader run` start in half the time on this machine.

    Starts Spark once and writes the classes that its JVM has loaded to a file of about 160 MB in
    the Python environment. The JVM maps the file from then on. Run the command again after an
    upgrade of Java or of the environment: a file that does not fit is not used. It takes about half
    a minute, and no loader needs to stop.
    """
    require_spark()
    java.require()
    from loader.operate.prepare import prepare as write  # noqa: PLC0415 - Spark

    archive = write()
    size = archive.stat().st_size
    if as_json:
        print_json({"archive": str(archive), "bytes": size})
    else:
        click.echo(f"Spark's classes are in {archive} ({size / 1e6:.0f} MB)")
