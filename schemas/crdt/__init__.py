"""The parts of a state that merge: slots, tags, counters, the graph of turns."""
