"""Any name is there, of any type: cuda-bindings need not be installed for the types of our own code to be checked."""

from typing import Any

def __getattr__(name: str) -> Any: ...
