"""`python -m tests.k8s.chart`: makes k8s/chart anew; with --helm it builds Helm for the tests."""

from __future__ import annotations

import sys

import click

from tests.k8s.chart import helm, made


@click.command()
@click.option("--check", is_flag=True, help="Change nothing; exit 1 if a file is out of date.")
@click.option("--helm", "wanted", is_flag=True, help="Build Helm, if it is not there: minutes.")
def main(*, check: bool, wanted: bool) -> None:
    """Make the Helm chart of the kustomize base."""
    if wanted:
        helm.build()
        return
    if check:
        changed = sorted(name for name, _ in made.files().items() ^ made.there().items())
    else:
        changed = made.write()
    for name in sorted(set(changed)):
        click.echo(f"{'out of date' if check else 'written'}: k8s/chart/{name}")
    sys.exit(1 if check and changed else 0)


if __name__ == "__main__":
    main()
