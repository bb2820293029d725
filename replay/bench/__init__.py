"""Benches that need nothing but this package; `turnstate.streams.bench` names all."""
