"""The brain: values in, values out.

No I/O, no clock, no randomness, standard library only, Python 3.8 syntax: the same code decides on the host each
second, in tests on a virtual clock, in ``replay`` on recorded runs and in ``why`` on a stored snapshot.
"""
