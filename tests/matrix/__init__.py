"""The operator x element type matrix: one small program for every cell."""
