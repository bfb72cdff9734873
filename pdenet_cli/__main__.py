"""`python -m pdenet_cli` is `pdenet`; torchrun needs it by this name."""

from pdenet_cli.cli import main

if __name__ == "__main__":  # worker processes import it too
    main()
