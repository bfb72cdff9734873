"""`python -m pdenet_cli` is `pdenet`; torchrun needs it by this name."""

from pdenet_cli.cli import main

main()
