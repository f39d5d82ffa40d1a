"""The type of an expression, from the declarations that the tree has.

Nothing is guessed: what cannot be followed to a declaration raises :class:`Unresolved` with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib import resources

from tree_sitter import Node

from numamirror_build.rewrite import declarations as decl
from numamirror_build.rewrite.declarations import Declared
from numamirror_build.rewrite.macros import Macro, Piece, expand, pieces
from numamirror_build.rewrite.project import Project
from numamirror_build.rewrite.scopes import Scopes
from numamirror_build.rewrite.text import closing, tokens
from numamirror_build.rewrite.kinds import (
    INT,
    TEXT,
    VOID,
    Array,
    Builtin,
    Closure,
    Definition,
    External,
    Key,
    Param,
    Pointer,
    Record,
    Ref,
    Signature,
    Type,
    Types,
    Unresolved,
    bare,
    each,
    is_clean,
    substitute,
    unify,
)
from numamirror_build.rewrite.units import Unit, parse_pieces, parse_text

MODEL_PATH = "<std>"

_CASTS = frozenset({b"static_cast", b"const_cast", b"reinterpret_cast", b"dynamic_cast"})
_NUMBERS = frozenset(
    {
        "number_literal",
        "char_literal",
        "true",
        "false",
        "null",
        "sizeof_expression",
        "alignof_expression",
        "offsetof_expression",
        "unary_expression",
        "user_defined_literal",
        "delete_expression",
        "gnu_asm_expression",
        "requires_expression",
        "fold_expression",
    }
)
_STRINGS = frozenset({"string_literal", "concatenated_string", "raw_string_literal"})
_COMPARISONS = frozenset({"==", "!=", "<", ">", "<=", ">=", "&&", "||", "<=>", "and", "or"})
_WRAPS = ((b"void f(void) { (", b"); }"), (b"void f(void) { ", b"; }"), (b"", b""))

_Key = tuple[int, int, int]


class Resolver:
    """Types of expressions and declarations in a project."""

    def __init__(self, project: Project) -> None:
        self.project = project
        text = resources.files("numamirror_build.rewrite").joinpath("std.hpp").read_bytes()
        self.model = parse_text(MODEL_PATH, text, cpp=True)
        self.scopes = Scopes(project, self.model, self._inherited, self._class_nodes)
        self._cache: dict[_Key, Types | Unresolved | None] = {}
        self._classes: dict[str, dict[Key, Declared]] = {}
        self.viewpoint = MODEL_PATH

    def look_from(self, path: str) -> None:
        """Answer as the compiler of a file would: where names are ambiguous, what it includes decides."""
        if path != self.viewpoint:
            self.viewpoint = path
            self._cache.clear()

    # Expressions

    def expression(self, unit: Unit, node: Node) -> Types:
        """The types that an expression can have; references are kept.

        Raises:
            Unresolved: a name, member or call in it cannot be followed.
        """
        return self._cached(unit, node, lambda: self._expression(unit, node))

    def _cached(self, unit: Unit, node: Node, make: Callable[[], Types], salt: int = 0) -> Types:
        key = (unit.serial, node.id, salt)
        if key not in self._cache:
            self._cache[key] = None
            try:
                self._cache[key] = make()
            except Unresolved as error:
                self._cache[key] = error
            except RecursionError:
                self._cache[key] = Unresolved("it is nested too deeply")
        result = self._cache[key]
        if result is None:
            raise Unresolved(f"the type of {_short(unit, node)} depends on itself")
        if isinstance(result, Unresolved):
            raise result
        return result

    def _expression(self, unit: Unit, node: Node) -> Types:
        kind = node.type
        if kind in _NUMBERS:
            return (INT,)
        if kind in _STRINGS:
            return (TEXT,)
        method = getattr(self, f"_on_{kind}", None)
        if method is None:
            raise Unresolved(f"no rule for a {kind} ({_short(unit, node)})")
        result: Types = method(unit, node)
        return result

    def _on_identifier(self, unit: Unit, node: Node) -> Types:
        name = unit.text(node)
        found = self.scopes.lookup(unit, node, name, decl.VALUES | decl.TYPES)
        if found:
            return self._values(found)
        return self._macro(unit, node, name)

    def _on_field_identifier(self, unit: Unit, node: Node) -> Types:
        return self._on_identifier(unit, node)

    def _on_type_identifier(self, unit: Unit, node: Node) -> Types:
        return self.type(unit, node)

    def _on_primitive_type(self, unit: Unit, node: Node) -> Types:
        return self.type(unit, node)

    def _on_template_type(self, unit: Unit, node: Node) -> Types:
        return self.type(unit, node)

    def _on_this(self, unit: Unit, node: Node) -> Types:
        return (Pointer(self.enclosing_class(unit, node)),)

    def _on_parenthesized_expression(self, unit: Unit, node: Node) -> Types:
        inner = node.named_children[-1] if node.named_child_count else None
        if inner is None:
            raise Unresolved(f"no expression in {_short(unit, node)}")
        if inner.type == "compound_statement":
            last = inner.named_children[-1] if inner.named_child_count else None
            if last is None or last.type != "expression_statement" or not last.named_child_count:
                raise Unresolved("a statement expression without a value")
            return self.expression(unit, last.named_children[0])
        return self.expression(unit, inner)

    def _on_comma_expression(self, unit: Unit, node: Node) -> Types:
        return self.expression(unit, _field(node, "right"))

    def _on_assignment_expression(self, unit: Unit, node: Node) -> Types:
        return self.expression(unit, _field(node, "left"))

    def _on_update_expression(self, unit: Unit, node: Node) -> Types:
        return self.expression(unit, _field(node, "argument"))

    def _on_conditional_expression(self, unit: Unit, node: Node) -> Types:
        branches = [node.child_by_field_name("consequence"), _field(node, "alternative")]
        kinds = [kind for branch in branches if branch for kind in self.expression(unit, branch)]
        classes = [kind for kind in kinds if not isinstance(bare(kind), Builtin)]
        return each(lambda kind: kind, classes or kinds)

    def _on_cast_expression(self, unit: Unit, node: Node) -> Types:
        return self.type(unit, _field(node, "type"))

    def _on_compound_literal_expression(self, unit: Unit, node: Node) -> Types:
        return self.type(unit, _field(node, "type"))

    def _on_new_expression(self, unit: Unit, node: Node) -> Types:
        declarator = node.child_by_field_name("declarator")
        kinds = self.type(unit, _field(node, "type"))
        if declarator and declarator.type != "new_declarator":
            kinds = each(lambda kind: self._shape(unit, declarator, kind), kinds)
        return each(Pointer, kinds)

    def _on_initializer_list(self, unit: Unit, node: Node) -> Types:
        if not node.named_child_count:
            raise Unresolved("an empty list")
        return each(lambda kind: Array(bare(kind)), self.expression(unit, node.named_children[0]))

    def _on_lambda_expression(self, unit: Unit, node: Node) -> Types:
        return (Closure((unit.path, node.start_byte), unit, node),)

    def _on_binary_expression(self, unit: Unit, node: Node) -> Types:
        operator = unit.text(_field(node, "operator")).decode("ascii", "replace")
        if operator in _COMPARISONS:
            return (INT,)
        left, right = _field(node, "left"), _field(node, "right")
        kinds = self.expression(unit, left)
        result: list[Type] = []
        for kind in map(bare, kinds):
            if isinstance(kind, Array):
                result.append(Pointer(kind.to))
            elif isinstance(kind, (Pointer, External)) and (isinstance(kind, Pointer) or is_clean(kind)):
                result.append(kind)
            elif isinstance(kind, Record):
                result += self._call_member(kind, b"operator" + operator.encode(), [], unit)
            elif isinstance(kind, Builtin):
                result += [k for k in map(bare, self.expression(unit, right))]
            else:
                raise Unresolved(f"no rule for the operator {operator} on {describe(kind)}")
        return each(lambda kind: Pointer(kind.to) if isinstance(kind, Array) else kind, result)

    def _on_pointer_expression(self, unit: Unit, node: Node) -> Types:
        kinds = self.expression(unit, _field(node, "argument"))
        if unit.text(_field(node, "operator")) == b"&":
            return each(lambda kind: Pointer(bare(kind)), kinds)
        return each(self.dereferenced, kinds)

    def _on_subscript_expression(self, unit: Unit, node: Node) -> Types:
        return each(self._subscripted, self.expression(unit, _field(node, "argument")))

    def _on_field_expression(self, unit: Unit, node: Node) -> Types:
        field = _field(node, "field")
        if field.type in ("dependent_name", "template_method", "qualified_identifier"):
            field = _last_name(field)
        name = unit.text(field)
        return each(lambda kind: self.member_types(kind, name), self.owners(unit, node))

    def _on_qualified_identifier(self, unit: Unit, node: Node) -> Types:
        return self._values(self.qualified(unit, node, decl.VALUES | decl.TYPES))

    def _on_template_function(self, unit: Unit, node: Node) -> Types:
        name = _field(node, "name")
        found = self.scopes.lookup(unit, node, unit.text(name), decl.VALUES | decl.TYPES)
        if any(declared.kind == decl.CLASS for declared in found):
            return self.type(unit, node)
        if not found:
            raise Unresolved(f"no declaration of {_short(unit, name)} found")
        return self._values(found)

    def _on_call_expression(self, unit: Unit, node: Node) -> Types:
        callee = _field(node, "function")
        arguments = _field(node, "arguments")
        given = [child for child in arguments.named_children if child.type != "comment"]
        if callee.type == "parenthesized_expression":
            inner = callee.named_children[-1] if callee.named_child_count else callee
            if inner.type == "identifier" and self.is_type(unit, inner):
                return self.type(unit, inner)
        if callee.type == "primitive_type":
            return self.type(unit, callee)
        return self._call(unit, callee, given)

    # Calls

    def _call(self, unit: Unit, callee: Node, given: Sequence[Node]) -> Types:
        explicit: list[Type] = []
        target = callee
        if callee.type == "qualified_identifier":
            target = _last_part(callee)
        elif callee.type == "field_expression":
            target = _field(callee, "field")
            if target.type == "dependent_name":
                target = target.named_children[-1]
            elif target.type == "qualified_identifier":
                target = _last_part(target)
        if target.type in ("template_function", "template_method", "template_type"):
            explicit = self._template_arguments(unit, target)
            target = _field(target, "name")
        name = unit.text(target)
        if callee.type == "template_function" and name in _CASTS:
            return tuple(explicit[:1])
        if callee.type == "field_expression":
            result: list[Type] = []
            for kind in self.owners(unit, callee):
                result += self._call_member(kind, name, given, unit, explicit)
            return each(lambda kind: kind, result)
        if callee.type == "identifier":
            found = self.scopes.lookup(unit, callee, name, decl.VALUES | decl.TYPES)
            if not found:
                return self._macro(unit, callee, name)
        elif callee.type == "qualified_identifier":
            found = self.qualified(unit, callee, decl.VALUES | decl.TYPES)
        elif callee.type == "template_function":
            found = self.scopes.lookup(unit, callee, name, decl.VALUES | decl.TYPES)
            if not found:
                raise Unresolved(f"no declaration of {_short(unit, target)} found")
        else:
            return each(lambda kind: self._called(kind, given, unit), self.expression(unit, callee))
        return self._call_declared(found, given, unit, explicit, callee, {})

    def callees(self, unit: Unit, call: Node) -> list[Declared]:
        """The functions that a call can mean, those that take another number of arguments left out."""
        callee = _field(call, "function")
        count = sum(child.type != "comment" for child in _field(call, "arguments").named_children)
        kinds = frozenset({decl.FUNCTION})
        try:
            if callee.type == "field_expression":
                name = unit.text(_last_name(_field(callee, "field")))
                found = [
                    declared
                    for kind in self.owners(unit, callee)
                    if isinstance(kind, Record)
                    for _, declared in self.members(kind, name)
                    if declared.kind == decl.FUNCTION
                ]
            elif callee.type == "qualified_identifier":
                found = self.qualified(unit, callee, kinds)
            elif callee.type in ("identifier", "template_function"):
                name_node = callee if callee.type == "identifier" else _field(callee, "name")
                found = self.scopes.lookup(unit, callee, unit.text(name_node), kinds)
            else:
                found = []
        except Unresolved:
            return []
        return [d for d in found if d.kind == decl.FUNCTION and self._takes(d, count)]

    def _call_declared(
        self,
        found: Sequence[Declared],
        given: Sequence[Node],
        unit: Unit,
        explicit: Sequence[Type],
        callee: Node | None,
        bindings: dict[Key, Type],
    ) -> Types:
        functions = [d for d in found if d.kind == decl.FUNCTION]
        if functions:
            fitting = [d for d in functions if self._takes(d, len(given))] or functions
            return each(
                lambda kind: kind,
                [kind for d in fitting for kind in self._result(d, given, unit, explicit, bindings)],
            )
        result: list[Type] = []
        for declared in found:
            if declared.kind in decl.TYPES:
                kinds = self.type(unit, callee) if callee and explicit else self._types_of(declared)
                result += each(lambda kind: substitute(kind, bindings), kinds)
            else:
                for kind in self._values([declared]):
                    result += self._called(substitute(kind, bindings), given, unit)
        return each(lambda kind: kind, result)

    def _called(self, kind: Type, given: Sequence[Node], unit: Unit) -> Types:
        """What calling a value of some type gives."""
        kind = bare(kind)
        if isinstance(kind, Pointer):
            kind = bare(kind.to)
        if isinstance(kind, Signature):
            return (kind.result,)
        if isinstance(kind, Closure):
            return self._lambda_result(kind, given, unit)
        if isinstance(kind, Record):
            return self._call_member(kind, b"operator()", given, unit)
        if is_clean(kind):
            return (kind,)
        raise Unresolved(f"calling {describe(kind)}")

    def _call_member(
        self, kind: Type, name: bytes, given: Sequence[Node], unit: Unit, explicit: Sequence[Type] = ()
    ) -> Types:
        kind = bare(kind)
        if not isinstance(kind, Record):
            if isinstance(kind, External) and is_clean(kind):
                return (External(f"{kind.name}::{name.decode()}()"),)
            raise Unresolved(f"{describe(kind)} has no member {name.decode()}")
        found = self.members(kind, name)
        if not found:
            raise Unresolved(f"{describe(kind)} has no member {name.decode()}")
        result: list[Type] = []
        owners: dict[int, tuple[Record, list[Declared]]] = {}
        for owner, declared in found:
            owners.setdefault(id(owner), (owner, []))[1].append(declared)
        for owner, listed in owners.values():
            result += self._call_declared(listed, given, unit, explicit, None, dict(owner.bindings))
        return each(lambda item: item, result)

    def _takes(self, declared: Declared, count: int) -> bool:
        function = decl.function_part(declared.declarator)
        listed = function.child_by_field_name("parameters") if function else None
        if listed is None:
            return True
        least = most = 0
        for child in listed.named_children:
            if child.type == "parameter_declaration":
                if declared.unit.text(child).strip() == b"void":
                    continue
                least, most = least + 1, most + 1
            elif child.type == "optional_parameter_declaration":
                most += 1
            elif child.type in ("variadic_parameter_declaration", "variadic_parameter"):
                most += 1000
        if any(child.type == "..." for child in listed.children):
            most += 1000
        return least <= count <= most

    def _result(
        self,
        declared: Declared,
        given: Sequence[Node],
        unit: Unit,
        explicit: Sequence[Type],
        bindings: dict[Key, Type],
    ) -> Types:
        """What a call of one function gives."""
        kinds = each(_result_of, self.declared(declared))
        bound = {**bindings, **self._deduced(declared, given, unit, explicit, bindings)}
        return each(lambda kind: substitute(kind, bound), kinds)

    def _deduced(
        self,
        declared: Declared,
        given: Sequence[Node],
        unit: Unit,
        explicit: Sequence[Type],
        bindings: dict[Key, Type],
    ) -> dict[Key, Type]:
        template = decl.template_of(declared.node)
        if template is None:
            return {}
        listed = decl.template_parameters(declared.unit, template)
        keys = [(declared.unit.path, entry.start) for entry in listed]
        bound = dict(zip(keys, explicit, strict=False))
        wanted = frozenset(keys) - bound.keys()
        function = decl.function_part(declared.declarator)
        parameters = function.child_by_field_name("parameters") if function else None
        for parameter, argument in zip(
            [c for c in (parameters.named_children if parameters else ()) if c.type != "comment"],
            given,
            strict=False,
        ):
            patterns = self.parameter_type(declared.unit, parameter)
            if not any(_mentions(pattern, wanted) for pattern in patterns):
                continue
            try:
                actual = self.expression(unit, argument)
            except Unresolved:
                continue
            if len(actual) == 1:
                unify(substitute(patterns[0], bindings), actual[0], bound, wanted)
        for entry, key in zip(listed, keys, strict=True):
            if key not in bound and entry.kind == decl.PARAM and entry.init:
                kinds = self.type(entry.unit, entry.init)
                bound[key] = substitute(kinds[0], bound)
        return bound

    def parameter_type(self, unit: Unit, parameter: Node) -> Types:
        """The types that a parameter can have; ``auto`` makes it a template parameter."""
        type_node = parameter.child_by_field_name("type")
        if type_node is None:
            raise Unresolved(f"no type in the parameter {_short(unit, parameter)}")
        if type_node.type == "placeholder_type_specifier":
            kinds: Types = (Param((unit.path, parameter.start_byte), "auto"),)
        else:
            kinds = self.type(unit, type_node)
        declarator = parameter.child_by_field_name("declarator")
        if declarator is None:
            return kinds
        if type_node.type == "placeholder_type_specifier":
            while declarator and declarator.type in ("pointer_declarator", "abstract_pointer_declarator"):
                declarator = decl.inner_declarator(declarator)
            if declarator is None:
                return kinds
        return each(lambda kind: self._shape(unit, declarator, kind), kinds)

    def _lambda_result(self, closure: Closure, given: Sequence[Node], unit: Unit) -> Types:
        declarator = closure.node.child_by_field_name("declarator")
        bound: dict[Key, Type] = {}
        listed = declarator.child_by_field_name("parameters") if declarator else None
        for parameter, argument in zip(
            listed.named_children if listed else (), given, strict=False
        ):
            for pattern in self.parameter_type(closure.unit, parameter):
                if isinstance(bare(pattern), Param):
                    unify(pattern, self.expression(unit, argument)[0], bound, frozenset({bare(pattern).key}))  # type: ignore[attr-defined]
        trailing = _trailing(declarator)
        if trailing:
            kinds = self.type(closure.unit, trailing)
        else:
            kinds = self._returned(closure.unit, _field(closure.node, "body"))
        return each(lambda kind: substitute(kind, bound), kinds)

    def _returned(self, unit: Unit, body: Node) -> Types:
        """The types of the values that a body returns."""
        result: list[Type] = []
        stack = [body]
        while stack:
            node = stack.pop()
            if node.type == "return_statement" and node.named_child_count:
                result += map(bare, self.expression(unit, node.named_children[0]))
            elif node.type not in ("lambda_expression", *decl.CLASS_NODES):
                stack += node.named_children
        return each(lambda kind: kind, result) or (VOID,)

    # Members

    def owners(self, unit: Unit, node: Node) -> Types:
        """The classes whose member a field expression names."""
        kinds = self.expression(unit, _field(node, "argument"))
        if unit.text(_field(node, "operator")) == b".":
            return each(bare, kinds)
        return each(lambda kind: bare(self.pointee(kind)), kinds)

    def pointee(self, kind: Type) -> Type:
        """What ``->`` on a value of some type leads to."""
        kind = bare(kind)
        if isinstance(kind, (Pointer, Array)):
            return kind.to
        if isinstance(kind, Record):
            kinds = self._call_member(kind, b"operator->", [], self.model)
            if len(kinds) == 1 and bare(kinds[0]) != kind:
                return self.pointee(kinds[0])
        if isinstance(kind, External) and is_clean(kind):
            return External(f"{kind.name}->")
        raise Unresolved(f"no rule for -> on {describe(kind)}")

    def dereferenced(self, kind: Type) -> Types:
        """What ``*`` on a value of some type gives."""
        kind = bare(kind)
        if isinstance(kind, (Pointer, Array)):
            return (Ref(bare(kind.to)),)
        if isinstance(kind, Signature):
            return (kind,)
        if isinstance(kind, Record):
            return self._call_member(kind, b"operator*", [], self.model)
        if isinstance(kind, External) and is_clean(kind):
            return (External(f"*{kind.name}"),)
        raise Unresolved(f"no rule for * on {describe(kind)}")

    def _subscripted(self, kind: Type) -> Types:
        kind = bare(kind)
        if isinstance(kind, (Pointer, Array)):
            return (Ref(bare(kind.to)),)
        if isinstance(kind, Record):
            return self._call_member(kind, b"operator[]", [], self.model)
        if isinstance(kind, External) and is_clean(kind):
            return (External(f"{kind.name}[]"),)
        raise Unresolved(f"no rule for [] on {describe(kind)}")

    def members(self, record: Record, name: bytes) -> list[tuple[Record, Declared]]:
        """The declarations of a member, with the class that has it: the record or one of its bases.

        Raises:
            Unresolved: the member may come from a base class that is not known.
        """
        record = self.complete(record)
        definition = record.definition
        if definition is None:
            return []
        table = decl.members(definition.unit, definition.node)
        found = [(record, declared) for declared in table.get(name, [])]
        found = found or self._behind_macros(record, table, name)
        if found:
            return found
        for base in self.bases(record):
            if isinstance(base, Record):
                found += self.members(base, name)
            elif not is_clean(base):
                raise Unresolved(f"{describe(record)} has a base class that is not known")
        return found

    def complete(self, record: Record) -> Record:
        """The record with its definition, if the tree has exactly one that can be meant.

        Raises:
            Unresolved: it has several.
        """
        found = self.definitions(record)
        if len({d.unit.text(d.node) for d in found}) > 1:
            paths = sorted({definition.key[0] for definition in found})
            raise Unresolved(f"{record.name} is defined in {' and '.join(paths)}")
        if record.definition is not None or not found:
            return record
        return self._record(found[0].unit, found[0].node)

    def definitions(self, record: Record) -> list[Definition]:
        """The definitions that a record can have; what the file looked from includes goes first."""
        if record.definition is not None:
            return [record.definition]
        if record.name not in self._classes:
            self._classes[record.name] = {
                (declared.unit.path, declared.start): declared
                for path in self.project.holders(record.name.rsplit("::", 1)[-1].encode())
                for unit in self.scopes.units(path)
                for declared in _classes_called(unit, record.name.encode())
            }
        found = self._classes[record.name]
        if len(found) > 1:
            near = self.project.closure(self.viewpoint)
            found = {key: declared for key, declared in found.items() if key[0] in near} or found
        return [
            Definition((d.unit.path, d.node.start_byte), d.unit, d.node) for d in found.values()
        ]

    def has_address(self, unit: Unit, node: Node) -> bool:
        """Whether an expression is a place, so that its address can be taken.

        Raises:
            Unresolved: the type of a call in it is not known.
        """
        kind = node.type
        if kind in ("identifier", "field_expression", "this", "qualified_identifier"):
            return True
        if kind == "parenthesized_expression":
            return node.named_child_count == 1 and self.has_address(unit, node.named_children[0])
        if kind == "compound_literal_expression":
            return not unit.cpp
        if kind == "conditional_expression":
            branches = (node.child_by_field_name("consequence"), node.child_by_field_name("alternative"))
            return unit.cpp and all(branch is not None and self.has_address(unit, branch) for branch in branches)
        if kind in ("subscript_expression", "pointer_expression", "call_expression"):
            return all(isinstance(item, Ref) for item in self.expression(unit, node))
        return kind in ("assignment_expression", "comma_expression") and unit.cpp

    def _behind_macros(
        self, record: Record, table: decl.Table, name: bytes
    ) -> list[tuple[Record, Declared]]:
        """Members whose name a macro makes up, in at least one of its definitions."""
        found: list[tuple[Record, Declared]] = []
        for key, entries in table.items():
            definitions = self.project.macros(key, entries[0].unit.path) if self.project.is_macro(key) else []
            for macro in definitions:
                words = [token.text for token in macro.body]
                if words == [name]:
                    found += [(record, declared) for declared in entries]
                elif not words:
                    for kind in self._values(entries):
                        if isinstance(kind, Record):
                            found += self.members(kind, name)
        return found

    def bases(self, record: Record) -> Types:
        """The direct base classes of a record, its template arguments put in."""
        definition = record.definition
        if definition is None:
            return ()
        result: list[Type] = []
        for child in definition.node.named_children:
            if child.type == "base_class_clause":
                for base in child.named_children:
                    if base.type not in ("access_specifier", "comment", "virtual"):
                        kinds = self.type(definition.unit, base)
                        result += each(lambda kind: substitute(kind, dict(record.bindings)), kinds)
        return tuple(result)

    def member_types(self, kind: Type, name: bytes) -> Types:
        """The types that a member of a class can have."""
        kind = bare(kind)
        if isinstance(kind, Record):
            found = self.members(kind, name)
            if found:
                return each(
                    lambda item: item,
                    [
                        substitute(value, dict(owner.bindings))
                        for owner, declared in found
                        for value in self._values([declared])
                    ],
                )
        elif isinstance(kind, External) and is_clean(kind):
            return (External(f"{kind.name}.{name.decode()}"),)
        elif isinstance(kind, Signature):
            return self.member_types(kind.result, name)
        raise Unresolved(f"{describe(kind)} has no member {name.decode()}")

    def _inherited(self, unit: Unit, node: Node, name: bytes) -> list[Declared]:
        own = decl.members(unit, node).get(name, [])
        if own:
            return own
        record = Record("", Definition((unit.path, node.start_byte), unit, node))
        try:
            return [declared for _, declared in self.members(record, name)]
        except Unresolved:
            return []

    def _class_nodes(self, unit: Unit, name: Node) -> list[tuple[Unit, Node]]:
        """The class that a qualified function name belongs to."""
        try:
            kinds = self._scope(unit, name, _definition_around(name))[0]
        except Unresolved:
            return []
        found = [kind.definition for kind in kinds if isinstance(kind, Record) and kind.definition]
        return [(definition.unit, definition.node) for definition in found]

    def enclosing_class(self, unit: Unit, node: Node) -> Type:
        """The class whose member function a node is in.

        Raises:
            Unresolved: it is in none.
        """
        scope = node.parent
        while scope is not None:
            if scope.type in decl.CLASS_NODES:
                return self._record(unit, scope)
            if scope.type == "function_definition":
                name = decl.name_part(scope.child_by_field_name("declarator"))
                if name and name.type == "qualified_identifier":
                    kinds = self._scope(unit, name, scope)[0]
                    if len(kinds) == 1:
                        return kinds[0]
            scope = scope.parent
        if unit.outer:
            return self.enclosing_class(*unit.outer)
        raise Unresolved("this outside of a class")

    # Names

    def qualified(self, unit: Unit, node: Node, kinds: frozenset[str]) -> list[Declared]:
        """The declarations that a qualified name means.

        Raises:
            Unresolved: there is none.
        """
        last = _last_part(node)
        name = unit.text(_field(last, "name") if last.type.startswith("template_") else last)
        owners, namespace = self._scope(unit, node)
        if owners:
            found = [
                declared
                for owner in owners
                if isinstance(owner, Record)
                for _, declared in self.members(owner, name)
                if declared.kind in kinds
            ]
        else:
            found = [d for d in self.scopes.in_namespace(unit, namespace, name) if d.kind in kinds]
            if not found and self._is_own(namespace):
                found = self.scopes.lookup_global(unit, namespace, name, kinds)
        if not found:
            raise Unresolved(f"no declaration of {_short(unit, node)} found")
        return found

    def _is_own(self, namespace: tuple[bytes, ...]) -> bool:
        return namespace[:1] not in ((), (b"std",)) and not self.scopes.is_external(namespace[0])

    def scope_types(self, unit: Unit, node: Node) -> Types:
        """The classes that the part of a qualified name before its last ``::`` names; may be none."""
        return self._scope(unit, node)[0]

    def _scope(
        self, unit: Unit, node: Node, place: Node | None = None
    ) -> tuple[Types, tuple[bytes, ...]]:
        """The classes, or else the namespace, that a qualified name stands in, seen from a place."""
        parts: list[Node | None] = []
        part = node
        while part.type == "qualified_identifier":
            parts.append(part.child_by_field_name("scope"))
            part = _field(part, "name")
        owners: Types = ()
        namespace: tuple[bytes, ...] = ()
        for index, scope in enumerate(parts):
            if scope is None:
                continue
            name_node = _field(scope, "name") if scope.type == "template_type" else scope
            name = unit.text(name_node)
            if owners:
                owners = each(lambda kind: self._member_type(kind, name), owners)
                continue
            if index == 0:
                found = self.scopes.lookup(unit, place or node, name, decl.TYPES | {decl.NAMESPACE})
            else:
                found = [d for d in self.scopes.in_namespace(unit, namespace, name) if d.kind in decl.TYPES]
            aliases = [d for d in found if d.kind == decl.NAMESPACE and d.type]
            if aliases and aliases[0].type:
                text = aliases[0].unit.text(aliases[0].type)
                namespace = tuple(p.strip() for p in text.split(b"::") if p.strip())
            elif found:
                if scope.type == "template_type":
                    owners = self._instantiated(unit, scope, found)
                else:
                    owners = each(lambda kind: kind, [k for d in found for k in self._types_of(d)])
            else:
                namespace += (name,)
        return owners, namespace

    def _member_type(self, kind: Type, name: bytes) -> Types:
        kind = bare(kind)
        if isinstance(kind, Record):
            found = [(o, d) for o, d in self.members(kind, name) if d.kind in decl.TYPES]
            if found:
                return each(
                    lambda item: item,
                    [substitute(k, dict(o.bindings)) for o, d in found for k in self._types_of(d)],
                )
        elif isinstance(kind, External) and is_clean(kind):
            return (External(f"{kind.name}::{name.decode()}"),)
        raise Unresolved(f"{describe(kind)} has no type {name.decode()}")

    def is_type(self, unit: Unit, node: Node) -> bool:
        """Whether an identifier names a type and nothing else."""
        name = unit.text(node)
        found = self.scopes.lookup(unit, node, name, decl.VALUES | decl.TYPES)
        return bool(found) and all(declared.kind in decl.TYPES for declared in found)

    def _values(self, found: Iterable[Declared]) -> Types:
        return each(lambda kind: kind, [kind for d in found for kind in self.declared(d)])

    # Declarations and types

    def declared(self, declared: Declared) -> Types:
        """The types that a declaration gives its name."""
        anchor = declared.declarator or declared.node
        salt = declared.binding + 2 + 1000 * (declared.kind == decl.ALIAS)
        return self._cached(declared.unit, anchor, lambda: self._declared(declared), salt)

    def _declared(self, declared: Declared) -> Types:
        unit = declared.unit
        if declared.kind in decl.TYPES:
            return self._types_of(declared)
        if declared.kind == decl.USING and declared.type:
            kinds = decl.VALUES | decl.TYPES
            return self._values(self.qualified(unit, declared.type, kinds))
        if declared.node.type == "enumerator":
            return (Builtin("enum"),)
        if declared.node.type == "lambda_capture_initializer" and declared.init:
            return self.expression(unit, declared.init)
        if declared.type is None:
            if declared.kind == decl.FUNCTION:
                return (Signature(self._constructed(declared)),)
            return (INT,)
        if declared.type.type == "placeholder_type_specifier" or unit.text(declared.type) == b"__auto_type":
            return self._deduced_type(declared)
        kinds = self.type(unit, declared.type)
        if declared.declarator is None:
            return kinds
        if declared.binding >= 0:
            raise Unresolved("a structured binding without auto")
        return each(lambda kind: self._shape(unit, declared.declarator, kind), kinds)

    def return_types(self, unit: Unit, function: Node) -> Types:
        """The types that a function definition returns.

        Raises:
            Unresolved: it is a constructor, or has no type.
        """
        declarator = function.child_by_field_name("declarator")
        kinds = self.type(unit, _field(function, "type"))
        return each(_result_of, each(lambda kind: self._shape(unit, declarator, kind), kinds))

    def _constructed(self, declared: Declared) -> Type:
        """What a function without a return type makes: its class."""
        scope = declared.node.parent
        while scope is not None:
            if scope.type in decl.CLASS_NODES:
                return self._record(declared.unit, scope)
            scope = scope.parent
        raise Unresolved(f"{declared.name.decode()} has no type")

    def _deduced_type(self, declared: Declared) -> Types:
        unit = declared.unit
        if declared.kind == decl.FUNCTION:
            trailing = _trailing(decl.function_part(declared.declarator))
            if trailing:
                return each(Signature, self.type(unit, trailing))
            body = declared.node.child_by_field_name("body")
            if body is None:
                raise Unresolved(f"{declared.name.decode()} returns auto and has no body")
            return each(Signature, self._returned(unit, body))
        if declared.node.type.endswith("parameter_declaration"):
            return self.parameter_type(unit, declared.node)
        if declared.init is None:
            raise Unresolved(f"{declared.name.decode()} is auto without a value")
        init = declared.init
        if declared.node.type == "for_range_loop":
            kinds = each(self._element, self.expression(unit, init))
        elif init.type in ("argument_list", "initializer_list") and declared.binding < 0:
            if init.type == "argument_list" and init.named_child_count == 1:
                kinds = self.expression(unit, init.named_children[0])
            else:
                kinds = self.expression(unit, init)
        else:
            kinds = self.expression(unit, init)
        if declared.binding >= 0:
            return each(lambda kind: self._bound(kind, declared.binding), kinds)
        reference = "reference_declarator" in _declarator_types(declared.declarator)
        return each(lambda kind: Ref(bare(kind)) if reference else _decayed(bare(kind)), kinds)

    def _element(self, kind: Type) -> Types:
        """What a range-based ``for`` over a value of some type runs through."""
        kind = bare(kind)
        if isinstance(kind, Array):
            return (Ref(kind.to),)
        if isinstance(kind, Record):
            return each(self.dereferenced, self._call_member(kind, b"begin", [], self.model))
        if isinstance(kind, External) and is_clean(kind):
            return (External(f"element of {kind.name}"),)
        raise Unresolved(f"no rule for a loop over {describe(kind)}")

    def _bound(self, kind: Type, index: int) -> Types:
        """What the name at some place of a structured binding stands for."""
        kind = bare(kind)
        if isinstance(kind, Array):
            return (Ref(kind.to),)
        if isinstance(kind, External) and is_clean(kind):
            return (External(f"part of {kind.name}"),)
        if isinstance(kind, Record) and kind.definition:
            if kind.name == "std::tuple":
                values = [value for _, value in kind.bindings]
                if index < len(values):
                    return (values[index],)
            fields = [
                entries[0]
                for entries in decl.members(kind.definition.unit, kind.definition.node).values()
                if entries[0].kind == decl.VALUE and entries[0].node.type == "field_declaration"
            ]
            if index < len(fields):
                return each(lambda item: substitute(item, dict(kind.bindings)), self.declared(fields[index]))
        raise Unresolved(f"no rule for a structured binding to {describe(kind)}")

    def type(self, unit: Unit, node: Node) -> Types:
        """The types that a type's node can mean.

        Raises:
            Unresolved: the name cannot be followed, and may be declared in the tree.
        """
        return self._cached(unit, node, lambda: self._type(unit, node), salt=1)

    def _type(self, unit: Unit, node: Node) -> Types:
        kind = node.type
        if kind in ("primitive_type", "sized_type_specifier", "enum_specifier"):
            return (Builtin(_short(unit, node)),)
        if kind == "type_descriptor":
            declarator = node.child_by_field_name("declarator")
            kinds = self.type(unit, _field(node, "type"))
            return each(lambda k: self._shape(unit, declarator, k), kinds) if declarator else kinds
        if kind in decl.CLASS_NODES:
            return self._class(unit, node)
        if kind in ("type_identifier", "identifier", "namespace_identifier"):
            return self._named(unit, node)
        if kind in ("template_type", "template_function"):
            name = _field(node, "name")
            found = self.scopes.lookup(unit, node, unit.text(name), decl.TYPES)
            if not found:
                return self._unknown(unit, unit.text(name), node)
            return self._instantiated(unit, node, found)
        if kind == "qualified_identifier":
            return self._qualified_type(unit, node)
        if kind == "dependent_type":
            return self.type(unit, node.named_children[-1])
        if kind == "decltype":
            return each(bare, self.expression(unit, node.named_children[-1]))
        if kind == "macro_type_specifier" and unit.text(_field(node, "name")) in (b"typeof", b"__typeof__"):
            return self._typeof(unit, node)
        raise Unresolved(f"no rule for the type {_short(unit, node)}")

    def _typeof(self, unit: Unit, node: Node) -> Types:
        inner = _field(node, "type")
        name = unit.text(inner).strip()
        found = self.scopes.lookup(unit, node, name, decl.VALUES | decl.TYPES) if name.isidentifier() else []
        return each(bare, self._values(found)) if found else self.type(unit, inner)

    def _class(self, unit: Unit, node: Node) -> Types:
        if node.child_by_field_name("body"):
            return (self._record(unit, node),)
        name = node.child_by_field_name("name")
        if name is None:
            raise Unresolved("a class without a name")
        if name.type != "type_identifier":
            return self.type(unit, name)
        text = unit.text(name)
        found = self.scopes.lookup(unit, node, text, frozenset({decl.CLASS}))
        complete = [d for d in found if d.node.child_by_field_name("body")]
        if complete:
            return each(lambda kind: kind, [kind for d in complete for kind in self._types_of(d)])
        everywhere = [
            d
            for d in self.scopes.lookup_global(unit, (), text, frozenset({decl.CLASS}))
            if d.node.child_by_field_name("body")
        ]
        if everywhere and not any(d.unit is unit and d.node.parent != unit.root for d in found):
            return each(lambda kind: kind, [kind for d in everywhere for kind in self._types_of(d)])
        return (Record(text.decode(), None),)

    def _named(self, unit: Unit, node: Node) -> Types:
        name = unit.text(node)
        found = self.scopes.lookup(unit, node, name, decl.TYPES)
        if not found:
            return self._unknown(unit, name, node)
        return each(lambda kind: kind, [kind for d in _complete(found) for kind in self._types_of(d)])

    def _unknown(self, unit: Unit, name: bytes, node: Node) -> Types:
        """A type name without a declaration in sight."""
        if self.project.macros(name, unit.path):
            return self._macro_type(unit, node, name)
        if not self.scopes.is_external(name):
            raise Unresolved(f"the declaration of the type {name.decode()} is not in sight")
        arguments: list[Type] = []
        if node.type in ("template_type", "template_function"):
            arguments = self._template_arguments(unit, node)
        return (External(name.decode(), tuple(arguments)),)

    def _qualified_type(self, unit: Unit, node: Node) -> Types:
        last = _last_part(node)
        name_node = _field(last, "name") if last.type.startswith("template_") else last
        name = unit.text(name_node)
        owners, namespace = self._scope(unit, node)
        if owners:
            return each(lambda kind: self._member_type(kind, name), owners)
        found = [d for d in self.scopes.in_namespace(unit, namespace, name) if d.kind in decl.TYPES]
        if not found and self._is_own(namespace):
            found = self.scopes.lookup_global(unit, namespace, name, decl.TYPES)
        found = _complete(found)
        if found:
            if last.type.startswith("template_"):
                return self._instantiated(unit, last, found)
            return each(lambda kind: kind, [kind for d in found for kind in self._types_of(d)])
        if namespace and (not self._is_own(namespace) or self.scopes.is_external(name)):
            arguments = self._template_arguments(unit, last) if last.type.startswith("template_") else []
            return (External(b"::".join((*namespace, name)).decode(), tuple(arguments)),)
        raise Unresolved(f"the declaration of the type {_short(unit, node)} is not in sight")

    def _types_of(self, declared: Declared) -> Types:
        """The types that a type's declaration means."""
        unit = declared.unit
        if declared.kind == decl.PARAM:
            return (Param((unit.path, declared.start), declared.name.decode()),)
        if declared.kind == decl.ENUM:
            return (Builtin("enum"),)
        if declared.kind == decl.CLASS:
            if declared.node.child_by_field_name("body"):
                return (self._record(unit, declared.node),)
            return (Record("::".join(self._path(unit, declared.node)), None),)
        if declared.kind == decl.USING and declared.type:
            return self._values(self.qualified(unit, declared.type, decl.TYPES))
        if declared.type is None:
            raise Unresolved(f"{declared.name.decode()} has no type")
        kinds = self.type(unit, declared.type)
        if declared.declarator is None:
            return kinds
        return each(lambda kind: self._shape(unit, declared.declarator, kind), kinds)

    def _record(self, unit: Unit, node: Node) -> Record:
        """The class that a node defines; its template parameters stand for themselves."""
        bindings: list[tuple[Key, Type]] = []
        scope = node.parent
        while scope is not None:
            if scope.type == "template_declaration":
                listed = decl.template_parameters(unit, scope)
                bindings = [
                    ((unit.path, e.start), Param((unit.path, e.start), e.name.decode())) for e in listed
                ] + bindings
            scope = scope.parent
        definition = Definition((unit.path, node.start_byte), unit, node)
        return Record("::".join(self._path(unit, node)), definition, tuple(bindings))

    @staticmethod
    def _path(unit: Unit, node: Node) -> list[str]:
        """The name of a class after those of the namespaces and classes around it."""
        name = node.child_by_field_name("name")
        names = [_short(unit, name) if name else "(anonymous)"]
        scope = node.parent
        while scope is not None:
            if scope.type in decl.CLASS_NODES:
                outer = scope.child_by_field_name("name")
                names.insert(0, _short(unit, outer) if outer else "(anonymous)")
            elif scope.type == "namespace_definition":
                names[:0] = [part.decode() for part in decl.namespace_name(unit, scope)]
            elif scope.type == "function_definition":
                names.insert(0, "(local)")
            scope = scope.parent
        return names

    def _instantiated(self, unit: Unit, node: Node, found: Sequence[Declared]) -> Types:
        """A template with the arguments that a ``template_type`` node gives it."""
        arguments = self._template_arguments(unit, node)
        result: list[Type] = []
        for declared in _complete(found):
            template = decl.template_of(declared.node)
            listed = decl.template_parameters(declared.unit, template) if template else []
            bound: dict[Key, Type] = {}
            for index, entry in enumerate(listed):
                key = (declared.unit.path, entry.start)
                if entry.node.type == "variadic_type_parameter_declaration":
                    for place, argument in enumerate(arguments[index:]):
                        bound[(key[0], key[1] + place)] = argument
                elif index < len(arguments):
                    bound[key] = arguments[index]
                elif entry.kind == decl.PARAM and entry.init:
                    bound[key] = substitute(self.type(entry.unit, entry.init)[0], bound)
            for kind in self._types_of(declared):
                if isinstance(kind, Record) and any(
                    e.node.type == "variadic_type_parameter_declaration" for e in listed
                ):
                    result.append(Record(kind.name, kind.definition, tuple(sorted(bound.items()))))
                else:
                    result.append(substitute(kind, bound))
        return each(lambda kind: kind, result)

    def _template_arguments(self, unit: Unit, node: Node) -> list[Type]:
        listed = node.child_by_field_name("arguments")
        result: list[Type] = []
        for child in listed.named_children if listed else ():
            if child.type == "type_descriptor":
                kinds = self.type(unit, child)
                if len(kinds) > 1:
                    raise Unresolved(f"the type {_short(unit, child)} is ambiguous")
                result.append(kinds[0])
            elif child.type != "comment":
                result.append(Builtin(_short(unit, child)))
        return result

    def _shape(self, unit: Unit, declarator: Node | None, kind: Type) -> Type:
        """The type that a declarator makes of the type before it."""
        while declarator is not None:
            form = declarator.type.removeprefix("abstract_")
            if form == "pointer_declarator":
                kind = Pointer(kind)
            elif form == "reference_declarator":
                kind = kind if isinstance(kind, Ref) else Ref(kind)
            elif form == "array_declarator":
                kind = Array(kind)
            elif form == "function_declarator":
                trailing = _trailing(declarator)
                kind = Signature(self.type(unit, trailing)[0] if trailing else kind)
            declarator = decl.inner_declarator(declarator)
        return kind

    # Macros

    def _macro(self, unit: Unit, node: Node, name: bytes) -> Types:
        """The type of a macro's use as an expression: the macro's name, or the call of it."""
        definitions = self.project.macros(name, unit.path)
        if not definitions:
            raise Unresolved(f"no declaration of {name.decode('utf-8', 'replace')} found")
        use = node
        if node.parent and node.parent.type == "call_expression":
            function_like = [m for m in definitions if m.params is not None]
            if function_like and _field(node.parent, "function") == node:
                use, definitions = node.parent, function_like
        shapes = {macro.shape(): macro for macro in definitions}
        result: list[Type] = []
        for macro in shapes.values():
            expansion = self.expansion(unit, use, macro)
            inner = expansion.root.named_children[0] if expansion.root.named_child_count else None
            if inner is None or expansion.root.has_error:
                raise Unresolved(f"the expansion of {name.decode()} is no expression")
            result += self.expression(expansion, _wrapped(inner))
        return each(lambda kind: kind, result)

    def visible_macro(self, name: bytes, path: str) -> Macro | None:
        """One definition of a macro that a file can see."""
        return next(iter(self.project.macros(name, path)), None)

    def expansion(self, unit: Unit, use: Node, macro: Macro) -> Unit:
        """The tree of a macro's use, expanded, as an expression."""
        text = self._origin_pieces(unit, use)
        sequence = expand(text, lambda name: macro if name == macro.name else None)
        return parse_pieces(sequence, (unit, use), _WRAPS[0])

    def _origin_pieces(self, unit: Unit, node: Node) -> list[Piece]:
        source = unit.source if unit.origins else self.project.text(unit.path).plain
        found = tokens(source, node.start_byte, node.end_byte)
        if not unit.origins:
            return pieces(found, unit.path)
        return [Piece(token.text, token.kind, unit.origin(token.start)) for token in found]

    def invocation(self, unit: Unit, node: Node) -> list[Piece]:
        """The tokens of a macro's use in a file: its name, and its arguments if it has any."""
        code = self.project.text(unit.path).code
        end = node.end_byte
        rest = code[end:].lstrip()[:1] if end < len(code) else b""
        if rest == b"(":
            last = closing(code, code.index(b"(", end))
            end = end if last is None else last + 1
        return pieces(tokens(self.project.text(unit.path).plain, node.start_byte, end), unit.path)

    def _macro_type(self, unit: Unit, node: Node, name: bytes) -> Types:
        """The type that a macro's name stands for."""
        result: list[Type] = []
        for macro in {m.shape(): m for m in self.project.macros(name, unit.path)}.values():
            sequence = expand(pieces(macro.body, macro.path), lambda _: None)
            inner = parse_pieces(sequence, (unit, node), (b"void f(void) { ", b" * x; }"))
            found = [
                d
                for child in inner.root.named_children
                if child.type == "function_definition"
                for d in decl.table(inner, _field(child, "body")).get(b"x", [])
            ]
            if inner.root.has_error or not found or macro.params is not None:
                raise Unresolved(f"the macro {name.decode()} is no type")
            result += each(lambda kind: kind.to if isinstance(kind, Pointer) else kind, self.declared(found[0]))
        return each(lambda kind: kind, result)


def describe(kind: Type) -> str:
    """A type in words, for messages."""
    if isinstance(kind, (Pointer, Array, Ref)):
        return f"{describe(kind.to)} {dict(Pointer='*', Array='[]', Ref='&')[type(kind).__name__]}"
    if isinstance(kind, (Record, External, Builtin)):
        return kind.name
    if isinstance(kind, Param):
        return f"template parameter {kind.name}"
    return "a lambda" if isinstance(kind, Closure) else "a function"


def _classes_called(unit: Unit, name: bytes) -> list[Declared]:
    """The definitions of classes outside of functions and classes that have a qualified name."""
    return [
        declared
        for namespace, names in decl.namespaces(unit).items()
        if name.startswith(b"".join(part + b"::" for part in namespace))
        for declared in names.get(name[sum(len(part) + 2 for part in namespace) :], [])
        if declared.kind == decl.CLASS and declared.node.child_by_field_name("body")
    ]


def _short(unit: Unit, node: Node) -> str:
    text = b" ".join(unit.text(node).split()).decode("utf-8", "replace")
    return text if len(text) <= 60 else text[:57] + "..."


def _field(node: Node, name: str) -> Node:
    child = node.child_by_field_name(name)
    if child is None:
        raise Unresolved(f"a {node.type} without its {name}")
    return child


def _last_part(node: Node) -> Node:
    while node.type == "qualified_identifier":
        node = _field(node, "name")
    if node.type == "dependent_name" and node.named_child_count:
        node = node.named_children[-1]
    return node


def _last_name(node: Node) -> Node:
    node = _last_part(node)
    return _field(node, "name") if node.type.startswith("template_") else node


def _definition_around(name: Node) -> Node:
    scope: Node | None = name
    while scope is not None and scope.type not in ("function_definition", "declaration"):
        scope = scope.parent
    return scope or name


def _wrapped(function: Node) -> Node:
    """The expression in an expansion's wrapping."""
    body = _field(function, "body")
    return body.named_children[0].named_children[0]


def _trailing(declarator: Node | None) -> Node | None:
    for child in declarator.named_children if declarator else ():
        if child.type == "trailing_return_type":
            return child.named_children[-1]
    return None


def _result_of(kind: Type) -> Type:
    inner = kind
    while isinstance(inner, (Pointer, Array, Ref)):
        inner = inner.to
    return kind.result if isinstance(kind, Signature) else kind


def _decayed(kind: Type) -> Type:
    return Pointer(kind.to) if isinstance(kind, Array) else kind


def _declarator_types(declarator: Node | None) -> set[str]:
    found = set()
    while declarator is not None:
        found.add(declarator.type)
        declarator = decl.inner_declarator(declarator)
    return found


def _complete(found: Sequence[Declared]) -> list[Declared]:
    """Definitions, if there are any among declarations of types."""
    full = [d for d in found if d.kind != decl.CLASS or d.node.child_by_field_name("body")]
    return full or list(found)


def _mentions(kind: Type, keys: frozenset[Key]) -> bool:
    if isinstance(kind, Param):
        return kind.key in keys
    if isinstance(kind, (Pointer, Array, Ref)):
        return _mentions(kind.to, keys)
    if isinstance(kind, Signature):
        return _mentions(kind.result, keys)
    if isinstance(kind, Record):
        return any(_mentions(value, keys) for _, value in kind.bindings)
    return isinstance(kind, External) and any(_mentions(arg, keys) for arg in kind.args)
