"""The protobuf schema of turns and frames, and the code that `make proto` writes."""
