"""Import of configurations of other programs: each becomes a profile, with what became of every option."""
