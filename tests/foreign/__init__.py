"""Other libraries' own test suites, run on this backend and on the stock CPU.

Outside the suite: `python -m tests.foreign --help`.
"""
