"""The whole product on real GPUs: ``make gpu``, or ``python -m tests.gpu`` where torch sees a GPU."""
