"""`python -m tests.docs`: writes the generated tables of all documents anew."""

from __future__ import annotations

import sys

import click

from relay.cli.docs import ROOT
from tests.docs import documents
from tests.docs.tables import every


@click.command()
@click.option("--check", is_flag=True, help="Change nothing; exit 1 if a table is out of date.")
def main(*, check: bool) -> None:
    """Write every table between `<!-- table: NAME -->` and its end anew, from the code."""
    tables = every()
    changed = []
    for path, text in documents.every().items():
        new = documents.filled(text, tables)
        if new != text:
            changed.append(path)
            if not check:
                (ROOT / path).write_text(new, encoding="utf-8")
    for path in changed:
        click.echo(f"{'out of date' if check else 'written'}: {path}")
    sys.exit(1 if check and changed else 0)


if __name__ == "__main__":
    main()
