"""The parameter types of a function from a mangled name: the part of the Itanium C++ ABI, "External Names (a.k.a.
Mangling)", that the types of kernels need.

    _Z14kbuild_signatureIPFvPK6__halfPfmEE   ▶   const __half *, float *, unsigned long
"""

from __future__ import annotations

from dataclasses import dataclass

BUILTIN = {
    "v": "void",
    "b": "bool",
    "c": "char",
    "a": "signed char",
    "h": "unsigned char",
    "s": "short",
    "t": "unsigned short",
    "i": "int",
    "j": "unsigned int",
    "l": "long",
    "m": "unsigned long",
    "x": "long long",
    "y": "unsigned long long",
    "f": "float",
    "d": "double",
    "n": "__int128",
    "o": "unsigned __int128",
    "w": "wchar_t",
}
"""Letters of types, <builtin-type>."""


@dataclass(frozen=True)
class CppType:
    """A type of C++, as far as parameters of kernels have one."""

    name: str
    """Of a type that is no pointer: `float`, `__half`, `ns::Pair<int>`."""
    pointee: CppType | None = None
    """What a pointer points to."""
    is_const: bool = False
    is_reference: bool = False

    def __str__(self) -> str:
        const = "const " if self.is_const else ""
        if self.pointee is None:
            return const + self.name
        mark = "&" if self.is_reference else "*"
        inner = str(self.pointee)
        return f"{inner}{'' if inner.endswith('*') else ' '}{mark}{' const' if self.is_const else ''}"


class Unknown(ValueError):
    """A name that is mangled in a way that kernels' types are not."""


def parameter_types(symbol: str) -> tuple[CppType, ...]:
    """The types of a function's parameters, from the name of a variable template whose argument is a pointer to it.
    Raises `Unknown`."""
    reader = _Reader(symbol)
    reader.take("_Z")
    reader.source_name()
    reader.take("I")
    return reader.function_pointer()


class _Reader:
    """Reads a mangled name from left to right, and keeps what later parts may refer to."""

    def __init__(self, text: str) -> None:
        self._text, self._place = text, 0
        # The template itself is the first substitution; its name never is a type.
        self._seen: list[CppType] = [CppType("?")]

    def take(self, wanted: str) -> None:
        if not self._accept(wanted):
            raise Unknown(f"expected {wanted} at {self._place} of {self._text}")

    def source_name(self) -> str:
        """<number> <identifier>"""
        digits = ""
        while self._peek().isdigit():
            digits += self._next()
        if not digits:
            raise Unknown(f"expected a name at {self._place} of {self._text}")
        start = self._place
        self._place += int(digits)
        return self._text[start : self._place]

    def function_pointer(self) -> tuple[CppType, ...]:
        """P F <return type> <parameter>… E"""
        self.take("P")
        self.take("F")
        self.type()
        found: list[CppType] = []
        while not self._accept("E"):
            found.append(self.type())
        return tuple(one for one in found if str(one) != "void")

    def type(self) -> CppType:
        """<type>"""
        letter = self._peek()
        if letter in ("r", "V"):  # restrict and volatile
            self._next()
            return self.type()
        if letter == "K":
            self._next()
            inner = self.type()
            return self._remembered(CppType(inner.name, inner.pointee, True, inner.is_reference))
        if letter in ("P", "R", "O"):
            self._next()
            return self._remembered(CppType("", self.type(), is_reference=letter != "P"))
        if letter == "S" and self._text[self._place + 1 : self._place + 2] not in ("t", "a", "s", "b"):
            found = self._substitution()
            return self._remembered(self._with_arguments(found)) if self._peek() == "I" else found
        if letter in BUILTIN:
            self._next()
            return CppType(BUILTIN[letter])
        if letter == "D" and self._text[self._place + 1 : self._place + 2] == "n":
            self._place += 2
            return CppType("nullptr_t")
        return self._remembered(self._class())

    def _class(self) -> CppType:
        """<class-enum-type>, nested in namespaces or not."""
        if self._accept("N"):
            parts: list[str] = []
            while not self._accept("E"):
                if self._peek() == "S" and not self._accept("St"):
                    parts = [self._substitution().name]
                    continue
                if self._peek() == "I":
                    parts[-1] += self._arguments()
                else:
                    parts.append(self.source_name())
                if self._peek() != "E":
                    self._remembered(CppType("::".join(parts)))
            return CppType("::".join(parts))
        prefix = "std::" if self._accept("St") else ""
        found = CppType(prefix + self.source_name())
        if self._peek() == "I":
            self._remembered(found)
            return self._with_arguments(found)
        return found

    def _with_arguments(self, template: CppType) -> CppType:
        return CppType(template.name + self._arguments())

    def _arguments(self) -> str:
        """I <template argument>… E"""
        self.take("I")
        found: list[str] = []
        while not self._accept("E"):
            if self._accept("L"):
                type_ = self.type()
                start = self._place
                while self._peek() != "E":
                    self._next()
                value = self._text[start : self._place].replace("n", "-")
                found.append(value if type_.name == "int" else f"({type_}){value}")
                self.take("E")
            else:
                found.append(str(self.type()))
        return f"<{', '.join(found)}>"

    def _substitution(self) -> CppType:
        """S_ or S <number in base 36> _"""
        self.take("S")
        digits = ""
        while self._peek() != "_":
            digits += self._next()
        self.take("_")
        try:
            return self._seen[int(digits, 36) + 1 if digits else 0]
        except (IndexError, ValueError):
            raise Unknown(f"S{digits}_ stands for nothing in {self._text}") from None

    def _remembered(self, found: CppType) -> CppType:
        self._seen.append(found)
        return found

    def _peek(self) -> str:
        return self._text[self._place : self._place + 1]

    def _next(self) -> str:
        letter = self._peek()
        if not letter:
            raise Unknown(f"{self._text} ends too early")
        self._place += 1
        return letter

    def _accept(self, wanted: str) -> bool:
        if self._text.startswith(wanted, self._place):
            self._place += len(wanted)
            return True
        return False
