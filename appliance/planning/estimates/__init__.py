"""How much memory a model will take, from the headers of its files. Pure."""
