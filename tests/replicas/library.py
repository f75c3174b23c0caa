"""chdb's library, and the few bytes of it that make a server of it a replica; in memory only.

ClickHouse's local mode, which chdb is, never sets the address under which other replicas fetch
parts: a ReplicatedMergeTree table made by it never becomes active. Three functions that give that
address are replaced, and one branch decides for a moment which HTTP handler a listener gets. Local
mode has no `system.zookeeper` either, which one more branch gives it. All are addresses in one
build: that is checked first, and so are the bytes found there.
"""

from __future__ import annotations

import ctypes
import importlib.util
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from relay.errors import MissingTool

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSION = "26.9.0"
BUILD = "bdc4640446f9e58ef835635e38764a5992cd4b3c"
"""Of chdb-core: version, and the library's GNU build id."""
_PAGE = 4096
_READ_WRITE_EXECUTE = 7
_PT_NOTE, _NT_GNU_BUILD_ID = 4, 3


class Place(NamedTuple):
    """A place in the library: its virtual address, and the bytes that stand there."""

    address: int
    found: bytes


ADDRESS = Place(0x147217C0, bytes.fromhex("4156534883ec48"))
"""Context::getInterserverIOAddress."""
SCHEME = Place(0x147218C0, bytes.fromhex("488b0680b88701000000"))
"""Context::getInterserverScheme."""
CREDENTIALS = Place(0x14721740, bytes.fromhex("41574156534c8b3f"))
"""Context::getInterserverCredentials."""
HANDLER = Place(0x190973C0, bytes.fromhex("0f84eb020000"))
"""In createHandlerFactory: the branch that tells HTTP's handlers from those for other replicas."""
COORDINATED = Place(0x11C9676C, bytes.fromhex("807c245400753b"))
"""In attachSystemTablesServer: whether there is a coordinator, which local mode always denies."""
_ALWAYS = bytes.fromhex("807c245400eb3b")
"""In place of COORDINATED: as if there were."""
_INTERSERVER = bytes.fromhex("e98100000090")
"""In place of HANDLER: always those for other replicas."""


def path() -> Path:
    """The library's file.

    Raises:
        MissingTool: chdb is not installed.
    """
    spec = importlib.util.find_spec("chdb")
    if spec is None or spec.origin is None:
        raise MissingTool("chdb is not installed", _HOW)
    return Path(spec.origin).parent / "_chdb.abi3.so"


def check() -> None:
    """Check that the installed library is the one whose places are known.

    Raises:
        MissingTool: it is another.
    """
    file = path()
    found = build_id(file) if file.is_file() else "none"
    if found != BUILD:
        raise MissingTool(
            f"{file} is build {found}; replicas on one machine need build {BUILD} of it", _HOW
        )


_HOW = f"install chdb-core=={VERSION}, or run the tests without tests/replicas"


def build_id(file: Path) -> str:
    """The GNU build id in an ELF file's notes; empty where it has none."""
    with file.open("rb") as stream:
        head = stream.read(64)
        (offset,) = struct.unpack_from("<Q", head, 32)
        size, count = struct.unpack_from("<HH", head, 54)
        stream.seek(offset)
        headers = stream.read(size * count)
        for at in range(0, len(headers), size):
            kind, _, where, _, _, length = struct.unpack_from("<IIQQQQ", headers, at)
            if kind == _PT_NOTE:
                stream.seek(where)
                for name, note, value in _notes(stream.read(length)):
                    if name == b"GNU\0" and note == _NT_GNU_BUILD_ID:
                        return value.hex()
    return ""


def _notes(data: bytes) -> Iterator[tuple[bytes, int, bytes]]:
    at = 0
    while at + 12 <= len(data):
        name, value, kind = struct.unpack_from("<III", data, at)
        begin = at + 12 + (name + 3) // 4 * 4
        yield data[at + 12 : at + 12 + name], kind, data[begin : begin + value]
        at = begin + (value + 3) // 4 * 4


class Library:
    """chdb's library in this process.

    Attributes:
        module: the extension module, whose `query` runs statements.
    """

    def __init__(self) -> None:
        check()
        file = path()
        spec = importlib.util.spec_from_file_location("_chdb", file)
        assert spec is not None
        assert spec.loader is not None
        self.module: Any = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.module)
        lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
        ours = [line.split() for line in lines if str(file) in line]
        self._base = min(int(one[0].split("-")[0], 16) for one in ours if int(one[2], 16) == 0)
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._kept: list[Any] = []

    def be_a_replica(self, host: str, port: int) -> None:
        """Other replicas fetch parts from http://HOST:PORT, without credentials."""
        answer = b"\x66\xc7\x47\x18" + struct.pack("<H", port) + b"\x48\x89\xf8\xc3"
        self._write(ADDRESS, _string(host) + answer)
        self._write(SCHEME, _string("http") + b"\x48\x89\xf8\xc3")
        # An object that names no user: a shared_ptr's two words, three empty strings, one pair.
        pair = ctypes.create_string_buffer(48)
        begin = ctypes.addressof(pair)
        none = ctypes.create_string_buffer(
            b"\0" * 48 + struct.pack("<QQQ", begin, begin + 48, begin + 48), 128
        )
        self._kept += [pair, none]
        give = b"\x48\xb8" + struct.pack("<Q", ctypes.addressof(none)) + b"\x31\xd2\xc3"
        self._write(CREDENTIALS, give)

    def show_coordinator(self) -> None:
        """Have the system tables about the coordinator, `system.zookeeper` above all."""
        self._write(COORDINATED, _ALWAYS)

    def listen_for(self, *, replicas: bool) -> None:
        """Whom listeners that are started from now on serve: other replicas, or clients."""
        if replicas:
            self._write(HANDLER, _INTERSERVER)
        else:
            self._write(Place(HANDLER.address, _INTERSERVER), HANDLER.found)

    def _write(self, place: Place, data: bytes) -> None:
        at = self._base + place.address
        found = ctypes.string_at(at, len(place.found))
        if found != place.found:
            raise MissingTool(
                f"{place.address:#x}: {found.hex()} stands there, not {place.found.hex()}", _HOW
            )
        page = at & -_PAGE
        size = ((at + len(data) + _PAGE - 1) & -_PAGE) - page
        if self._libc.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(size), _READ_WRITE_EXECUTE):
            raise OSError(ctypes.get_errno(), "mprotect")
        ctypes.memmove(at, data, len(data))


def _string(text: str) -> bytes:
    """Machine code that makes a short libc++ string of this where the first argument points."""
    raw = text.encode()
    assert len(raw) < 23, "longer ones are not kept inside"
    words = struct.unpack("<QQQ", raw.ljust(23, b"\0") + bytes([len(raw)]))
    code = b""
    for number, word in enumerate(words):
        store = b"\x48\x89\x07" if number == 0 else b"\x48\x89\x47" + bytes([8 * number])
        code += b"\x48\xb8" + struct.pack("<Q", word) + store
    return code
