"""Acting on the box through the web process, in the name of the operator whose token a request has."""
