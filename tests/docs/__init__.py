"""The documents: their tables are made from the code, and what they name exists.

`python -m tests.docs` writes every table anew; the tests fail where one is out of date.
"""
