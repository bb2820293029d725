"""Run the command line as `python -m turnstate.streams`."""

from turnstate.streams.cli.main import main

if __name__ == "__main__":
    main()
