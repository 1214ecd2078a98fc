"""``python -m dpcompare``: the command line."""

from dpcompare.cli import main

main()
