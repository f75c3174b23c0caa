"""Answer operators of the loader: its status, parked blocks, superseded blocks, the ledger.

In come settings and a person's decision; out come rows for a screen, or changes of the ledger.
`status` shows, `resolve` settles parked blocks, `supersede` those of a rewind, `clean` removes what
`clean_plan` names, `prepare` writes Spark's archive of classes. `starter` ends a command with the
process that started it.
"""
