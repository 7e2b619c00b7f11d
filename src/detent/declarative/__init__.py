"""Jobs as files: read with every mistake and its line, compared with what the server has, written back out.

No I/O and no clock: text, documents and times are arguments. What talks to the server is in `cli/`.
"""
