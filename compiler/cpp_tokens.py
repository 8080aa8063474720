"""The tokens of C++ sources (C++20, [lex.pptoken])."""

import re
from collections.abc import Iterator

# The longest spelling first where one begins like another.
_TOKEN = re.compile(
    r"""
    (?P<comment> //(?:\\\n|[^\n])* | /\*.*?\*/ )
  | (?P<space> (?:[ \t\r\f\v] | \\\n)+ )
  | (?P<newline> \n )
  | (?P<raw> (?:u8|[uUL])?R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)" )
  | (?P<string> (?:u8|[uUL])?"(?:\\.|[^"\\\n])*" )
  | (?P<character> (?:u8|[uUL])?'(?:\\.|[^'\\\n])+' )
  | (?P<number> \.?[0-9](?:[eEpP][+-]|'[0-9A-Za-z_]|[0-9A-Za-z_.])* )
  | (?P<word> [^\W\d]\w* )
  | (?P<sign> %:%: | \.\.\. | <=> | <<= | >>= | ->\* | [-+*/%^&|=!<>]= | << | >> | && | \|\| | \+\+ | -- | -> | :: | \.\* | \#\# | . )
    """,
    re.X | re.S,
)

_INCLUDE = re.compile(r"#[ \t]*include[ \t]*<[^>\n]*>")


def pieces(text: str) -> Iterator[tuple[str, str]]:
    """All of a text, as kinds (the groups above, and "include") and spellings, in order."""
    at = 0
    while at < len(text):
        if found := _INCLUDE.match(text, at):  # which may have "//" in its name
            yield "include", found.group()
        else:
            found = _TOKEN.match(text, at)
            yield found.lastgroup, found.group()
        at = found.end()


def tokens(text: str) -> Iterator[str]:
    """What a compiler reads, without comments and space. A directive has its end as a token."""
    directive = apart = False
    before: list[str] = []  # the tokens of this line
    for kind, token in pieces(text):
        if kind == "newline":
            if directive:
                yield token
            directive, apart, before = False, False, []
        elif kind in ("comment", "space"):
            apart = True
        else:
            directive = directive or token.startswith("#") and not before
            # "#define F (x)" and "#define F(x)" differ by space alone.
            if directive and token == "(" and before[1:2] == ["define"] and len(before) == 3 and apart:
                yield " "
            before.append(token)
            apart = False
            yield token


def without_comments(text: str) -> str:
    """The text that is the same for a compiler, in the same lines, without those that have nothing but comments."""
    kept = "".join(" " if kind == "comment" else spelling for kind, spelling in pieces(text))
    lines = (line.rstrip() for line in kept.split("\n"))
    return "".join(f"{line}\n" for line in lines if line)
