"""The pure core: no I/O, no clock, no threads. Facts go in, decisions come out."""
