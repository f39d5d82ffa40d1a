"""Ways to change a source; each is a function from a source of chance and a subject to another subject.

Most keep the meaning, or put something beside it that means another thing by the same names.
Others break the text: both must end in a plan that compiles or in a clear error.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

from tree_sitter import Node

from tests.mutants.forms import filled, forms, needed
from tests.mutants.subject import Subject, function_of, root_name, statement_of

Mutation = Callable[[Random, Subject], "Subject | None"]

NAMES = b"data tensor_data tensor_set_data tensor_data_in_loop self T ne src view_src _ ggml_tensor_".split()


def _access(rng: Random, subject: Subject) -> tuple[Node, bytes] | None:
    """An access, and a pointer to what it is of."""
    if not subject.accesses:
        return None
    node = rng.choice(subject.accesses)
    base = subject.text(node.child_by_field_name("argument"))
    if subject.text(node.child_by_field_name("operator")) == b".":
        base = b"&(" + base + b")"
    return node, base


def _instead(rng: Random, subject: Subject, section: str) -> Subject | None:
    found = _access(rng, subject)
    if not found:
        return None
    node, base = found
    new = filled(rng.choice(forms(section, subject.cpp)), b=base, w=subject.text(node))
    return subject.replaced(node.start_byte, node.end_byte, new, *needed(new))


def base_form(rng: Random, subject: Subject) -> Subject | None:
    """Another way to write the same access."""
    return _instead(rng, subject, "pointers")


def use_form(rng: Random, subject: Subject) -> Subject | None:
    """Another way to use an access."""
    return _instead(rng, subject, "uses")


def half_expression(rng: Random, subject: Subject) -> Subject | None:
    """An access of which a conditional of the preprocessor holds a part."""
    return _instead(rng, subject, "halves")


def half_statement(rng: Random, subject: Subject) -> Subject | None:
    """A statement with an access inside of something, or in several branches."""
    found = _access(rng, subject)
    statement = statement_of(found[0]) if found else None
    if statement is None:
        return None
    new = filled(rng.choice(forms("half_statements", subject.cpp)), s=subject.text(statement))
    return subject.replaced(statement.start_byte, statement.end_byte, new, *needed(new))


def _before(rng: Random, subject: Subject, section: str) -> Subject | None:
    found = _access(rng, subject)
    statement = statement_of(found[0]) if found else None
    name = root_name(found[1]) if found else None
    if not found or statement is None or name is None:
        return None
    new = filled(rng.choice(forms(section, subject.cpp)), b=found[1], n=name, w=subject.text(found[0]))
    if rng.random() < 0.5:
        new = b"{ " + new + b"\n}"
    return subject.replaced(statement.start_byte, statement.start_byte, new + b"\n    ", *needed(new))


def statement(rng: Random, subject: Subject) -> Subject | None:
    """One more statement that reads the field."""
    return _before(rng, subject, "statements")


def store(rng: Random, subject: Subject) -> Subject | None:
    """One more statement that stores to the field, or is near to it."""
    return _before(rng, subject, "stores")


def shadow(rng: Random, subject: Subject) -> Subject | None:
    """The same names for something else, in a block of their own."""
    return _before(rng, subject, "shadows")


def rename(rng: Random, subject: Subject) -> Subject | None:
    """A variable of a function gets another name."""
    found = _access(rng, subject)
    function = function_of(found[0]) if found else None
    name = root_name(found[1]) if found else None
    if function is None or name is None:
        return None
    new = rng.choice(NAMES)
    text = re.sub(rb"(?<![\w.>])" + re.escape(name) + rb"\b", new, subject.text(function))
    return subject.replaced(function.start_byte, function.end_byte, text)


_DECLARED = (
    rb"(?:const\s+)?(?:struct\s+)?ggml_tensor\s*(?:const\s*)?\*\s*(?:const\s+|restrict\s+|__restrict\s+)?"
)


def declared_type(rng: Random, subject: Subject) -> Subject | None:
    """A variable of another type, or of the same by another name."""
    found = _access(rng, subject)
    function = function_of(found[0]) if found else None
    name = root_name(found[1]) if found else None
    if function is None or name is None:
        return None
    text = subject.text(function)
    places = [m for m in re.finditer(_DECLARED + re.escape(name) + rb"\b", text)]
    if not places:
        return None
    place = rng.choice(places)
    new = rng.choice(forms("types", subject.cpp))
    needs = list(needed(new))
    if b"fz_twin" in new:
        needs.append(_twin(subject))
    start = function.start_byte + place.start()
    return subject.replaced(start, start + len(place[0]), new + b" " + name, *needs)


def _twin(subject: Subject) -> bytes:
    """A struct with the same members and another name."""
    header = next((text for path, text in subject.others.items() if path.endswith("ggml.h")), b"")
    found = re.search(rb"struct ggml_tensor \{.*?\n    \};|struct ggml_tensor \{.*?\n\};", header, re.DOTALL)
    return found[0].replace(b"struct ggml_tensor {", b"struct fz_twin {") + b"\n" if found else b""


def function_form(rng: Random, subject: Subject) -> Subject | None:
    """A function inside of something, or of another kind."""
    if not subject.functions:
        return None
    with_access = [f for f in (function_of(node) for node in subject.accesses) if f is not None]
    function = rng.choice(with_access or list(subject.functions))
    body = function.child_by_field_name("body")
    if body is None:
        return None
    text, inner = subject.text(function), subject.text(body)
    head = subject.content[function.start_byte : body.start_byte]
    ways = [
        head + b"{ " + inner + b" }",
        b"\n#ifdef FZ_X\n" + head + b"{ }\n#else\n" + text + b"\n#endif\n",
        b"\n#ifdef FZ_X\n" + head + b"{\n#else\n" + head + b"{\n#endif\n" + inner[1:],
        b"__attribute__((unused)) " + text,
        b"#define FZ_FUNCTION \\\n" + text.replace(b"\n", b" \\\n") + b"\nFZ_FUNCTION\n",
        text.replace(b"{", b"<%").replace(b"}", b"%>"),
    ]
    if subject.cpp:
        ways += [
            b"template <typename FZ> " + text,
            b"namespace fz { " + text + b" }\nusing namespace fz;\n",
            b"namespace { " + text + b" }\n",
            head + b"{ return [&]() " + inner + b"(); }",
            head + b"try " + inner + b" catch (...) { throw; }",
            b"struct fz_class { void * data; " + text.replace(b"static ", b"", 1) + b" };\n",
            b"struct fz_class : ggml_tensor { static " + text.replace(b"static ", b"", 1) + b" };\n",
            re.sub(
                rb"(const )?(struct )?ggml_tensor \*", b"FZ *", b"template <typename FZ> " + text, count=2
            ),
        ]
    return subject.replaced(function.start_byte, function.end_byte, rng.choice(ways))


def move_function(rng: Random, subject: Subject) -> Subject | None:
    """A function where another one ends: before or after what it needs."""
    if len(subject.functions) < 2:
        return None
    function, other = rng.sample(subject.functions, 2)
    text = subject.text(function)
    place = other.end_byte
    if function.start_byte < place <= function.end_byte:
        return None
    without = subject.content[: function.start_byte] + subject.content[function.end_byte :]
    place -= len(text) if place > function.end_byte else 0
    return subject.changed(without[:place] + b"\n" + text + b"\n" + without[place:])


def layout(rng: Random, subject: Subject) -> Subject | None:
    """The same words with other white space, comments, line ends or bytes."""
    content = subject.content
    if rng.random() < 0.5 and subject.accesses:
        node = rng.choice(subject.accesses)
        filling = rng.choice(
            [
                b"\\\n",
                b" \\\n  ",
                b"/* -> data */",
                b"// x->data\n",
                b"\t\v\f",
                b"\r\n",
                b"/**/",
                b"\\\r\n",
                b"/*\\\n*/",
            ]
        )
        ends = [child.end_byte for child in node.children]
        place = rng.choice(ends)
        return subject.replaced(place, place, filling)
    ways: list[Callable[[], bytes]] = [
        lambda: content.replace(b"\n", b"\r\n"),
        lambda: b"\xef\xbb\xbf" + content,
        lambda: content.replace(b"    ", b"\t"),
        lambda: b"/* caf\xe9 \xff\xfe */\n" + content + b"// caf\xe9",
        lambda: content.rstrip(b"\n"),
        lambda: re.sub(rb"->data\b", b"\n->\ndata", content),
        lambda: re.sub(rb"->data\b", b"-> /* field */ data", content),
        lambda: content + b"\n#if 0\n\xff\x00 it's -> data\n#endif\n",
        lambda: content + b"\x1a",
        lambda: content.replace(b"[", b"<:").replace(b"]", b":>"),
        lambda: re.sub(
            rb"\n(?=    \w)", lambda m: b"\n" if rng.random() < 0.98 else b"\n// quiet \\\n", content
        ),
        lambda: re.sub(rb"; *\n", lambda m: b"; // then\n" if rng.random() < 0.5 else b";\n", content),
        lambda: b'const char * fz_text = "\\"; x->data = 0; /*";\n' + content,
        lambda: (b'static auto fz_raw = R"fz( " x->data = 1; /* )fz";\n' if subject.cpp else b"") + content,
    ]
    return subject.changed(rng.choice(ways)())


MARKS = [
    b"{",
    b"}",
    b"(",
    b")",
    b"[",
    b"]",
    b";",
    b",",
    b"*",
    b"&",
    b"<",
    b">",
    b"'",
    b'"',
    b"#",
    b"\\",
    b"/*",
]


def damage(rng: Random, subject: Subject) -> Subject | None:
    """Lines or words deleted, doubled or in another order, or the end cut off."""
    content = subject.content
    near = rng.choice(subject.accesses).start_byte if subject.accesses else rng.randrange(len(content))
    lines = content.split(b"\n")
    at = min(max(0, content.count(b"\n", 0, near) + rng.randint(-3, 3)), len(lines) - 2)
    tokens = list(re.finditer(rb"\w+|[^\w\s]", content))
    index = min(range(len(tokens)), key=lambda i: abs(tokens[i].start() - near)) + rng.randint(-6, 6)
    token, other = tokens[index % len(tokens)], rng.choice(tokens)
    ways: list[Callable[[], bytes]] = [
        lambda: b"\n".join(lines[:at] + lines[at + 1 :]),
        lambda: b"\n".join(lines[: at + 1] + lines[at:]),
        lambda: b"\n".join([*lines[:at], lines[at + 1], lines[at], *lines[at + 2 :]]),
        lambda: content[: near + rng.randint(-20, 40)],
        lambda: content[: token.start()] + content[token.end() :],
        lambda: content[: token.end()] + b" " + token[0] + content[token.end() :],
        lambda: content[: token.start()] + other[0] + content[token.end() :],
        lambda: content[: token.start()] + rng.choice(MARKS) + content[token.start() :],
        lambda: content[: token.start()] + bytes([rng.randrange(256)]) + content[token.start() :],
        lambda: b"\n".join(lines[at:]),
    ]
    return subject.changed(rng.choice(ways)())


MUTATIONS: dict[str, Mutation] = {
    "base": base_form,
    "use": use_form,
    "statement": statement,
    "store": store,
    "shadow": shadow,
    "type": declared_type,
    "name": rename,
    "half expression": half_expression,
    "half statement": half_statement,
    "function": function_form,
    "move": move_function,
    "layout": layout,
    "damage": damage,
}


def mutate(rng: Random, subject: Subject, kind: str | None = None) -> tuple[tuple[str, ...], Subject]:
    """The subject with one change, or now and then with two or three; with the names of what was done."""
    done: list[str] = []
    wanted = rng.choice([1, 1, 1, 1, 1, 1, 2, 2, 3]) if kind is None else 1
    for _ in range(50):
        name = kind or rng.choice(list(MUTATIONS))
        changed = MUTATIONS[name](rng, subject)
        if changed is not None and changed.whole() != subject.whole():
            subject = changed
            done.append(name)
        if len(done) == wanted:
            break
    return tuple(done), subject
