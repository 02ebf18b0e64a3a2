"""PTX text into plain data: strict, and keeping the lines of PTX and of the kernel source."""

from __future__ import annotations

from dataclasses import replace

from kbuild.emulator.ptx.model import (
    Address,
    BranchTargets,
    CallPrototype,
    Immediate,
    Instruction,
    Label,
    Not,
    Operand,
    Pair,
    Pragma,
    Predicate,
    PtxFunction,
    PtxModule,
    Register,
    RegisterDeclaration,
    Sink,
    SourceLine,
    Special,
    Statement,
    Symbol,
    Variable,
    Vector,
)
from kbuild.emulator.ptx.places import Places
from kbuild.emulator.ptx.tokens import Cursor

_LINKAGES = ("visible", "extern", "weak", "common")
_SPACES = ("global", "const", "shared", "local", "param", "reg")
_TYPES = frozenset(
    [
        "b8",
        "b16",
        "b32",
        "b64",
        "b128",
        "u8",
        "u16",
        "u32",
        "u64",
        "s8",
        "s16",
        "s32",
        "s64",
        "f16",
        "f16x2",
        "bf16",
        "bf16x2",
        "f32",
        "f64",
        "pred",
        "texref",
        "samplerref",
        "surfref",
    ]
)
_INDEX_DIRECTIVES = ("reqntid", "maxntid", "minnctapersm", "maxnreg", "reqnctapercluster", "maxclusterrank")
_FLAG_DIRECTIVES = ("noreturn", "explicitcluster")
_SPECIALS = frozenset(
    [
        "tid",
        "ntid",
        "ctaid",
        "nctaid",
        "gridid",
        "laneid",
        "warpid",
        "nwarpid",
        "smid",
        "nsmid",
        "lanemask_eq",
        "lanemask_le",
        "lanemask_lt",
        "lanemask_ge",
        "lanemask_gt",
        "clock",
        "clock_hi",
        "clock64",
        "globaltimer",
        "globaltimer_lo",
        "globaltimer_hi",
        "clusterid",
        "nclusterid",
        "cluster_ctaid",
        "cluster_nctaid",
        "cluster_ctarank",
        "cluster_nctarank",
        "is_explicit_cluster",
        "dynamic_smem_size",
        "total_smem_size",
    ]
)


def parse(text: str, file: str = "<ptx>") -> PtxModule:
    """The module of a text.  Raises PtxError at the first thing that is not PTX as LLVM writes it."""
    return _PtxParser(Cursor(text, file)).module()


class _PtxParser:
    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self.source: SourceLine | None = None
        self.places = Places()
        self.scopes: list[dict[str, str]] = []
        self.scope_count = 0
        self.registers: dict[str, Register] = {}

    # Module level

    def module(self) -> PtxModule:
        cursor = self.cursor
        module = PtxModule("", (), 64)
        while cursor.next:
            if cursor.accept(";"):
                continue
            word = cursor.dotted()
            if word == "version":
                module = replace(module, version=cursor.take() + cursor.take())
            elif word == "target":
                module = replace(module, target=self._names())
            elif word == "address_size":
                module = replace(module, address_size=cursor.integer())
            elif word == "file":
                module = replace(module, files=(*module.files, self._file()))
            elif word == "section":
                module = replace(module, sections=(*module.sections, self._section()))
            else:
                cursor.index -= 1
                found = self._declaration()
                if isinstance(found, PtxFunction):
                    module = replace(module, functions=(*module.functions, found))
                else:
                    module = replace(module, variables=(*module.variables, found))
        if not module.version or not module.target:
            cursor.fail("the text has no .version and .target")
        return module

    def _names(self) -> tuple[str, ...]:
        names = [self.cursor.name()]
        while self.cursor.accept(","):
            names.append(self.cursor.name())
        return tuple(names)

    def _file(self) -> tuple[int, str]:
        number, name = self.cursor.integer(), self.cursor.take().strip('"')
        while self.cursor.accept(","):
            self.cursor.integer()
        return number, name

    def _section(self) -> str:
        """A debug section, as written, to its closing brace."""
        cursor = self.cursor
        start = cursor.starts[cursor.index]
        while cursor.next and cursor.next != "}":
            cursor.take()
        end = cursor.starts[cursor.index] + 1
        cursor.expect("}")
        return cursor.text[start:end]

    def _declaration(self) -> PtxFunction | Variable:
        cursor = self.cursor
        linkage = ""
        while cursor.next[1:] in _LINKAGES:
            linkage = cursor.dotted()
        if cursor.next in (".entry", ".func"):
            return self._function(linkage)
        if cursor.next[1:] not in _SPACES:
            cursor.fail(f"unknown directive {cursor.next}")
        variable = self._variable(cursor.dotted(), linkage)
        cursor.expect(";")
        return variable

    def _variable(self, space: str, linkage: str = "") -> Variable:
        """A declaration after its space, up to its end."""
        cursor = self.cursor
        align, type_name, attributes = 0, "", []
        while cursor.next.startswith("."):
            word = cursor.dotted()
            if word == "align":
                align = cursor.integer()
            elif word in _TYPES:
                type_name = word
            elif word == "ptr" or (word in _SPACES and "ptr" in attributes):
                attributes.append(word)
            else:
                cursor.index -= 1
                cursor.fail(f"unknown attribute {cursor.next} of a variable")
        name = self._declare(cursor.name()) if space != "global" else cursor.name()
        size = None
        if cursor.accept("["):
            size = 0 if cursor.next == "]" else cursor.integer()
            cursor.expect("]")
        initial = self._initial() if cursor.accept("=") else ()
        return Variable(space, type_name, name, align, size, initial, linkage, tuple(attributes))

    def _initial(self) -> tuple[int | str, ...]:
        cursor = self.cursor
        braces, values = cursor.accept("{"), []
        while True:
            if cursor.next[:2].lower() in ("0f", "0d"):
                values.append(Immediate(cursor.take()).value)
            elif cursor.next[:1].isdigit() or cursor.next == "-":
                values.append(cursor.integer())
            else:
                values.append(cursor.name())
            if not cursor.accept(","):
                break
        if braces:
            cursor.expect("}")
        return tuple(values)

    # Functions

    def _function(self, linkage: str) -> PtxFunction:
        cursor = self.cursor
        is_entry, line = cursor.dotted() == "entry", cursor.line
        self.scopes, self.registers, self.source, self.places = [{}], {}, None, Places()
        results = self._parameters() if cursor.next == "(" else ()
        name = cursor.name()
        parameters = self._parameters() if cursor.next == "(" else ()
        directives = []
        while cursor.next.startswith("."):
            word = cursor.dotted()
            if word in _INDEX_DIRECTIVES:
                directives.append((word, self._integers()))
            elif word in _FLAG_DIRECTIVES:
                directives.append((word, ()))
            elif word == "pragma":
                cursor.take()
                cursor.expect(";")
            else:
                cursor.index -= 1
                cursor.fail(f"unknown directive {cursor.next} of a function")
        body = None
        if cursor.accept("{"):
            statements: list[Statement] = []
            self._body(statements)
            body = tuple(statements)
        else:
            cursor.expect(";")
        return PtxFunction(name, is_entry, parameters, results, linkage, tuple(directives), body, line)

    def _parameters(self) -> tuple[Variable, ...]:
        cursor = self.cursor
        cursor.expect("(")
        found = []
        while not cursor.accept(")"):
            found.append(self._variable(cursor.dotted()))
            if cursor.next != ")":
                cursor.expect(",")
        return tuple(found)

    def _integers(self) -> tuple[int, ...]:
        values = [self.cursor.integer()]
        while self.cursor.accept(","):
            values.append(self.cursor.integer())
        return tuple(values)

    def _declare(self, name: str) -> str:
        """The function-wide name of a name declared in the innermost scope."""
        if not self.scopes:
            return name
        if len(self.scopes) > 1:
            self.scopes[-1][name] = f"{name}${self.scope_count}"
        else:
            self.scopes[-1][name] = name
        return self.scopes[-1][name]

    def _resolve(self, name: str) -> str:
        for scope in reversed(self.scopes[1:]):
            if name in scope:
                return scope[name]
        return name

    def _body(self, statements: list[Statement]) -> None:
        """Statements up to the closing brace of this scope, which is flattened into `statements`."""
        cursor = self.cursor
        self._declare_labels()
        while not cursor.accept("}"):
            token = cursor.next
            if token == "{":
                cursor.take()
                self.scope_count += 1
                self.scopes.append({})
                self._body(statements)
                self.scopes.pop()
            elif token.startswith("."):
                self._directive(statements)
            elif cursor.tokens[cursor.index + 1] == ":":
                name = self._resolve(cursor.take())
                cursor.take()
                statements.append(self._labelled(name))
            elif token == ";":
                cursor.take()
            elif not token:
                cursor.fail("the function does not end")
            else:
                statements.append(self._instruction())

    def _labelled(self, name: str) -> Label | BranchTargets | CallPrototype:
        """What a label names: a place, a list of labels, or a prototype."""
        cursor = self.cursor
        if cursor.accept(".branchtargets"):
            labels = tuple(map(self._resolve, self._names()))
            cursor.expect(";")
            return BranchTargets(name, labels)
        if cursor.accept(".callprototype"):
            start = cursor.starts[cursor.index]
            while not cursor.accept(";"):
                if not cursor.take():
                    cursor.fail("the prototype does not end")
            return CallPrototype(name, cursor.text[start : cursor.starts[cursor.index - 1]].strip())
        return Label(name)

    def _declare_labels(self) -> None:
        """Labels may be used before they are defined; find those of this scope, not of inner ones."""
        cursor, depth = self.cursor, 0
        if len(self.scopes) == 1:
            return
        for index in range(cursor.index, len(cursor.tokens) - 1):
            token = cursor.tokens[index]
            depth += (token == "{") - (token == "}")
            if depth < 0:
                return
            if depth == 0 and cursor.tokens[index + 1] == ":":
                self._declare(token)

    def _directive(self, statements: list[Statement]) -> None:
        cursor = self.cursor
        word = cursor.dotted()
        if word == "loc":
            self.source = self.places.read(cursor, self.source)
            return
        if word == "pragma":
            statements.append(Pragma(cursor.take().strip('"')))
        elif word == "reg":
            self._registers(statements)
        elif word in _SPACES:
            statements.append(self._variable(word))
        else:
            cursor.index -= 1
            cursor.fail(f"unknown directive {cursor.next} in a function")
        cursor.expect(";")

    def _registers(self, statements: list[Statement]) -> None:
        cursor = self.cursor
        type_name = cursor.dotted()
        if type_name not in _TYPES:
            cursor.fail(f"unknown register type .{type_name}")
        while True:
            name = self._declare(cursor.name())
            count = None
            if cursor.accept("<"):
                count = cursor.integer()
                cursor.expect(">")
                for index in range(count):
                    self.registers[f"{name}{index}"] = Register(f"{name}{index}")
                if name.endswith(f"${self.scope_count}") and len(self.scopes) > 1:
                    original = name[: name.rindex("$")]
                    self.scopes[-1].update((f"{original}{index}", f"{name}{index}") for index in range(count))
            else:
                self.registers[name] = Register(name)
            statements.append(RegisterDeclaration(type_name, name, count))
            if not cursor.accept(","):
                return

    # Instructions

    def _instruction(self) -> Instruction:
        cursor = self.cursor
        line, guard = cursor.line, None
        if cursor.accept("@"):
            negated = cursor.accept("!")
            guard = Predicate(self._register(), negated)
        opcode, modifiers = cursor.name(), []
        while cursor.next.startswith("."):
            modifiers.append(cursor.take()[1:])
        operands: list[Operand] = []
        while not cursor.accept(";"):
            operands.append(self._operand())
            if cursor.next != ";":
                cursor.expect(",")
        return Instruction(opcode, tuple(modifiers), tuple(operands), guard, self.source, line)

    def _register(self) -> Register:
        register = self.registers.get(self._resolve(self.cursor.name()))
        if register is None:
            self.cursor.index -= 1
            self.cursor.fail(f"register {self.cursor.next} is not declared")
        return register

    def _operand(self) -> Operand:
        cursor = self.cursor
        token = cursor.next
        if token[:1] == "%" and cursor.tokens[cursor.index + 1] in ",}])":  # the common case, at once
            register = self.registers.get(self._resolve(token))
            if register is not None:
                cursor.index += 1
                return register
        if token == "[":
            return self._address()
        if token in ("{", "("):
            return self._vector()
        if cursor.accept("!"):
            return Not(self._register())
        if token[:1].isdigit() or token == "-":
            return self._immediate()
        if cursor.accept("_"):
            first: Operand = Sink()
        else:
            first = self._named()
        if cursor.accept("|"):
            second: Operand = Sink() if cursor.accept("_") else self._register()
            if isinstance(first, Register | Sink) and isinstance(second, Register | Sink):
                return Pair(first, second)
            cursor.fail("only registers can stand beside |")
        return first

    def _immediate(self) -> Immediate:
        cursor = self.cursor
        sign = "-" if cursor.accept("-") else ""
        if not cursor.next[:1].isdigit():
            cursor.fail(f"expected a number, found {cursor.next!r}")
        return Immediate(sign + cursor.take())

    def _named(self) -> Register | Special | Symbol:
        cursor = self.cursor
        name = self._resolve(cursor.name())
        register = self.registers.get(name)
        if register is not None:
            return register
        if name == "WARP_SZ":
            return Special(name)
        if name.startswith("%"):
            if name[1:] not in _SPECIALS:
                cursor.index -= 1
                cursor.fail(f"{name} is neither a declared register nor a known special register")
            return Special(name + (cursor.take() if cursor.next in (".x", ".y", ".z") else ""))
        return Symbol(name, self._offset())

    def _offset(self) -> int:
        if self.cursor.next in ("+", "-"):
            self.cursor.accept("+")
            return self.cursor.integer()
        return 0

    def _address(self) -> Address:
        cursor = self.cursor
        cursor.expect("[")
        if cursor.next[:1].isdigit():
            base: Operand = Immediate(cursor.take())
        else:
            base = self._named()
        offset, coordinates = self._offset(), None
        if isinstance(base, Symbol) and base.offset:
            base, offset = Symbol(base.name), offset + base.offset
        if isinstance(base, Special):
            cursor.fail(f"{base} cannot be an address")
        if cursor.accept(","):
            coordinates = self._vector()
        cursor.expect("]")
        return Address(base, offset, coordinates)

    def _vector(self) -> Vector:
        cursor = self.cursor
        brackets = "{}" if cursor.take() == "{" else "()"
        items: list[Operand] = []
        while not cursor.accept(brackets[1]):
            items.append(self._operand())
            if cursor.next != brackets[1]:
                cursor.expect(",")
        return Vector(tuple(items), brackets)
