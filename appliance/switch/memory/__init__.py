"""Memory rule that gate and preflight share: which memory must be free, and whether it is.

Standard library only, and nothing of ours from outside: the gate imports it before every start.
"""
