"""Growth of the cost of every parser that meets bytes from outside.

`subjects` lists the parsers with the inputs that an attacker would choose, `cost` measures them,
and `expressions` looks at the structure of every regular expression in the tree.
"""
