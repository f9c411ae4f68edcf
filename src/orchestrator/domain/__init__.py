"""Plain values: the words of the glossary as types. Knows no I/O and imports nothing above itself."""
