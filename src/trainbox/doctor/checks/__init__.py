"""One check a file: each has `examine(case)`, which returns what it found and changes nothing."""
