"""The memory rule, which gate and preflight share: what must be free where, and whether it is.

Standard library only, and nothing of ours from outside: the gate imports it before every start.
"""
